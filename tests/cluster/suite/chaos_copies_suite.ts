/**
 * Kills of the process that makes a copy, during the copy.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { CLONING_FINALIZER } from "../../../k8s/provisioner/content_source.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { addWriter } from "./helpers/copy_helpers.ts";
import { DriverPods } from "./helpers/driver_pods.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK, SLEEP } from "./helpers/objects.ts";
import { WAIT_MS } from "./helpers/object_watcher.ts";

Deno.test("an agent that is killed during a copy continues it, and the source is kept until the copy is complete", async () => {
  await using ns = await TestNamespace.open("killed");
  await using driver = await DriverPods.open(ns.cluster);
  await addWriter(ns, { size: "640Mi" });
  const className = await ns.createStorageClass("at-once", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({
    name: "copy",
    class: className,
    size: "640Mi",
    from: { kind: "PersistentVolumeClaim", name: "data" },
  });
  const isCopied = async () =>
    (await ns.kubectl("get", "lvmvolumes", "--output=jsonpath={.items[*].status.copy}")) !== "";
  await pollUntil(isCopied, { action: "wait for a copy to be under way", timeoutMs: WAIT_MS, intervalMs: 200 });
  const before = driver.readyContainers("node");
  await driver.killProcess("node");
  await ns.deleteAndWait("Pod", "writer");
  await ns.kubectl("delete", "pvc", "data", "--wait=false");
  const { metadata } = await ns.waitFor("PersistentVolumeClaim", "data", (now) => now !== undefined, "is there");
  assert(metadata.finalizers?.includes(CLONING_FINALIZER), String(metadata.finalizers));
  await driver.waitForReady("node", { before });
  await ns.waitForBound("copy");
  await ns.waitForDeletion("PersistentVolumeClaim", "data");
  await ns.createPod({ name: "reader", claims: [{ name: "copy", path: "/copy" }], command: SLEEP });
  await ns.waitForRunning("reader");
  assertEquals(await ns.exec("reader", "cat /copy/file"), "before\n");
});
