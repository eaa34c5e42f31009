/**
 * Contract: snapshots of several volumes at one point in time.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";
import { createFiller } from "./snapshots_suite.ts";

const MiB = 1n << 20n;

/** A volume that does not exist. */
const MISSING = "v1-00000000000000000000000000000000";

/** Registers the tests. */
export function groupSnapshotsContract(host: Host): void {
  contractTest(
    host,
    "createVolumeGroupSnapshot() takes thick and thin volumes of two groups, mounted and raw, and answers the same for ever",
    async (harness) => {
      const { volumes, unstage } = await createVolumes(harness);
      const group = await take(harness, volumes);
      assertEquals(group.readyToUse, true);
      assertEquals(group.snapshots.map(({ sourceVolumeId }) => sourceVolumeId).sort(), [...volumes].sort());
      assertEquals(new Set(group.snapshots.map((each) => each.groupSnapshotId)), new Set([group.groupSnapshotId]));
      assertEquals(group.snapshots.map(({ readyToUse }) => readyToUse), [true, true, true]);
      assertEquals(await take(harness, volumes.toReversed()), group);
      const { groupSnapshotId } = group;
      const snapshotIds = group.snapshots.map(({ snapshotId }) => snapshotId);
      const { groupSnapshot } = await harness.csi.group.getVolumeGroupSnapshot({ groupSnapshotId, snapshotIds });
      assertEquals(groupSnapshot, group);
      assertEquals((await harness.lvs()).filter(({ suspended }) => suspended), []);

      const [first] = group.snapshots;
      const single = await harness.csi.controller.getSnapshot({ snapshotId: first!.snapshotId });
      assertEquals(single.snapshot, first);
      await assertFails(
        "INVALID_ARGUMENT",
        harness.csi.controller.deleteSnapshot({ snapshotId: first!.snapshotId }),
        groupSnapshotId,
      );
      await harness.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds });
      await harness.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds });
      await assertFails("NOT_FOUND", harness.csi.group.getVolumeGroupSnapshot({ groupSnapshotId, snapshotIds }));
      await unstage();
      for (const volumeId of volumes) await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals((await harness.lvs()).filter(({ thinPool }) => thinPool === undefined), []);
      await removePool(harness);
    },
  );

  contractTest(host, "createVolume() restores a member of a group snapshot", async (harness) => {
    const { volumes, unstage } = await createVolumes(harness);
    const { groupSnapshotId, snapshots } = await take(harness, volumes);
    const restored: string[] = [];
    for (const { snapshotId, sourceVolumeId } of snapshots) {
      const isThin = sourceVolumeId === volumes[1];
      restored.push(
        await harness.create({
          volumeContentSource: { type: { case: "snapshot", value: { snapshotId } } },
          ...(sourceVolumeId === volumes[2] ? { volumeCapabilities: [blockCapability()] } : {}),
          parameters: isThin ? thinParameters(harness) : { volumeGroup: harness.groups[1] },
        }),
      );
    }
    await harness.waitUntilIdle();
    await harness.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, snapshotIds: [] });
    await unstage();
    for (const volumeId of [...restored, ...volumes]) await harness.csi.controller.deleteVolume({ volumeId });
    assertEquals((await harness.lvs()).filter(({ thinPool }) => thinPool === undefined), []);
    await removePool(harness);
  });

  contractTest(host, "createVolumeGroupSnapshot() refuses what cannot be, and leaves nothing", async (harness) => {
    const volumes = [await harness.create(), await harness.create()];
    const create = (request: object) =>
      harness.csi.group.createVolumeGroupSnapshot({ name: "refused", sourceVolumeIds: volumes, ...request });
    await assertFails("INVALID_ARGUMENT", create({ name: "" }), "name");
    await assertFails("INVALID_ARGUMENT", create({ sourceVolumeIds: [] }), "source_volume_ids");
    await assertFails("INVALID_ARGUMENT", create({ sourceVolumeIds: [volumes[0], volumes[0]] }), "twice");
    await assertFails("INVALID_ARGUMENT", create({ parameters: { snapSize: "200%" } }), "snapSize");
    await assertFails("NOT_FOUND", create({ sourceVolumeIds: [volumes[0], MISSING] }));
    await assertFails("NOT_FOUND", create({ sourceVolumeIds: ["foreign"] }));
    const filler = await createFiller(harness);
    await assertFails("RESOURCE_EXHAUSTED", create({ parameters: { snapSize: "10Ti" } }), "free");
    await harness.csi.controller.deleteVolume({ volumeId: filler });
    assertEquals((await harness.lvs()).length, 2);

    const { groupSnapshot } = await create({ name: "taken", parameters: { snapSize: "10Ti" } }); // more than they can use
    await assertFails("ALREADY_EXISTS", create({ name: "taken", sourceVolumeIds: [volumes[0]] }));
    const { groupSnapshotId } = groupSnapshot!;
    const remove = (request: object) => harness.csi.group.deleteVolumeGroupSnapshot({ groupSnapshotId, ...request });
    await assertFails("INVALID_ARGUMENT", remove({ groupSnapshotId: "" }), "group_snapshot_id");
    await assertFails("INVALID_ARGUMENT", remove({ snapshotIds: [MISSING] }), "its snapshots are");
    await assertFails("INVALID_ARGUMENT", remove({ snapshotIds: ["foreign"] }), "snapshot_ids");
    await remove({ groupSnapshotId: "foreign" });
    await assertFails("NOT_FOUND", harness.csi.group.getVolumeGroupSnapshot({ groupSnapshotId: "foreign" }));
    assertEquals((await harness.lvs()).length, 4);
    await remove({});
    for (const volumeId of volumes) await harness.csi.controller.deleteVolume({ volumeId });
  });

  contractTest(
    host,
    "createVolumeGroupSnapshot() suspends no volume that is mounted outside the mount roots, and names the mount",
    async (harness) => {
      const volumes = [await harness.create(), await harness.create()];
      const stagingTargetPath = await harness.stage(volumes[0]!);
      const { devicePath } = (await harness.lvs()).find(({ open }) => open)!;
      const outside = await Deno.makeTempDir({ prefix: "denolith-outside-" });
      await harness.runAsAdmin("mount", "-t", "ext4", devicePath, outside);
      const create = () => harness.csi.group.createVolumeGroupSnapshot({ name: "outside", sourceVolumeIds: volumes });
      await assertFails("FAILED_PRECONDITION", create(), `it is mounted at ${outside}`);
      assertEquals((await harness.lvs()).map(({ suspended }) => suspended), [false, false]);
      await harness.runAsAdmin("umount", outside);
      await Deno.remove(outside);
      await harness.csi.node.nodeUnstageVolume({ volumeId: volumes[0]!, stagingTargetPath });
      for (const volumeId of volumes) await harness.csi.controller.deleteVolume({ volumeId });
    },
  );
}

