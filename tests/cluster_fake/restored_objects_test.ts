/**
 * Objects that a backup tool or GitOps restored without their status, while their LVs are away.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import {
  CREATED_ANNOTATION,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
  PENDING_ANNOTATION,
} from "../../k8s/api/lvm_objects.ts";
import type { ObjectMeta, Resource } from "../../k8s/api/objects.ts";
import { groupSnapshotIdOf } from "../../base/ids.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { ImportCluster, OTHERS, SIZE } from "../fake/cluster/import_cluster.ts";
import { addForeignLv } from "../fake/machine/foreign_lv.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import type { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { NODE, startSnapshotCluster } from "../fake/cluster/snapshot_cluster.ts";
import { ANYWHERE, assertFailsWith, request } from "../fake/cluster/volume_cluster.ts";

/** What a restore does to the annotations of an object. */
type Restore = (annotations: ObjectMeta["annotations"]) => ObjectMeta["annotations"];

/** Replaces the objects of a kind by what a backup has of them. */
async function restore<T extends LvmVolume | LvmSnapshot>(
  { api, client }: FakeCluster,
  resource: Resource<T>,
  change: Restore = (annotations) => annotations,
): Promise<void> {
  for (const { metadata: { name, annotations, finalizers }, spec } of api.objects(resource)) {
    await client.patch(resource, { name }, { merge: { metadata: { finalizers: [] } } as never });
    await client.delete(resource, { name });
    api.put(
      resource,
      { metadata: { name, annotations: change(annotations) ?? {}, finalizers: finalizers! }, spec } as T,
    );
  }
}

/** Takes the LVs of a machine away, with all records. @returns what brings them back */
function takeLvsAway({ groups: [group] }: FakeMachine): () => void {
  const [lvs, tags] = [group!.lvs.splice(0), [...group!.tags]];
  group!.tags.clear();
  return () => {
    group!.lvs.push(...lvs);
    for (const tag of tags) group!.tags.add(tag);
  };
}

/** Waits until all objects of a kind have a state. */
function waitForState({ api }: FakeCluster, resource: Resource<LvmVolume> | Resource<LvmSnapshot>, state: string) {
  const objects = () => api.objects(resource as Resource<LvmVolume>);
  return waitUntil(() => objects().every(({ status }) => status?.state === state), `all ${resource.plural} ${state}`);
}

const created = ({ api }: FakeCluster, resource: Resource<LvmVolume> | Resource<LvmSnapshot>) =>
  api.objects(resource as Resource<LvmVolume>).map(({ metadata }) => metadata.annotations?.[CREATED_ANNOTATION]);

Deno.test("a restored volume whose LV is away is Lost, gets no new one, and is Ready when its LV is back", async () => {
  await using s = await startSnapshotCluster();
  const { cluster, machine, source } = s;
  const clone = request("clone", { source: { kind: "volume", id: source } });
  await cluster.volumes.create(clone, ANYWHERE);
  assertEquals(created(cluster, lvmVolumes), ["true", "true"]);
  const bringBack = takeLvsAway(machine);
  await restore(cluster, lvmVolumes);
  await waitForState(cluster, lvmVolumes, "Lost");
  const [{ metadata: { name } }] = cluster.api.objects(lvmVolumes) as [LvmVolume];
  await cluster.client.patch(lvmVolumes, { name }, { merge: { spec: { discard: true } } });
  await cluster.agent(NODE).node.refresh();
  await assertFailsWith("Lost", cluster.volumes.get(source));
  assertEquals(machine.allLvs(), []);
  bringBack();
  await cluster.agent(NODE).node.refresh();
  await waitForState(cluster, lvmVolumes, "Ready");
  assertEquals(machine.allLvs().length, 2);
});

