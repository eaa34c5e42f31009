import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { DRIVER, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { capacityName, MANAGED_BY } from "./capacity_object.ts";
import { type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { csiStorageCapacities, storageClasses } from "../api/objects.ts";
import { GiB, NAMESPACE, startCapacityCluster } from "../../tests/fake/cluster/capacity_publishers.ts";

Deno.test("of consecutive changes the first is published at once, and the last within a second, without further writes", async () => {
  await using s = startCapacityCluster();
  const clock = new FakeClock();
  const { turns } = await s.start({ clock, minWriteIntervalMs: 1_000 });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  const reportFree = async (gib: bigint) => {
    const before = turns.length;
    await s.report("a", gib * GiB);
    await waitUntil(() => turns.length > before, "a turn");
  };
  for (const gib of [7n, 6n, 5n, 4n]) await reportFree(gib);
  assertEquals(s.published(), ["a fast 8Gi 8Gi", "b fast 8Gi 8Gi"], "it was written just now");
  await clock.advance(999);
  assertEquals(s.writes(), ["POST", "POST"]);
  await clock.advance(1);
  await s.waitUntilPublished("a fast 4Gi 4Gi", "b fast 8Gi 8Gi");
  await clock.advance(5_000);
  assertEquals(s.writes(), ["POST", "POST", "PATCH"]);
  await reportFree(3n);
  await s.waitUntilPublished("a fast 3Gi 3Gi", "b fast 8Gi 8Gi");
});

Deno.test("two publishers at once write the same under the same names", async () => {
  await using s = startCapacityCluster();
  for (const name of ["c", "d", "e"]) s.addNode(name);
  const two = await Promise.all([s.start({ name: "one" }), s.start({ name: "two" })]);
  await s.waitUntilPublished(...["a", "b", "c", "d", "e"].map((node) => `${node} fast 8Gi 8Gi`));
  await s.report("c", GiB);
  await s.waitUntilPublished(...["a", "b", "d", "e"].map((node) => `${node} fast 8Gi 8Gi`), "c fast 1Gi 1Gi");
  assertEquals(two.map(({ failures }) => failures), [[], []]);
});

Deno.test("no more objects are written at once than allowed, however long the API server takes", async () => {
  await using s = startCapacityCluster();
  for (const name of ["c", "d", "e"]) s.addNode(name);
  const clock = new FakeClock();
  const gate = Promise.withResolvers<void>();
  let pending = 0;
  let mostPending = 0;
  const nodes = ["a", "b", "c", "d", "e"].map((node) => `${node} fast 8Gi 8Gi`);
  await s.start({
    ...{ clock, parallel: 2 },
    wrap: (client) =>
      interceptClient(client, async (_, when) => {
        pending += when === "before" ? 1 : -1;
        mostPending = Math.max(mostPending, pending);
        if (when === "before") await gate.promise;
      }),
  });
  await waitUntil(() => pending === 2, "two writes");
  for (let second = 1; second <= 5; second++) await clock.advance(1_000);
  gate.resolve();
  await s.waitUntilPublished(...nodes);
  assertEquals(mostPending, 2);
});

Deno.test("one that is there although the copy does not show it is put right", async () => {
  await using s = startCapacityCluster();
  const metadata = { name: capacityName(DRIVER, { nodeName: "a", className: "fast" }), namespace: NAMESPACE };
  const { failures } = await s.start({
    wrap: (client) =>
      interceptClient(client, (request, when) => {
        if (request.startsWith("create") && when === "before" && s.object("a", "fast") === undefined) {
          const nodeTopology = { matchLabels: { [TOPOLOGY_KEY]: "a" } };
          s.api.put(csiStorageCapacities, { metadata, storageClassName: "fast", nodeTopology, capacity: "1Pi" });
        }
        return Promise.resolve();
      }),
  });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  assertEquals(s.object("a", "fast")?.metadata.labels?.["csi.storage.k8s.io/managed-by"], MANAGED_BY);
  assertEquals(failures, []);
});

Deno.test("one that goes while it is being changed or removed is no failure", async () => {
  await using s = startCapacityCluster();
  s.addClass("slow");
  const { failures } = await s.start({
    wrap: (client) =>
      interceptClient(client, async (request, when) => {
        if (!/^(?:patch|delete) /.test(request) || when === "after") return;
        for (const { metadata } of s.api.objects(csiStorageCapacities)) {
          await s.client.delete(csiStorageCapacities, metadata);
        }
      }),
  });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "a slow 8Gi 8Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
  await s.report("a", GiB);
  await s.waitUntilPublished("a fast 1Gi 1Gi", "a slow 1Gi 1Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
  await s.client.delete(storageClasses, { name: "slow" });
  await s.waitUntilPublished("a fast 1Gi 1Gi", "b fast 8Gi 8Gi");
  assertEquals(failures, []);
});

Deno.test("what was written is not written again before the copy shows it", async () => {
  await using s = startCapacityCluster();
  const gate = Promise.withResolvers<void>();
  const { turns } = await s.start({
    wrap: (client) => ({
      ...interceptClient(client, () => Promise.resolve()),
      watch: async function* (resource, options) {
        for await (const event of client.watch(resource, options)) {
          if (event.type === "ADDED" && event.object.kind === "CSIStorageCapacity") await gate.promise;
          yield event;
        }
      },
    }),
  });
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  await s.report("a", GiB);
  s.addClass("slow");
  await s.waitUntilPublished("a fast 8Gi 8Gi", "a slow 1Gi 1Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
  assertEquals([s.writes(), turns], [["POST", "POST", "POST", "POST"], []]);
  gate.resolve();
  await s.waitUntilPublished("a fast 1Gi 1Gi", "a slow 1Gi 1Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
  assertEquals(s.writes(), ["POST", "POST", "POST", "POST", "PATCH"]);
});

Deno.test("refusals, conflicts and an expired revision only delay what is published", async () => {
  await using s = startCapacityCluster();
  s.api.faults.refuse = { status: 500, times: 8 };
  await s.start();
  await s.waitUntilPublished("a fast 8Gi 8Gi", "b fast 8Gi 8Gi");
  s.api.faults.conflicts = 3;
  s.free.set("a", GiB);
  s.api.put(lvmVolumes, { metadata: { name: "v" }, spec: { driverName: DRIVER, nodeName: "a" } as LvmVolume["spec"] });
  await s.waitUntilPublished("a fast 1Gi 1Gi", "b fast 8Gi 8Gi");
  s.api.faults.stalledWatches = true;
  s.api.endWatches();
  s.free.set("a", 2n * GiB);
  s.addClass("slow");
  await s.client.delete(storageClasses, { name: "fast" });
  s.api.compact();
  s.api.faults.stalledWatches = false;
  s.api.endWatches();
  await s.waitUntilPublished("a slow 2Gi 2Gi", "b slow 8Gi 8Gi");
});

Deno.test("after a publisher that stops between any two writes, the next one completes the work", async () => {
  for (let moment = 0;; moment++) {
    await using s = startCapacityCluster();
    s.addClass("slow");
    const before = await s.start({ name: "before" });
    await s.waitUntilPublished("a fast 8Gi 8Gi", "a slow 8Gi 8Gi", "b fast 8Gi 8Gi", "b slow 8Gi 8Gi");
    await before.end();
    s.free.set("b", GiB);
    s.addClass("new");
    await s.client.delete(storageClasses, { name: "slow" });
    let remainingWrites = moment;
    const crashed = Promise.withResolvers<void>();
    const crashing = await s.start({
      name: "dies",
      parallel: 1,
      wrap: (client) =>
        interceptClient(client, () => {
          if (remainingWrites-- > 0) return Promise.resolve();
          crashed.resolve();
          return Promise.reject(new Error("dead"));
        }),
    });
    const lines = ["a fast 8Gi 8Gi", "a new 8Gi 8Gi", "b fast 1Gi 1Gi", "b new 1Gi 1Gi"];
    const finished = await Promise.race([
      crashed.promise.then(() => false),
      s.waitUntilPublished(...lines).then(() => true),
    ]);
    await crashing.end();
    await s.start({ name: "after" });
    await s.waitUntilPublished(...lines);
    if (finished) return assert(moment > 8, `only ${moment} moments`);
  }
});
