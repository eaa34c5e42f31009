/**
 * Volumes that live with their pods.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { example } from "./example_files.ts";
import { Scene } from "./scene.ts";
import { podObject, QUICK } from "./scene_objects.ts";

Deno.test("a pod's own volume is made with it, and goes with it: claim, PersistentVolume, LVMVolume and logical volume", async () => {
  await using scene = await Scene.open("ephemeral");
  const storageClassName = await scene.storageClass("scratch", { parameters: QUICK });
  const pod = podObject({ name: "worker", claims: [{ name: "space", path: "/space" }] });
  const resources = { requests: { storage: "16Mi" } };
  const volumeClaimTemplate = { spec: { accessModes: ["ReadWriteOnce"], storageClassName, resources } };
  const volumes = [{ name: "space", ephemeral: { volumeClaimTemplate } }];
  await scene.apply({ ...pod, spec: { ...pod.spec, volumes } });
  await scene.running("worker");
  await scene.exec("worker", "echo here > /space/file && sync");
  const claim = await scene.bound("worker-space");
  assertEquals(claim.metadata.ownerReferences?.map(({ kind, name }) => `${kind} ${name}`), ["Pod worker"]);
  const { metadata: { name: pv }, spec } = await scene.volumeOf("worker-space");
  assertEquals((await scene.lvs()).map(({ volume }) => volume), [spec!.csi!.volumeHandle]);

  await scene.delete("Pod", "worker");
  await scene.gone("PersistentVolumeClaim", "worker-space");
  await scene.gone("PersistentVolume", pv);
  await scene.gone("LVMVolume", spec!.csi!.volumeHandle);
  assertEquals(await scene.lvs(), []);
  await scene.settled();
});

Deno.test("the example of a volume that lives with its pod runs as it is", async () => {
  await using scene = await Scene.open("ephemeral");
  await scene.apply(await example("ephemeral/pod.yaml"));
  await scene.running("scratch");
  await scene.exec("scratch", "until [ -s /scratch/file ]; do sleep .2; done");
  assertEquals((await scene.lvs()).length, 1);
  await scene.delete("Pod", "scratch");
  await scene.gone("PersistentVolumeClaim", "scratch-space");
  await scene.settled();
});
