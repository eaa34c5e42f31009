/**
 * Volumes that grow, and those that cannot.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import type { PersistentVolumeClaim } from "../../../k8s/api/objects.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

/** Writes and reads back for ever, and ends with a failure when what is read is not what was written. */
const WRITER = `
trap 'exit 0' TERM
head -c 1048576 /dev/urandom > /tmp/chance
sum=$(md5sum < /tmp/chance)
n=0
while :; do
  offset=$((n % 4))
  for f in /data/file /raw; do
    dd if=/tmp/chance of=$f bs=1M seek=$offset conv=notrunc,fsync 2>/dev/null || exit 1
    [ "$(dd if=$f bs=1M skip=$offset count=1 2>/dev/null | md5sum)" = "$sum" ] || exit 2
  done
  n=$((n + 1))
  echo $n > /tmp/rounds
  sleep .2
done
`;

/** A claim's size as it is, and all that is said of a change of it. */
function resizing(claim: PersistentVolumeClaim | undefined) {
  const { capacity, conditions = [], allocatedResourceStatuses } = claim?.status ?? {};
  return {
    size: capacity?.["storage"],
    conditions: conditions.map(({ type }) => type).sort(),
    state: allocatedResourceStatuses?.["storage"],
  };
}

/** Whether a claim has a size and nothing more is to come. */
function isDone(claim: PersistentVolumeClaim | undefined, size: string): boolean {
  const now = resizing(claim);
  return now.size === size && now.conditions.length === 0 && now.state === undefined;
}

async function ask(scene: Scene, claim: string, storage: string): Promise<void> {
  await scene.patch("PersistentVolumeClaim", claim, { spec: { resources: { requests: { storage } } } });
}

Deno.test("volumes grow under a writer; without a pod they grow halfway, and wholly in the next pod", async () => {
  await using scene = await Scene.open("grow");
  const cls = await scene.storageClass("plain", { parameters: QUICK });
  await scene.claim({ name: "data", class: cls });
  await scene.claim({ name: "raw", class: cls, volumeMode: "Block" });
  const claims = [{ name: "data", path: "/data" }, { name: "raw", devicePath: "/raw" }];
  await scene.pod({ name: "writer", claims, command: WRITER });
  await scene.running("writer");
  const sizes = "df -kP /data | tail -1 | awk '{ print $2 }'; blockdev --getsize64 /raw";
  const [before] = (await scene.exec("writer", sizes)).split("\n");

  await Promise.all(["data", "raw"].map((name) => ask(scene, name, "32Mi")));
  await Promise.all(
    ["data", "raw"].map((name) =>
      scene.wait("PersistentVolumeClaim", name, (claim) => isDone(claim, "32Mi"), "has 32Mi")
    ),
  );
  const [after, raw] = (await scene.exec("writer", sizes)).split("\n");
  assert(Number(after) > Number(before) * 1.8, `${before} KiB became ${after} KiB`);
  assertEquals(raw, String(32 << 20));
  await scene.event("PersistentVolumeClaim", "data", "Resizing");
  await scene.event("PersistentVolumeClaim", "data", "FileSystemResizeRequired");
  await scene.event("PersistentVolumeClaim", "data", "FileSystemResizeSuccessful");
  // It went on meanwhile, and goes on still.
  const rounds = "n=$(cat /tmp/rounds); until [ $(cat /tmp/rounds) -gt $((n + 1)) ]; do sleep .2; done; echo more";
  assertEquals(await scene.exec("writer", rounds), "more\n");
  const sums = "sync; md5sum < /data/file; dd if=/raw bs=1M count=4 2>/dev/null | md5sum";
  await scene.delete("Pod", "writer");

  await ask(scene, "data", "48Mi");
  const waits = await scene.wait(
    "PersistentVolumeClaim",
    "data",
    (claim) => resizing(claim).conditions.includes("FileSystemResizePending"),
    "waits for a pod",
  );
  assertEquals([resizing(waits).size, resizing(waits).state], ["32Mi", "NodeResizePending"]);
  assertEquals((await scene.lvOf("data")).size, 48 << 20);
  await scene.pod({ name: "reader", claims });
  await scene.running("reader");
  await scene.wait("PersistentVolumeClaim", "data", (claim) => isDone(claim, "48Mi"), "has 48Mi");
  assertEquals(new Set((await scene.exec("reader", sums)).trim().split("\n")).size, 1);
});

Deno.test("a growth that cannot be had says so, and asking for less recovers from it", async () => {
  await using scene = await Scene.open("much");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "raw", class: cls, volumeMode: "Block" });
  await scene.bound("raw");
  await ask(scene, "raw", "100Gi");
  const failed = await scene.wait(
    "PersistentVolumeClaim",
    "raw",
    (claim) => resizing(claim).state === "ControllerResizeInfeasible",
    "is infeasible",
  );
  assertEquals(failed.status?.allocatedResources?.["storage"], "100Gi");
  assertEquals(resizing(failed).conditions, ["ControllerResizeError", "Resizing"]);
  await scene.event("PersistentVolumeClaim", "raw", "VolumeResizeFailed", /free/);
  assertEquals((await scene.lvOf("raw")).size, 16 << 20);

  await ask(scene, "raw", "24Mi");
  await scene.wait("PersistentVolumeClaim", "raw", (claim) => {
    const { size, state } = resizing(claim);
    return size === "24Mi" || state === "NodeResizePending";
  }, "has grown to 24Mi");
  assertEquals((await scene.lvOf("raw")).size, 24 << 20);

  const wish = { parameters: QUICK, volumeBindingMode: "Immediate", allowVolumeExpansion: false } as const;
  await scene.claim({ name: "fixed", class: await scene.storageClass("fixed", wish) });
  await scene.bound("fixed");
  await assertRejects(() => ask(scene, "fixed", "32Mi"), Error, "must support resize");
});
