/**
 * Contract: encrypted volumes.
 *
 * @module
 */

import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { readSignatures } from "../../lvm/host/device.ts";
import { readBytes } from "../../lvm/host/device_bytes.ts";
import { mappingPath, readMapping } from "../../lvm/encryption/mapping.ts";
import { readMounts } from "../../lvm/host/mounts.ts";
import type { VolumeId } from "../../base/ids.ts";
import { type Command, describeCommand } from "../../lvm/exec.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  failureStatus,
  type Harness,
  type Host,
  mountCapability,
  totalBytes,
} from "./helpers/host.ts";
import { unpublish } from "./helpers/encrypted_volumes.ts";

const MiB = 1n << 20n;
const HEADER = 16n * MiB;

/** A passphrase that nothing else contains. */
const SECRET = "correct horse battery staple 7f3a";
const secrets = { passphrase: SECRET };
const parameters = { encryption: "luks2" };

/** Registers the tests. */
export function encryptionContract(host: Host): void {
  contractTest(host, "hostile: a class may not have another encryption, nor a passphrase", async (harness) => {
    for (const encryption of ["luks1", "LUKS2", "", "luks2;reboot"]) {
      await assertFails("INVALID_ARGUMENT", harness.create({ parameters: { encryption } }), "encryption");
    }
    const inClass = { ...parameters, passphrase: SECRET };
    await assertFails("INVALID_ARGUMENT", harness.create({ parameters: inClass }), "unknown");
    const capacityRange = { requiredBytes: 1n, limitBytes: 16n * MiB };
    await assertFails("OUT_OF_RANGE", harness.create({ parameters, capacityRange }));
    assertEquals(await harness.lvs(), []);
  });

  for (const [type, mib] of [["ext4", 48n], ["xfs", 340n], ["btrfs", 280n]] as const) {
    contractTest(host, `encrypted ${type}: staged, published, expanded while in use, and back`, async (harness) => {
      const capability = mountCapability(type);
      const request = { volumeCapabilities: [capability], capacityRange: { requiredBytes: mib * MiB }, parameters };
      const volumeId = await harness.create(request);
      await harness.stage(volumeId, capability, { secrets, volumeContext: parameters });
      const volumePath = await harness.publish(volumeId, "pod", { volumeCapability: capability });
      await harness.stage(volumeId, capability, { secrets });
      const before = await totalBytes(harness, volumeId, volumePath);
      assert(before <= (mib - 16n) * MiB, `${before}`);
      const { devicePath } = await harness.singleLv();
      const types = new Set((await readSignatures(harness.exec, devicePath)).map((signature) => signature.type));
      assertEquals([...types], ["crypto_LUKS"]);

      const capacityRange = { requiredBytes: (mib + 64n) * MiB };
      const expanded = await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      assertEquals(expanded.nodeExpansionRequired, true);
      await harness.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange }); // without the passphrase
      const after = await totalBytes(harness, volumeId, volumePath);
      assert(after >= before + 50n * MiB, `${type} has ${after} bytes after growing from ${before}`);

      await unpublish(harness, volumeId, "pod");
      await unstage(harness, volumeId);
      assertEquals(await readMapping(harness.exec, volumeId as VolumeId), undefined);
      assertEquals((await harness.singleLv()).open, false);
      await harness.stage(volumeId, capability, { secrets });
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
      assertNoPassphrase(harness);
    });
  }

  contractTest(
    host,
    "an encrypted block volume is published as its mapping, and closed when it is unstaged",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability], parameters });
      await harness.stage(volumeId, volumeCapability, { secrets });
      await harness.stage(volumeId, volumeCapability, { secrets });
      await assertFails("UNAUTHENTICATED", harness.stage(volumeId, volumeCapability, { secrets: { passphrase: "x" } }));
      const volumePath = await harness.publish(volumeId, "device", { volumeCapability });
      await harness.publish(volumeId, "device", { volumeCapability });
      assertEquals(await totalBytes(harness, volumeId, volumePath), 32n * MiB - HEADER);
      const dd = [`of=${volumePath}`, "bs=4096", "count=1", "oflag=direct", "status=none"];
      await harness.runAsAdmin("dd", "if=/dev/urandom", ...dd);
      await assertFails("FAILED_PRECONDITION", unstage(harness, volumeId), "published");

      const capacityRange = { requiredBytes: 64n * MiB };
      const expanded = await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      assertEquals(expanded.nodeExpansionRequired, true);
      await harness.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange });
      assertEquals(await totalBytes(harness, volumeId, volumePath), 64n * MiB - HEADER);

      await unpublish(harness, volumeId, "device");
      const reader = await harness.publish(volumeId, "reader", { volumeCapability, readonly: true });
      const write = {
        program: "dd",
        args: ["if=/dev/zero", `of=${reader}`, "bs=4096", "count=1", "status=none"],
        mutates: true,
      } as const;
      if (!host.name.startsWith("fake")) {
        assert((await harness.exec.run(write)).code !== 0, "a read-only device took a write");
      }
      await unpublish(harness, volumeId, "reader");
      await unstage(harness, volumeId);
      await unstage(harness, volumeId);
      assertEquals(await readMapping(harness.exec, volumeId as VolumeId), undefined);
      await assertFails("FAILED_PRECONDITION", harness.publish(volumeId, "device", { volumeCapability }), "not staged");
      await harness.csi.controller.deleteVolume({ volumeId });
      assertNoPassphrase(harness);
    },
  );

  contractTest(host, "a thin encrypted volume is staged, and deleted", async (harness) => {
    const volumeId = await harness.create({ parameters: { ...parameters, thinProvision: "yes", discard: "yes" } });
    await harness.stage(volumeId, mountCapability(), { secrets });
    await unstage(harness, volumeId);
    await harness.csi.controller.deleteVolume({ volumeId });
    await harness.waitUntilIdle();
    await removePools(harness);
  });

  contractTest(
    host,
    "without a passphrase, or with a wrong one, nothing is formatted and nothing is staged",
    async (harness) => {
      const volumeId = await harness.create({ parameters });
      const { devicePath, tags } = await harness.singleLv();
      for (const wrong of [{}, { password: SECRET }, { passphrase: "" }, { passphrase: "x".repeat(4097) }]) {
        await assertFails(
          "INVALID_ARGUMENT",
          harness.stage(volumeId, mountCapability(), { secrets: wrong as Record<string, string> }),
          "passphrase",
        );
      }
      assertEquals((await harness.singleLv()).tags, tags);
      await harness.stage(volumeId, mountCapability(), { secrets });
      await unstage(harness, volumeId);

      const recorded = (await harness.singleLv()).tags;
      const signatures = await readSignatures(harness.exec, devicePath);
      const refusal = harness.stage(volumeId, mountCapability(), { secrets: { passphrase: `${SECRET}\n` } });
      const { code, details } = await failureStatus(refusal);
      assertEquals(code, "UNAUTHENTICATED", details);
      assert(!details.includes(SECRET), details);
      assertEquals(await readMapping(harness.exec, volumeId as VolumeId), undefined);
      assertEquals((await harness.singleLv()).tags, recorded);
      assertEquals(await readSignatures(harness.exec, devicePath), signatures);
      await harness.stage(volumeId, mountCapability(), { secrets });
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
      assertNoPassphrase(harness);
    },
  );

  contractTest(
    host,
    "a LUKS header that is not the driver's, or none where one is recorded, is never overwritten",
    async (harness) => {
      const foreign = await harness.create({ parameters });
      const { devicePath } = await harness.singleLv();
      await cryptsetup(harness, ...luksFormat("11111111-2222-4333-8444-555555555555"), devicePath);
      const signatures = await readSignatures(harness.exec, devicePath);
      await assertFails("FAILED_PRECONDITION", harness.stage(foreign, mountCapability(), { secrets }), "crypto_LUKS");
      assertEquals(await readSignatures(harness.exec, devicePath), signatures);
      await harness.csi.controller.deleteVolume({ volumeId: foreign });

      const volumeId = await harness.create({ parameters });
      const own = (await harness.singleLv()).devicePath;
      await harness.stage(volumeId, mountCapability(), { secrets });
      await unstage(harness, volumeId);
      await cryptsetup(harness, ...luksFormat("11111111-2222-4333-8444-666666666666"), own);
      const other = await readSignatures(harness.exec, own);
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId, mountCapability(), { secrets }), "should hold");
      assertEquals(await readSignatures(harness.exec, own), other);
      await harness.runAsAdmin("wipefs", "--all", own);
      await assertFails(
        "FAILED_PRECONDITION",
        harness.stage(volumeId, mountCapability(), { secrets }),
        "holds nothing",
      );
      assertEquals(await readSignatures(harness.exec, own), []);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "an unfinished LUKS header of the driver is created again, and a mapping that was left is closed",
    async (harness) => {
      const volumeId = await harness.create({ parameters });
      const { path, devicePath } = await harness.singleLv();
      const uuid = "11111111-2222-4333-8444-777777777777";
      const change = ["--deltag", "denolith.fs=luks2:wanted:wanted:ext4"];
      await harness.runAsAdmin(
        "lvm",
        "lvchange",
        ...change,
        "--addtag",
        `denolith.fs=luks2:formatting:${uuid}:wanted:ext4`,
        path,
      );
      await cryptsetup(harness, ...luksFormat(uuid), devicePath);
      const name = mappingPath(volumeId as VolumeId).replace("/dev/mapper/", "");
      const open = ["open", "--type", "luks2", "--disable-keyring", "--batch-mode", "--key-file", "-"];
      await cryptsetup(harness, ...open, devicePath, name);
      await harness.stage(volumeId, mountCapability(), { secrets });
      assertNotEquals(await readMapping(harness.exec, volumeId as VolumeId), undefined);
      assertEquals((await readSignatures(harness.exec, devicePath))[0]?.uuid, uuid);
      await unstage(harness, volumeId);

      await cryptsetup(harness, ...open, devicePath, name);
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "an encrypted volume that is staged is in use", async (harness) => {
    const volumeId = await harness.create({ parameters });
    await harness.stage(volumeId, mountCapability(), { secrets });
    await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), "staging");
    await unstage(harness, volumeId);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(host, "a deleted encrypted volume leaves no LUKS header, whatever its erasure", async (harness) => {
    for (const erase of ["zero", "discard", "none"]) {
      const volumeId = await harness.create({ parameters: { ...parameters, erase, volumeGroup: harness.groups[0] } });
      await harness.stage(volumeId, mountCapability(), { secrets });
      await unstage(harness, volumeId);
      const { devicePath } = await harness.singleLv();
      const commands = await harness.exec.recordCommands(async () => {
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
      });
      const header = commands.indexOf(`blkdiscard --zeroout --offset 0 --length ${HEADER} ${devicePath}`);
      const removal = commands.findIndex((command) => command.startsWith("lvm lvremove"));
      assert(header >= 0 && header < removal, commands.join("\n"));
      const options = ["--yes", "--zero", "n", "--wipesignatures", "n", "--size", `${32n * MiB}b`, "--name", "look"];
      if (host.name.startsWith("fake")) continue;
      await harness.runAsAdmin("lvm", "lvcreate", ...options, harness.groups[0]);
      const [{ devicePath: look } = { devicePath: "" }] = await harness.lvs();
      assertEquals(await readSignatures(harness.exec, look), []);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", `${harness.groups[0]}/look`);
    }
  });

  for (
    const [kind, type, mib, thin] of [
      ["snapshot", "ext4", 48n, {}],
      ["volume", "xfs", 340n, {}],
      ["volume", "ext4", 48n, { thinProvision: "yes" }],
    ] as const
  ) {
    const provisioning = "thinProvision" in thin ? "thin" : "thick";
    contractTest(
      host,
      `a ${provisioning} encrypted ${type} made from a ${kind} has UUIDs of its own`,
      async (harness) => {
        const capability = mountCapability(type);
        const request = {
          volumeCapabilities: [capability],
          capacityRange: { requiredBytes: mib * MiB },
          parameters: { ...parameters, ...thin },
        };
        const volumeId = await harness.create(request);
        await harness.stage(volumeId, capability, { secrets });
        if (!host.name.startsWith("fake")) {
          await Deno.writeTextFile(`${harness.folder}/staging/file`, "data");
          await harness.runAsAdmin("sync", "--file-system", `${harness.folder}/staging`);
        }
        const original = await uuidsOf(harness, volumeId);
        const name = `of ${volumeId}`;
        const { snapshot } = kind === "snapshot"
          ? await harness.csi.controller.createSnapshot({ name, sourceVolumeId: volumeId })
          : {};
        const source = snapshot === undefined
          ? { type: { case: "volume", value: { volumeId } } } as const
          : { type: { case: "snapshot", value: { snapshotId: snapshot.snapshotId } } } as const;
        const plain = { ...request, parameters: thin, name: `plain ${name}`, volumeContentSource: source };
        await assertFails("INVALID_ARGUMENT", harness.csi.controller.createVolume(plain), "encrypted");
        const copyId = await harness.create({ ...request, name: `copy ${name}`, volumeContentSource: source });
        await unstage(harness, volumeId);
        const wrong = { passphrase: "another" };
        await assertFails("UNAUTHENTICATED", harness.stage(copyId, capability, { secrets: wrong }));
        await harness.stage(copyId, capability, { secrets });
        const copy = await uuidsOf(harness, copyId);
        assertEquals(new Set([...original, ...copy]).size, 4, `${original} ${copy}`);
        if (!host.name.startsWith("fake")) {
          assertEquals(await Deno.readTextFile(`${harness.folder}/staging/file`), "data");
        }
        await unstage(harness, copyId);
        await harness.stage(copyId, capability, { secrets });
        assertEquals(await uuidsOf(harness, copyId), copy);
        await unstage(harness, copyId);
        if (snapshot !== undefined) await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot.snapshotId });
        for (const id of [copyId, volumeId]) await harness.csi.controller.deleteVolume({ volumeId: id });
        await harness.waitUntilIdle();
        await removePools(harness);
      },
    );
  }

  contractTest(
    host,
    "copies of encrypted volumes: of one that was never used, and of a block volume",
    async (harness) => {
      const source = (volumeId: string) => ({ type: { case: "volume", value: { volumeId } } } as const);
      const unused = await harness.create({ parameters });
      const copy = await harness.create({ parameters, volumeContentSource: source(unused) });
      await harness.stage(copy, mountCapability(), { secrets });
      await unstage(harness, copy);
      const volumeCapabilities = [blockCapability()];
      const block = await harness.create({ parameters, volumeCapabilities });
      /** Returns what the start of a block volume has, as its pod sees it, which may write before. */
      const startOf = async (volumeId: string, ...written: readonly string[]) => {
        await harness.stage(volumeId, blockCapability(), { secrets });
        const device = await harness.publish(volumeId, "device", { volumeCapability: blockCapability() });
        const dd = ["bs=1M", "count=1", "oflag=direct", "status=none"];
        for (const from of written) await harness.runAsAdmin("dd", `if=${from}`, `of=${device}`, ...dd);
        const start = await readBytes(harness.exec, device, { offset: 0, length: Number(MiB) });
        await unpublish(harness, volumeId, "device");
        await unstage(harness, volumeId);
        return start;
      };
      const start = await startOf(block, "/dev/urandom");
      const blockCopy = await harness.create({ parameters, volumeCapabilities, volumeContentSource: source(block) });
      assert(start.some((byte) => byte !== 0));
      assert((await startOf(blockCopy)).every((byte, at) => byte === start[at]), "the copy has what the source has");
      for (const volumeId of [unused, copy, block, blockCopy]) await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a volume whose PersistentVolume says that it is encrypted is not used unencrypted",
    async (harness) => {
      const volumeId = await harness.create();
      const { volume } = await harness.csi.controller.controllerGetVolume({ volumeId });
      assertEquals(volume?.volumeContext, {});
      const staging = harness.stage(volumeId, mountCapability(), { secrets, volumeContext: parameters });
      await assertFails("FAILED_PRECONDITION", staging, "is not");
      await harness.csi.controller.deleteVolume({ volumeId });
      const encrypted = await harness.create({ parameters });
      const { volume: found } = await harness.csi.controller.controllerGetVolume({ volumeId: encrypted });
      assertEquals(found?.volumeContext, parameters);
      await harness.csi.controller.deleteVolume({ volumeId: encrypted });
    },
  );
}