Deno.test("a restored volume finds its LV, and one that is Lost can be deleted", async () => {
  await using s = await startSnapshotCluster();
  const { cluster, machine, source } = s;
  await restore(cluster, lvmVolumes);
  await waitForState(cluster, lvmVolumes, "Ready");
  assertEquals(machine.allLvs().length, 1);
  takeLvsAway(machine);
  await restore(cluster, lvmVolumes);
  await waitForState(cluster, lvmVolumes, "Lost");
  await cluster.volumes.delete(source);
  assertEquals(cluster.api.objects(lvmVolumes), []);
});

Deno.test("what an earlier version wrote of a volume counts as created, unless a claim waits for it", async () => {
  const without: Restore = () => undefined;
  const pending: Restore = () => ({ [PENDING_ANNOTATION]: "uid" });
  const asked: Restore = () => ({ [CREATED_ANNOTATION]: "false" });
  for (const [change, state, lvs] of [[without, "Lost", 0], [pending, "Ready", 1], [asked, "Ready", 1]] as const) {
    await using s = await startSnapshotCluster();
    takeLvsAway(s.machine);
    await restore(s.cluster, lvmVolumes, change);
    await waitForState(s.cluster, lvmVolumes, state);
    assertEquals(s.machine.allLvs().length, lvs, state);
  }
});

Deno.test("an agent records that a volume of an earlier version was created", async () => {
  await using s = await startSnapshotCluster();
  const { cluster, source: name } = s;
  const merge = { metadata: { annotations: { [CREATED_ANNOTATION]: null } } };
  await cluster.client.patch(lvmVolumes, { name }, { merge });
  await cluster.agent(NODE).node.refresh();
  await waitUntil(() => created(cluster, lvmVolumes)[0] === "true", "the record");
});

Deno.test("a restored snapshot whose LV is away is Lost, and is not taken of what the volume has now", async () => {
  await using s = await startSnapshotCluster();
  const { cluster, machine } = s;
  await cluster.snapshots.create(s.request());
  assertEquals(created(cluster, lvmSnapshots), ["true"]);
  machine.groups[0]!.lvs = machine.groups[0]!.lvs.filter(({ origin }) => origin === undefined);
  await restore(cluster, lvmSnapshots);
  await waitForState(cluster, lvmSnapshots, "Lost");
  assertEquals(s.snapshotLvs(), []);
});

Deno.test("restored snapshots of a group whose LVs are away are Lost, and those that are there are found", async () => {
  await using s = await startSnapshotCluster();
  const { cluster, machine, source } = s;
  const { id: other } = await cluster.volumes.create(request("other"), ANYWHERE);
  const cowSize = { bytes: 8n << 20n };
  await cluster.groupSnapshots.create({ id: groupSnapshotIdOf("g"), name: "g", sources: [source, other], cowSize });
  await restore(cluster, lvmSnapshots);
  await waitForState(cluster, lvmSnapshots, "Ready");
  machine.groups[0]!.lvs = machine.groups[0]!.lvs.filter(({ origin }) => origin === undefined);
  await restore(cluster, lvmSnapshots);
  await waitForState(cluster, lvmSnapshots, "Lost");
  assertEquals(s.snapshotLvs(), []);
});

Deno.test("a restored volume that was imported does not take another logical volume that has the name of its own", async () => {
  await using s = await ImportCluster.start();
  s.startImporter();
  await s.addImport();
  await s.waitForState("Imported");
  await waitForState(s.cluster, lvmVolumes, "Ready");
  const bringBack = takeLvsAway(s.machine);
  const { group, lvName } = OTHERS.OpenEBS;
  await addForeignLv(s.machine, { group, name: lvName, bytes: SIZE });
  await restore(s.cluster, lvmVolumes);
  await waitForState(s.cluster, lvmVolumes, "Lost");
  assertEquals(s.machine.allLvs().map(({ lv }) => [lv.name, [...lv.tags]]), [[lvName, []]]);
  bringBack();
  await s.cluster.agent("node1").node.refresh();
  await waitForState(s.cluster, lvmVolumes, "Ready");
});
