/**
 * Guides, run as they stand: the expansion of a volume with snapshots, and the maintenance of a node. They stop pods, and
 * drain the node.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { QUICK } from "./helpers/objects.ts";
import { DocumentCommands } from "./helpers/document_commands.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** Reads a guide. */
function guide(name: string): Promise<string> {
  return Deno.readTextFile(new URL(`../../../docs/guides/${name}.md`, import.meta.url));
}

/** Starts a StatefulSet of one replica, whose claim is data-store-0. */
async function startStore(ns: TestNamespace, storageClassName: string): Promise<void> {
  await ns.apply({
    apiVersion: "apps/v1",
    kind: "StatefulSet",
    metadata: { name: "store" },
    spec: {
      serviceName: "store",
      replicas: 1,
      selector: { matchLabels: { app: "store" } },
      template: {
        metadata: { labels: { app: "store" } },
        spec: {
          terminationGracePeriodSeconds: 0,
          containers: [{
            name: "main",
            image: "busybox:1.36",
            imagePullPolicy: "IfNotPresent",
            command: ["sh", "-c", "[ -e /data/first ] || echo kept > /data/first; exec sleep 1000000"],
            volumeMounts: [{ name: "data", mountPath: "/data" }],
          }],
        },
      },
      volumeClaimTemplates: [{
        metadata: { name: "data" },
        spec: { storageClassName, accessModes: ["ReadWriteOnce"], resources: { requests: { storage: "32Mi" } } },
      }],
    },
  });
  await ns.waitForRunning("store-0");
  await ns.exec("store-0", "until [ -s /data/first ]; do sleep .2; done");
}

/** Removes the StatefulSet and its claim. */
async function removeStore(ns: TestNamespace): Promise<void> {
  await ns.kubectl("delete", "statefulset", "store", "--wait=true");
  await ns.kubectl("wait", "--for=delete", "pod/store-0", "--timeout=120s");
  await ns.deleteAndWait("PersistentVolumeClaim", "data-store-0");
}

Deno.test("the guide of offline expansion: a volume with snapshots grows while its pods are stopped", async () => {
  await using snapshots = await SnapshotTestNamespace.open("guides-expand");
  const { ns } = snapshots;
  await startStore(ns, await ns.createStorageClass("quick", { parameters: QUICK }));
  const snapshotClass = await snapshots.createSnapshotClass("now");
  await snapshots.createSnapshot("one", { claim: "data-store-0", class: snapshotClass });
  const { id } = await snapshots.waitUntilReady("one");

  const names = { CLAIM: "data-store-0", NAME: "store", "20Gi": "48Mi", "replicas=3": "replicas=1" };
  const commands = new DocumentCommands(ns, await guide("expansion"), names);
  await commands.runBlock("patch pvc");
  await ns.waitForEvent("PersistentVolumeClaim", "data-store-0", "VolumeResizeFailed", /in use and has the snapshots/);
  assertStringIncludes(await commands.runBlock("--replicas=0"), "Used By:");
  await commands.runBlock("FileSystemResizePending");
  await commands.runBlock("--replicas=3");
  await ns.waitForRunning("store-0");
  await ns.waitFor(
    "PersistentVolumeClaim",
    "data-store-0",
    (claim) => claim?.status?.capacity?.["storage"] === "48Mi",
    "has its new size",
  );
  assertEquals((await commands.runBlock("status.capacity.storage")).trim(), "48Mi");
  assertEquals(await ns.exec("store-0", "cat /data/first"), "kept\n");
  await ns.deleteAndWait("VolumeSnapshot", "one");
  await snapshots.waitUntilDeleted([id]);
  await removeStore(ns);
  await ns.waitForCleanup();
});

Deno.test("the guide of maintenance: a node is drained until no volume is mounted, and its pods start again with their data", async () => {
  await using ns = await TestNamespace.open("guides-drain");
  await startStore(ns, await ns.createStorageClass("quick", { parameters: QUICK }));
  const { volume } = await ns.lvOf("data-store-0");
  const text = await guide("node-maintenance");
  const commands = new DocumentCommands(ns, text.replace(/^kubectl denolith .*\n/m, ""), {});
  const before = await commands.runBlock("--output wide");
  assertStringIncludes(before, volume!);
  assertStringIncludes(before, ns.node.name);
  try {
    await commands.runBlock("kubectl drain");
    await ns.runOnNode("until ! findmnt --list --output TARGET | grep kubernetes.io/csi; do sleep .5; done");
    assertEquals((await commands.runBlock("findmnt --list")).trim(), "none");
  } finally {
    assertMatch(await commands.runBlock("kubectl uncordon"), /denolith-node-\w+ +1\/1 +Running/);
  }
  await ns.waitForRunning("store-0");
  assertEquals(await ns.exec("store-0", "cat /data/first"), "kept\n");
  await removeStore(ns);
  await ns.waitForCleanup();
});
