import { assertEquals } from "@std/assert";
import {
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import * as known from "../../k8s/api/objects.ts";
import {
  type KubeObject,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
} from "../../k8s/api/objects.ts";
import {
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { BEING_DELETED_ANNOTATION } from "../../k8s/snapshotter/snapshot_content.ts";
import { volumeIdOf } from "../../lvm/ids.ts";
import { waitUntil } from "../fake/control_plane.ts";
import type { FakeMachine } from "../fake/machine.ts";
import { DRIVER, FakeCluster } from "../fake/node_cluster.ts";
import { startControllers } from "./controllers.ts";
import { machineWith, readRecords, type RecordedCluster } from "./recorded.ts";
import { validator } from "./schemas.ts";
import { unreadableTags } from "./tag_format.ts";

const { clusters } = readRecords<{ clusters: readonly RecordedCluster[] }>("clusters.json");
const { crds } = readRecords<{ crds: readonly { kind: string; schema: Record<string, unknown> }[] }>("crds.json");

const RESOURCES: readonly Resource[] = [
  ...[known.nodes, known.csiNodes, known.storageClasses, known.volumeAttributesClasses, known.leases],
  ...[known.csiStorageCapacities, persistentVolumeClaims, persistentVolumes, lvmNodes, lvmVolumes, lvmSnapshots],
  ...[volumeSnapshotClasses, volumeSnapshotContents],
];

/** What is written while a test runs: the objects, and the tags. */
class Writes {
  readonly objects: KubeObject[] = [];
  readonly tags = new Set<string>();

  /** Returns an exec that runs commands on a machine, and records its tags after each. */
  machine(machine: FakeMachine) {
    return {
      run: async (command: Parameters<FakeMachine["run"]>[0]) => {
        const output = await machine.run(command);
        for (const { tags, lvs } of machine.groups) {
          for (const tag of [...tags, ...lvs.flatMap((lv) => [...lv.tags])]) this.tags.add(tag);
        }
        return output;
      },
      idle: () => machine.idle(),
    };
  }

  /** Records all versions of the objects of a resource. */
  watch(cluster: FakeCluster, resource: Resource, signal: AbortSignal): Promise<void> {
    const informer = new Informer(cluster.client, resource);
    informer.subscribe((_, now) => now && this.objects.push(now));
    return informer.start(signal);
  }
}

/** Continues a recorded cluster with the processes of this version. */
async function continueCluster(recorded: RecordedCluster, body: (upgraded: Upgraded) => Promise<void>) {
  const writes = new Writes();
  await using cluster = await FakeCluster.start({});
  const { api } = cluster;
  for (const resource of [volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots]) api.addResource(resource);
  for (const object of recorded.objects) {
    api.restore(RESOURCES.find(({ kind }) => kind === object.kind)!, object);
  }
  const machine = machineWith(recorded.groups);
  cluster.startAgent(recorded.node, writes.machine(machine));
  await waitUntil(() => cluster.objects.list().length > 0, "the objects");
  const stop = new AbortController();
  const watches = [lvmNodes, lvmVolumes, lvmSnapshots].map((each) => writes.watch(cluster, each, stop.signal));
  {
    await using _controllers = await startControllers(cluster);
    await body({ cluster, machine, recorded });
  }
  stop.abort();
  await Promise.all(watches);
  const schemas = new Map(crds.map(({ kind, schema }) => [kind, schema]));
  assertEquals(writes.objects.flatMap(validator(schemas, "allowed")), [], "objects that 0.1.0 cannot read");
  assertEquals(unreadableTags(DRIVER, writes.tags), [], "tags that 0.1.0 cannot read");
}

/** A recorded cluster with the processes of this version. */
interface Upgraded {
  readonly cluster: FakeCluster;
  readonly machine: FakeMachine;
  readonly recorded: RecordedCluster;
}

/** Returns what a volume or snapshot is, by its object. */
function identityOf({ metadata, spec, status = {} }: LvmVolume | LvmSnapshot) {
  const { lvName, lvUUID, volumeGroup } = status;
  return { name: metadata.name, spec, state: status.state, lvName, lvUUID, volumeGroup };
}

/** Returns what a recorded volume or snapshot becomes: one that was being created is completed with its LV. */
function expectedIdentity({ groups }: RecordedCluster, object: LvmVolume | LvmSnapshot) {
  const identity = identityOf(object);
  if (identity.state !== "Pending") return identity;
  const lv = groups.flatMap(({ lvs }) => lvs).find(({ tags }) => tags.includes(`denolith.volume=${identity.name}`))!;
  return { ...identity, state: "Ready", lvName: lv.name, lvUUID: lv.uuid };
}

function recordedOf<T extends KubeObject>(recorded: RecordedCluster, { kind }: Resource<T>): T[] {
  return recorded.objects.filter((object) => object.kind === kind && !object.metadata.deletionTimestamp) as T[];
}

/** Waits until the predicate holds. @throws {Error} with the actual value */
async function settle(what: string, actual: () => unknown, expected: unknown): Promise<void> {
  await waitUntil(() => JSON.stringify(actual()) === JSON.stringify(expected), what).catch(() => {
    assertEquals(actual(), expected, what);
  });
}

/** Waits until the driver has taken over all volumes and snapshots, and what was begun is complete. */
async function takeOver({ cluster, recorded }: Upgraded): Promise<void> {
  const { api } = cluster;
  const agent = cluster.agent(recorded.node);
  const names = [...recordedOf(recorded, lvmVolumes), ...recordedOf(recorded, lvmSnapshots)]
    .map(({ metadata }) => metadata.name);
  const isReconciled = (name: string) => agent.reconciliations.some(({ key, error }) => key === name && !error);
  await waitUntil(() => names.every(isReconciled), "a reconcile attempt of each object");
  await agent.node.refresh();
  for (const resource of [lvmVolumes, lvmSnapshots] as Resource<LvmVolume | LvmSnapshot>[]) {
    const expected = recordedOf(recorded, resource).map((object) => expectedIdentity(recorded, object));
    const actual = () => api.objects(resource).map(identityOf); // those that were being deleted are gone
    await settle(resource.plural, actual, expected);
  }
  const unbound = () =>
    api.objects(persistentVolumeClaims).filter(({ status }) => status?.phase !== "Bound")
      .map(({ metadata }) => metadata.name).filter((name) => name !== "too-large");
  await settle("claims that wait", unbound, []);
}

/** Deletes all that users made. */
async function deleteAll({ cluster: { api, client }, machine }: Upgraded): Promise<void> {
  for (const { metadata: { name } } of api.objects(volumeSnapshotContents)) {
    const annotations = { [BEING_DELETED_ANNOTATION]: "yes" };
    const merge = { metadata: { annotations }, spec: { deletionPolicy: "Delete" as const } };
    await client.patch(volumeSnapshotContents, { name }, { merge });
    await client.delete(volumeSnapshotContents, { name });
  }
  for (const { metadata: { name } } of api.objects(persistentVolumes)) {
    await client.patch(persistentVolumes, { name }, { merge: { spec: { persistentVolumeReclaimPolicy: "Delete" } } });
  }
  for (const { metadata: { name, namespace } } of api.objects(persistentVolumeClaims)) {
    await client.delete(persistentVolumeClaims, { name, namespace: namespace! });
  }
  const resources = [persistentVolumeClaims, persistentVolumes, volumeSnapshotContents, lvmVolumes, lvmSnapshots];
  const left = () =>
    resources.flatMap((each) => api.objects(each as Resource)).map(({ kind, metadata }) => `${kind} ${metadata.name}`);
  await settle("the deletion of all objects", left, []);
  await settle(
    "the removal of all LVs",
    () => machine.allLvs().filter(({ lv }) => !lv.thinPool).map(({ lv }) => lv.name),
    [],
  );
  assertEquals(machine.groups.flatMap(({ tags }) => [...tags]), [], "records are left");
}

for (const recorded of clusters) {
  Deno.test(`a cluster of version 0.1.0 continues with this version: ${recorded.name}`, async () => {
    await continueCluster(recorded, async (upgraded) => {
      await takeOver(upgraded);
      const { api } = upgraded.cluster;
      const conditions = (all: LvmNode[]) =>
        all.flatMap(({ status }) => status?.conditions ?? []).filter(({ type }) => type === "OrphansFound")
          .map(({ reason }) => reason);
      assertEquals(conditions(api.objects(lvmNodes)), conditions(recordedOf(recorded, lvmNodes)), "orphans");
      await deleteAll(upgraded);
    });
  });
}

/** Returns the paths of all fields of a value, such as `spec.size`; the items of a list have one path. */
function fieldsOf(value: unknown, path = ""): string[] {
  if (typeof value !== "object" || value === null) return [path];
  if (Array.isArray(value)) return value.flatMap((item) => fieldsOf(item, `${path}[]`));
  return [path, ...Object.entries(value).flatMap(([name, part]) => fieldsOf(part, `${path}.${name}`))];
}

/** Returns the objects of a claim and of the content `name` of a snapshot of its volume, by their kinds. */
function objectsFor(objects: readonly KubeObject[], claim: string, content: string): Map<string, KubeObject> {
  const text = (object: KubeObject) => JSON.stringify(object);
  const named = (kind: string, name: string) =>
    objects.find((object) => object.kind === kind && object.metadata.name === name)!;
  const { uid } = named("PersistentVolumeClaim", claim).metadata;
  const { status } = named("VolumeSnapshotContent", content) as VolumeSnapshotContent;
  return new Map([
    ["PersistentVolume", named("PersistentVolume", `pvc-${uid}`)],
    ["LVMVolume", objects.find((object) => object.kind === "LVMVolume" && text(object).includes(uid!))!],
    ["LVMSnapshot", named("LVMSnapshot", status!.snapshotHandle!)],
    ["VolumeSnapshotContent", named("VolumeSnapshotContent", content)],
    ["LVMNode", objects.find(({ kind }) => kind === "LVMNode")!],
    ["CSIStorageCapacity", objects.find(({ kind }) => kind === "CSIStorageCapacity")!],
  ]);
}

Deno.test("new objects of this version have all fields that those of version 0.1.0 have", async () => {
  const [recorded] = clusters;
  await continueCluster(recorded!, async ({ cluster: { api }, recorded: { objects } }) => {
    const { metadata, spec } = objects.find(({ kind, metadata: { name } }) =>
      kind === "PersistentVolumeClaim" && name === "thick"
    ) as PersistentVolumeClaim;
    const { volumeName: _, ...wanted } = spec!;
    const { namespace, annotations } = metadata;
    const claim = api.put(persistentVolumeClaims, {
      metadata: { name: "new", namespace: namespace!, annotations: annotations! },
      spec: wanted,
      status: { phase: "Pending" },
    });
    const oldContent = objects.find(({ metadata }) => metadata.name === "of-thick") as VolumeSnapshotContent;
    const isBound = ({ metadata, status }: PersistentVolumeClaim) =>
      metadata.name !== "new" || status?.phase === "Bound";
    await waitUntil(() => api.objects(persistentVolumeClaims).every(isBound), "the new volume");
    api.put(volumeSnapshotContents, {
      metadata: { name: "of-new", finalizers: oldContent.metadata.finalizers! },
      spec: {
        ...oldContent.spec,
        source: { volumeHandle: volumeIdOf(`pvc-${claim.metadata.uid}`) },
        volumeSnapshotRef: { ...oldContent.spec.volumeSnapshotRef, uid: crypto.randomUUID() },
      },
    });
    const stored = (name: string) => api.objects(volumeSnapshotContents).find(({ metadata }) => metadata.name === name);
    await waitUntil(() => stored("of-new")?.status?.readyToUse === true, "the snapshot of the new volume");
    const now = objectsFor(RESOURCES.flatMap((resource) => api.objects(resource)), "new", "of-new");
    for (const [kind, before] of objectsFor(objects, "thick", "of-thick")) {
      const missing = new Set(fieldsOf(before)).difference(new Set(fieldsOf(now.get(kind))));
      assertEquals([...missing], [], `fields that a new ${kind} lacks`);
    }
  });
});

Deno.test("a volume of version 0.1.0 whose logical volume disappears is Lost, and not created again", async () => {
  const [before] = clusters;
  const { metadata: { name } } = objectsFor(before!.objects, "unready", "of-thick").get("LVMVolume")!;
  const groups = before!.groups.map((group) => ({
    ...group,
    lvs: group.lvs.filter(({ tags }) => !tags.includes(`denolith.volume=${name}`)),
  }));
  await continueCluster({ ...before!, groups }, async ({ cluster, machine, recorded }) => {
    const agent = cluster.agent(recorded.node);
    await waitUntil(() => agent.reconciliations.some(({ key }) => key === name), "a reconcile attempt");
    await agent.node.refresh();
    await settle("the state", () => cluster.objects.get(name)?.status?.state, "Lost");
    assertEquals(machine.allLvs().filter(({ lv }) => lv.tags.has(`denolith.volume=${name}`)), []);
  });
});
