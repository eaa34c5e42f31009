/**
 * Measures what the controllers cost in a large cluster, over the fake API server: `deno run -A --no-check
 * tests/bench/scale.ts [SCENARIO...]`. It prints one line for each figure.
 *
 * @module
 */

import { cpuUsage } from "node:process";
import { inProcessCsi } from "../../cli/in_process_csi.ts";
import { controllerHandlers } from "../../csi/controller.ts";
import { parseGroupList } from "../../csi/group_list.ts";
import { type LvmNode, lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type KubeObject,
  nodes as kubeNodes,
  persistentVolumeClaims,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { lvmVolumeFor } from "../../k8s/api/volume_mapping.ts";
import type { ApiClient } from "../../k8s/client/client.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { GarbageCollector } from "../../k8s/provisioner/garbage_collector.ts";
import type { ProvisionerOptions } from "../../k8s/provisioner/provisioner_options.ts";
import { Provisioner } from "../../k8s/provisioner/provisioner.ts";
import { freeSpaceGrowth } from "../../k8s/scheduling/free_capacity.ts";
import { volumeIntents } from "../../k8s/provisioner/volume_intents.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { CapacityPublisher } from "../../k8s/scheduling/capacity.ts";
import { csiStorageCapacityFor } from "../../k8s/scheduling/capacity_object.ts";
import { ClusterVolumes } from "../../k8s/service/cluster_volumes.ts";
import { sidecarController } from "../../k8s/sidecars/sidecar_controller.ts";
import { topologyOfAllNodes } from "../../k8s/sidecars/claim_topology.ts";
import { Locks } from "../../base/locks.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../fake/clock.ts";
import { DRIVER, FakeControlPlane, TOPOLOGY_KEY } from "../fake/cluster/control_plane.ts";
import { namedRequest } from "../fake/request.ts";

const NODES = 5_000;
const VOLUMES = 100_000;
const CLASSES = ["fast", "slow", "thin"];
const NAMESPACE = "system";
const GiB = 1n << 30n;

/** Returns the CPU time of the process so far, in milliseconds. */
function cpuMs(): number {
  const { user, system } = cpuUsage();
  return (user + system) / 1000;
}

/** Prints a figure. */
function report(what: string, value: number, unit: string): void {
  console.log(`${what}: ${value < 10 ? value.toFixed(2) : Math.round(value)} ${unit}`);
}

/** Measures the longest time for which the event loop served nothing, until the returned function is called. */
function measureLongestBlock(): () => number {
  let longest = 0;
  let last = performance.now();
  const tick = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(tick, 1);
  return () => {
    tick();
    clearInterval(timer);
    return longest;
  };
}

const nodeName = (index: number) => `node-${String(index).padStart(4, "0")}`;

/** An LVMNode with a volume group of 100 GiB and its share of the volumes. */
function lvmNode(index: number, free = "80Gi"): LvmNode {
  const group = {
    ...{ name: "data", uuid: "u", size: "100Gi", free, extentSize: "4Mi", lvCount: 20, pvCount: 1 },
    ...{ snapshotCount: 0, missingPVCount: 0, writeable: true },
    physicalVolumes: [{ uuid: "p", free }],
    volumes: Array.from(
      { length: VOLUMES / NODES },
      (_, n) => ({ name: volume(n * NODES + index).metadata.name, size: "1Gi" }),
    ),
  };
  return {
    metadata: { name: nodeName(index), uid: `uid-${index}` },
    spec: { driverName: DRIVER },
    status: { volumeGroups: [group], total: { volumeGroups: 1, size: "100Gi", free } },
  };
}

function volume(index: number): LvmVolume {
  const name = `pvc-00000000-0000-4000-8000-${index.toString(16).padStart(12, "0")}`;
  const object = lvmVolumeFor(namedRequest(name, GiB), { driver: DRIVER, nodeName: nodeName(index % NODES) });
  object.metadata.generation = 1;
  object.status = { state: "Ready", observedGeneration: 1, volumeGroup: "data", lvUUID: "x", size: "1Gi" };
  return object;
}

/** A large cluster: an API server with its objects, and informers that have listed them. */
async function largeCluster({ withVolumes }: { withVolumes: boolean }) {
  const api = FakeApiServer.start({ resources: [lvmNodes, lvmVolumes] });
  for (let index = 0; index < NODES; index++) {
    const name = nodeName(index);
    const { metadata: { uid } } = api.put(lvmNodes, lvmNode(index));
    api.put(kubeNodes, { metadata: { name, labels: { [TOPOLOGY_KEY]: name } } });
    api.put(csiNodes, {
      metadata: { name },
      spec: { drivers: [{ name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }] },
    });
    if (!withVolumes) continue;
    for (const className of CLASSES) {
      const capacity = { available: 80n * GiB, largest: 80n * GiB, smallest: 4n << 20n };
      const node = { ...lvmNode(index), metadata: { name, uid: uid! } };
      const options = {
        driverName: DRIVER,
        topologyKey: TOPOLOGY_KEY,
        namespace: NAMESPACE,
        node,
        className,
        capacity,
      };
      api.put(csiStorageCapacities, csiStorageCapacityFor(options));
    }
  }
  for (const name of CLASSES) api.put(storageClasses, { metadata: { name }, provisioner: DRIVER });
  if (withVolumes) { for (let index = 0; index < VOLUMES; index++) api.put(lvmVolumes, volume(index)); }
  const client = new HttpClient({ url: api.url }, { userAgent: "scale" });
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  const inform = <T extends KubeObject>(resource: Resource<T>): Informer<T> => {
    const informer = new Informer(client, resource);
    running.push(informer.start(stop.signal));
    return informer;
  };
  const informers = {
    nodes: inform(lvmNodes),
    volumes: inform(lvmVolumes),
    classes: inform(storageClasses),
    csiNodes: inform(csiNodes),
    kubeNodes: inform(kubeNodes),
    claims: inform(persistentVolumeClaims),
    published: inform(csiStorageCapacities),
  };
  const snapshots = new Informer(client, lvmVolumes) as never;
  const volumes = new ClusterVolumes({
    ...{ client, driver: DRIVER, snapshots, parseGroups: parseGroupList, waitMs: 1 },
    ...{ nodes: informers.nodes, volumes: informers.volumes },
  });
  const csi = inProcessCsi({
    handlers: controllerHandlers({ volumes, locks: new Locks() }),
    onCallCompleted: () => {},
  });
  const intents = volumeIntents({ client, driver: DRIVER, topologyKey: TOPOLOGY_KEY, volumes: informers.volumes });
  await Promise.all(Object.values(informers).map(({ synced }) => synced));
  return {
    ...{ api, client, csi, intents, informers, volumes },
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await Promise.all(running);
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

/** Publishes capacity from a standing start, and sweeps. */
async function leadership(): Promise<void> {
  await using s = await largeCluster({ withVolumes: true });
  const requests = s.api.requests.length;
  const reconciled = new Set<string>();
  const done = Promise.withResolvers<void>();
  const publisher = new CapacityPublisher({
    ...{ driverName: DRIVER, client: s.client, topologyKey: TOPOLOGY_KEY, namespace: NAMESPACE, csi: s.csi },
    ...{ ...s.informers, agents: { subscribe: () => {} } },
    onReconciled: ({ key }) => reconciled.add(key).size === NODES * CLASSES.length && done.resolve(),
  });
  const stop = new AbortController();
  const longestBlock = measureLongestBlock();
  const before = cpuMs();
  const running = publisher.run(stop.signal);
  await done.promise;
  report("taking leadership, capacity: CPU", cpuMs() - before, "ms");
  report("taking leadership, capacity: longest block of the event loop", longestBlock(), "ms");
  report("taking leadership, capacity: requests", s.api.requests.length - requests, "");
  stop.abort();
  await running;

  const options = { ...s, ...s.informers, volumes: s.informers.published } as unknown as ProvisionerOptions;
  const collector = new GarbageCollector(options, (() => new Set()) as never);
  await collector.collect(new AbortController().signal);
  const sweeps = 5;
  const start = cpuMs();
  for (let sweep = 0; sweep < sweeps; sweep++) await collector.collect(new AbortController().signal);
  report("garbage collection: CPU", (cpuMs() - start) / sweeps, "ms");
}

/** Creates volumes with the binding mode Immediate. */
async function placement(): Promise<void> {
  await using s = await largeCluster({ withVolumes: false });
  const cluster = {
    ...{ driverName: DRIVER, topologyKey: TOPOLOGY_KEY },
    ...{ nodes: s.informers.kubeNodes, csiNodes: s.informers.csiNodes },
  };
  const { signal } = new AbortController();
  let message = "";
  const create = async (index: number, requiredBytes: bigint) => {
    const name = `pvc-${requiredBytes}-${index}`;
    const request = {
      ...{
        name,
        claim: { namespace: "d", name, uid: `${index}` },
        parameters: {},
        mutableParameters: {},
        requiredBytes,
      },
      capabilities: [{ mode: "SINGLE_NODE_MULTI_WRITER", access: { kind: "mount", fsType: "", flags: [] } } as const],
      ...{ topology: topologyOfAllNodes(undefined, cluster), secrets: {} },
    };
    await s.csi.createVolume(request, { signal }).catch((error) => message = error.message);
  };
  for (const [what, bytes] of [["that fits", GiB], ["that fits nowhere", 200n * GiB]] as const) {
    await create(0, bytes);
    const claims = 10;
    const before = cpuMs();
    for (let index = 1; index <= claims; index++) await create(index, bytes);
    report(`Immediate, a claim ${what}: CPU`, (cpuMs() - before) / claims, "ms");
  }
  report("Immediate, a claim that fits nowhere: message", message.length, "characters");
}

/** Records the events of 300 claims that fail, over a clock that is advanced. */
async function eventsOfClaims(): Promise<void> {
  const clock = new FakeClock();
  let lastMs = 0;
  let writes = 0;
  const client = {
    create: (_: unknown, { reason }: { reason: string }) => {
      writes++;
      if (reason === "ProvisioningFailed") lastMs = clock.now();
      return Promise.resolve();
    },
    patch: () => Promise.resolve(writes++),
  } as unknown as ApiClient;
  const recorder = new EventRecorder(client, { component: DRIVER, instance: "scale", clock });
  for (let index = 0; index < 300; index++) {
    const claim = {
      kind: "PersistentVolumeClaim",
      metadata: { name: `claim-${index}`, namespace: "default", uid: `${index}` },
    };
    recorder.record(claim, "Normal", "Provisioning", "is creating a volume");
    recorder.record(claim, "Warning", "ProvisioningFailed", "no space");
  }
  for (let second = 0; second < 900; second++) await clock.advance(1_000);
  report("events of 300 claims: the last ProvisioningFailed is written after", lastMs / 1000, "s");
  report("events of 300 claims: writes", writes, "");
}

/** Queues 800 deletions that wait for dead nodes, and one that does not, over a clock that is advanced. */
async function deadKeys(): Promise<void> {
  const clock = new FakeClock();
  let healthyAt: number | undefined;
  const controller = sidecarController("provisioner", { driverName: DRIVER, clock } as never, async (key) => {
    if (key === "healthy") healthyAt = clock.now();
    else await new Promise<void>((_, reject) => clock.after(60_000, () => reject(new Error("no answer"))));
  });
  const stop = new AbortController();
  const running = controller.run(stop.signal);
  for (let index = 0; index < 800; index++) controller.add(`dead-${index}`);
  controller.add("healthy");
  await flushPromises();
  for (let ms = 0; ms < 900_000 && healthyAt === undefined; ms += 100) await clock.advance(100);
  report("800 dead keys: the healthy deletion starts after", (healthyAt ?? Infinity) / 1000, "s");
  stop.abort();
  await clock.advance(60_000);
  await running;
}

/** Lets 300 claims wait for more space than a node has, whose free space changes each second for 20 seconds. */
async function waitingClaims(): Promise<void> {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const clock = new FakeClock();
  cluster.driver.maxVolumeBytes = 1n;
  const options = { ...cluster.controllerOptions(), clock, backoff: { startMs: 1_000, capMs: 300_000 } };
  const provisioner = new Provisioner(options);
  cluster.run((signal) => provisioner.run(signal));
  for (let index = 0; index < 300; index++) {
    cluster.addClaim(`claim-${index}`, { resources: { requests: { storage: "200Gi" } } });
  }
  const pause = () => new Promise((resolve) => setTimeout(resolve, 10));
  while (cluster.driver.callCount("createVolume") < 300) await pause();
  const cpu = cpuMs();
  for (let second = 0; second < 20; second++) {
    const [before, now] = second % 2 === 0 ? ["79Gi", "80Gi"] : ["80Gi", "79Gi"];
    const growth = freeSpaceGrowth(lvmNode(0, before), lvmNode(0, now));
    if (growth !== undefined) cluster.wakeUps.wake("space", growth);
    await clock.advance(1_000);
    await pause();
  }
  report(
    "300 claims that wait for space: CreateVolume calls in 20 seconds",
    cluster.driver.callCount("createVolume"),
    "",
  );
  report("300 claims that wait for space: CPU", cpuMs() - cpu, "ms");
}

const SCENARIOS = { eventsOfClaims, deadKeys, waitingClaims, placement, leadership };

for (const [name, run] of Object.entries(SCENARIOS)) {
  if (Deno.args.length === 0 || Deno.args.includes(name)) await run();
}
