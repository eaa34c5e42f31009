/**
 * Contract: the change of the passphrase of an encrypted volume.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { describeCommand } from "../../lvm/exec.ts";
import { readSignatures } from "../../lvm/host/device.ts";
import { assertFails, blockCapability, contractTest, type Harness, type Host, mountCapability } from "./host.ts";
import { opensAny, PARAMETERS, runCryptsetup, unpublish, unstage, useOnce } from "./encrypted_volumes.ts";

const MiB = 1n << 20n;

/** Passphrases that nothing else contains. Bytes of a passphrase count, also a newline. */
const OLD = "old battery staple 5e1c\n";
const NEW = "new\nbattery staple 9b07 ü";
const OTHER = "another battery staple 33d8";

/** Registers the tests. */
export function passphraseContract(host: Host): void {
  for (
    const [kind, capability, more] of [
      ["an ext4", mountCapability(), {}],
      ["a block volume", blockCapability(), {}],
      ["a thin volume", mountCapability(), { thinProvision: "yes" }],
    ] as const
  ) {
    contractTest(
      host,
      `the passphrase of ${kind} is changed when it is staged, and the old one opens nothing`,
      async (harness) => {
        const request = { volumeCapabilities: [capability], parameters: { ...PARAMETERS, ...more } };
        const volumeId = await harness.create({
          ...request,
          parameters: { ...request.parameters, volumeGroup: harness.groups[0] },
        });
        const stage = (secrets: Record<string, string>) => harness.stage(volumeId, capability, { secrets });
        await stage({ passphrase: OLD });
        await unstage(harness, volumeId);
        await stage({ passphrase: NEW, previousPassphrase: OLD });
        await assertChanged(harness, OLD, NEW);
        await unstage(harness, volumeId);
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
        assertNoPassphrases(harness);
        await removePools(harness);
      },
    );
  }

  contractTest(host, "a passphrase is replaced only by the secret that has the right one, too", async (harness) => {
    const volumeId = await harness.create({ parameters: PARAMETERS });
    const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
    await stage({ passphrase: OLD });
    await unstage(harness, volumeId);
    await assertFails("UNAUTHENTICATED", stage({ passphrase: NEW }), "previousPassphrase");
    await assertFails("UNAUTHENTICATED", stage({ passphrase: NEW, previousPassphrase: OTHER }), "neither");
    for (const wrong of ["", "x".repeat(4097)]) {
      const secrets = { passphrase: NEW, previousPassphrase: wrong };
      await assertFails("INVALID_ARGUMENT", stage(secrets), "previousPassphrase");
    }
    await stage({ passphrase: OLD, previousPassphrase: OTHER });
    await unstage(harness, volumeId);
    assertEquals([await opensAny(harness, OLD), await opensAny(harness, NEW)], [true, false]);
    await stage({ passphrase: NEW, previousPassphrase: OLD });
    await stage({ passphrase: NEW, previousPassphrase: OLD });
    await unstage(harness, volumeId);
    await stage({ passphrase: NEW });
    await unstage(harness, volumeId);
    await assertFails("UNAUTHENTICATED", stage({ passphrase: OLD }));
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "the passphrase of a volume is changed while it is in use, when it is published again",
    async (harness) => {
      const capability = mountCapability();
      const volumeId = await harness.create({ parameters: PARAMETERS });
      await harness.stage(volumeId, capability, { secrets: { passphrase: OLD } });
      const publish = (secrets: Record<string, string>) =>
        harness.publish(volumeId, "pod", { volumeCapability: capability, secrets });
      await publish({});
      // a pod runs: a failure must not reach kubelet, which might remove the directory of the mount
      await publish({ passphrase: NEW, previousPassphrase: OTHER });
      await publish({ passphrase: NEW, previousPassphrase: "" });
      assertEquals([await opensAny(harness, OLD), await opensAny(harness, NEW)], [true, false]);
      assertEquals(await healthReasons(harness, volumeId), ["KeyChangeFailed"]);
      await publish({ passphrase: NEW, previousPassphrase: OLD });
      await assertChanged(harness, OLD, NEW);
      assertEquals(await healthReasons(harness, volumeId), []);
      const commands = await harness.exec.recordCommands(() => publish({ passphrase: NEW, previousPassphrase: OLD }));
      assertEquals(commands.filter((command) => command.startsWith("cryptsetup")), []);
      await publish({ passphrase: OTHER, previousPassphrase: NEW });
      await assertChanged(harness, NEW, OTHER);
      await unpublish(harness, volumeId, "pod");
      await unstage(harness, volumeId);
      await harness.stage(volumeId, capability, { secrets: { passphrase: OTHER } });
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
      assertNoPassphrases(harness);
    },
  );

  contractTest(
    host,
    "a filesystem that is mounted is staged again without a look at the passphrase, which derives no key",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      await stage({ passphrase: OLD });
      for (const secrets of [{ passphrase: OTHER }, { passphrase: NEW, previousPassphrase: OLD, volumeKey: "next" }]) {
        const commands = await harness.exec.recordCommands(() => stage(secrets));
        assertEquals(commands.filter((command) => command.startsWith("cryptsetup")), []);
      }
      await unstage(harness, volumeId);
      assertEquals([await opensAny(harness, OLD), await opensAny(harness, NEW)], [true, false]);
      await assertFails("UNAUTHENTICATED", stage({ passphrase: OTHER }));
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "the secret of a class changes nothing for a volume that is not encrypted", async (harness) => {
    const volumeId = await harness.create({});
    const secrets = { passphrase: NEW, previousPassphrase: OLD };
    await harness.stage(volumeId, mountCapability(), { secrets });
    await harness.publish(volumeId, "pod");
    for (const name of ["pod", "pod", "other"]) {
      const commands = await harness.exec.recordCommands(() => harness.publish(volumeId, name, { secrets }));
      assertEquals(commands.filter((command) => /^(?:lvm|cryptsetup) /.test(command)), []);
    }
    for (const name of ["pod", "other"]) await unpublish(harness, volumeId, name);
    await unstage(harness, volumeId);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "a volume from a group snapshot of encrypted volumes in use gets a passphrase and a volume key of its own",
    async (harness) => {
      const isReal = !host.name.startsWith("fake");
      const volumeId = await harness.create({ parameters: PARAMETERS });
      const volumeCapabilities = [blockCapability()];
      const block = await harness.create({ parameters: PARAMETERS, volumeCapabilities });
      const stagingPath = await harness.stage(volumeId, mountCapability(), { secrets: { passphrase: OLD } });
      if (isReal) await Deno.writeTextFile(`${stagingPath}/file`, "data");
      const sourceVolumeIds = [volumeId, block];
      const { groupSnapshot } = await harness.csi.group.createVolumeGroupSnapshot({ name: "all", sourceVolumeIds });
      const { groupSnapshotId, snapshots } = groupSnapshot!;
      await unstage(harness, volumeId);
      const { snapshotId } = snapshots.find((each) => each.sourceVolumeId === volumeId)!;
      const type = { case: "snapshot", value: { snapshotId } } as const;
      const copy = await harness.create({ parameters: PARAMETERS, volumeContentSource: { type } });
      const secrets = { passphrase: NEW, previousPassphrase: OLD, volumeKey: "of-the-copy" };
      await harness.stage(copy, mountCapability(), { secrets });
      if (isReal) assertEquals(await Deno.readTextFile(`${stagingPath}/file`), "data");
      await unstage(harness, copy);
      await assertFails("UNAUTHENTICATED", harness.stage(copy, mountCapability(), { secrets: { passphrase: OLD } }));
      await harness.stage(volumeId, mountCapability(), { secrets: { passphrase: OLD } });
      await unstage(harness, volumeId);
      await harness.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds: [] });
      for (const each of [copy, volumeId, block]) await harness.csi.controller.deleteVolume({ volumeId: each });
    },
  );

  contractTest(
    host,
    "a second key slot that has the previous passphrase is destroyed as well, and others are not",
    async (harness) => {
      const volumeId = await harness.create({ parameters: PARAMETERS });
      await harness.stage(volumeId, mountCapability(), { secrets: { passphrase: OLD } });
      await unstage(harness, volumeId);
      const { devicePath } = await harness.singleLv();
      await addKey(harness, devicePath, OLD, OLD);
      await addKey(harness, devicePath, OLD, OTHER);
      await addKey(harness, devicePath, OLD, NEW);
      await harness.stage(volumeId, mountCapability(), { secrets: { passphrase: NEW, previousPassphrase: OLD } });
      await assertChanged(harness, OLD, NEW);
      assert(await opensAny(harness, OTHER));
      await unstage(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "a change of a passphrase without free space changes nothing, and says so", async (harness) => {
    const [volumeGroup] = harness.groups;
    const volumeId = await harness.create({ parameters: { ...PARAMETERS, volumeGroup } });
    const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
    await stage({ passphrase: OLD });
    await unstage(harness, volumeId);
    const group = (await harness.report()).find(({ name }) => name === volumeGroup)!;
    const size = group.free - 12n * MiB;
    await harness.runAsAdmin(
      "lvm",
      "lvcreate",
      "--yes",
      "--zero",
      "n",
      "--wipesignatures",
      "n",
      "--size",
      `${size}b`,
      "--name",
      "filler",
      volumeGroup,
    );
    await assertFails("RESOURCE_EXHAUSTED", stage({ passphrase: NEW, previousPassphrase: OLD }), "16 MiB");
    await stage({ passphrase: OLD });
    await unstage(harness, volumeId);
    assertEquals(await opensAny(harness, NEW), false);
    await harness.runAsAdmin("lvm", "lvremove", "--yes", `${volumeGroup}/filler`);
    await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "a new passphrase that is taken back after an interruption leaves the volume its own",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      const volumeId = await harness.create({ parameters: { ...PARAMETERS, volumeGroup } });
      const use = (secrets: Record<string, string>) => useOnce(harness, volumeId, secrets);
      await use({ passphrase: OLD });
      const { devicePath } = await harness.singleLv();
      await backUp(harness, volumeId); // the new passphrase has no key slot yet
      await use({ passphrase: OLD });
      await use({ passphrase: OLD });
      await backUp(harness, volumeId);
      await use({ passphrase: OLD, previousPassphrase: NEW });
      await use({ passphrase: OLD });
      await backUp(harness, volumeId);
      await addKey(harness, devicePath, OLD, NEW);
      await use({ passphrase: OLD });
      await assertChanged(harness, NEW, OLD);
      await use({ passphrase: OLD, previousPassphrase: NEW });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a third passphrase after an interruption lets neither of the two before open anything",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      for (const previousPassphrase of [NEW, OLD]) {
        const volumeId = await harness.create({ parameters: { ...PARAMETERS, volumeGroup } });
        await useOnce(harness, volumeId, { passphrase: OLD });
        const { devicePath } = await harness.singleLv();
        await backUp(harness, volumeId);
        await addKey(harness, devicePath, OLD, NEW);
        await useOnce(harness, volumeId, { passphrase: OTHER, previousPassphrase });
        await assertChanged(harness, OLD, OTHER);
        await assertChanged(harness, NEW, OTHER);
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
      }
    },
  );

  contractTest(
    host,
    "an interrupted change is completed by the new passphrase alone, a lost header is written back, and a deletion erases the backup",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      const volumeId = await harness.create({ parameters: { ...PARAMETERS, volumeGroup } });
      const stage = (secrets: Record<string, string>) => harness.stage(volumeId, mountCapability(), { secrets });
      await stage({ passphrase: OLD });
      await unstage(harness, volumeId);
      const { devicePath } = await harness.singleLv();
      await backUp(harness, volumeId);
      assertEquals(await healthReasons(harness, volumeId), ["KeyChangeInterrupted"]);
      await assertFails("UNAUTHENTICATED", stage({ passphrase: NEW }), "interrupted");
      await addKey(harness, devicePath, OLD, NEW);
      await stage({ passphrase: NEW });
      await assertChanged(harness, OLD, NEW);
      await unstage(harness, volumeId);

      await backUp(harness, volumeId);
      await harness.runAsAdmin("wipefs", "--all", devicePath);
      assertEquals(await readSignatures(harness.exec, devicePath), []);
      await stage({ passphrase: OTHER, previousPassphrase: NEW });
      await assertChanged(harness, NEW, OTHER);
      await unstage(harness, volumeId);

      await backUp(harness, volumeId);
      await harness.csi.controller.deleteVolume({ volumeId });
      const commands = await harness.exec.recordCommands(() => harness.waitUntilIdle());
      assertEquals(await harness.lvs(), [], commands.join("\n"));
    },
  );
}