/** Creates a thick volume and a thin one with filesystems, which are staged, and a thick one without, in two groups. */
export async function createVolumes(
  harness: Harness,
): Promise<{ volumes: string[]; staged: string[]; unstage: () => Promise<void> }> {
  const thick = await harness.create({ parameters: { volumeGroup: harness.groups[0] } });
  const thin = await harness.create({ parameters: thinParameters(harness) });
  const raw = await harness.create({
    parameters: { volumeGroup: harness.groups[1] },
    volumeCapabilities: [blockCapability()],
  });
  const staged = [[thick, await stage(harness, thick)], [thin, await stage(harness, thin)]] as const;
  const unstage = async () => {
    for (const [volumeId, stagingTargetPath] of staged) {
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    }
  };
  return { volumes: [thick, thin, raw], staged: staged.map(([, path]) => path), unstage };
}

/** Stages a volume at a path of its own. */
async function stage(harness: Harness, volumeId: string): Promise<string> {
  const stagingTargetPath = `${harness.folder}/staging-${volumeId}`;
  await Deno.mkdir(stagingTargetPath);
  await harness.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability: mountCapability() });
  return stagingTargetPath;
}

function thinParameters(harness: Harness): Record<string, string> {
  return { volumeGroup: harness.groups[1], thinProvision: "yes", thinPoolSize: `${128n * MiB}` };
}

/** Takes a group snapshot with small COW space. */
export async function take(harness: Harness, sourceVolumeIds: readonly string[]) {
  const request = { name: "group", sourceVolumeIds: [...sourceVolumeIds], parameters: { snapSize: "8Mi" } };
  return (await harness.csi.group.createVolumeGroupSnapshot(request)).groupSnapshot!;
}

/** Removes the thin pool that the driver leaves. */
export async function removePool(harness: Harness): Promise<void> {
  const pool = (await harness.lvs()).find(({ thinPool }) => thinPool !== undefined);
  if (pool !== undefined) await harness.runAsAdmin("lvm", "lvremove", "--yes", `${harness.groups[1]}/${pool.name}`);
}
