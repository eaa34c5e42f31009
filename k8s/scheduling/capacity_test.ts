import { assert, assertEquals } from "@std/assert";
import { FakeApiServer } from "../../tests/fake/api_server.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { DRIVER, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/control_plane.ts";
import { interceptClient } from "../../tests/fake/intercepted_client.ts";
import { type CapacityOptions, CapacityPublisher } from "./capacity.ts";
import { capacityName, MANAGED_BY } from "./capacity_object.ts";
import type { ApiClient } from "../client/client.ts";
import { CallError, type CapacityClient, Code } from "../sidecars/csi_client.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "../runtime/informer.ts";
import { lvmNodes, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type CsiStorageCapacity,
  type KubeObject,
  type Resource,
  storageClasses,
} from "../api/objects.ts";

const GiB = 1n << 30n;
const NAMESPACE = "system";

/** A cluster with the nodes `a` and `b` and the class `fast`, and nobody who tells of capacity. */
function scene() {
  const api = FakeApiServer.start({ resources: [lvmNodes, lvmVolumes] });
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  const clients: HttpClient[] = [];
  const connect = (name: string) => {
    const client = new HttpClient({ url: api.url }, { userAgent: name });
    clients.push(client);
    return client;
  };
  const client = connect("test");
  const free = new Map<string, bigint>();
  const s = {
    api,
    client,
    /** Bytes that are free on a node; what is asked for of the class `group` halves them. */
    free,
    addNode(name: string, bytes = 8n * GiB, drivers = [DRIVER]) {
      free.set(name, bytes);
      api.put(lvmNodes, { metadata: { name }, spec: { driverName: DRIVER } });
      const registered = drivers.map((driver) => ({ name: driver, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }));
      api.put(csiNodes, { metadata: { name }, spec: { drivers: registered } });
    },
    addClass(name: string, parameters: Record<string, string> = {}, provisioner = DRIVER) {
      api.put(storageClasses, { metadata: { name }, provisioner, parameters });
    },
    /** A node reports anew. */
    async report(name: string, bytes: bigint) {
      free.set(name, bytes);
      const merge = { status: { lastUpdateTime: `2026-01-01T00:00:${free.size}${bytes}Z` } };
      await client.patch(lvmNodes, { name }, { merge, subresource: "status" });
    },
    /** What is published, as `node class capacity maximum`. */
    published: () =>
      api.objects(csiStorageCapacities).map(({ nodeTopology, storageClassName, capacity, maximumVolumeSize }) =>
        `${nodeTopology?.matchLabels?.[TOPOLOGY_KEY]} ${storageClassName} ${capacity} ${maximumVolumeSize}`
      ).sort(),
    object: (nodeName: string, className: string): CsiStorageCapacity | undefined => {
      const name = capacityName(DRIVER, { nodeName, className });
      return api.objects(csiStorageCapacities).find(({ metadata }) => metadata.name === name);
    },
    /** Settles when exactly that is published. */
    async waitUntilPublished(...lines: string[]) {
      const isPublished = () => JSON.stringify(s.published()) === JSON.stringify([...lines].sort());
      await waitUntil(isPublished, lines.join(", ")).catch((error) => {
        throw new Error(`${error.message}; there is ${s.published().join(", ")}`);
      });
    },
    /** The writes of whoever has that name, as `METHOD`. */
    writes: (name = "loop") =>
      api.requests.filter(({ method, headers }) => method !== "GET" && headers.get("user-agent") === name)
        .map(({ method }) => method),
    /** Starts a publisher; answers what ends it. */
    async start(
      { name = "loop", wrap = (client: ApiClient) => client, ...more }:
        & Partial<CapacityOptions>
        & { name?: string; wrap?: (client: ApiClient) => ApiClient } = {},
    ) {
      const end = new AbortController();
      const signal = AbortSignal.any([end.signal, stop.signal]);
      const own = wrap(connect(name));
      const turns: string[] = [];
      const failures: unknown[] = [];
      const started: Promise<void>[] = [];
      const inform = <T extends KubeObject>(resource: Resource<T>, namespace?: string): Informer<T> => {
        const informer = new Informer(own, resource, { namespace, backoff: { startMs: 5, capMs: 20 } });
        started.push(informer.start(signal));
        return informer;
      };
      const options = {
        driverName: DRIVER,
        topologyKey: TOPOLOGY_KEY,
        namespace: NAMESPACE,
        client: own,
        csi: { getCapacity: capacityOf(free) },
        nodes: inform(lvmNodes),
        volumes: inform(lvmVolumes),
        classes: inform(storageClasses),
        csiNodes: inform(csiNodes),
        published: inform(csiStorageCapacities, NAMESPACE),
        minWriteIntervalMs: 0,
        backoff: { startMs: 2, capMs: 20 },
        onReconciled: ({ key, error }: { key: string; error?: unknown }) => {
          turns.push(key);
          if (error !== undefined) failures.push(error);
        },
        ...more,
      };
      const publisher = new CapacityPublisher(options);
      started.push(publisher.run(signal));
      running.push(...started);
      const { nodes, volumes, classes, csiNodes: registered, published } = options;
      await Promise.all([nodes, volumes, classes, registered, published].map(({ synced }) => synced));
      return {
        publisher,
        turns,
        failures,
        copy: published,
        end: async () => {
          end.abort();
          await Promise.all(started);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await Promise.all(running);
      for (const one of clients) one[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
  for (const name of ["a", "b"]) s.addNode(name);
  s.addClass("fast");
  return s;
}

/** A driver with so many bytes free on each node: in one group, or with `groups: two` half of them in each of two. */
function capacityOf(free: ReadonlyMap<string, bigint>): CapacityClient["getCapacity"] {
  return ({ parameters, fsType, topology }) => {
    if (parameters["stripes"] !== undefined) {
      return Promise.reject(new CallError(Code.InvalidArgument, "parameter stripes: unknown"));
    }
    const available = free.get(topology[TOPOLOGY_KEY]!) ?? 0n;
    const largest = parameters["groups"] === "two" ? available / 2n : available;
    return Promise.resolve({ available, largest, smallest: fsType === "xfs" ? 2n * GiB : 1n });
  };
}

Deno.test("there is an object for each node and class of the driver, which belongs to the node", async () => {
  await using s = scene();
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
  await using s = scene();
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
  await using s = scene();
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

Deno.test("a node that comes anew under its name owns what is told of it", async () => {
  await using s = scene();
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
  await using s = scene();
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

Deno.test("what somebody deletes or changes is put right; what others wrote stays", async () => {
  await using s = scene();
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

Deno.test("of changes in a row the first is told at once, and the last within a second, with no write more", async () => {
  await using s = scene();
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
  await using s = scene();
  for (const name of ["c", "d", "e"]) s.addNode(name);
  const two = await Promise.all([s.start({ name: "one" }), s.start({ name: "two" })]);
  await s.waitUntilPublished(...["a", "b", "c", "d", "e"].map((node) => `${node} fast 8Gi 8Gi`));
  await s.report("c", GiB);
  await s.waitUntilPublished(...["a", "b", "d", "e"].map((node) => `${node} fast 8Gi 8Gi`), "c fast 1Gi 1Gi");
  assertEquals(two.map(({ failures }) => failures), [[], []]);
});

Deno.test("one that is there although the copy does not show it is put right", async () => {
  await using s = scene();
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
  await using s = scene();
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
  await using s = scene();
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

Deno.test("refusals, conflicts and lost history delay what is told, and no more", async () => {
  await using s = scene();
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

Deno.test("whoever begins and ends between any two writes is followed by one that finishes", async () => {
  for (let moment = 0;; moment++) {
    await using s = scene();
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

Deno.test("of a class that is wrong the room of any is offered, so that a claim gets as far as being told why", async () => {
  await using s = scene();
  s.addClass("broken", { stripes: "9", groups: "two" });
  s.addClass("large", { "csi.storage.k8s.io/fstype": "xfs" });
  s.free.set("b", GiB);
  await s.start();
  const others = ["a fast 8Gi 8Gi", "b fast 1Gi 1Gi"];
  await s.waitUntilPublished(...others, "a broken 8Gi 8Gi", "b broken 1Gi 1Gi", "a large 8Gi 8Gi", "b large 1Gi 0");
});

Deno.test("withdrawn() waits until a node offers less than is asked for, or nothing", async () => {
  await using s = scene();
  const { publisher, copy } = await s.start();
  const key = { nodeName: "a", className: "fast" };
  await copy.waitFor(`${NAMESPACE}/${capacityName(DRIVER, key)}`, (now) => now !== undefined);
  let isWithdrawn = false;
  const waiting = publisher.waitUntilWithdrawn(key, 5n * GiB, {}).then(() => isWithdrawn = true);
  await s.report("a", 5n * GiB);
  await s.waitUntilPublished("a fast 5Gi 5Gi", "b fast 8Gi 8Gi");
  assertEquals(isWithdrawn, false);
  await s.report("a", 4n * GiB);
  await waiting;
  await publisher.waitUntilWithdrawn({ ...key, className: "other" }, 1n, {});
  await publisher.waitUntilWithdrawn(key, 1n, { timeoutMs: 1 });
});
