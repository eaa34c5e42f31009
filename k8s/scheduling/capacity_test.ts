import { assertEquals } from "@std/assert";
import { DRIVER, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { waitForCapacityBelow } from "./capacity.ts";
import { capacityName, MANAGED_BY } from "./capacity_object.ts";
import { lvmNodes, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { csiNodes, csiStorageCapacities, storageClasses } from "../api/objects.ts";
import { Informer } from "../runtime/informer.ts";
import { GiB, NAMESPACE, startCapacityCluster } from "../../tests/fake/cluster/capacity_publishers.ts";

Deno.test("there is an object for each node and class of the driver, which belongs to the node", async () => {
  await using s = startCapacityCluster();
  s.addClass("halves", { groups: "two" });
  s.addClass("others", {}, "other.driver");
  s.addNode("c", GiB, ["other.driver"]);
  s.api.put(lvmNodes, { metadata: { name: "d" }, spec: { driverName: "other.driver" } });
  s.api.put(csiNodes, { metadata: { name: "d" }, spec: { drivers: [{ name: DRIVER, nodeID: "d" }] } });
  await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "a halves 8Gi 4Gi", "b fast 8Gi 8Gi", "b halves 8Gi 4Gi");
  const { metadata } = s.object("a", "halves")!;
  const [node] = s.api.objects(lvmNodes).filter(({ metadata }) => metadata.name === "a");
  assertEquals([metadata.namespace, metadata.ownerReferences?.map(({ kind, name, uid }) => [kind, name, uid])], [
    NAMESPACE,
    [["LVMNode", "a", node!.metadata.uid!]],
  ]);
  assertEquals(s.writes(), ["POST", "POST", "POST", "POST"]);
});

Deno.test("figures follow reports and volumes, and nothing is written when they stay", async () => {
  await using s = startCapacityCluster();
  const { turns } = await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  await s.report("a", 6n * GiB);
  await s.waitUntilPublished("a fast 6Gi 6Gi", "b fast 8Gi 8Gi");
  s.free.set("b", 5n * GiB);
  const volume = { metadata: { name: "v" }, spec: { driverName: DRIVER, nodeName: "b" } as LvmVolume["spec"] };
  s.api.put(lvmVolumes, volume);
  await s.waitUntilPublished("a fast 6Gi 6Gi", "b fast 5Gi 5Gi");
  assertEquals(s.writes(), ["POST", "POST", "PATCH", "PATCH"]);
  const before = turns.length;
  await s.report("a", 6n * GiB);
  await s.client.patch(lvmVolumes, { name: "v" }, { merge: { metadata: { annotations: { a: "b" } } } });
  await waitUntil(() => turns.length >= before + 2, "both turns");
  assertEquals(s.writes().length, 4);
});

Deno.test("objects go with their class, their node, and the driver on it, and come back with them", async () => {
  await using s = startCapacityCluster();
  s.addClass("slow");
  await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "a slow 8Gi 8Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
  await s.client.delete(storageClasses, { name: "slow" });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  await s.client.delete(lvmNodes, { name: "a" });
  await s.waitUntilPublished("b fast 8Gi 8Gi");
  await s.client.patch(csiNodes, { name: "b" }, { merge: { spec: { drivers: [] } } });
  await s.waitUntilPublished();
  s.addClass("slow");
  const drivers = [{ name: DRIVER, nodeID: "b", topologyKeys: [TOPOLOGY_KEY] }];
  await s.client.patch(csiNodes, { name: "b" }, { merge: { spec: { drivers } } });
  await s.waitUntilPublished("b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
  s.api.put(lvmNodes, { metadata: { name: "a" }, spec: { driverName: DRIVER } });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "a slow 8Gi 8Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
});

Deno.test("a new node of the same name owns its published capacity", async () => {
  await using s = startCapacityCluster();
  const { end } = await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  await end();
  await s.client.delete(lvmNodes, { name: "a" });
  const { metadata: { uid } } = s.api.put(lvmNodes, { metadata: { name: "a" }, spec: { driverName: DRIVER } });
  await s.start({ name: "second" });
  await waitUntil(() => s.object("a", "fast")?.metadata.ownerReferences?.[0]?.uid === uid, "the new owner");
  assertEquals(s.writes("second"), ["PATCH"]);
});

Deno.test("a restart finds what is there, and writes only what changed meanwhile", async () => {
  await using s = startCapacityCluster();
  const { end } = await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  await end();
  const second = await s.start({ name: "second" });
  await waitUntil(() => second.turns.length >= 2, "a turn for each");
  assertEquals(s.writes("second"), []);
  await second.end();
  s.addClass("slow");
  await s.client.delete(storageClasses, { name: "fast" });
  s.free.set("b", 3n * GiB);
  await s.start({ name: "third" });
  await s.waitUntilPublished("a slow 8Gi 8Gi", "b slow 3Gi 3Gi");
  assertEquals(s.writes("third").sort(), ["DELETE", "DELETE", "POST", "POST"]);
});

Deno.test("an object that somebody deleted or changed is restored; those of others stay", async () => {
  await using s = startCapacityCluster();
  const others = { storageClassName: "fast", capacity: "1Ti" };
  const labels = { "csi.storage.k8s.io/drivername": DRIVER, "csi.storage.k8s.io/managed-by": "external-provisioner" };
  const official = s.api.put(csiStorageCapacities, {
    ...others,
    metadata: { name: "csisc-1", namespace: NAMESPACE, labels },
  });
  const elsewhere = { ...labels, "csi.storage.k8s.io/managed-by": MANAGED_BY };
  s.api.put(csiStorageCapacities, { ...others, metadata: { name: "x", namespace: "other", labels: elsewhere } });
  s.api.put(csiStorageCapacities, { ...others, metadata: { name: "copy", namespace: NAMESPACE, labels: elsewhere } });
  await s.start();
  const others2 = ["undefined fast 1Ti undefined", "undefined fast 1Ti undefined"];
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi", ...others2);
  const at = { namespace: NAMESPACE, name: s.object("a", "fast")!.metadata.name };
  await s.client.delete(csiStorageCapacities, at);
  await waitUntil(() => s.object("a", "fast") !== undefined, "another one");
  const merge = { metadata: { labels: null, ownerReferences: [] }, capacity: "1Pi", maximumVolumeSize: null };
  await s.client.patch(csiStorageCapacities, at, { merge });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi", ...others2);
  const { metadata: { labels: now, ownerReferences } } = s.object("a", "fast")!;
  assertEquals([now, ownerReferences?.length], [elsewhere, 1]);
  await s.client.delete(csiStorageCapacities, at);
  s.api.put(csiStorageCapacities, { storageClassName: "slow", metadata: { ...at, labels: elsewhere } });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi", ...others2);
  const kept = s.api.objects(csiStorageCapacities).find(({ metadata }) => metadata.name === "csisc-1");
  assertEquals(kept, official);
});

Deno.test("for an invalid class the capacity of any class is published, so that a claim is tried and its error reported", async () => {
  await using s = startCapacityCluster();
  s.addClass("broken", { stripes: "9", groups: "two" });
  s.addClass("large", { "csi.storage.k8s.io/fstype": "xfs" });
  s.free.set("b", GiB);
  await s.start();
  const others = ["a fast 8Gi 8Gi", "b fast 1Gi 1Gi"];
  await s.waitUntilPublished(...others, "a broken 8Gi 8Gi", "b broken 1Gi 1Gi", "a large 8Gi 8Gi", "b large 1Gi 0");
});

Deno.test("waitForCapacityBelow() waits until the published capacity of a node is less than the size, or none is published", async () => {
  await using s = startCapacityCluster();
  const { options } = await s.start();
  const key = { nodeName: "a", className: "fast" };
  await options.published.waitFor(`${NAMESPACE}/${capacityName(DRIVER, key)}`, (now) => now !== undefined);
  let isBelow = false;
  const waiting = waitForCapacityBelow(options, key, 5n * GiB, {}).then(() => isBelow = true);
  await s.report("a", 5n * GiB);
  await s.waitUntilPublished("a fast 5Gi 5Gi", "b fast 8Gi 8Gi");
  assertEquals(isBelow, false);
  await s.report("a", 4n * GiB);
  await waiting;
  await waitForCapacityBelow(options, { ...key, className: "other" }, 1n, {});
  await waitForCapacityBelow(options, key, 1n, { timeoutMs: 1 });
});

Deno.test("the capacity of a node is published again when its agent has become silent", async () => {
  await using s = startCapacityCluster();
  const { turns } = await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  await waitUntil(() => turns.length >= 4, "the turn of each object after its own creation");
  s.free.set("a", 0n);
  s.notifyOfAgent("a");
  await s.waitUntilPublished("a fast 0 0", "b fast 8Gi 8Gi");
});

Deno.test("a publisher that begins to lead does not go through the volumes", async () => {
  await using s = startCapacityCluster();
  const spec = { driverName: DRIVER, nodeName: "b" } as LvmVolume["spec"];
  for (let index = 0; index < 50; index++) s.api.put(lvmVolumes, { metadata: { name: `v-${index}` }, spec });
  let reads = 0;
  const volumes = new Informer(s.client, lvmVolumes, {
    transform: (volume) => {
      const { spec } = volume;
      return Object.defineProperty(volume, "spec", {
        get: () => {
          reads++;
          return spec;
        },
      });
    },
  });
  const stop = new AbortController();
  const watching = volumes.start(stop.signal);
  await volumes.synced;
  await s.start({ volumes });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  assertEquals(reads, 0);
  s.free.set("b", 5n * GiB);
  await s.client.patch(lvmVolumes, { name: "v-1" }, { merge: { metadata: { annotations: { a: "b" } } } });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 5Gi 5Gi");
  stop.abort();
  await watching;
});

Deno.test("the objects of a new class are written before those of others change", async () => {
  await using s = startCapacityCluster();
  for (const name of ["c", "d", "e"]) s.addNode(name);
  const gate = Promise.withResolvers<void>();
  let depth = 0;
  await s.start({
    parallel: 1,
    onDepth: (_, now) => depth = now,
    wrap: (client) =>
      interceptClient(client, async (request) => {
        if (request.startsWith("patch")) await gate.promise;
      }),
  });
  const nodeNames = ["a", "b", "c", "d", "e"];
  await s.waitUntilPublished(...nodeNames.map((name) => `${name} fast 8Gi 8Gi`));
  for (const name of nodeNames) await s.report(name, 4n * GiB);
  await waitUntil(() => depth === 4, "the changed nodes");
  s.addClass("new");
  await waitUntil(() => depth === 9, "the new class");
  const before = s.writes().length;
  gate.resolve();
  await s.waitUntilPublished(...["fast", "new"].flatMap((name) => nodeNames.map((node) => `${node} ${name} 4Gi 4Gi`)));
  assertEquals(s.writes().slice(before), [
    ...["PATCH", "POST", "POST", "POST", "POST", "POST"],
    ...["PATCH", "PATCH", "PATCH", "PATCH"],
  ]);
});

Deno.test("an object is written at most once a second, unless another interval is set", async () => {
  const clock = new FakeClock();
  await using s = startCapacityCluster();
  const { turns } = await s.start({ clock, minWriteIntervalMs: undefined });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  const before = turns.length;
  await s.report("a", 6n * GiB);
  await waitUntil(() => turns.length > before, "a reconcile attempt");
  assertEquals(s.writes(), ["POST", "POST"]);
  await clock.advance(999);
  assertEquals(s.writes(), ["POST", "POST"]);
  await clock.advance(1);
  await s.waitUntilPublished("a fast 6Gi 6Gi", "b fast 8Gi 8Gi");
});
