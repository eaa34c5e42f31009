/**
 * Lives of snapshots, with the official snapshot-controller.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parseSnapshotId, snapshotLvName } from "../../../base/ids.ts";
import { waitForMoreRounds } from "./helpers/checking_writer.ts";
import { example } from "./helpers/example_files.ts";
import type { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

/** Writes in a loop, each time to another part of its file, and prints the number of writes. */
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
async function addWriter({ ns }: SnapshotTestNamespace): Promise<void> {
  const className = await ns.createStorageClass("plain", { parameters: QUICK });
  await ns.createClaim({ name: "data", class: className });
  await ns.createPod({ name: "writer", claims: [{ name: "data", path: "/data" }], command: WRITER });
  await ns.waitForRunning("writer");
  await ns.exec("writer", "echo before > /data/file && sync");
}

/** Runs shell lines on the node with the device of an LV mounted read-only. */
async function runMounted(ns: TestNamespace, device: string, command: string): Promise<string> {
  const mount = `d=$(mktemp -d) && mount -o ro,noload ${device} $d`;
  return await ns.runOnNode(`${mount} && cd $d && { ${command}; }; status=$?; cd /; umount $d; rmdir $d; exit $status`);
}

Deno.test("a snapshot of a volume in use becomes ready, has the data from before, and leaves nothing when it is deleted", async () => {
  await using snapshots = await SnapshotTestNamespace.open("snap");
  await addWriter(snapshots);
  const { ns } = snapshots;
  const className = await snapshots.createSnapshotClass("half", { parameters: { snapSize: "50%" } });
  await snapshots.createSnapshot("first", { claim: "data", class: className });
  const { snapshot, content, id } = await snapshots.waitUntilReady("first");
  assertEquals(id, snapshots.handleFor(snapshot));
  assertEquals([snapshot.status?.restoreSize, content.status?.restoreSize], ["16Mi", 16 << 20]);
  const age = Date.now() - Date.parse(snapshot.status!.creationTime!);
  assert(Math.abs(age) < 600_000, `it was taken ${age} ms ago`);
  assertEquals(content.metadata.annotations ?? {}, {});
  assertEquals(await snapshots.snapshotState(id), "Ready");
  assertEquals((await snapshots.findLv(id))?.size, 8 << 20);

  await ns.exec("writer", "echo after > /data/file && sync");
  const { device } = (await snapshots.findLv(id))!;
  assertEquals(await runMounted(ns, device, "cat file"), "before\n");
  await waitForMoreRounds(ns, "writer");

  await ns.deleteAndWait("VolumeSnapshot", "first");
  await snapshots.waitUntilDeleted([id]);
  assertEquals(await ns.exec("writer", "cat /data/file"), "after\n");
});

Deno.test("a volume waits with its deletion for its snapshots", async () => {
  await using snapshots = await SnapshotTestNamespace.open("order");
  await addWriter(snapshots);
  const { ns } = snapshots;
  const className = await snapshots.createSnapshotClass("now");
  await snapshots.createSnapshot("last", { claim: "data", class: className });
  const { id } = await snapshots.waitUntilReady("last");
  const { metadata: { name: volume } } = await ns.volumeOf("data");
  await ns.deleteAndWait("Pod", "writer");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  const { message } = await ns.waitForEvent("PersistentVolume", volume, "VolumeFailedDelete", /snapshot/);
  assertStringIncludes(message!, snapshotLvName(parseSnapshotId(id)!));
  await ns.deleteAndWait("VolumeSnapshot", "last");
  await snapshots.waitUntilDeleted([id]);
  await ns.waitForDeletion("PersistentVolume", volume);
  await ns.waitForCleanup();
});

Deno.test("a snapshot that is to be kept outlives its VolumeSnapshot, is given to another one, and goes with that", async () => {
  await using snapshots = await SnapshotTestNamespace.open("kept");
  await addWriter(snapshots);
  const { ns } = snapshots;
  const className = await snapshots.createSnapshotClass("keep", { deletionPolicy: "Retain" });
  await snapshots.createSnapshot("old", { claim: "data", class: className });
  const { id, content } = await snapshots.waitUntilReady("old");
  const lv = await snapshots.findLv(id);
  await ns.deleteAndWait("VolumeSnapshot", "old");
  await ns.deleteAndWait("VolumeSnapshotContent", content.metadata.name);
  assertEquals([(await snapshots.findLv(id))?.uuid, await snapshots.snapshotState(id)], [lv?.uuid, "Ready"]);

  const given = await snapshots.createContent("given", { handle: id, snapshot: "new" });
  await snapshots.createSnapshot("new", { content: given });
  const known = await snapshots.waitUntilReady("new");
  assertEquals([known.id, known.content.status?.restoreSize], [id, 16 << 20]);
  assertEquals((await snapshots.findLv(id))?.uuid, lv?.uuid);
  await ns.deleteAndWait("VolumeSnapshot", "new");
  await snapshots.waitUntilDeleted([id]);
});

Deno.test("a snapshot that cannot be taken says why, and is taken when that is mended; one that is missing says so", async () => {
  await using snapshots = await SnapshotTestNamespace.open("wrong");
  await addWriter(snapshots);
  const { ns } = snapshots;
  const className = await snapshots.createSnapshotClass("odd", { parameters: { snapSize: "200%" } });
  await snapshots.createSnapshot("odd", { claim: "data", class: className });
  const failed = await ns.waitFor(
    "VolumeSnapshot",
    "odd",
    // The snapshot-controller may write an error of its own before, about a conflict.
    (now) => now?.status?.error?.message?.includes("200%") === true,
    "has the driver's error",
  );
  const content = failed.status!.boundVolumeSnapshotContentName!;
  await ns.waitForEvent("VolumeSnapshotContent", content, "SnapshotCreationFailed", /200%/);
  await ns.kubectl("delete", "volumesnapshotclass", className);
  await snapshots.createSnapshotClass("odd", { parameters: { snapSize: "100%" } });
  const { snapshot, id } = await snapshots.waitUntilReady("odd");
  assertEquals(snapshot.status?.error, undefined);

  const given = await snapshots.createContent("given", { handle: `v1-${"0".repeat(32)}`, snapshot: "missing" });
  await snapshots.createSnapshot("missing", { content: given });
  await ns.waitForEvent("VolumeSnapshotContent", given, "SnapshotContentCheckandUpdateFailed", /none of that handle/);
  for (const name of ["odd", "missing"]) await ns.deleteAndWait("VolumeSnapshot", name);
  await ns.waitForDeletion("VolumeSnapshotContent", given);
  await snapshots.waitUntilDeleted([id]);
});

Deno.test("the example of a snapshot runs as it is", async () => {
  await using snapshots = await SnapshotTestNamespace.open("example");
  const { ns } = snapshots;
  for (const file of ["pod/claim.yaml", "pod/pod.yaml"]) await ns.apply(await example(file));
  await ns.waitForRunning("writer");
  for (const file of ["snapshot/class.yaml", "snapshot/snapshot.yaml"]) await ns.apply(await example(file));
  const { id } = await snapshots.waitUntilReady("pod-data-1");
  assertEquals((await snapshots.findLv(id))?.tags.includes(`denolith.snapshot=${id}`), true);
});
