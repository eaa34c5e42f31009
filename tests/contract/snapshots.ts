/**
 * Contract: copy-on-write snapshots.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, type Bench, blockCapability, contract, type Host } from "./host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function snapshotsContract(host: Host): void {
  contract(
    host,
    "createSnapshot() takes one, answers the same for ever, and deleteSnapshot() removes it",
    async (bench) => {
      const sourceVolumeId = await bench.create();
      const request = { name: "first", sourceVolumeId, parameters: { snapSize: "50%" } };
      const { snapshot } = await bench.csi.controller.createSnapshot(request);
      assertEquals([snapshot?.sizeBytes, snapshot?.readyToUse, snapshot?.sourceVolumeId], [
        32n * MiB,
        true,
        sourceVolumeId,
      ]);
      assertEquals((await bench.csi.controller.createSnapshot(request)).snapshot, snapshot);
      assertEquals((await bench.csi.controller.getSnapshot({ snapshotId: snapshot!.snapshotId })).snapshot, snapshot);
      const store = (await bench.lvs()).find((lv) => lv.origin !== undefined);
      assertEquals(store?.size, 16n * MiB);

      const other = await bench.create();
      await assertFails("ALREADY_EXISTS", bench.csi.controller.createSnapshot({ ...request, sourceVolumeId: other }));
      await bench.csi.controller.deleteVolume({ volumeId: other });
      await bench.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await bench.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await assertFails("NOT_FOUND", bench.csi.controller.getSnapshot({ snapshotId: snapshot!.snapshotId }));
      assertEquals((await bench.lvs()).length, 1);
      await bench.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    },
  );

  contract(host, "deleteVolume() leaves a volume that has snapshots as it is, and names them", async (bench) => {
    const { volumeId, snapshotId } = await snapshotted(bench);
    await assertFails("FAILED_PRECONDITION", bench.csi.controller.deleteVolume({ volumeId }), "snap-");
    assertEquals((await bench.lvs()).length, 2);
    await bench.csi.controller.deleteSnapshot({ snapshotId });
    await bench.csi.controller.deleteVolume({ volumeId });
    assertEquals(await bench.lvs(), []);
  });

  contract(
    host,
    "controllerExpandVolume() grows a volume with snapshots while it is not in use, else names them",
    async (bench) => {
      const { volumeId, snapshotId } = await snapshotted(bench);
      const expand = (requiredBytes: bigint) =>
        bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes } });
      assertEquals((await expand(40n * MiB)).capacityBytes, 40n * MiB);
      assertEquals((await bench.lvs()).map((lv) => lv.active), [true, true]);
      const stagingTargetPath = await bench.stage(volumeId);
      await assertFails("FAILED_PRECONDITION", expand(64n * MiB), "snap-");
      await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await bench.csi.controller.deleteSnapshot({ snapshotId });
      assertEquals((await expand(64n * MiB)).capacityBytes, 64n * MiB);
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(
    host,
    "controllerExpandVolume() leaves a volume alone whose device is published, or whose snapshot is open",
    async (bench) => {
      const volumeCapability = blockCapability();
      const volumeId = await bench.create({ volumeCapabilities: [volumeCapability] });
      await bench.admin("mke2fs", "-q", "-t", "ext4", "-U", crypto.randomUUID(), (await bench.onlyLv()).devicePath);
      const snapshotId = await snapshotOf(bench, volumeId);
      const expand = () =>
        bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n * MiB } });
      const stagingTargetPath = await bench.stage(volumeId, volumeCapability);
      const targetPath = await bench.publish(volumeId, "pod", { volumeCapability });
      const before = await bench.lvs();
      await assertFails("FAILED_PRECONDITION", expand(), "it is in use and has the snapshots snap-");
      assertEquals(await bench.lvs(), before);
      await bench.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
      await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });

      const mountpoint = `${bench.folder}/look`;
      await Deno.mkdir(mountpoint);
      const { devicePath } = before.find(({ origin }) => origin !== undefined)!;
      await bench.admin("mount", "-t", "ext4", "-o", "ro", devicePath, mountpoint);
      await assertFails("FAILED_PRECONDITION", expand(), "is open");
      const volumeAndSnapshot = (await bench.lvs()).toSorted((a, b) => Number(b.size - a.size));
      assertEquals(volumeAndSnapshot.map(({ active, size }) => [active, size]), [[true, 32n * MiB], [true, 8n * MiB]]);
      await bench.admin("umount", mountpoint);
      assertEquals((await expand()).capacityBytes, 64n * MiB);
      await bench.csi.controller.deleteSnapshot({ snapshotId });
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(host, "controllerExpandVolume() is not hindered by a snapshot that was just deleted", async (bench) => {
    const { volumeId, snapshotId } = await snapshotted(bench);
    const stagingTargetPath = await bench.stage(volumeId);
    await bench.csi.controller.deleteSnapshot({ snapshotId });
    const capacityRange = { requiredBytes: 64n * MiB };
    const grown = await bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
    assertEquals(grown.capacityBytes, 64n * MiB);
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "listSnapshots() pages, and filters by snapshot and by source", async (bench) => {
    const one = await snapshotted(bench);
    const two = await snapshotted(bench);
    const list = async (request: Parameters<Bench["csi"]["controller"]["listSnapshots"]>[0]) =>
      (await bench.csi.controller.listSnapshots(request)).entries.map(({ snapshot }) => snapshot?.snapshotId);
    const all = [one.snapshotId, two.snapshotId].sort();
    assertEquals(await list({}), all);
    assertEquals(await list({ maxEntries: 1 }), all.slice(0, 1));
    assertEquals(await list({ maxEntries: 1, startingToken: all[0]! }), all.slice(1));
    assertEquals(await list({ sourceVolumeId: one.volumeId }), [one.snapshotId]);
    assertEquals(await list({ snapshotId: two.snapshotId }), [two.snapshotId]);
    assertEquals(await list({ snapshotId: "foreign" }), []);
    assertEquals(await list({ sourceVolumeId: "foreign" }), []);
    for (const { volumeId, snapshotId } of [one, two]) {
      await bench.csi.controller.deleteSnapshot({ snapshotId });
      await bench.csi.controller.deleteVolume({ volumeId });
    }
  });

  contract(host, "createSnapshot() refuses what cannot be", async (bench) => {
    const sourceVolumeId = await bench.create();
    const create = (request: object) =>
      bench.csi.controller.createSnapshot({ name: "refused", sourceVolumeId, ...request });
    await assertFails("INVALID_ARGUMENT", create({ parameters: { snapSize: "200%" } }), "snapSize");
    await assertFails("INVALID_ARGUMENT", create({ parameters: { snapsiz: "1Gi" } }), "snapSize");
    await assertFails("RESOURCE_EXHAUSTED", create({ parameters: { SnapSize: "10Ti" } }), "free");
    await assertFails("NOT_FOUND", create({ sourceVolumeId: "v1-00000000000000000000000000000000" }));
    await assertFails("NOT_FOUND", create({ sourceVolumeId: "foreign" }));
    assertEquals((await bench.lvs()).length, 1);
    await bench.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
  });
}

let names = 0;

/** Makes a volume of 32 MiB, and a snapshot of it with a store of 8 MiB. */
export async function snapshotted(bench: Bench): Promise<{ volumeId: string; snapshotId: string }> {
  const volumeId = await bench.create();
  return { volumeId, snapshotId: await snapshotOf(bench, volumeId) };
}

/** Takes a snapshot with a small store. */
async function snapshotOf(bench: Bench, sourceVolumeId: string): Promise<string> {
  const request = { name: `snapshot ${++names}`, sourceVolumeId, parameters: { snapSize: "8Mi" } };
  return (await bench.csi.controller.createSnapshot(request)).snapshot!.snapshotId;
}
