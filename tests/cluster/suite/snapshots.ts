/**
 * Lives of snapshots, with the official snapshot-controller.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parseSnapshotId, snapshotLvName } from "../../../lvm/ids.ts";
import { example } from "./example_files.ts";
import type { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

/** Writes for ever, each time to another part of its file, and tells how often. */
const WRITER = `
trap 'exit 0' TERM
n=0
while :; do
  dd if=/dev/urandom of=/data/busy bs=64k count=4 seek=$((n % 8 * 4)) conv=notrunc,fsync 2>/dev/null || exit 1
  n=$((n + 1))
  echo $n > /tmp/rounds
  sleep .2
done
`;

/** Makes a claim `data` of 16 MiB, and a pod `writer` that writes to it. */
async function addWriter({ scene }: SnapshotScene): Promise<void> {
  const className = await scene.storageClass("plain", { parameters: QUICK });
  await scene.claim({ name: "data", class: className });
  await scene.pod({ name: "writer", claims: [{ name: "data", path: "/data" }], command: WRITER });
  await scene.running("writer");
  await scene.exec("writer", "echo before > /data/file && sync");
}

/** Runs shell lines on the node with the device of an LV mounted read-only. */
async function mounted(scene: Scene, device: string, command: string): Promise<string> {
  const mount = `d=$(mktemp -d) && mount -o ro,noload ${device} $d`;
  return await scene.onNode(`${mount} && cd $d && { ${command}; }; status=$?; cd /; umount $d; rmdir $d; exit $status`);
}

Deno.test("a snapshot of a volume in use is ready, holds what was written before, and leaves nothing when it is deleted", async () => {
  await using snapshots = await SnapshotScene.open("snap");
  await addWriter(snapshots);
  const { scene } = snapshots;
  const className = await snapshots.snapshotClass("half", { parameters: { snapSize: "50%" } });
  await snapshots.snapshot("first", { claim: "data", class: className });
  const { snapshot, content, id } = await snapshots.ready("first");
  assertEquals(id, snapshots.idFor(snapshot));
  assertEquals([snapshot.status?.restoreSize, content.status?.restoreSize], ["16Mi", 16 << 20]);
  const age = Date.now() - Date.parse(snapshot.status!.creationTime!);
  assert(Math.abs(age) < 600_000, `it was taken ${age} ms ago`);
  assertEquals(content.metadata.annotations ?? {}, {});
  assertEquals(await snapshots.state(id), "Ready");
  assertEquals((await snapshots.lv(id))?.size, 8 << 20);

  await scene.exec("writer", "echo after > /data/file && sync");
  const { device } = (await snapshots.lv(id))!;
  assertEquals(await mounted(scene, device, "cat file"), "before\n");
  const rounds = "n=$(cat /tmp/rounds); until [ $(cat /tmp/rounds) -gt $((n + 1)) ]; do sleep .2; done; echo more";
  assertEquals(await scene.exec("writer", rounds), "more\n");

  await scene.delete("VolumeSnapshot", "first");
  await snapshots.nothingLeft([id]);
  assertEquals(await scene.exec("writer", "cat /data/file"), "after\n");
});

Deno.test("a volume waits with its deletion for its snapshots", async () => {
  await using snapshots = await SnapshotScene.open("order");
  await addWriter(snapshots);
  const { scene } = snapshots;
  const className = await snapshots.snapshotClass("now");
  await snapshots.snapshot("last", { claim: "data", class: className });
  const { id } = await snapshots.ready("last");
  const { metadata: { name: volume } } = await scene.volumeOf("data");
  await scene.delete("Pod", "writer");
  await scene.delete("PersistentVolumeClaim", "data");
  const { message } = await scene.event("PersistentVolume", volume, "VolumeFailedDelete", /snapshot/);
  assertStringIncludes(message!, snapshotLvName(parseSnapshotId(id)!));
  await scene.delete("VolumeSnapshot", "last");
  await snapshots.nothingLeft([id]);
  await scene.gone("PersistentVolume", volume);
  await scene.settled();
});

Deno.test("a snapshot that is to be kept outlives its VolumeSnapshot, is given to another one, and goes with that", async () => {
  await using snapshots = await SnapshotScene.open("kept");
  await addWriter(snapshots);
  const { scene } = snapshots;
  const className = await snapshots.snapshotClass("keep", { deletionPolicy: "Retain" });
  await snapshots.snapshot("old", { claim: "data", class: className });
  const { id, content } = await snapshots.ready("old");
  const lv = await snapshots.lv(id);
  await scene.delete("VolumeSnapshot", "old");
  await scene.delete("VolumeSnapshotContent", content.metadata.name);
  assertEquals([(await snapshots.lv(id))?.uuid, await snapshots.state(id)], [lv?.uuid, "Ready"]);

  const given = await snapshots.content("given", { handle: id, snapshot: "new" });
  await snapshots.snapshot("new", { content: given });
  const known = await snapshots.ready("new");
  assertEquals([known.id, known.content.status?.restoreSize], [id, 16 << 20]);
  assertEquals((await snapshots.lv(id))?.uuid, lv?.uuid);
  await scene.delete("VolumeSnapshot", "new");
  await snapshots.nothingLeft([id]);
});

Deno.test("a snapshot that cannot be taken says why, and is taken when that is mended; one that is missing says so", async () => {
  await using snapshots = await SnapshotScene.open("wrong");
  await addWriter(snapshots);
  const { scene } = snapshots;
  const className = await snapshots.snapshotClass("odd", { parameters: { snapSize: "200%" } });
  await snapshots.snapshot("odd", { claim: "data", class: className });
  const failed = await scene.wait(
    "VolumeSnapshot",
    "odd",
    (now) => now?.status?.error?.message !== undefined,
    "says what is wrong",
  );
  assertStringIncludes(failed.status!.error!.message!, "200%");
  const content = failed.status!.boundVolumeSnapshotContentName!;
  await scene.event("VolumeSnapshotContent", content, "SnapshotCreationFailed", /200%/);
  await scene.kubectl("delete", "volumesnapshotclass", className);
  await snapshots.snapshotClass("odd", { parameters: { snapSize: "100%" } });
  const { snapshot, id } = await snapshots.ready("odd");
  assertEquals(snapshot.status?.error, undefined);

  const given = await snapshots.content("given", { handle: `v1-${"0".repeat(32)}`, snapshot: "missing" });
  await snapshots.snapshot("missing", { content: given });
  await scene.event("VolumeSnapshotContent", given, "SnapshotContentCheckandUpdateFailed", /none of that handle/);
  for (const name of ["odd", "missing"]) await scene.delete("VolumeSnapshot", name);
  await scene.gone("VolumeSnapshotContent", given);
  await snapshots.nothingLeft([id]);
});

Deno.test("the example of a snapshot runs as it is", async () => {
  await using snapshots = await SnapshotScene.open("example");
  const { scene } = snapshots;
  for (const file of ["pod/claim.yaml", "pod/pod.yaml"]) await scene.apply(await example(file));
  await scene.running("writer");
  for (const file of ["snapshot/class.yaml", "snapshot/snapshot.yaml"]) await scene.apply(await example(file));
  const { id } = await snapshots.ready("pod-data-1");
  assertEquals((await snapshots.lv(id))?.tags.includes(`denolith.snapshot=${id}`), true);
});
