/**
 * Ephemeral volumes, which are deleted with their pods.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { example } from "./helpers/example_files.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { podObject, QUICK } from "./helpers/objects.ts";

Deno.test("an ephemeral volume is created and deleted with its pod: claim, PersistentVolume, LVMVolume and logical volume", async () => {
  await using ns = await TestNamespace.open("ephemeral");
  const storageClassName = await ns.createStorageClass("scratch", { parameters: QUICK });
  const pod = podObject({ name: "worker", claims: [{ name: "space", path: "/space" }] });
  const resources = { requests: { storage: "16Mi" } };
  const volumeClaimTemplate = { spec: { accessModes: ["ReadWriteOnce"], storageClassName, resources } };
  const volumes = [{ name: "space", ephemeral: { volumeClaimTemplate } }];
  await ns.apply({ ...pod, spec: { ...pod.spec, volumes } });
  await ns.waitForRunning("worker");
  await ns.exec("worker", "echo here > /space/file && sync");
  const claim = await ns.waitForBound("worker-space");
  assertEquals(claim.metadata.ownerReferences?.map(({ kind, name }) => `${kind} ${name}`), ["Pod worker"]);
  const { metadata: { name: pv }, spec } = await ns.volumeOf("worker-space");
  assertEquals((await ns.lvs()).map(({ volume }) => volume), [spec!.csi!.volumeHandle]);

  await ns.deleteAndWait("Pod", "worker");
  await ns.waitForDeletion("PersistentVolumeClaim", "worker-space");
  await ns.waitForDeletion("PersistentVolume", pv);
  await ns.waitForDeletion("LVMVolume", spec!.csi!.volumeHandle);
  assertEquals(await ns.lvs(), []);
  await ns.waitForCleanup();
});

Deno.test("the example of an ephemeral volume runs unchanged", async () => {
  await using ns = await TestNamespace.open("ephemeral");
  await ns.apply(await example("ephemeral/pod.yaml"));
  await ns.waitForRunning("scratch");
  await ns.exec("scratch", "until [ -s /scratch/file ]; do sleep .2; done");
  assertEquals((await ns.lvs()).length, 1);
  await ns.deleteAndWait("Pod", "scratch");
  await ns.waitForDeletion("PersistentVolumeClaim", "scratch-space");
  await ns.waitForCleanup();
});
