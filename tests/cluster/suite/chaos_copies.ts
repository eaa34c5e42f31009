/**
 * Who makes copies dies in the midst of one.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { CLONING_FINALIZER } from "../../../k8s/provisioner/content_source.ts";
import { until } from "../../rig/until.ts";
import { addWriter } from "./copy_scene.ts";
import { DriverPods } from "./driver_pods.ts";
import { Scene } from "./scene.ts";
import { QUICK, SLEEP } from "./scene_objects.ts";
import { WAIT_MS } from "./scene_watch.ts";

Deno.test("an agent that is killed in the midst of a copy goes on with it; its source stays until it is done", async () => {
  await using scene = await Scene.open("killed");
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
