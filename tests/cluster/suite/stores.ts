/**
 * Snapshots whose stores fill, and volumes that outgrow them.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { QUICK } from "./scene_objects.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

/** Writes so many megabytes to the claim's volume, from one on. */
function writing(mib: number, from: number): string {
  return `dd if=/dev/urandom of=/data/busy bs=1M count=${mib} seek=${from} conv=notrunc,fsync 2>/dev/null`;
}

/** A claim of 64 MiB with 40 MiB of a file in it, its pod `writer`, and a snapshot with a store of so much. */
async function filled(snapshots: SnapshotScene, snapSize: string): Promise<string> {
  const { scene } = snapshots;
  const plain = await scene.storageClass("plain", { parameters: { ...QUICK, discard: "yes", fstrim: "24h" } });
  await scene.claim({ name: "data", class: plain, size: "64Mi" });
  await scene.pod({ name: "writer", claims: [{ name: "data", path: "/data" }] });
  await scene.running("writer");
  await scene.exec("writer", writing(40, 0));
  const className = await snapshots.snapshotClass("small", { parameters: { snapSize } });
  await snapshots.snapshot("cut", { claim: "data", class: className });
  return (await snapshots.ready("cut")).id;
}

Deno.test("a store that fills is grown in time; the volume is mounted with discard", async () => {
  await using snapshots = await SnapshotScene.open("stores");
  const { scene } = snapshots;
  const id = await filled(snapshots, "16Mi");
  assertMatch(await scene.exec("writer", "grep ' /data ' /proc/mounts"), /[ ,]discard[ ,]/);
  await scene.exec("writer", writing(13, 0)); // four fifths of it
  await scene.event("LVMSnapshot", id, "StoreGrown", /grew from 16 MiB to/);
  const store = await snapshots.lv(id);
  assert(store !== undefined && store.size > 16 << 20, JSON.stringify(store));
  assertEquals(await snapshots.state(id), "Ready");
  await scene.kubectl("delete", "volumesnapshots", "--all");
  await snapshots.nothingLeft([id]);
});

Deno.test("a snapshot that overflowed is not ready any more, and can be deleted", async () => {
  await using snapshots = await SnapshotScene.open("stores");
  const { scene } = snapshots;
  const id = await filled(snapshots, "4Mi");
  await scene.exec("writer", writing(30, 0));
  await scene.wait("LVMSnapshot", id, (now) => now?.status?.state === "Overflowed", "overflowed");
  const [content] = scene.informer("VolumeSnapshotContent").list().filter(({ status }) =>
    status?.snapshotHandle === id
  );
  const { status } = await scene.wait(
    "VolumeSnapshotContent",
    content!.metadata.name,
    (now) => now?.status?.readyToUse === false && now.status.error !== undefined,
    "says that its snapshot is lost",
  );
  assertMatch(status!.error!.message!, /its content is gone/);
  await scene.kubectl("delete", "volumesnapshots", "--all");
  await snapshots.nothingLeft([id]);
});

Deno.test("a volume with snapshots grows when its pods have ended, and the snapshot keeps what it has", async () => {
  await using snapshots = await SnapshotScene.open("stores");
  const { scene } = snapshots;
  const id = await filled(snapshots, "100%");
  const more = { spec: { resources: { requests: { storage: "80Mi" } } } };
  await scene.patch("PersistentVolumeClaim", "data", more);
  await scene.event("PersistentVolumeClaim", "data", "VolumeResizeFailed", /it is in use and has the snapshots snap-/);
  await scene.delete("Pod", "writer");
  const { volumeHandle } = (await scene.volumeOf("data")).spec!.csi!;
  await scene.wait("LVMVolume", volumeHandle, (now) => now?.status?.size === "80Mi", "has grown");
  await scene.pod({ name: "again", claims: [{ name: "data", path: "/data" }] });
  await scene.running("again");
  const size = async () => Number(await scene.exec("again", "df -kP /data | tail -1 | awk '{print $2}'"));
  assert(await size() > 66 << 10, `${await size()} KiB`);
  const { device } = (await snapshots.lv(id))!;
  assertEquals((await scene.onNode(`blockdev --getsize64 ${device}`)).trim(), `${64 << 20}`);
  await scene.kubectl("delete", "volumesnapshots", "--all");
  await snapshots.nothingLeft([id]);
});
