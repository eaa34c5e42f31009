/**
 * Thin volumes: their pool, its gate, snapshots that outlive them, and a pool that fills and grows.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { createTestGroup, removePool } from "./helpers/test_group.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

Deno.test("claims of a thin class share a pool, which allocates no more than its size, and is kept when they are gone", async () => {
  await using ns = await TestNamespace.open("thin");
  await using group = await createTestGroup(ns, 400);
  const pool = `${group.name}/${group.name}_thinpool`;
  const parameters = { volumeGroup: group.name, thinProvision: "yes", thinPoolSize: "200Mi" };
  const cls = await ns.createStorageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  for (const name of ["one", "two"]) await ns.createClaim({ name, class: cls, size: "64Mi" });
  for (const name of ["one", "two"]) await ns.waitForBound(name);
  await ns.createClaim({ name: "three", class: cls, size: "128Mi" });
  await ns.waitForEvent("PersistentVolumeClaim", "three", "ProvisioningFailed", /left in thin pool/);
  assertEquals((await ns.runOnNode(`lvs --noheadings -o lv_layout ${pool}`)).trim(), "thin,pool");

  await ns.runOnNode(`lvchange --addtag denolith.overcommit=2 ${pool}`);
  await ns.waitForBound("three");
  for (const name of ["one", "two", "three"]) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await ns.waitForCleanup();
  assertEquals((await ns.runOnNode(`lvs --noheadings -o lv_tags ${pool}`)).includes("denolith.pool=made"), true);
  await removePool(ns, group.name);
});

Deno.test("a pool of the driver that fills is extended before it is full, while a pod writes", async () => {
  await using ns = await TestNamespace.open("fill");
  await using group = await createTestGroup(ns, 400);
  const pool = `${group.name}/${group.name}_thinpool`;
  const parameters = { volumeGroup: group.name, thinProvision: "yes", thinPoolSize: "96Mi" };
  const cls = await ns.createStorageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls, size: "96Mi" });
  await ns.createPod({ name: "writer", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("writer");
  // more than four fifths of the pool, and less than ext4 has for files
  await ns.exec("writer", "dd if=/dev/urandom of=/data/file bs=1M count=79 conv=fsync");
  const size = `lvs --noheadings --units m --nosuffix -o lv_size ${pool}`;
  await ns.runOnNode(`until [ "$(${size} | cut -d. -f1 | tr -d ' ')" -gt 96 ]; do sleep .5; done`);
  assert((await ns.exec("writer", "wc -c < /data/file")).trim() === `${79 << 20}`);
  await ns.deleteAndWait("Pod", "writer");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
  await removePool(ns, group.name);
});

Deno.test("a snapshot of a thin volume needs no COW space, and outlives the claim", async () => {
  await using snapshots = await SnapshotTestNamespace.open("thinsnap");
  const { ns } = snapshots;
  await using group = await createTestGroup(ns, 200);
  const parameters = { volumeGroup: group.name, thinProvision: "yes" };
  const cls = await ns.createStorageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls });
  await ns.waitForBound("data");
  const className = await snapshots.createSnapshotClass("thin", {});
  await snapshots.createSnapshot("first", { claim: "data", class: className });
  const { id } = await snapshots.waitUntilReady("first");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.runOnNode(`while lvs --noheadings -o lv_name ${group.name} | grep -q vol-; do sleep .5; done`);
  assertEquals(await snapshots.snapshotState(id), "Ready");
  await ns.deleteAndWait("VolumeSnapshot", "first");
  await ns.waitForCleanup();
  await removePool(ns, group.name);
});
