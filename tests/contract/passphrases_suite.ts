/**
 * Contract: the change of the passphrase of an encrypted volume.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { describeCommand } from "../../lvm/exec.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";
import {
  addKey,
  assertChanged,
  healthReasons,
  opensAny,
  PARAMETERS,
  unpublish,
  unstage,
} from "./helpers/encrypted_volumes.ts";

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
