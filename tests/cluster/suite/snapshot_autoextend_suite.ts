/**
 * Snapshots whose COW space becomes full, and expansion of volumes with snapshots.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { QUICK } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

/** Writes so many megabytes to the claim's volume, from one on. */
function writeCommand(mib: number, from: number): string {
  return `dd if=/dev/urandom of=/data/busy bs=1M count=${mib} seek=${from} conv=notrunc,fsync 2>/dev/null`;
}

/** Creates a claim of 64 MiB with a file of 40 MiB in it, its pod `writer`, and a snapshot with so much COW space. */
async function createFilledVolume(snapshots: SnapshotTestNamespace, snapSize: string): Promise<string> {
  const { ns } = snapshots;
  const plain = await ns.createStorageClass("plain", { parameters: { ...QUICK, discard: "yes", fstrim: "24h" } });
  await ns.createClaim({ name: "data", class: plain, size: "64Mi" });
  await ns.createPod({ name: "writer", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("writer");
  await ns.exec("writer", writeCommand(40, 0));
  const className = await snapshots.createSnapshotClass("small", { parameters: { snapSize } });
  await snapshots.createSnapshot("cut", { claim: "data", class: className });
  return (await snapshots.waitUntilReady("cut")).id;
}

Deno.test("COW space that fills is extended in time; the volume is mounted with discard", async () => {
  await using snapshots = await SnapshotTestNamespace.open("stores");
  const { ns } = snapshots;
  const id = await createFilledVolume(snapshots, "16Mi");
  assertMatch(await ns.exec("writer", "grep ' /data ' /proc/mounts"), /[ ,]discard[ ,]/);
  await ns.exec("writer", writeCommand(13, 0)); // four fifths of it
  await ns.waitForEvent("LVMSnapshot", id, "SnapshotExtended", /extended from 16 MiB to/);
  const snapshotLv = await snapshots.findLv(id);
  assert(snapshotLv !== undefined && snapshotLv.size > 16 << 20, JSON.stringify(snapshotLv));
  assertEquals(await snapshots.snapshotState(id), "Ready");
  await ns.kubectl("delete", "volumesnapshots", "--all");
  await snapshots.waitUntilDeleted([id]);
});

Deno.test("a snapshot that overflowed is not ready any more, and can be deleted", async () => {
  await using snapshots = await SnapshotTestNamespace.open("stores");
  const { ns } = snapshots;
  const id = await createFilledVolume(snapshots, "4Mi");
  await ns.exec("writer", writeCommand(30, 0));
  await ns.waitFor("LVMSnapshot", id, (now) => now?.status?.state === "Overflowed", "overflowed");
  const [content] = ns.informer("VolumeSnapshotContent").list().filter(({ status }) => status?.snapshotHandle === id);
  const { status } = await ns.waitFor(
    "VolumeSnapshotContent",
    content!.metadata.name,
    (now) => now?.status?.readyToUse === false && now.status.error !== undefined,
    "says that its snapshot is lost",
  );
  assertMatch(status!.error!.message!, /its content is lost/);
  await ns.kubectl("delete", "volumesnapshots", "--all");
  await snapshots.waitUntilDeleted([id]);
});

Deno.test("a volume with snapshots is expanded when its pods have ended, and the snapshot keeps its data", async () => {
  await using snapshots = await SnapshotTestNamespace.open("stores");
  const { ns } = snapshots;
  const id = await createFilledVolume(snapshots, "100%");
  const expansion = { spec: { resources: { requests: { storage: "80Mi" } } } };
  await ns.patch("PersistentVolumeClaim", "data", expansion);
  await ns.waitForEvent(
    "PersistentVolumeClaim",
    "data",
    "VolumeResizeFailed",
    /it is in use and has the snapshots snap-/,
  );
  await ns.deleteAndWait("Pod", "writer");
  const { volumeHandle } = (await ns.volumeOf("data")).spec!.csi!;
  await ns.waitFor("LVMVolume", volumeHandle, (now) => now?.status?.size === "80Mi", "has grown");
  await ns.createPod({ name: "again", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("again");
  const size = async () => Number(await ns.exec("again", "df -kP /data | tail -1 | awk '{print $2}'"));
  assert(await size() > 66 << 10, `${await size()} KiB`);
  const { device } = (await snapshots.findLv(id))!;
  assertEquals((await ns.runOnNode(`blockdev --getsize64 ${device}`)).trim(), `${64 << 20}`);
  await ns.kubectl("delete", "volumesnapshots", "--all");
  await snapshots.waitUntilDeleted([id]);
});
