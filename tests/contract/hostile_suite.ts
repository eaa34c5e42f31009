/**
 * Contract: hostile input gets the status code of the CSI spec, and changes nothing.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { dirname } from "@std/path";
import { readMounts } from "../../lvm/host/mounts.ts";
import { assertFails, contractTest, failureStatus, type Host, mountCapability, volumeRequest } from "./helpers/host.ts";
import { REJECTED_REQUESTS } from "./helpers/rejected_requests.ts";

const MAX = (1n << 63n) - 1n;

/** Names that are strange, and allowed: any Unicode but control characters. */
const STRANGE_NAMES = [
  "../../etc/passwd",
  "/dev/sda",
  "-rf",
  "--yes",
  "@all",
  "vg/lv",
  "$(reboot)`reboot`;reboot\n",
  "a".repeat(128),
  "\u{1F4BE}".repeat(128),
  "né\u0301\u202E\uFEFF\u{10FFFF} \t",
  Array.from({ length: 128 }, (_, index) => String.fromCodePoint(0xa0 + index * 7919 % 0xd000)).join(""),
];

/** Names that the spec bans. */
const BANNED_NAMES = ["", "a\u0000b", "\u001B[2J", "x\u0085", "\u007F", "a".repeat(129)];

/** Ids that are not ours, whatever they look like. */
const FOREIGN_IDS = [
  "pvc-123",
  "../x",
  "@tag",
  "-y",
  "vg/lv",
  "v1-",
  "v1-0000000000000000000000000000000G",
  "v1-00000000000000000000000000000000 ",
  "v1-00000000000000000000000000000000\n",
  "V1-00000000000000000000000000000000",
  "v2-00000000000000000000000000000000",
  "\u{1F4BE}".repeat(128),
  "a".repeat(100_000),
];

/** Sizes, and what each is answered. */
const SIZES = [
  ["INVALID_ARGUMENT", { requiredBytes: 0n, limitBytes: 0n }],
  ["INVALID_ARGUMENT", { requiredBytes: -1n }],
  ["INVALID_ARGUMENT", { requiredBytes: -MAX - 1n }],
  ["INVALID_ARGUMENT", { requiredBytes: 1n, limitBytes: -1n }],
  ["OUT_OF_RANGE", { requiredBytes: 64n << 20n, limitBytes: 32n << 20n }],
  ["OUT_OF_RANGE", { requiredBytes: MAX }],
  ["OUT_OF_RANGE", { requiredBytes: MAX, limitBytes: MAX }],
  ["OUT_OF_RANGE", { requiredBytes: 1n, limitBytes: 1n }],
  ["RESOURCE_EXHAUSTED", { requiredBytes: 1n << 50n }],
] as const;