/** Makes sure that one passphrase opens nothing on any LV, that the other opens one, and that there is no backup. */
async function assertChanged(harness: Harness, from: string, to: string): Promise<void> {
  assertEquals([await opensAny(harness, from), await opensAny(harness, to)], [false, true]);
  assertEquals((await harness.lvs()).filter(({ name }) => name.startsWith("hdr-")), []);
}

async function healthReasons({ csi }: Harness, volumeId: string): Promise<string[]> {
  const { volumeHealth } = await csi.node.nodeGetVolumeHealth({ volumeId });
  return volumeHealth!.healthStatuses.map(({ reason }) => reason);
}

/** Adds a key slot, as an administrator would. */
async function addKey(harness: Harness, device: string, passphrase: string, added: string): Promise<void> {
  const length = (text: string) => `${new TextEncoder().encode(text).length}`;
  const derivation = ["--pbkdf", "argon2id", "--pbkdf-memory", "65536", "--pbkdf-force-iterations", "4"];
  const input = ["--pbkdf-parallel", "1", "--batch-mode", "--key-file", "-", "--keyfile-size", length(passphrase)];
  const args = ["luksAddKey", ...derivation, ...input, "--new-keyfile-size", length(added), device, "-"];
  const { code, stderr } = await runCryptsetup(harness, passphrase + added, args);
  assertEquals(code, 0, stderr);
}

