/**
 * Contract: copy-on-write snapshots.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, blockCapability, contractTest, type Harness, type Host } from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function snapshotsContract(host: Host): void {
  contractTest(
    host,
    "createSnapshot() takes one, answers the same for ever, and deleteSnapshot() removes it",
    async (harness) => {
      const sourceVolumeId = await harness.create();
      const request = { name: "first", sourceVolumeId, parameters: { snapSize: "50%" } };
      const { snapshot } = await harness.csi.controller.createSnapshot(request);
      assertEquals([snapshot?.sizeBytes, snapshot?.readyToUse, snapshot?.sourceVolumeId], [
        32n * MiB,
        true,
        sourceVolumeId,
      ]);
      assertEquals((await harness.csi.controller.createSnapshot(request)).snapshot, snapshot);
      assertEquals((await harness.csi.controller.getSnapshot({ snapshotId: snapshot!.snapshotId })).snapshot, snapshot);
      const cowLv = (await harness.lvs()).find((lv) => lv.origin !== undefined);
      assertEquals(cowLv?.size, 16n * MiB);

      const other = await harness.create();
      await assertFails("ALREADY_EXISTS", harness.csi.controller.createSnapshot({ ...request, sourceVolumeId: other }));
      await harness.csi.controller.deleteVolume({ volumeId: other });
      await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await assertFails("NOT_FOUND", harness.csi.controller.getSnapshot({ snapshotId: snapshot!.snapshotId }));
      assertEquals((await harness.lvs()).length, 1);
      await harness.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    },
  );

  contractTest(host, "deleteVolume() leaves a volume that has snapshots as it is, and names them", async (harness) => {
    const { volumeId, snapshotId } = await createVolumeWithSnapshot(harness);
    await assertFails("FAILED_PRECONDITION", harness.csi.controller.deleteVolume({ volumeId }), "snap-");
    assertEquals((await harness.lvs()).length, 2);
    await harness.csi.controller.deleteSnapshot({ snapshotId });
    await harness.csi.controller.deleteVolume({ volumeId });
    assertEquals(await harness.lvs(), []);
  });

  contractTest(
    host,
    "controllerExpandVolume() expands a volume with snapshots while it is not in use, else names them",
    async (harness) => {
      const { volumeId, snapshotId } = await createVolumeWithSnapshot(harness);
      const expand = (requiredBytes: bigint) =>
        harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes } });
      assertEquals((await expand(40n * MiB)).capacityBytes, 40n * MiB);
      assertEquals((await harness.lvs()).map((lv) => lv.active), [true, true]);
      const stagingTargetPath = await harness.stage(volumeId);
      await assertFails("FAILED_PRECONDITION", expand(64n * MiB), "snap-");
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      assertEquals((await expand(64n * MiB)).capacityBytes, 64n * MiB);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "controllerExpandVolume() leaves a volume alone whose device is published, or whose snapshot is open",
    async (harness) => {
      const volumeCapability = blockCapability();
      const volumeId = await harness.create({ volumeCapabilities: [volumeCapability] });
      await harness.runAsAdmin(
        "mke2fs",
        "-q",
        "-t",
        "ext4",
        "-U",
        crypto.randomUUID(),
        (await harness.singleLv()).devicePath,
      );
      const snapshotId = await takeSnapshot(harness, volumeId);
      const expand = () =>
        harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n * MiB } });
      const stagingTargetPath = await harness.stage(volumeId, volumeCapability);
      const targetPath = await harness.publish(volumeId, "pod", { volumeCapability });
      const before = await harness.lvs();
      await assertFails("FAILED_PRECONDITION", expand(), "it is in use and has the snapshots snap-");
      assertEquals(await harness.lvs(), before);
      await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });

      const mountpoint = `${harness.folder}/look`;
      await Deno.mkdir(mountpoint);
      const { devicePath } = before.find(({ origin }) => origin !== undefined)!;
      await harness.runAsAdmin("mount", "-t", "ext4", "-o", "ro", devicePath, mountpoint);
      await assertFails("FAILED_PRECONDITION", expand(), "is open");
      const volumeAndSnapshot = (await harness.lvs()).toSorted((a, b) => Number(b.size - a.size));
      assertEquals(volumeAndSnapshot.map(({ active, size }) => [active, size]), [[true, 32n * MiB], [true, 8n * MiB]]);
      await harness.runAsAdmin("umount", mountpoint);
      assertEquals((await expand()).capacityBytes, 64n * MiB);
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "controllerExpandVolume() is not hindered by a snapshot that was just deleted",
    async (harness) => {
      const { volumeId, snapshotId } = await createVolumeWithSnapshot(harness);
      const stagingTargetPath = await harness.stage(volumeId);
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      const capacityRange = { requiredBytes: 64n * MiB };
      const grown = await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      assertEquals(grown.capacityBytes, 64n * MiB);
      await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "listSnapshots() pages, and filters by snapshot and by source", async (harness) => {
    const one = await createVolumeWithSnapshot(harness);
    const two = await createVolumeWithSnapshot(harness);
    const list = async (request: Parameters<Harness["csi"]["controller"]["listSnapshots"]>[0]) =>
      (await harness.csi.controller.listSnapshots(request)).entries.map(({ snapshot }) => snapshot?.snapshotId);
    const all = [one.snapshotId, two.snapshotId].sort();
    assertEquals(await list({}), all);
    assertEquals(await list({ maxEntries: 1 }), all.slice(0, 1));
    assertEquals(await list({ maxEntries: 1, startingToken: all[0]! }), all.slice(1));
    assertEquals(await list({ sourceVolumeId: one.volumeId }), [one.snapshotId]);
    assertEquals(await list({ snapshotId: two.snapshotId }), [two.snapshotId]);
    assertEquals(await list({ snapshotId: "foreign" }), []);
    assertEquals(await list({ sourceVolumeId: "foreign" }), []);
    for (const { volumeId, snapshotId } of [one, two]) {
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      await harness.csi.controller.deleteVolume({ volumeId });
    }
  });

  contractTest(host, "createSnapshot() takes no more COW space than the volume can use", async (harness) => {
    const sourceVolumeId = await harness.create();
    const request = { name: "large", sourceVolumeId, parameters: { snapSize: "10Ti" } };
    const { snapshot } = await harness.csi.controller.createSnapshot(request);
    assertEquals((await harness.lvs()).find((lv) => lv.origin !== undefined)?.size, 36n * MiB);
    await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
    await harness.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
  });

  contractTest(host, "createSnapshot() refuses what cannot be", async (harness) => {
    const sourceVolumeId = await harness.create();
    const create = (request: object) =>
      harness.csi.controller.createSnapshot({ name: "refused", sourceVolumeId, ...request });
    await assertFails("INVALID_ARGUMENT", create({ parameters: { snapSize: "200%" } }), "snapSize");
    await assertFails("INVALID_ARGUMENT", create({ parameters: { snapsiz: "1Gi" } }), "snapSize");
    const filler = await createFiller(harness);
    await assertFails("RESOURCE_EXHAUSTED", create({ parameters: { SnapSize: "10Ti" } }), "free");
    await harness.csi.controller.deleteVolume({ volumeId: filler });
    await assertFails("NOT_FOUND", create({ sourceVolumeId: "v1-00000000000000000000000000000000" }));
    await assertFails("NOT_FOUND", create({ sourceVolumeId: "foreign" }));
    assertEquals((await harness.lvs()).length, 1);
    await harness.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
  });
}

/** Creates a volume that leaves less free space than the COW space of a volume needs. */
export async function createFiller(harness: Harness): Promise<string> {
  const [name] = harness.groups;
  const { free } = (await harness.report()).find((group) => group.name === name)!;
  const capacityRange = { requiredBytes: free - 8n * MiB };
  return await harness.create({ capacityRange, parameters: { volumeGroup: name } });
}

let nextId = 0;

/** Creates a volume of 32 MiB, and a snapshot of it with a COW space of 8 MiB. */
export async function createVolumeWithSnapshot(harness: Harness): Promise<{ volumeId: string; snapshotId: string }> {
  const volumeId = await harness.create();
  return { volumeId, snapshotId: await takeSnapshot(harness, volumeId) };
}

/** Takes a snapshot with a small COW space. */
async function takeSnapshot(harness: Harness, sourceVolumeId: string): Promise<string> {
  const request = { name: `snapshot ${++nextId}`, sourceVolumeId, parameters: { snapSize: "8Mi" } };
  return (await harness.csi.controller.createSnapshot(request)).snapshot!.snapshotId;
}