/** Registers the tests. */
export function hostileContract(host: Host): void {
  contractTest(
    host,
    "hostile: strange names make volumes with harmless LV names, banned names make none",
    async (harness) => {
      const made = new Set<string>();
      for (const name of STRANGE_NAMES) {
        const volumeId = await harness.create({ name });
        const lv = await harness.singleLv();
        assert(
          /^vol-[0-9a-f]{32}$/.test(lv.name) && /^v1-[0-9a-f]{32}$/.test(volumeId),
          `${name}: ${lv.name}, ${volumeId}`,
        );
        made.add(volumeId);
        await harness.csi.controller.deleteVolume({ volumeId });
      }
      assertEquals(made.size, STRANGE_NAMES.length);
      for (const name of BANNED_NAMES) {
        await assertFails("INVALID_ARGUMENT", harness.create({ name }), "name");
        await assertFails(
          "INVALID_ARGUMENT",
          harness.csi.controller.createSnapshot({ name, sourceVolumeId: "v1-x" }),
          "name",
        );
      }
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "hostile: sizes and ranges", async (harness) => {
    for (const [code, capacityRange] of SIZES) await assertFails(code, harness.create({ capacityRange }));
    assertEquals(await harness.lvs(), []);
    const inverted = { requiredBytes: 64n << 20n, limitBytes: 32n << 20n };
    const commands = await harness.exec.recordCommands(() =>
      assertFails("OUT_OF_RANGE", harness.create({ capacityRange: inverted }))
    );
    assertEquals(commands, [], "refused before any command runs");
    const volumeId = await harness.create();
    const before = await harness.report();
    for (const [code, capacityRange] of SIZES) {
      const expectedCode = code === "RESOURCE_EXHAUSTED" ? "OUT_OF_RANGE" : code;
      await assertFails(expectedCode, harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange }));
    }
    assertEquals(await harness.report(), before);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "hostile: parameters, capabilities, mkfs options and mount flags off the lists",
    async (harness) => {
      const commands = await harness.exec.recordCommands(async () => {
        for (const [word, request] of REJECTED_REQUESTS) {
          await assertFails("INVALID_ARGUMENT", harness.create(request), word);
        }
      });
      assertEquals(commands, []);
    },
  );

  contractTest(
    host,
    "hostile: foreign ids are deleted already, do not exist for other calls, and are not passed to any command",
    async (harness) => {
      const volumeCapability = mountCapability();
      const [stagingTargetPath, targetPath, volumePath] = ["staging", "target", "path"].map((name) =>
        `${harness.folder}/${name}`
      ) as [
        string,
        string,
        string,
      ];
      const capacityRange = { requiredBytes: 1n };
      const { controller, node } = harness.csi;
      const commands = await harness.exec.recordCommands(async () => {
        for (const volumeId of FOREIGN_IDS) {
          await controller.deleteVolume({ volumeId });
          await controller.deleteSnapshot({ snapshotId: volumeId });
          const calls = [
            controller.controllerGetVolume({ volumeId }),
            controller.controllerExpandVolume({ volumeId, capacityRange }),
            controller.controllerModifyVolume({ volumeId, mutableParameters: { readIops: "100" } }),
            controller.validateVolumeCapabilities({ volumeId, volumeCapabilities: [volumeCapability] }),
            controller.createSnapshot({ name: "x", sourceVolumeId: volumeId }),
            controller.getSnapshot({ snapshotId: volumeId }),
            node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability }),
            node.nodeUnstageVolume({ volumeId, stagingTargetPath }),
            node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability }),
            node.nodeUnpublishVolume({ volumeId, targetPath }),
            node.nodeGetVolumeStats({ volumeId, volumePath }),
            node.nodeExpandVolume({ volumeId, volumePath }),
          ];
          for (const call of calls) await assertFails("NOT_FOUND", call);
        }
      });
      assertEquals(commands, []);
    },
  );

  contractTest(
    host,
    "hostile: a missing id, path or capability is INVALID_ARGUMENT for every call",
    async (harness) => {
      const { controller, node } = harness.csi;
      const volumeId = "v1-00000000000000000000000000000000";
      const stagingTargetPath = `${harness.folder}/staging`;
      const targetPath = `${harness.folder}/target`;
      const volumeCapability = mountCapability();
      const commands = await harness.exec.recordCommands(async () => {
        const calls = [
          controller.createVolume(),
          controller.deleteVolume(),
          controller.controllerGetVolume(),
          controller.controllerExpandVolume({ capacityRange: { requiredBytes: 1n } }),
          controller.controllerExpandVolume({ volumeId }),
          controller.controllerModifyVolume({ mutableParameters: { readIops: "100" } }),
          controller.validateVolumeCapabilities(),
          controller.createSnapshot(),
          controller.createSnapshot({ name: "x" }),
          controller.deleteSnapshot(),
          controller.getSnapshot(),
          node.nodeStageVolume(),
          node.nodeStageVolume({ volumeId, stagingTargetPath }),
          node.nodeStageVolume({ volumeId, volumeCapability }),
          node.nodeStageVolume({ stagingTargetPath, volumeCapability }),
          node.nodeUnstageVolume({ volumeId }),
          node.nodePublishVolume({ volumeId, stagingTargetPath, volumeCapability }),
          node.nodePublishVolume({ targetPath, stagingTargetPath, volumeCapability }),
          node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath }),
          node.nodeUnpublishVolume({ volumeId }),
          node.nodeGetVolumeStats({ volumeId }),
          node.nodeGetVolumeStats({ volumePath: "some/path" }),
          node.nodeExpandVolume({ volumeId }),
          node.nodeExpandVolume({ volumePath: "some/path" }),
        ];
        for (const call of calls) await assertFails("INVALID_ARGUMENT", call);
      });
      assertEquals(commands, []);
    },
  );

  contractTest(
    host,
    "hostile: paths that are relative, dotted or have control characters are refused",
    async (harness) => {
      const volumeId = "v1-00000000000000000000000000000000";
      const paths = [
        "relative",
        "-o",
        "/a/../../etc",
        "/a/./b",
        "/a\nb",
        "/a\u0000b",
        "/",
        "//",
        "/" + "a".repeat(5000),
      ];
      const commands = await harness.exec.recordCommands(async () => {
        for (const path of paths) {
          const volumeCapability = mountCapability();
          await assertFails(
            "INVALID_ARGUMENT",
            harness.csi.node.nodeStageVolume({ volumeId, stagingTargetPath: path, volumeCapability }),
          );
          await assertFails(
            "INVALID_ARGUMENT",
            harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: path }),
          );
          await assertFails("INVALID_ARGUMENT", harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: path }));
          const target = `${harness.folder}/here`;
          for (const [stagingTargetPath, targetPath] of [[target, path], [path, target]] as const) {
            const publish = { volumeId, stagingTargetPath, targetPath, volumeCapability };
            await assertFails("INVALID_ARGUMENT", harness.csi.node.nodePublishVolume(publish));
          }
        }
      });
      assertEquals(commands, []);
    },
  );

  contractTest(
    host,
    "hostile: paths outside the mount roots are refused, and the answer names the flag",
    async (harness) => {
      const { node } = harness.csi;
      const volumeId = await harness.create();
      const volumeCapability = mountCapability();
      const target = `${harness.folder}/here`;
      const commands = await harness.exec.recordCommands(async () => {
        for (
          const path of [
            "/etc/staged",
            harness.folder,
            `${harness.folder}-other/x`,
            dirname(harness.folder),
            "/proc/self/x",
          ]
        ) {
          const calls = [
            node.nodeStageVolume({ volumeId, stagingTargetPath: path, volumeCapability }),
            node.nodeUnstageVolume({ volumeId, stagingTargetPath: path }),
            node.nodePublishVolume({ volumeId, stagingTargetPath: path, targetPath: target, volumeCapability }),
            node.nodePublishVolume({ volumeId, stagingTargetPath: target, targetPath: path, volumeCapability }),
            node.nodeUnpublishVolume({ volumeId, targetPath: path }),
          ];
          for (const call of calls) await assertFails("INVALID_ARGUMENT", call, "--mount-roots");
        }
      });
      assertEquals(commands, []);
      await assertFails("NOT_FOUND", node.nodeGetVolumeStats({ volumeId, volumePath: "/etc" }));
      await assertFails("NOT_FOUND", node.nodeExpandVolume({ volumeId, volumePath: "/etc" }));
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "hostile: no link leads a volume out of the mount roots", async (harness) => {
    const { node } = harness.csi;
    const volumeId = await harness.create();
    const volumeCapability = mountCapability();
    const outside = await Deno.makeTempDir({ prefix: "denolith-outside-" });
    await using _removed = { [Symbol.asyncDispose]: () => Deno.remove(outside, { recursive: true }) };
    await Deno.symlink(outside, `${harness.folder}/link`);
    await Deno.symlink("loop", `${harness.folder}/loop`);
    await Deno.writeTextFile(`${outside}/precious`, "");
    const staging = await harness.stage(volumeId);
    const before = await readMounts(harness.exec);
    for (
      const path of ["link", "link/precious", "link/not/there", "loop/x"].map((name) => `${harness.folder}/${name}`)
    ) {
      const calls = [
        () => node.nodeStageVolume({ volumeId, stagingTargetPath: path, volumeCapability }),
        () => node.nodeUnstageVolume({ volumeId, stagingTargetPath: path }),
        () => node.nodePublishVolume({ volumeId, stagingTargetPath: path, targetPath: `${path}-2`, volumeCapability }),
        () => node.nodePublishVolume({ volumeId, stagingTargetPath: staging, targetPath: path, volumeCapability }),
        () => node.nodeUnpublishVolume({ volumeId, targetPath: path }),
      ];
      for (const call of calls) await assertFails("FAILED_PRECONDITION", call(), harness.folder);
      await assertFails("NOT_FOUND", node.nodeGetVolumeStats({ volumeId, volumePath: path }));
      await assertFails("NOT_FOUND", node.nodeExpandVolume({ volumeId, volumePath: path }));
    }
    assertEquals(await readMounts(harness.exec), before);
    assertEquals([...Deno.readDirSync(outside)].map(({ name }) => name), ["precious"]);
    await node.nodeUnstageVolume({ volumeId, stagingTargetPath: staging });
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "a link from one place in a mount root to another is followed", async (harness) => {
    const volumeId = await harness.create();
    const volumeCapability = mountCapability();
    await Deno.mkdir(`${harness.folder}/real`);
    await Deno.symlink(`${harness.folder}/real`, `${harness.folder}/link`);
    const request = { volumeId, stagingTargetPath: `${harness.folder}/link/staged`, volumeCapability };
    await harness.csi.node.nodeStageVolume(request);
    const staged = (await readMounts(harness.exec)).filter(({ target }) => target.startsWith(harness.folder));
    assertEquals(staged.map(({ target }) => target), [`${harness.folder}/real/staged`]);
    await harness.csi.node.nodeStageVolume(request);
    await harness.csi.node.nodeUnstageVolume(request);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "hostile: a pattern for groups cannot hang the driver", async (harness) => {
    const patterns = ["(a*)*$", "(a|a)*b", "((a+)+)+$", "(.*)*(.*)*(.*)*z"];
    for (const volumeGroupPattern of patterns) {
      const start = performance.now();
      const { code } = await failureStatus(harness.create({ ...volumeRequest(), parameters: { volumeGroupPattern } }));
      assertEquals(code, "RESOURCE_EXHAUSTED");
      assert(performance.now() - start < 10_000);
    }
    assertEquals(await harness.lvs(), []);
  });
}
