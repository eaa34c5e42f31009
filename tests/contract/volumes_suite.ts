/**
 * Contract: volumes are created once, found, expanded and deleted.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Host,
  mountCapability,
  volumeRequest,
} from "./helpers/host.ts";

const MiB = 1n << 20n;
const UNKNOWN = "v1-00000000000000000000000000000000";

/** Registers the tests. */
export function volumesContract(host: Host): void {
  contractTest(
    host,
    "createVolume() makes one LV with the size in whole extents, and deleteVolume() removes it",
    async (harness) => {
      const { volume } = await harness.csi.controller.createVolume({
        ...volumeRequest(),
        capacityRange: { requiredBytes: 30n * MiB },
      });
      const lv = await harness.singleLv();
      assertEquals([volume?.capacityBytes, lv.size], [32n * MiB, 32n * MiB]);
      assertEquals(volume?.accessibleTopology[0]?.segments, { "topology.lvm.denolith.dev/node": "node-1" });
      await harness.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
      assertEquals(await harness.lvs(), []);
      await harness.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
    },
  );

  contractTest(host, "createVolume() and deleteVolume() take one report and one change", async (harness) => {
    let volumeId = "";
    const create = await harness.exec.recordCommands(async () => volumeId = await harness.create());
    assertEquals(create.map(subcommand), ["lvm fullreport", "lvm lvcreate", "sync"]);
    // udev opens the new device for a moment, and the driver reports again then
    await harness.runAsAdmin("udevadm", "settle");
    const remove = await harness.exec.recordCommands(() => harness.csi.controller.deleteVolume({ volumeId }));
    assertEquals(remove.map(subcommand), ["lvm fullreport", "lvm lvremove", "sync"]);
  });

  contractTest(
    host,
    "deleteVolume() removes volumes together that are deleted at the same time",
    async (harness, machine) => {
      const [volumeGroup] = harness.groups;
      const volumeIds: string[] = [];
      for (let count = 0; count < 6; count++) volumeIds.push(await harness.create({ parameters: { volumeGroup } }));
      await harness.runAsAdmin("udevadm", "settle");
      const commands = await harness.exec.recordCommands(async () => {
        const lock = await machine.lockGroup(volumeGroup, "shared"); // until all calls have a report
        const deletions = volumeIds.map((volumeId) => harness.csi.controller.deleteVolume({ volumeId }));
        await new Promise((resolve) => setTimeout(resolve, host.name === "lvm" ? 5_000 : 1_000));
        lock[Symbol.dispose]();
        await Promise.all(deletions);
      });
      const removals = commands.map(subcommand).filter((command) => command === "lvm lvremove");
      // how many run together depends on how long the first one took, on a real machine
      assert(removals.length < (host.name === "lvm" ? volumeIds.length : 4), commands.join("\n"));
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "createVolume() answers the existing volume when the request is compatible", async (harness) => {
    const request = volumeRequest();
    const first = await harness.create(request);
    assertEquals(await harness.create(request), first);
    assertEquals(
      await harness.create({ ...request, capacityRange: { requiredBytes: 20n * MiB, limitBytes: 40n * MiB } }),
      first,
    );
    await harness.singleLv();
    await harness.csi.controller.deleteVolume({ volumeId: first });
  });

  contractTest(host, "createVolume() refuses a name whose volume does not satisfy the request", async (harness) => {
    const request = volumeRequest();
    const volumeId = await harness.create({ ...request, parameters: { volumeGroup: harness.groups[0] } });
    const others = [
      { capacityRange: { requiredBytes: 64n * MiB } },
      { capacityRange: { requiredBytes: 4n * MiB, limitBytes: 8n * MiB } },
      { volumeCapabilities: [blockCapability()] },
      { volumeCapabilities: [mountCapability("ext3")] },
      { parameters: { volumeGroup: harness.groups[1] } },
    ];
    for (const other of others) {
      await assertFails("ALREADY_EXISTS", harness.csi.controller.createVolume({ ...request, ...other }), "exists");
    }
    await harness.singleLv();
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "createVolume() takes the group with the least free space that fits, or the one with the most",
    async (harness) => {
      const [small, large] = harness.groups;
      const groupOf = async (parameters: Record<string, string>) => {
        const volumeId = await harness.create({ parameters });
        const group = (await harness.singleLv()).path.split("/")[0];
        await harness.csi.controller.deleteVolume({ volumeId });
        return group;
      };
      assertEquals(await groupOf({}), small);
      assertEquals(await groupOf({ volumeGroupPreference: "mostFree" }), large);
      assertEquals(await groupOf({ volumeGroup: large }), large);
      assertEquals(await groupOf({ volumeGroupPattern: large.slice(0, -1) + "." }), large);
      assertEquals(await groupOf({ VGPattern: large.slice(1), Storage: "lvm" }), large);
    },
  );

  contractTest(
    host,
    "createVolume() answers RESOURCE_EXHAUSTED when no group fits, with the free space of each",
    async (harness) => {
      const request = volumeRequest();
      const [small] = harness.groups;
      await assertFails(
        "RESOURCE_EXHAUSTED",
        harness.create({ ...request, capacityRange: { requiredBytes: 1n << 45n } }),
        small,
      );
      await assertFails(
        "RESOURCE_EXHAUSTED",
        harness.create({ ...request, parameters: { volumeGroup: "nowhere" } }),
        "nowhere",
      );
      const elsewhere = { requisite: [{ segments: { "topology.lvm.denolith.dev/node": "node-2" } }] };
      await assertFails(
        "RESOURCE_EXHAUSTED",
        harness.create({ ...request, accessibilityRequirements: elsewhere }),
        "node-2",
      );
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "createVolume() gives a filesystem the space that its mkfs needs", async (harness) => {
    for (const [type, bytes] of [["xfs", 300n * MiB], ["btrfs", 256n * MiB], ["ext4", 8n * MiB]] as const) {
      const request = { ...volumeRequest(), volumeCapabilities: [mountCapability(type)] };
      const { volume } = await harness.csi.controller.createVolume({
        ...request,
        capacityRange: { requiredBytes: 1n },
      });
      assertEquals(volume?.capacityBytes, bytes);
      await harness.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
    }
    const tight = { requiredBytes: MiB, limitBytes: 100n * MiB };
    await assertFails(
      "OUT_OF_RANGE",
      harness.create({ volumeCapabilities: [mountCapability("xfs")], capacityRange: tight }),
    );
  });

  contractTest(
    host,
    "createVolume() answers OUT_OF_RANGE when whole extents do not fit between the limits",
    async (harness) => {
      const between = { requiredBytes: 33n * MiB, limitBytes: 34n * MiB };
      await assertFails("OUT_OF_RANGE", harness.create({ capacityRange: between }), "extents");
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "deleteVolume() leaves a volume that is in use as it is", async (harness) => {
    const volumeId = await harness.create();
    const stagingTargetPath = await harness.stage(volumeId);
    await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), "in use");
    await harness.singleLv();
    await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await harness.csi.controller.deleteVolume({ volumeId });

    const block = await harness.create({ volumeCapabilities: [blockCapability()] });
    await harness.stage(block, blockCapability());
    const targetPath = await harness.publish(block, "device", { volumeCapability: blockCapability() });
    await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId: block }), "in use");
    await harness.csi.node.nodeUnpublishVolume({ volumeId: block, targetPath });
    await harness.csi.controller.deleteVolume({ volumeId: block });
    assertEquals(await harness.lvs(), []);
  });

  contractTest(host, "controllerExpandVolume() expands to whole extents, and never shrinks", async (harness) => {
    const volumeId = await harness.create();
    const expand = (requiredBytes: bigint, limitBytes = 0n) =>
      harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes, limitBytes } });
    const grown = await expand(50n * MiB);
    assertEquals([grown.capacityBytes, grown.nodeExpansionRequired], [52n * MiB, true]);
    assertEquals((await expand(40n * MiB)).capacityBytes, 52n * MiB);
    assertEquals((await harness.singleLv()).size, 52n * MiB);
    await assertFails("OUT_OF_RANGE", expand(1n << 45n), "free");
    await assertFails("OUT_OF_RANGE", expand(40n * MiB, 44n * MiB), "limit");
    await assertFails(
      "INVALID_ARGUMENT",
      harness.csi.controller.controllerExpandVolume({ volumeId }),
      "capacity_range",
    );
    const missing = { volumeId: UNKNOWN, capacityRange: { requiredBytes: 1n } };
    await assertFails("NOT_FOUND", harness.csi.controller.controllerExpandVolume(missing));
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "controllerExpandVolume() takes one report and one change", async (harness) => {
    const volumeId = await harness.create();
    const capacityRange = { requiredBytes: 64n * MiB };
    const commands = await harness.exec.recordCommands(() =>
      harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange })
    );
    assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvextend", "sync"]);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "listVolumes() pages through all volumes, also while they come and go", async (harness) => {
    const ids: string[] = [];
    for (let count = 0; count < 3; count++) ids.push(await harness.create());
    ids.sort();
    const list = async (maxEntries: number, startingToken = "") => {
      const { entries, nextToken } = await harness.csi.controller.listVolumes({ maxEntries, startingToken });
      return { ids: entries.map(({ volume }) => volume?.volumeId), nextToken };
    };
    assertEquals(await list(0), { ids, nextToken: "" });
    const first = await list(2);
    assertEquals(first.ids, ids.slice(0, 2));
    await harness.csi.controller.deleteVolume({ volumeId: ids[1]! });
    assertEquals(await list(2, first.nextToken), { ids: ids.slice(2), nextToken: "" });
    await assertFails("ABORTED", harness.csi.controller.listVolumes({ startingToken: "not a token" }));
    await assertFails("INVALID_ARGUMENT", harness.csi.controller.listVolumes({ maxEntries: -1 }));
    for (const volumeId of ids) await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "controllerGetVolume() and validateVolumeCapabilities() describe the volume, and calls beyond it have their codes",
    async (harness) => {
      const volumeId = await harness.create();
      const { volume } = await harness.csi.controller.controllerGetVolume({ volumeId });
      assertEquals([volume?.volumeId, volume?.capacityBytes], [volumeId, 32n * MiB]);
      await assertFails("NOT_FOUND", harness.csi.controller.controllerGetVolume({ volumeId: UNKNOWN }));
      const validate = (...volumeCapabilities: ReturnType<typeof mountCapability>[]) =>
        harness.csi.controller.validateVolumeCapabilities({ volumeId, volumeCapabilities });
      assert((await validate(mountCapability("ext4"))).confirmed !== undefined);
      const refused = await validate(blockCapability());
      assertEquals([refused.confirmed, refused.message], [undefined, "the volume is for a filesystem"]);
      assertEquals((await validate(mountCapability("", [], 5))).confirmed, undefined);
      assertEquals((await validate(mountCapability("xfs"))).message, "the volume is for ext4");
      const volumeCapabilities = [mountCapability()];
      const parameters = { layout: "raid1", encryption: "luks2" };
      const { confirmed } = await harness.csi.controller.validateVolumeCapabilities({
        ...{ volumeId, volumeCapabilities, parameters, volumeContext: volume!.volumeContext },
      });
      assertEquals([confirmed?.volumeCapabilities.length, confirmed?.parameters], [1, {}], "they are not compared");
      for (const volumeContext of [{ encryption: "luks2" }, { other: "" }]) {
        const request = { volumeId, volumeCapabilities, volumeContext };
        const other = await harness.csi.controller.validateVolumeCapabilities(request);
        assertEquals([other.confirmed, other.message.includes("volume_context")], [undefined, true]);
      }

      const severalNodes = mountCapability("", [], 5);
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId, severalNodes), "SINGLE_NODE");
      const stagingTargetPath = await harness.stage(volumeId);
      const publishing = harness.publish(volumeId, "target", { volumeCapability: severalNodes });
      await assertFails("FAILED_PRECONDITION", publishing, "SINGLE_NODE");
      const expand = (limitBytes: bigint) =>
        harness.csi.node.nodeExpandVolume({ volumeId, volumePath: stagingTargetPath, capacityRange: { limitBytes } });
      await assertFails("OUT_OF_RANGE", expand(32n * MiB - 1n), "cannot shrink");
      assertEquals((await expand(32n * MiB)).capacityBytes, 32n * MiB);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "getCapacity() returns the free space and the largest volume, by group and by node",
    async (harness) => {
      const capacity = (parameters: Record<string, string>, node = "node-1") =>
        harness.csi.controller.getCapacity({
          parameters,
          accessibleTopology: { segments: { "topology.lvm.denolith.dev/node": node } },
        });
      const report = await harness.report();
      const [small, large] = harness.groups.map((name) => report.find((group) => group.name === name)?.free);
      const all = await capacity({});
      assertEquals([all.availableCapacity, all.maximumVolumeSize], [small! + large!, large!]);
      assertEquals((await capacity({ volumeGroup: harness.groups[0] })).availableCapacity, small!);
      assertEquals((await capacity({}, "node-2")).availableCapacity, 0n);
      await assertFails("INVALID_ARGUMENT", capacity({ volumegruop: "x" }), "volumeGroup");
    },
  );
}

/** Returns the program and its subcommand. */
export function subcommand(command: string): string {
  return command.split(" ").slice(0, command.startsWith("sync") ? 1 : 2).join(" ");
}