function assertNoPassphrases(harness: Harness): void {
  const commands = harness.exec.commands.map(describeCommand);
  assert(commands.some((command) => command.startsWith("cryptsetup luksAddKey")));
  assertEquals(commands.filter((command) => command.includes("battery staple")), []);
}

async function removePools(harness: Harness): Promise<void> {
  for (const { name: group, lvs } of await harness.report()) {
    for (const { name, thinPool } of lvs) {
      if (thinPool !== undefined) await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/${name}`);
    }
  }
}

/** Makes a backup of the header of a volume whose key slot 0 is to be destroyed, as an interrupted change leaves it. */
async function backUp(harness: Harness, volumeId: string): Promise<void> {
  const [volumeGroup] = harness.groups;
  const { devicePath, tags } = await harness.singleLv();
  const owner = tags.find((tag) => /^denolith=/.test(tag))!;
  const name = `hdr-${volumeId.slice("v1-".length)}`;
  const addTags = [owner, `denolith.header=${volumeId}:0`, "denolith.luks"].flatMap((tag) => ["--addtag", tag]);
  const options = ["--yes", "--zero", "y", "--wipesignatures", "y", "--size", `${16n * MiB}b`, "--name", name];
  await harness.runAsAdmin("lvm", "lvcreate", ...options, ...addTags, volumeGroup);
  const backup = (await harness.lvs()).find((lv) => lv.name === name)!;
  const blocks = ["bs=1048576", "skip=0", "seek=0", "count=16", "iflag=direct,fullblock", "oflag=direct"];
  await harness.runAsAdmin(
    "dd",
    `if=${devicePath}`,
    `of=${backup.devicePath}`,
    ...blocks,
    "conv=fsync,nocreat,notrunc",
    "status=none",
  );
}
