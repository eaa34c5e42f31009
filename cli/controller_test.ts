import { assert, assertEquals, assertMatch } from "@std/assert";
import { stub } from "@std/testing/mock";
import { PluginCapability_Service_Type } from "../csi/proto/csi_pb.ts";
import { lvmNodes, type LvmSnapshot, lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { csiStorageCapacities, leases } from "../k8s/api/objects.ts";
import { lvmVolumeFor } from "../k8s/api/volume_mapping.ts";
import { type LvmImport, lvmImports } from "../k8s/handover/imports.ts";
import { lvmMoves } from "../k8s/handover/moves.ts";
import { Informer } from "../k8s/runtime/informer.ts";
import { LeaderElection } from "../k8s/runtime/leader.ts";
import { AgentLiveness } from "../k8s/scheduling/agent_liveness.ts";
import { WakeUps } from "../k8s/runtime/wake_ups.ts";
import {
  volumeGroupSnapshotClasses,
  volumeGroupSnapshotContents,
  volumeSnapshotClasses,
  volumeSnapshotContents,
} from "../k8s/api/snapshot_objects.ts";
import { snapshotIdOf } from "../base/ids.ts";
import { connect } from "../tests/contract/helpers/csi_client.ts";
import { assertFails } from "../tests/contract/helpers/host.ts";
import { DRIVER, FakeControlPlane, waitUntil } from "../tests/fake/cluster/control_plane.ts";
import { namedRequest } from "../tests/fake/request.ts";
import {
  collectPrinted,
  flagsOf,
  httpGet,
  httpPort,
  type Printed,
  RunningSubcommand,
  SubcommandFolder,
} from "../tests/fake/subcommand.ts";
import { controller } from "./controller.ts";

/** Starts `denolith controller` over the API server of a cluster. */
function start(folder: SubcommandFolder, printed: Printed, flags: readonly string[], until: () => boolean) {
  const own = ["--kubeconfig", folder.kubeconfig, "--endpoint", `unix://${folder.path}/socket/csi.sock`];
  const http = ["--http-address", "127.0.0.1:0", "--disable-process-metrics"];
  const all = flagsOf("controller", ...own, ...http, ...flags);
  return RunningSubcommand.start((end) => controller(all, end), () => httpPort(printed) !== undefined && until());
}

async function createCluster() {
  const cluster = await FakeControlPlane.start({ withBinder: false });
  for (const resource of [lvmVolumes, lvmNodes, lvmSnapshots]) cluster.api.addResource(resource);
  return cluster;
}

/** A volume group of 1 GiB, as an agent reports it. */
const NODE_GROUP = {
  ...{ name: "data", uuid: "u", size: "1Gi", free: "1Gi", extentSize: "4Mi", largestFreeExtent: "1Gi" },
  ...{ lvCount: 0, pvCount: 1, snapshotCount: 0, missingPVCount: 0, writeable: true },
};

const leaseNames = (cluster: FakeControlPlane) =>
  cluster.api.objects(leases).map(({ metadata }) => metadata.name).sort();

Deno.test("denolith controller: is not ready until it has listed all kinds of objects that it follows", async () => {
  await using cluster = await createCluster();
  cluster.api.removeResource(lvmSnapshots);
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  await using _running = await start(folder, printed, [], () => true);
  const reasons = () => httpGet(printed, "/readyz");
  await waitUntil(async () => (await reasons()).split("\n").length <= 2, "a single reason");
  assertEquals(await reasons(), "lvmsnapshots not listed yet\n");
});

Deno.test("denolith controller: lists changed blocks if it has a way to the agents, and otherwise says what is missing", async () => {
  for (const flags of [[], ["--transfer-port", "9810"]]) {
    await using cluster = await createCluster();
    await using folder = await SubcommandFolder.create(cluster.api.url);
    await using printed = collectPrinted();
    await using _running = await start(folder, printed, flags, () => leaseNames(cluster).length >= 1);
    using client = connect(`${folder.path}/socket/csi.sock`);
    const { capabilities } = await client.identity.getPluginCapabilities();
    const services = capabilities.flatMap(({ type }) => type.case === "service" ? [type.value.type] : []);
    const hasLists = flags.length > 0;
    assertEquals(services.includes(PluginCapability_Service_Type.SNAPSHOT_METADATA_SERVICE), hasLists);
    const list = client.snapshotMetadata.getMetadataAllocated({ snapshotId: snapshotIdOf("s") }).next();
    if (hasLists) await assertFails("NOT_FOUND", list);
    else await assertFails("UNIMPLEMENTED", list, "transfer.enabled");
  }
});

Deno.test("denolith controller: leaves the controllers of --disable-controllers and their Leases to others", async () => {
  await using cluster = await createCluster();
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  const flags = ["--disable-controllers", "resizer,capacity"];
  await using running = await start(folder, printed, flags, () => leaseNames(cluster).length >= 3);
  assertEquals(leaseNames(cluster), [
    ...["external-snapshotter-leader-lvm-denolith-dev", "lvm-denolith-dev", "moves-lvm-denolith-dev"],
  ]);
  assertEquals(await running.stop(), 0);
});

Deno.test("denolith controller: says in its metrics what it leads, and which moves and imports are not finished", async () => {
  await using cluster = await createCluster();
  for (const resource of [lvmMoves, lvmImports]) cluster.api.addResource(resource);
  const spec = (driverName: string) => ({
    ...{ driverName, persistentVolume: "pv", claim: { namespace: "shop", name: "db", uid: "u" } },
    ...{ sourceNode: "a", targetNode: "b" },
  });
  // one that is finished, and one of another driver, which this controller does not finish
  cluster.api.put(lvmMoves, { metadata: { name: "v1-done" }, spec: spec(DRIVER), status: { state: "Complete" } });
  cluster.api.put(lvmMoves, { metadata: { name: "v1-other" }, spec: spec("other.example.com") });
  cluster.api.put(lvmNodes, { metadata: { name: "a" }, spec: { driverName: DRIVER } });
  cluster.api.put(lvmNodes, { metadata: { name: "b" }, spec: { driverName: "other.example.com" } });
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  const flags = ["--disable-controllers", "resizer,capacity,snapshotter"];
  await using running = await start(folder, printed, flags, () => leaseNames(cluster).length >= 2);
  const lines = async () =>
    (await httpGet(printed, "/metrics")).split("\n").filter((line) =>
      /^denolith_(?:leader|agent|move|import)/.test(line)
    );
  await waitUntil(async () => (await lines()).filter((line) => line.endsWith("} 1")).length === 2, "it leads");
  assertEquals((await lines()).sort(), [
    'denolith_agent_silent{lvmnode="a"} 0',
    'denolith_leader{controller="moves"} 1',
    'denolith_leader{controller="provisioner"} 1',
  ]);
  assertEquals(await running.stop(), 0);
});

Deno.test("denolith controller: says at debug of each object for which it does nothing why that is so", async () => {
  await using cluster = await createCluster();
  for (const resource of [lvmMoves, lvmImports, volumeSnapshotContents, volumeSnapshotClasses]) {
    cluster.api.addResource(resource);
  }
  const [driverName, namespace] = ["other.example.com", "shop"];
  const handover = { driverName, persistentVolume: "pv", claim: { namespace, name: "db", uid: "u" } };
  cluster.api.put(lvmMoves, { metadata: { name: "v1-a" }, spec: { ...handover, sourceNode: "a", targetNode: "b" } });
  cluster.api.put(lvmImports, { metadata: { name: "v1-b" }, spec: handover as LvmImport["spec"] });
  cluster.api.put(lvmNodes, { metadata: { name: "a" }, spec: { driverName } });
  const source = { sourceVolume: "v1-a" };
  cluster.api.put(lvmSnapshots, {
    metadata: { name: "s1" },
    spec: { driverName, requestName: "s", nodeName: "a", ...source },
  });
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  const told = () =>
    printed.log.flatMap((line) => {
      const [, controller, key] = /debug (\S+) nothing to do key="(\S+)" because="\w/.exec(line) ?? [];
      return controller === undefined ? [] : [`${controller} ${key}`];
    });
  const expected = ["agentlease a", "importer v1-b", "mover v1-a", "transfer s1"];
  await using running = await start(folder, printed, ["--log-level", "debug"], () => true);
  await waitUntil(() => expected.every((one) => told().includes(one)), "what four controllers say");
  assertEquals(await running.stop(), 0);
});

Deno.test("denolith controller: renews its Leases on a connection of their own, not behind the requests for claims", async () => {
  await using cluster = await createCluster();
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  await using running = await start(folder, printed, [], () => leaseNames(cluster).length >= 5);
  const clientOf = ({ headers }: { headers: Headers }) => /\((.*)\)/.exec(headers.get("user-agent")!)?.[1];
  const forLeases = cluster.api.requests.filter(({ path }) => path.includes("/leases/"));
  assertEquals([...new Set(forLeases.map(clientOf))], ["leader-election"]);
  const lists = cluster.api.requests.filter(({ path }) => path.endsWith("/lvmvolumes"));
  assertEquals([...new Set(lists.map(clientOf))], ["controller"]);
  assertEquals(await running.stop(), 0);
});

Deno.test("denolith controller: publishes what GetCapacity of its own service returns, and counts the call", async () => {
  await using cluster = await createCluster();
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  const capacities = () => cluster.api.objects(csiStorageCapacities).map(({ capacity }) => capacity);
  cluster.api.put(lvmNodes, {
    metadata: { name: "a" },
    spec: { driverName: DRIVER },
    status: { lastUpdateTime: new Date().toISOString(), volumeGroups: [NODE_GROUP] },
  });
  const isPublished = () => capacities().includes("1Gi");
  await using _running = await start(folder, printed, ["--namespace", "default"], isPublished);
  assertMatch(await httpGet(printed, "/metrics"), /_duration_seconds_count\{method="GetCapacity",code="0"\} [1-9]/);
});

Deno.test("denolith controller: logs once that the cluster has no snapshots", async () => {
  await using cluster = await createCluster();
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  const lines = () => printed.log.filter((line) => line.includes("the cluster does not have the kind"));
  await using running = await start(folder, printed, [], () => lines().length > 0 && leaseNames(cluster).length === 5);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assertEquals(await running.stop(), 0);
  assertEquals(lines().length, 1);
});

Deno.test("denolith controller: wakes what waits for what agents report", async () => {
  await using cluster = await createCluster();
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  const woken = new Set<string>();
  using _wake = stub(WakeUps.prototype, "wake", (kind: string) => void woken.add(kind));
  cluster.api.put(lvmNodes, {
    ...{ metadata: { name: "a" }, spec: { driverName: DRIVER } },
    status: { volumeGroups: [{ ...NODE_GROUP, volumes: [] }] },
  });
  for (const [name, state] of [["created", { state: "Ready", lvUUID: "u" }], ["new", { state: "Pending" }]] as const) {
    const { spec } = lvmVolumeFor(namedRequest(name, 1n << 20n), { driver: DRIVER, nodeName: "a" });
    const status = { ...state, volumeGroup: "data", observedGeneration: 1 };
    cluster.api.put(lvmVolumes, { metadata: { name }, spec, status });
  }
  cluster.api.put(lvmSnapshots, {
    metadata: { name: "s" },
    spec: { driverName: DRIVER, requestName: "s", nodeName: "a", sourceVolume: "v" } as LvmSnapshot["spec"],
    status: { state: "Lost", readyToUse: false },
  });
  await using _running = await start(folder, printed, [], () => woken.has("unready"));
  for (const name of ["created", "new"]) await cluster.remove(lvmVolumes, { name });
  await waitUntil(() => woken.size >= 6, () => [...woken].join());
  assertEquals([...woken].sort(), ["deletion", "expansion", "request", "space", "unready", "unreserved"]);
});

/** Returns the live subscriptions to what outlives a term of leadership: running informers, agents, and wake-ups. */
function trackSubscriptions(): Disposable & { readonly live: ReadonlySet<object> } {
  const { start, subscribe } = Informer.prototype;
  const { subscribe: subscribeToAgents } = AgentLiveness.prototype;
  const { on } = WakeUps.prototype;
  const live = new Set<object>();
  const running = new WeakSet<object>(); // a controller subscribes to an informer of its own before it starts that
  const add = (signal?: AbortSignal) => {
    const subscription = {};
    live.add(subscription);
    signal?.addEventListener("abort", () => live.delete(subscription));
    return subscription;
  };
  Informer.prototype.start = function (signal) {
    running.add(this);
    return start.call(this, signal);
  };
  Informer.prototype.subscribe = function (listener, options) {
    const end = subscribe.call(this, listener, options);
    const subscription = running.has(this) && add();
    return () => {
      if (subscription) live.delete(subscription);
      end();
    };
  };
  AgentLiveness.prototype.subscribe = function (listener, signal) {
    add(signal);
    subscribeToAgents.call(this, listener, signal);
  };
  WakeUps.prototype.on = function (kind, handler, signal) {
    if (!signal.aborted) add(signal);
    on.call(this, kind, handler as (subject: unknown) => void, signal);
  };
  return {
    live,
    [Symbol.dispose]: () => {
      Object.assign(Informer.prototype, { start, subscribe });
      AgentLiveness.prototype.subscribe = subscribeToAgents;
      WakeUps.prototype.on = on;
    },
  };
}

Deno.test("denolith controller: ten terms of leadership leave no subscription", async () => {
  await using cluster = await createCluster();
  const snapshotKinds = [volumeSnapshotClasses, volumeSnapshotContents];
  const groupKinds = [volumeGroupSnapshotClasses, volumeGroupSnapshotContents];
  for (const resource of [lvmMoves, lvmImports, ...snapshotKinds, ...groupKinds]) cluster.api.addResource(resource);
  await using folder = await SubcommandFolder.create(cluster.api.url);
  await using printed = collectPrinted();
  using tracked = trackSubscriptions();
  let before: number | undefined;
  let [completed, most] = [0, 0];
  using _run = stub(
    LeaderElection.prototype,
    "run",
    async (_end: AbortSignal, onStartedLeading: (signal: AbortSignal) => Promise<void>) => {
      before ??= tracked.live.size;
      for (let term = 0; term < 10; term++) {
        const stop = new AbortController();
        const working = onStartedLeading(stop.signal);
        await new Promise((resolve) => setTimeout(resolve, 50));
        most = Math.max(most, tracked.live.size);
        stop.abort();
        await working;
      }
      completed++;
    },
  );
  await using _running = await start(folder, printed, [], () => completed === 5);
  assert(most - before! > 40, `${most} at most`);
  assertEquals(tracked.live.size, before);
});
