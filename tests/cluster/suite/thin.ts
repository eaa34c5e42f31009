/**
 * Thin volumes: their pool, its gate, snapshots that outlive them, and a pool that fills and grows.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { ownGroup, removePool } from "./own_group.ts";
import { Scene } from "./scene.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

Deno.test("claims of a thin class share a pool, which promises what it has, and is kept when they are gone", async () => {
  await using scene = await Scene.open("thin");
  await using group = await ownGroup(scene, 400);
  const pool = `${group.name}/${group.name}_thinpool`;
  const parameters = { volumeGroup: group.name, thinProvision: "yes", thinPoolSize: "200Mi" };
  const cls = await scene.storageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  for (const name of ["one", "two"]) await scene.claim({ name, class: cls, size: "64Mi" });
  for (const name of ["one", "two"]) await scene.bound(name);
  await scene.claim({ name: "three", class: cls, size: "128Mi" });
  await scene.event("PersistentVolumeClaim", "three", "ProvisioningFailed", /left in thin pool/);
  assertEquals((await scene.onNode(`lvs --noheadings -o lv_layout ${pool}`)).trim(), "thin,pool");

  await scene.onNode(`lvchange --addtag denolith.overcommit=2 ${pool}`);
  await scene.bound("three");
  for (const name of ["one", "two", "three"]) await scene.delete("PersistentVolumeClaim", name);
  await scene.settled();
  assertEquals((await scene.onNode(`lvs --noheadings -o lv_tags ${pool}`)).includes("denolith.pool=made"), true);
  await removePool(scene, group.name);
});

Deno.test("a pool of the driver that fills grows before it is full, while a pod writes", async () => {
  await using scene = await Scene.open("fill");
  await using group = await ownGroup(scene, 400);
  const pool = `${group.name}/${group.name}_thinpool`;
  const parameters = { volumeGroup: group.name, thinProvision: "yes", thinPoolSize: "96Mi" };
  const cls = await scene.storageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls, size: "96Mi" });
  await scene.pod({ name: "writer", claims: [{ name: "data", path: "/data" }] });
  await scene.running("writer");
  // more than four fifths of the pool, and less than ext4 has for files
  await scene.exec("writer", "dd if=/dev/urandom of=/data/file bs=1M count=79 conv=fsync");
  const size = `lvs --noheadings --units m --nosuffix -o lv_size ${pool}`;
  await scene.onNode(`until [ "$(${size} | cut -d. -f1 | tr -d ' ')" -gt 96 ]; do sleep .5; done`);
  assert((await scene.exec("writer", "wc -c < /data/file")).trim() === `${79 << 20}`);
  await scene.delete("Pod", "writer");
  await scene.delete("PersistentVolumeClaim", "data");
  await scene.settled();
  await removePool(scene, group.name);
});

Deno.test("a snapshot of a thin volume takes no store, and outlives the claim", async () => {
  await using snapshots = await SnapshotScene.open("thinsnap");
  const { scene } = snapshots;
  await using group = await ownGroup(scene, 200);
  const parameters = { volumeGroup: group.name, thinProvision: "yes" };
  const cls = await scene.storageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  await scene.bound("data");
  const className = await snapshots.snapshotClass("thin", {});
  await snapshots.snapshot("first", { claim: "data", class: className });
  const { id } = await snapshots.ready("first");
  await scene.delete("PersistentVolumeClaim", "data");
  await scene.onNode(`while lvs --noheadings -o lv_name ${group.name} | grep -q vol-; do sleep .5; done`);
  assertEquals(await snapshots.state(id), "Ready");
  await scene.delete("VolumeSnapshot", "first");
  await scene.settled();
  await removePool(scene, group.name);
});
