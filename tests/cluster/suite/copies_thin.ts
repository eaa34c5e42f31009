/**
 * Lives of copies of thin claims: at once within their pool, and to a thick class and back.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { ownGroup, removePool } from "./own_group.ts";
import type { Scene } from "./scene.ts";
import { SLEEP } from "./scene_objects.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

/** Makes a thin class in a group, a claim `data` of it, and a pod `writer` that has it and has written to it. */
async function addThinWriter(scene: Scene, volumeGroup: string): Promise<string> {
  const parameters = { volumeGroup, thinProvision: "yes", thinPoolSize: "200Mi" };
  const className = await scene.storageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: className, size: "32Mi" });
  await scene.pod({ name: "writer", claims: [{ name: "data", path: "/data" }], command: SLEEP });
  await scene.running("writer");
  await scene.exec("writer", "echo before > /data/file && sync");
  return className;
}

/** Deletes pods and claims, and then the pool of the group, as an administrator does. */
async function clear(scene: Scene, pods: string[], claims: string[], volumeGroup: string): Promise<void> {
  for (const name of pods) await scene.delete("Pod", name);
  for (const name of claims) await scene.delete("PersistentVolumeClaim", name);
  await scene.settled();
  await removePool(scene, volumeGroup);
}

Deno.test("a thin claim in use is cloned at once, larger, and mounted beside the original; what cannot be promised waits", async () => {
  await using snapshots = await SnapshotScene.open("thinclone");
  const { scene } = snapshots;
  await using group = await ownGroup(scene, 400);
  const cls = await addThinWriter(scene, group.name);
  const from = { kind: "PersistentVolumeClaim", name: "data" } as const;
  await scene.claim({ name: "copy", class: cls, size: "64Mi", from });
  await scene.bound("copy");
  const claims = [{ name: "data", path: "/data" }, { name: "copy", path: "/copy" }];
  await scene.pod({ name: "both", claims, command: SLEEP });
  await scene.running("both");
  await scene.exec("both", "echo mine > /copy/mine && sync");
  assertEquals(await scene.exec("both", "cat /copy/file; ls /data/mine 2>&1 | wc -l"), "before\n1\n");
  const blocks = Number(await scene.exec("both", "df -kP /copy | awk 'END { print $2 }'"));
  assert(blocks > 48 * 1024, `the filesystem has ${blocks} KiB`);
  const { volume } = await scene.lvOf("copy");
  const selector = `--field-selector=reason=Copying,involvedObject.name=${volume}`;
  assertEquals(await scene.kubectl("get", "events", "--all-namespaces", selector, "--output=name"), "");

  await scene.claim({ name: "more", class: cls, size: "128Mi", from });
  const { message } = await scene.event("PersistentVolumeClaim", "more", "ProvisioningFailed");
  assertMatch(message!, /thin pool/);
  await clear(scene, ["both", "writer"], ["more", "copy", "data"], group.name);
});

Deno.test("a thin claim is restored at once from a snapshot, and outlives both; a thick class has it copied", async () => {
  await using snapshots = await SnapshotScene.open("thinrestore");
  const { scene } = snapshots;
  await using group = await ownGroup(scene, 400);
  const cls = await addThinWriter(scene, group.name);
  const thick = await scene.storageClass("thick", {
    parameters: { volumeGroup: group.name },
    volumeBindingMode: "Immediate",
  });
  await snapshots.snapshot("cut", { claim: "data", class: await snapshots.snapshotClass("thin", {}) });
  await snapshots.ready("cut");
  await scene.exec("writer", "echo after > /data/file && sync");
  const from = { kind: "VolumeSnapshot", name: "cut" } as const;
  await scene.claim({ name: "copy", class: cls, size: "32Mi", from });
  await scene.claim({ name: "thick", class: thick, size: "32Mi", from });
  for (const name of ["copy", "thick"]) await scene.bound(name);
  await scene.delete("VolumeSnapshot", "cut");
  await scene.delete("Pod", "writer");
  await scene.delete("PersistentVolumeClaim", "data");
  const claims = [{ name: "copy", path: "/copy" }, { name: "thick", path: "/thick" }];
  await scene.pod({ name: "both", claims, command: SLEEP });
  await scene.running("both");
  assertEquals(await scene.exec("both", "cat /copy/file /thick/file"), "before\nbefore\n");
  const pools = await Promise.all(["copy", "thick"].map(async (claim) => {
    const { name } = await scene.lvOf(claim);
    return (await scene.onNode(`lvs --noheadings -o pool_lv ${group.name}/${name}`)).trim();
  }));
  assertEquals(pools, [`${group.name}_thinpool`, ""]);
  await clear(scene, ["both"], ["copy", "thick"], group.name);
});
