/**
 * Lifecycles of copies of thin claims: instant ones within their pool, and copies to a thick class and back.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { createTestGroup, removePool } from "./helpers/test_group.ts";
import type { TestNamespace } from "./helpers/test_namespace.ts";
import { SLEEP } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

/** Makes a thin class in a group, a claim `data` of it, and a pod `writer` that has it and has written to it. */
async function addThinWriter(ns: TestNamespace, volumeGroup: string): Promise<string> {
  const parameters = { volumeGroup, thinProvision: "yes", thinPoolSize: "200Mi" };
  const className = await ns.createStorageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: className, size: "32Mi" });
  await ns.createPod({ name: "writer", claims: [{ name: "data", path: "/data" }], command: SLEEP });
  await ns.waitForRunning("writer");
  await ns.exec("writer", "echo before > /data/file && sync");
  return className;
}

/** Deletes pods and claims, and then the pool of the group, as an administrator does. */
async function cleanUp(ns: TestNamespace, pods: string[], claims: string[], volumeGroup: string): Promise<void> {
  for (const name of pods) await ns.deleteAndWait("Pod", name);
  for (const name of claims) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await ns.waitForCleanup();
  await removePool(ns, volumeGroup);
}

Deno.test("a thin claim in use is cloned at once, larger, and mounted beside the original; a claim beyond the pool's virtual size waits", async () => {
  await using snapshots = await SnapshotTestNamespace.open("thinclone");
  const { ns } = snapshots;
  await using group = await createTestGroup(ns, 400);
  const cls = await addThinWriter(ns, group.name);
  const from = { kind: "PersistentVolumeClaim", name: "data" } as const;
  await ns.createClaim({ name: "copy", class: cls, size: "64Mi", from });
  await ns.waitForBound("copy");
  const claims = [{ name: "data", path: "/data" }, { name: "copy", path: "/copy" }];
  await ns.createPod({ name: "both", claims, command: SLEEP });
  await ns.waitForRunning("both");
  await ns.exec("both", "echo mine > /copy/mine && sync");
  assertEquals(await ns.exec("both", "cat /copy/file; ls /data/mine 2>&1 | wc -l"), "before\n1\n");
  const blocks = Number(await ns.exec("both", "df -kP /copy | awk 'END { print $2 }'"));
  assert(blocks > 48 * 1024, `the filesystem has ${blocks} KiB`);
  const { volume } = await ns.lvOf("copy");
  const selector = `--field-selector=reason=Copying,involvedObject.name=${volume}`;
  assertEquals(await ns.kubectl("get", "events", "--all-namespaces", selector, "--output=name"), "");

  await ns.createClaim({ name: "more", class: cls, size: "128Mi", from });
  const { message } = await ns.waitForEvent("PersistentVolumeClaim", "more", "ProvisioningFailed");
  assertMatch(message!, /thin pool/);
  await cleanUp(ns, ["both", "writer"], ["more", "copy", "data"], group.name);
});

Deno.test("a thin claim is restored at once from a snapshot, and outlives both; a thick class has it copied", async () => {
  await using snapshots = await SnapshotTestNamespace.open("thinrestore");
  const { ns } = snapshots;
  await using group = await createTestGroup(ns, 400);
  const cls = await addThinWriter(ns, group.name);
  const thick = await ns.createStorageClass("thick", {
    parameters: { volumeGroup: group.name },
    volumeBindingMode: "Immediate",
  });
  await snapshots.createSnapshot("cut", { claim: "data", class: await snapshots.createSnapshotClass("thin", {}) });
  await snapshots.waitUntilReady("cut");
  await ns.exec("writer", "echo after > /data/file && sync");
  const from = { kind: "VolumeSnapshot", name: "cut" } as const;
  await ns.createClaim({ name: "copy", class: cls, size: "32Mi", from });
  await ns.createClaim({ name: "thick", class: thick, size: "32Mi", from });
  for (const name of ["copy", "thick"]) await ns.waitForBound(name);
  await ns.deleteAndWait("VolumeSnapshot", "cut");
  await ns.deleteAndWait("Pod", "writer");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  const claims = [{ name: "copy", path: "/copy" }, { name: "thick", path: "/thick" }];
  await ns.createPod({ name: "both", claims, command: SLEEP });
  await ns.waitForRunning("both");
  assertEquals(await ns.exec("both", "cat /copy/file /thick/file"), "before\nbefore\n");
  const pools = await Promise.all(["copy", "thick"].map(async (claim) => {
    const { name } = await ns.lvOf(claim);
    return (await ns.runOnNode(`lvs --noheadings -o pool_lv ${group.name}/${name}`)).trim();
  }));
  assertEquals(pools, [`${group.name}_thinpool`, ""]);
  await cleanUp(ns, ["both"], ["copy", "thick"], group.name);
});
