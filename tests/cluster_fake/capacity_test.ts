/**
 * The capacity that is published while volumes come and go: the real controller, Controller service and agents, over a
 * fake API server and fake machines.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { inProcessCsi } from "../../cli/in_process_csi.ts";
import { controllerHandlers } from "../../csi/controller.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { CapacityPublisher, waitForCapacityBelow } from "../../k8s/scheduling/capacity.ts";
import { maximumVolumeSizeOf } from "../../k8s/scheduling/capacity_object.ts";
import { SELECTED_NODE_ANNOTATION, selectedNodeOf } from "../../k8s/provisioner/claim.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import {
  csiNodes,
  csiStorageCapacities,
  type CsiStorageCapacity,
  events,
  type KubeObject,
  nodes as nodeResource,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { Provisioner } from "../../k8s/provisioner/provisioner.ts";
import { WakeUps } from "../../k8s/runtime/wake_ups.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { volumeIntents } from "../../k8s/provisioner/volume_intents.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { Locks } from "../../base/locks.ts";
import { usedTag } from "../../lvm/model/tags.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { FakeClock } from "../fake/clock.ts";
import { PROVISIONER_ANNOTATION, waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";

const MiB = 1n << 20n;

/** Starts a cluster of nodes with one group `data` of so many MiB each, with classes, and the capacity publisher. */
async function setUp(
  nodes: Record<string, bigint>,
  classes: Record<string, Record<string, string>>,
  { clock, everyMs: minWriteIntervalMs = 0 }: { clock?: FakeClock; everyMs?: number } = {},
) {
  const machines = Object.fromEntries(
    Object.entries(nodes).map(([name, mib]) => {
      const machine = new FakeMachine();
      machine.addGroup("data", mib * MiB);
      return [name, machine] as const;
    }),
  );
  const cluster = await FakeCluster.start(machines);
  const { api } = cluster;
  for (const name of Object.keys(nodes)) {
    const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }];
    api.put(csiNodes, { metadata: { name }, spec: { drivers } });
  }
  for (const [name, parameters] of Object.entries(classes)) {
    const volumeBindingMode = "WaitForFirstConsumer";
    api.put(storageClasses, { metadata: { name }, provisioner: DRIVER, parameters, volumeBindingMode });
  }
  const client = new HttpClient({ url: api.url }, { userAgent: "capacity" });
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  const startInformer = <T extends KubeObject>(resource: Resource<T>): Informer<T> => {
    const informer = new Informer(client, resource);
    running.push(informer.start(stop.signal));
    return informer;
  };
  const handlers = controllerHandlers({ volumes: cluster.volumes, locks: new Locks() });
  const sharedOptions = {
    driverName: DRIVER,
    topologyKey: TOPOLOGY_KEY,
    client,
    csi: inProcessCsi({ handlers, onCallCompleted: () => {} }),
    classes: startInformer(storageClasses),
    csiNodes: startInformer(csiNodes),
  };
  const published = startInformer(csiStorageCapacities);
  const capacityOptions = {
    ...sharedOptions,
    ...{ nodes: cluster.nodes, volumes: cluster.objects, agents: { subscribe: () => {} } },
    published,
    namespace: "system",
    clock,
    minWriteIntervalMs,
  };
  running.push(new CapacityPublisher(capacityOptions).run(stop.signal));
  const publishedCapacities = () =>
    Object.fromEntries(
      api.objects(csiStorageCapacities).map((object) => [
        `${object.nodeTopology?.matchLabels?.[TOPOLOGY_KEY]} ${object.storageClassName}`,
        `${object.capacity} ${object.maximumVolumeSize}`,
      ]),
    );
  return {
    cluster,
    machines,
    publishedCapacities,
    sharedOptions,
    startInformer,
    published,
    capacityOptions,
    /** Has something run until the end. */
    run: (work: (signal: AbortSignal) => Promise<void>) => void running.push(work(stop.signal)),
    /** Returns the capacities that were published for a node, in order. */
    publishedSizes: (nodeName: string) =>
      api.requests.filter(({ headers, path }) =>
        headers.get("user-agent") === "capacity" && path.includes(`csistoragecapacities/${nodeName}.`)
      ).map(({ body }) => (body as CsiStorageCapacity).maximumVolumeSize),
    waitForCapacities: async (wanted: Record<string, string>) => {
      const sorted = (lines: Record<string, string>) => JSON.stringify(Object.entries(lines).sort());
      await waitUntil(() => sorted(publishedCapacities()) === sorted(wanted), JSON.stringify(wanted)).catch((error) => {
        throw new Error(`${error.message}; there is ${JSON.stringify(publishedCapacities())}`);
      });
    },
    create: (name: string, mib: bigint) =>
      cluster.volumes.create(namedRequest(name, mib * MiB), { allowed: ["a"], preferred: [] }),
    async [Symbol.asyncDispose]() {
      stop.abort();
      await Promise.all(running);
      client[Symbol.dispose]();
      await cluster[Symbol.asyncDispose]();
    },
  };
}