/** Returns the arguments of cryptsetup that create a header as the driver does. */
function luksFormat(uuid: string): string[] {
  const derivation = ["--pbkdf", "argon2id", "--pbkdf-memory", "65536", "--pbkdf-force-iterations", "4"];
  const input = ["--pbkdf-parallel", "1", "--batch-mode", "--key-file", "-"];
  return ["luksFormat", "--type", "luks2", "--uuid", uuid, ...derivation, ...input];
}

/** Runs cryptsetup as an administrator would, with the passphrase. */
async function cryptsetup(harness: Harness, ...args: string[]): Promise<void> {
  async function* input() {
    yield new TextEncoder().encode(SECRET);
  }
  const command: Command = { program: "cryptsetup", args, mutates: true, input: input() };
  const { code, stderr } = await harness.exec.run(command);
  assertEquals(code, 0, `${describeCommand(command)}: ${stderr}`);
}

/** Makes sure that no command had the passphrase among its arguments. */
function assertNoPassphrase(harness: Harness): void {
  const commands = harness.exec.commands.map(describeCommand);
  assert(commands.some((command) => command.startsWith("cryptsetup luksFormat")));
  assertEquals(commands.filter((command) => command.includes(SECRET)), []);
}

/** Returns the UUIDs of the LUKS header of a volume that is staged, and of the filesystem below it. */
async function uuidsOf(harness: Harness, volumeId: string): Promise<string[]> {
  const lv = (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
  const devices = [lv.devicePath, mappingPath(volumeId as VolumeId)];
  return await Promise.all(devices.map(async (path) => (await readSignatures(harness.exec, path))[0]!.uuid!));
}

async function unstage(harness: Harness, volumeId: string): Promise<void> {
  const stagingTargetPath = `${harness.folder}/staging`;
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  assertEquals((await readMounts(harness.exec)).filter(({ target }) => target === stagingTargetPath), []);
}

export async function removePools(harness: Harness): Promise<void> {
  for (const { name: group, lvs } of await harness.report()) {
    for (const { name, thinPool } of lvs) {
      if (thinPool !== undefined) await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/${name}`);
    }
  }
}
