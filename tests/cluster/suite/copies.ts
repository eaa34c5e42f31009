/**
 * Lives of copies: claims that are made from snapshots and from other claims.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { addWriter } from "./copy_scene.ts";
import { FULL, type Scene } from "./scene.ts";
import { QUICK, SLEEP } from "./scene_objects.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

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

for (const fsType of FULL ? ["ext4", "xfs", "btrfs"] : ["xfs"]) {
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