Deno.test("the published capacity of each class is that of its groups", async () => {
  await using s = await setUp({ a: 100n, b: 400n }, {
    data: { volumeGroup: "data" },
    any: { "csi.storage.k8s.io/fstype": "xfs" },
    none: { volumeGroup: "other" },
    wrong: { volumeGruop: "data" },
  });
  s.machines["b"]!.addGroup("fast", 200n * MiB);
  await s.cluster.agent("b").node.refresh();
  await s.waitForCapacities({
    ...{ "a data": "100Mi 100Mi", "a any": "100Mi 0", "a none": "0 0", "a wrong": "100Mi 100Mi" },
    ...{ "b data": "400Mi 400Mi", "b any": "600Mi 400Mi", "b none": "0 0", "b wrong": "600Mi 400Mi" },
  });
});

Deno.test("a volume is subtracted once, from its request until its space is free again", async () => {
  await using s = await setUp({ a: 200n, b: 200n }, { data: { volumeGroup: "data" } });
  await s.waitForCapacities({ "a data": "200Mi 200Mi", "b data": "200Mi 200Mi" });
  const machine = s.machines["a"]!;
  const gate = Promise.withResolvers<void>();
  machine.fault = ({ args }) => args[0] === "lvcreate" ? gate.promise.then(() => undefined) : undefined;
  const creation = s.create("one", 30n);
  await s.waitForCapacities({ "a data": "168Mi 168Mi", "b data": "200Mi 200Mi" });
  gate.resolve();
  const { id } = await creation;
  await s.cluster.nodes.waitFor("a", (node) => node?.status?.total?.free === "168Mi", { timeoutMs: 5_000 });
  await Promise.all(["two", "three"].map((name) => s.create(name, 32n)));
  await s.cluster.nodes.waitFor("a", (node) => node?.status?.total?.free === "104Mi", { timeoutMs: 5_000 });
  await s.cluster.volumes.expand(id, { required: 64n * MiB });
  await s.cluster.nodes.waitFor("a", (node) => node?.status?.total?.free === "72Mi", { timeoutMs: 5_000 });
  await s.waitForCapacities({ "a data": "72Mi 72Mi", "b data": "200Mi 200Mi" });
  const sizes = s.publishedSizes("a");
  assertEquals(sizes, sizes.toSorted((x, y) => parseInt(y!) - parseInt(x!)), "no volume was subtracted twice");
  for (const name of ["one", "two", "three"]) await s.cluster.volumes.delete(volumeIdOf(name));
  await s.waitForCapacities({ "a data": "200Mi 200Mi", "b data": "200Mi 200Mi" });
  assertEquals(s.publishedSizes("b"), []);
});

Deno.test("the space of a volume that a pod had is free when its data is erased, and not before", async () => {
  await using s = await setUp({ a: 200n }, { data: { volumeGroup: "data" } });
  const { id } = await s.create("one", 32n);
  const machine = s.machines["a"]!;
  machine.groups[0]!.tags.add(usedTag(DRIVER, id, machine.allLvs()[0]!.lv.uuid));
  const erasing = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  machine.fault = ({ program }) => {
    if (program !== "blkdiscard") return undefined;
    erasing.resolve();
    return gate.promise.then(() => undefined);
  };
  await s.waitForCapacities({ "a data": "168Mi 168Mi" });
  await s.cluster.volumes.delete(id);
  await erasing.promise;
  await s.cluster.nodes.waitFor("a", (node) => node?.status?.volumeGroups?.[0]?.volumes?.length === 0, {
    timeoutMs: 5_000,
  });
  assertEquals(s.publishedCapacities(), { "a data": "168Mi 168Mi" });
  gate.resolve();
  await s.waitForCapacities({ "a data": "200Mi 200Mi" });
});

