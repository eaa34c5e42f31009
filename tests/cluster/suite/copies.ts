/**
 * Lives of copies: claims that are made from snapshots and from other claims.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { CLONING_FINALIZER } from "../../../k8s/content_source.ts";
import { until } from "../../rig/until.ts";
import { DriverPods } from "./driver_pods.ts";
import type { Scene } from "./scene.ts";
import { QUICK, SLEEP } from "./scene_objects.ts";
import { WAIT_MS } from "./scene_watch.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

/** Makes a claim `data`, and a pod `writer` that has it and has written to it. */
async function addWriter(scene: Scene, { size = "16Mi", fsType = "ext4" } = {}): Promise<string> {
  const parameters = { ...QUICK, "csi.storage.k8s.io/fstype": fsType };
  const className = await scene.storageClass("plain", { parameters });
  await scene.claim({ name: "data", class: className, size });
  await scene.pod({ name: "writer", claims: [{ name: "data", path: "/data" }], command: SLEEP });
  await scene.running("writer");
  await scene.exec("writer", "echo before > /data/file && sync");
  return className;
}

/** The tag that says what is on the LV of a claim. */
async function content(scene: Scene, claim: string): Promise<string> {
  return (await scene.lvOf(claim)).tags.find((tag) => tag.startsWith("denolith.fs="))!;
}

Deno.test("a claim made from a snapshot is larger, has what was there then, and is mounted beside the original", async () => {
  await using snapshots = await SnapshotScene.open("restore");
  const { scene } = snapshots;
  const className = await addWriter(scene);
  await snapshots.snapshot("cut", { claim: "data", class: await snapshots.snapshotClass("now") });
  await snapshots.ready("cut");
  await scene.exec("writer", "echo after > /data/file && sync");
  await scene.claim({ name: "copy", class: className, size: "32Mi", from: { kind: "VolumeSnapshot", name: "cut" } });
  const claims = [{ name: "data", path: "/data" }, { name: "copy", path: "/copy" }];
  await scene.pod({ name: "both", claims, command: SLEEP });
  await scene.running("both");
  assertEquals(await scene.exec("both", "cat /copy/file /data/file"), "before\nafter\n");
  const blocks = Number(await scene.exec("both", "df -kP /copy | awk 'END { print $2 }'"));
  assert(blocks > 20 * 1024, `the filesystem has ${blocks} KiB`);
  assertNotEquals(await content(scene, "copy"), await content(scene, "data"));
  await scene.delete("Pod", "both");
});

for (const fsType of ["ext4", "xfs", "btrfs"]) {
  Deno.test(`a claim is made from one in use, and mounted beside it: ${fsType}`, async () => {
    await using snapshots = await SnapshotScene.open(`clone-${fsType}`);
    const { scene } = snapshots;
    const size = fsType === "ext4" ? "16Mi" : "320Mi";
    const className = await addWriter(scene, { size, fsType });
    await scene.claim({ name: "copy", class: className, size, from: { kind: "PersistentVolumeClaim", name: "data" } });
    const claims = [{ name: "data", path: "/data" }, { name: "copy", path: "/copy" }];
    await scene.pod({ name: "both", claims, command: SLEEP });
    await scene.running("both");
    await scene.exec("both", "echo mine > /copy/mine && sync");
    assertEquals(
      await scene.exec("both", "cat /copy/file; ls /data/mine 2>&1 | wc -l; cat /data/file"),
      "before\n1\nbefore\n",
    );
    assertEquals((await scene.lvs()).filter(({ name }) => name.startsWith("cut-")), []);
    await scene.delete("Pod", "both");
  });
}

Deno.test("an agent that is killed in the midst of a copy goes on with it; its source stays until it is done", async () => {
  await using snapshots = await SnapshotScene.open("killed");
  const { scene } = snapshots;
  await using driver = await DriverPods.open(scene.cluster);
  await addWriter(scene, { size: "640Mi" });
  const className = await scene.storageClass("at-once", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({
    name: "copy",
    class: className,
    size: "640Mi",
    from: { kind: "PersistentVolumeClaim", name: "data" },
  });
  const isCopied = async () =>
    (await scene.kubectl("get", "lvmvolumes", "--output=jsonpath={.items[*].status.copy}")) !== "";
  await until(isCopied, { action: "wait for a copy to be under way", timeoutMs: WAIT_MS, everyMs: 200 });
  const before = driver.working("node");
  await driver.killProcess("node");
  await scene.delete("Pod", "writer");
  await scene.kubectl("delete", "pvc", "data", "--wait=false");
  const { metadata } = await scene.wait("PersistentVolumeClaim", "data", (now) => now !== undefined, "is there");
  assert(metadata.finalizers?.includes(CLONING_FINALIZER), String(metadata.finalizers));
  await driver.back("node", { before });
  await scene.bound("copy");
  await scene.gone("PersistentVolumeClaim", "data");
  await scene.pod({ name: "reader", claims: [{ name: "copy", path: "/copy" }], command: SLEEP });
  await scene.running("reader");
  assertEquals(await scene.exec("reader", "cat /copy/file"), "before\n");
});

Deno.test("a claim whose source is missing, or of another mode, says so, and waits", async () => {
  await using snapshots = await SnapshotScene.open("sources");
  const { scene } = snapshots;
  await addWriter(scene);
  const className = await scene.storageClass("at-once", { parameters: QUICK, volumeBindingMode: "Immediate" });
  const from = { kind: "PersistentVolumeClaim", name: "data" } as const;
  await scene.claim({ name: "early", class: className, from: { kind: "VolumeSnapshot", name: "later" } });
  await scene.claim({ name: "block", class: className, volumeMode: "Block", from });
  await scene.claim({ name: "small", class: className, size: "8Mi", from });
  const said = async (claim: string) =>
    (await scene.event("PersistentVolumeClaim", claim, "ProvisioningFailed")).message!;
  assertMatch(await said("early"), /there is none/);
  assertMatch(await said("block"), /Filesystem volume, asked for is Block/);
  assertMatch(await said("small"), /asked for is only 8 MiB/);
  await snapshots.snapshot("later", { claim: "data", class: await snapshots.snapshotClass("now") });
  await snapshots.ready("later");
  await scene.bound("early");
});