type Fixture = Awaited<ReturnType<typeof setUp>>;

/** Starts a provisioner, without a controller that binds claims. */
function provision(
  { cluster, sharedOptions, startInformer, capacityOptions, run }: Fixture,
): Informer<PersistentVolumeClaim> {
  const recorder = new EventRecorder(sharedOptions.client, { component: DRIVER, instance: "test" });
  const claims = startInformer(persistentVolumeClaims);
  const provisioner = new Provisioner({
    nodeOfSource: () => undefined,
    ...sharedOptions,
    events: recorder,
    wakeUps: new WakeUps(),
    claims,
    volumes: startInformer(persistentVolumes),
    nodes: startInformer(nodeResource),
    intents: volumeIntents({ ...sharedOptions, driver: DRIVER, volumes: cluster.objects }),
    waitForCapacityBelow: (place, bytes, options) => waitForCapacityBelow(capacityOptions, place, bytes, options),
    capacityTimeoutMs: 60_000,
  });
  run(async (signal) => {
    await provisioner.run(signal);
    await recorder.stop(1_000);
  });
  return claims;
}

/** Chooses the first node with enough capacity, as kube-scheduler does when all else is equal. @returns its choices */
function schedule(
  claims: Informer<PersistentVolumeClaim>,
  { sharedOptions: { client }, published }: Fixture,
): string[] {
  const choices: string[] = [];
  const decided = new Set<string>();
  const scheduleClaims = () => {
    for (const claim of claims.list()) {
      const { namespace, name, resourceVersion } = claim.metadata;
      const decision = `${name} ${resourceVersion}`;
      if (selectedNodeOf(claim) !== undefined || decided.has(decision)) continue;
      const bytes = quantityToBytes(claim.spec?.resources?.requests?.["storage"])!;
      const [node] = published.list().filter((object) => maximumVolumeSizeOf(object) >= bytes)
        .map(({ nodeTopology }) => nodeTopology!.matchLabels![TOPOLOGY_KEY]!).sort();
      if (node === undefined) continue;
      decided.add(decision);
      choices.push(`${name} ${node}`);
      const merge = { metadata: { annotations: { [SELECTED_NODE_ANNOTATION]: node } } };
      void client.patch(persistentVolumeClaims, { namespace, name }, { merge });
    }
  };
  claims.subscribe(scheduleClaims);
  published.subscribe(scheduleClaims);
  return choices;
}

Deno.test("a node that was chosen too often gives a claim back, and the scheduler chooses another one next", async () => {
  const clock = new FakeClock();
  await using s = await setUp({ a: 100n, b: 100n }, { data: { volumeGroup: "data" } }, { clock, everyMs: 1_000 });
  await s.waitForCapacities({ "a data": "100Mi 100Mi", "b data": "100Mi 100Mi" });
  const { api, client } = s.cluster;
  for (const name of ["a", "b"]) {
    await client.patch(nodeResource, { name }, { merge: { metadata: { labels: { [TOPOLOGY_KEY]: name } } } });
  }
  const claims = provision(s);
  const choices = schedule(claims, s);
  const names = ["one", "two", "three", "four"];
  for (const name of names) {
    api.put(persistentVolumeClaims, {
      metadata: { name, namespace: "default", annotations: { [PROVISIONER_ANNOTATION]: DRIVER } },
      spec: {
        storageClassName: "data",
        accessModes: ["ReadWriteOnce"],
        resources: { requests: { storage: "32Mi" } },
        volumeMode: "Filesystem",
      },
    });
  }
  const failed = () => api.objects(events).filter(({ reason }) => reason === "ProvisioningFailed");
  await waitUntil(
    () => failed().length > 0 && api.objects(persistentVolumes).length === 3,
    "three volumes, and a refusal",
  );
  assertEquals(choices.toSorted(), names.map((name) => `${name} a`).sort(), "all used the same capacities");
  const last = failed()[0]!.involvedObject.name!;
  assertEquals(
    selectedNodeOf(claims.get(`default/${last}`)!),
    "a",
    "it keeps its node until the capacities are published",
  );
  await clock.advance(1_000);
  await waitUntil(() => api.objects(persistentVolumes).length === 4, "the fourth volume");
  assertEquals(choices.slice(4), [`${last} b`]);
  await s.waitForCapacities({ "a data": "4Mi 0", "b data": "68Mi 68Mi" });
});
