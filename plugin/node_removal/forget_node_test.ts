import { assert, assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { move } from "../../tests/fake/cluster/move_objects.ts";
import { type LvmImport, lvmImports } from "../../k8s/handover/imports.ts";
import { copyIdOf, type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { forget } from "./forget_node.ts";
import { forgetPlanText } from "./text.ts";
import { FORGOTTEN_ANNOTATION, type LvmNode, lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { agentLeaseFor } from "../../k8s/api/agent_leases.ts";
import { events, leases, type Node, nodes, persistentVolumes } from "../../k8s/api/objects.ts";
import { planForget, readNodeObjects } from "./plan.ts";
import { volumeSnapshotContents } from "../../k8s/api/snapshot_objects.ts";

import { DEAD, harness, NOW, putNode, putVolume } from "../../tests/fake/cluster/dead_node.ts";
import { DRIVER } from "../../tests/fake/cluster/node_cluster.ts";
const ALIVE = [
  "alive-asked none",
  "alive-begun Pending",
  "alive-bound Ready",
  "alive-cut Ready",
  "alive-kept Ready",
  "alive-loose Ready",
  "alive-others Ready",
  "alive-released Ready",
  "alive-spare Ready",
  "alive-theirs Ready",
  "alive-wanted none",
];

const FORGOTTEN = [
  "dead-asked none forgotten",
  "dead-bound Lost forgotten",
  "dead-cut Lost forgotten",
  "dead-kept Lost forgotten",
  "dead-others Ready",
  "dead-released Lost forgotten",
  "dead-theirs Ready",
  "dead-wanted none forgotten",
];

Deno.test("forget() removes what no PersistentVolume or VolumeSnapshotContent needs, marks the rest as Lost, and touches no other node", async () => {
  await using s = harness();
  const before = s.left("dead");
  const { lvmNode, volumes, snapshots } = await s.forget();
  assertEquals([lvmNode, volumes.length, snapshots.length], [true, 6, 3]);
  assertEquals(s.left("alive"), FORGOTTEN);
  assertEquals([s.left("dead"), before], [ALIVE, ALIVE]);
  assertEquals(s.api.objects(lvmNodes).map(({ metadata }) => metadata.name), ["alive"]);
  assertEquals(s.api.objects(persistentVolumes).length, 8, "PersistentVolumes are left to their policy");
  const lost = s.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === volumeIdOf("dead-bound"))!;
  assertEquals(lost.metadata.annotations?.[FORGOTTEN_ANNOTATION], "2026-02-03T04:05:06Z");
  assertEquals([lost.status?.lvUUID, lost.status?.error?.code], ["lv-uuid", "Lost"]);
  assertEquals(lost.status?.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`), [
    "Ready False Lost",
  ]);
  assert(lost.status?.error?.message.startsWith("Lost: node dead was forgotten (2026-02-03T04:05:06Z)"));
  const snapshot = s.api.objects(lvmSnapshots).find(({ metadata }) => metadata.name === snapshotIdOf("dead-cut"))!;
  assertEquals([snapshot.status?.lvUUID, snapshot.status?.error?.code, snapshot.status?.readyToUse], [
    "lv-uuid",
    "Lost",
    false,
  ]);
});

Deno.test("forget() removes the volumes also where the cluster has no CRDs of snapshots", async () => {
  await using s = harness();
  const list = s.client.list.bind(s.client);
  s.client.list = async (resource, options) => {
    if (resource.plural !== "volumesnapshotcontents") return await list(resource, options);
    throw new ApiError("list volumesnapshotcontents: there is no such resource", { status: 404, reason: "NotFound" });
  };
  await s.forget();
  const isSnapshot = (line: string) => /dead-(cut|wanted)/.test(line);
  assertEquals(s.left("alive"), FORGOTTEN.filter((line) => !isSnapshot(line)));
});

Deno.test("forget() tries again when others change the objects meanwhile", async () => {
  for (const reason of ["bound", "spare"]) {
    await using s = harness();
    const patch = s.client.patch.bind(s.client);
    let disturbed = 0;
    s.client.patch = async (resource, at, options) => {
      if (at.name === volumeIdOf(`dead-${reason}`) && disturbed++ < 3) s.api.faults.conflicts = 1;
      return await patch(resource, at, options);
    };
    await s.forget();
    assert(disturbed > 3, reason);
    assertEquals(s.left("alive"), FORGOTTEN);
  }
});

Deno.test("forget() reports the volumes and snapshots, and their claims", async () => {
  await using s = harness();
  await s.forget();
  const recordedEvents = () =>
    s.api.objects(events).map(({ reason, involvedObject: { kind, name } }) => `${reason} ${kind} ${name}`);
  await waitUntil(() => recordedEvents().length === 6, "the events");
  const lost = ["bound", "kept", "released"].map((name) => `Lost LVMVolume ${volumeIdOf(`dead-${name}`)}`);
  const claimEvents = ["VolumeLost PersistentVolumeClaim dead-bound", "SnapshotLost VolumeSnapshot dead-cut"];
  assertEquals(
    recordedEvents().sort(),
    [...lost, `Lost LVMSnapshot ${snapshotIdOf("dead-cut")}`, ...claimEvents].sort(),
  );
  const ofClaim = s.api.objects(events).find(({ reason }) => reason === "VolumeLost")!;
  assertEquals([ofClaim.metadata.namespace, ofClaim.involvedObject.uid], ["default", "uid-dead-bound"]);
  const ofSnapshot = s.api.objects(events).find(({ reason }) => reason === "SnapshotLost")!;
  assertEquals([ofSnapshot.metadata.namespace, ofSnapshot.involvedObject], ["default", {
    ...{ apiVersion: "snapshot.storage.k8s.io/v1", kind: "VolumeSnapshot" },
    ...{ namespace: "default", name: "dead-cut", uid: "uid-dead-cut" },
  }]);
});

Deno.test("forget() sends no event about a VolumeSnapshot that a content is not bound to, or to a namespace that none has", async () => {
  await using s = harness();
  for (const content of s.api.objects(volumeSnapshotContents)) {
    await s.client.delete(volumeSnapshotContents, content.metadata);
    const { uid: _uid, ...volumeSnapshotRef } = content.spec.volumeSnapshotRef;
    s.api.put(volumeSnapshotContents, {
      ...{ ...content, metadata: { name: content.metadata.name } },
      spec: { ...content.spec, volumeSnapshotRef },
    });
  }
  await s.forget();
  await s.events.flush();
  const lost = s.api.objects(events).map(({ reason }) => reason);
  assertEquals([lost.includes("Lost"), lost.includes("SnapshotLost")], [true, false]);
});

Deno.test("forget() can be repeated, and completes a run that was interrupted at any step", async () => {
  let after = 0;
  for (let isInterrupted = true; isInterrupted; after++) {
    await using s = harness();
    isInterrupted = false;
    let changes = 0;
    const apiClient = interceptClient(s.client, (request, when) => {
      if (when === "after" || request.startsWith("get ") || changes++ < after) return Promise.resolve();
      isInterrupted = true;
      return Promise.reject(new Error("interrupted"));
    });
    await s.forget({ apiClient }).catch(() => {});
    await s.forget();
    assertEquals(s.left("alive"), FORGOTTEN, `interrupted after ${after} changes`);
    assertEquals(s.left("dead"), ALIVE);
  }
  assert(after > 8, `${after} changes`);
  await using s = harness();
  await s.forget();
  const revision = s.api.revision;
  await s.events.flush();
  const eventWrites = s.api.revision - revision;
  await s.forget({ now: new Date(NOW.getTime() + 1_000) });
  assertEquals(s.api.revision, revision + eventWrites, "the second time changes nothing");
});

Deno.test("forget() refuses a node that seems to be alive, unless a reason is given, which it records", async () => {
  const ready = (status: string): Partial<Node> => ({ status: { conditions: [{ type: "Ready", status }] } });
  const cases: [string, Partial<Node> | undefined, string, RegExp | undefined, renewTime?: string][] = [
    ["Ready", ready("True"), "2026-02-03T03:00:00Z", /Node dead is Ready/],
    ["not Ready", ready("Unknown"), "2026-02-03T03:00:00Z", undefined],
    ["its agent reports", undefined, "2026-02-03T04:04:56Z", /its agent reported 10 s ago/],
    ["its clock is ahead", ready("False"), "2026-02-03T05:00:00Z", /its agent reported 0 s ago/],
    ["silent for long enough", undefined, "2026-02-03T04:00:05Z", undefined, "2026-02-03T04:00:05.000000Z"],
    ["its Lease", undefined, "2026-02-03T03:00:00Z", /its agent reported 20 s ago/, "2026-02-03T04:04:46.000000Z"],
  ];
  for (const [what, node, lastUpdateTime, refusal, renewTime] of cases) {
    await using s = harness();
    await s.client.delete(lvmNodes, { name: "dead" });
    const lease = agentLeaseFor(putNode(s.api, "dead", lastUpdateTime), "somewhere");
    s.api.put(leases, { ...lease, spec: { ...lease.spec, ...(renewTime && { renewTime }) } });
    if (node !== undefined) s.api.put(nodes, { metadata: { name: "dead" }, ...node });
    const before = s.left();
    const { livenessEvidence } = planForget(await readNodeObjects(s.client, DEAD), NOW);
    assertEquals(livenessEvidence.length, refusal === undefined ? 0 : 1, what);
    if (refusal === undefined) await s.forget();
    else {
      const error = await assertRejects(() => s.forget(), StorageError);
      assertEquals([error.kind, refusal.test(error.message), s.left()], ["FailedPrecondition", true, before], what);
      assertEquals(s.api.objects(lvmNodes).length, 2);
      await s.forget({ reason: "its disks were wiped" });
      const lost = s.api.objects(lvmVolumes).find(({ status }) => status?.state === "Lost")!;
      assertEquals(lost.metadata.annotations?.[FORGOTTEN_ANNOTATION], "2026-02-03T04:05:06Z: its disks were wiped");
      assert(lost.status?.error?.message.includes("its disks were wiped"));
    }
    assertEquals(s.api.objects(lvmNodes).length, 1, what);
  }
});

Deno.test("forget() stops at an agent that writes its LVMNode again", async () => {
  await using s = harness();
  const before = s.left();
  const remove = s.client.delete.bind(s.client);
  for (const isFaster of [false, true]) {
    const rewriteNode = async () => {
      await remove(lvmNodes, { name: "dead" });
      putNode(s.api, "dead", "2026-02-03T04:05:07Z");
    };
    s.client.delete = async (...args) => {
      if (isFaster) await rewriteNode();
      await remove(...args);
      if (!isFaster) putNode(s.api, "dead", "2026-02-03T04:05:07Z");
    };
    await assertRejects(() => s.forget(), StorageError, "its agent reported 0 s ago");
    assertEquals(s.left(), before);
    assertEquals(s.api.objects(lvmNodes).length, 2);
    await remove(lvmNodes, { name: "dead" });
    putNode(s.api, "dead", "2026-02-03T03:00:00Z");
  }
});

Deno.test("forget() keeps objects that replaced those it read, and finalizers of others", async () => {
  await using s = harness();
  const id = volumeIdOf("dead-spare");
  await s.client.patch(lvmVolumes, { name: id }, {
    merge: { metadata: { finalizers: ["a/b", "lvm.denolith.dev/volume"] } },
  });
  await s.forget();
  const guarded = s.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === id)!;
  assertEquals(guarded.metadata.finalizers, ["a/b"]);
  assert(guarded.metadata.deletionTimestamp !== undefined);

  await s.client.patch(lvmVolumes, { name: id }, { merge: { metadata: { finalizers: null } } });
  putVolume(s.api, "dead-spare", DEAD);
  const list = s.client.list.bind(s.client);
  s.client.list = async (resource, options) => {
    const answer = await list(resource, options);
    if (resource.plural !== "lvmvolumes") return answer;
    const items = answer.items.map((item) => ({ ...item, metadata: { ...item.metadata, uid: "before" } }));
    return { ...answer, items };
  };
  await s.forget();
  assert(s.left("alive").includes("dead-spare Ready"), s.left("alive").join());
});

Deno.test("forget() changes nothing for a node without objects, or of another driver", async () => {
  await using s = harness();
  s.api.put(lvmNodes, { metadata: { name: "theirs" }, spec: { driverName: "other.driver" } } as LvmNode);
  const revision = s.api.revision;
  for (const nodeName of ["nowhere", "theirs"]) {
    const nodeObjects = await readNodeObjects(s.client, { driver: DRIVER, nodeName });
    const done = await forget(s.client, nodeObjects, { now: NOW, events: s.events });
    assertEquals([done.lvmNode, done.volumes, done.snapshots, s.api.revision], [false, [], [], revision]);
    assertEquals(forgetPlanText(done, true), `There is nothing of node ${nodeName} to forget.`);
  }
});

Deno.test("forgetPlanText() names the outcome of each object, and what to do", async () => {
  await using s = harness();
  const plan = planForget(await readNodeObjects(s.client, DEAD), NOW);
  const text = forgetPlanText(plan, false);
  const lines = text.split("\n");
  const after = (name: string) => lines[lines.findIndex((line) => line.includes(volumeIdOf(name))) + 1]!.trim();
  assertEquals(lines[1], "  its LVMNode would be removed");
  const claim = "(Bound, Delete): delete claim default/dead-bound and its pods to have a new volume";
  assert(text.replaceAll(/\s+/g, " ").includes(`PersistentVolume pv-dead-bound ${claim}`), text);
  assert(after("dead-released").endsWith("(Released, Delete): goes by itself within five minutes"), text);
  assert(after("dead-kept").endsWith("(Released, Retain): delete it, and forget the node once more"), text);
  assert(text.includes("Volumes that no PersistentVolume needs: would be removed\n"), text);
  assert(text.includes("Snapshots that no VolumeSnapshotContent needs: would be removed\n"), text);
  const content =
    "VolumeSnapshotContent content-dead-cut (Delete): delete VolumeSnapshot default/dead-cut to be rid of it";
  assert(text.replaceAll(/\s+/g, " ").includes(content), text);
  assertEquals(lines.at(-1), "Nothing was changed. To do it: kubectl denolith forget-node dead --yes");
  assertEquals(lines.filter((line) => line.length > 100), []);
  const alive = forgetPlanText({ ...plan, livenessEvidence: ["Node dead is Ready"] }, false);
  assert(alive.includes("\n  it seems to be alive: Node dead is Ready\n"), alive);
  assert(alive.endsWith("--force REASON"), alive);
  const done = forgetPlanText(plan, true);
  assert(!done.includes("would") && !done.includes("Nothing was changed"), done);

  assertEquals([plan.nodeName, plan.lvmNode, plan.livenessEvidence], ["dead", true, []]);
  assertEquals(plan.volumes.find(({ id }) => id === volumeIdOf("dead-kept")), {
    ...{
      id: volumeIdOf("dead-kept"),
      size: 32n << 20n,
      state: "Ready",
      volumeGroup: "data",
      claim: "default/dead-kept",
    },
    persistentVolume: { name: "pv-dead-kept", phase: "Released", reclaimPolicy: "Retain" },
    outcome: "lost",
  });
  assertEquals(plan.snapshots.find(({ id }) => id === snapshotIdOf("dead-cut")), {
    ...{ id: snapshotIdOf("dead-cut"), size: 32n << 20n, state: "Ready", volumeGroup: "data" },
    sourceVolume: volumeIdOf("dead-bound"),
    volumeSnapshotContent: {
      name: "content-dead-cut",
      deletionPolicy: "Delete",
      volumeSnapshot: "default/dead-cut",
    },
    outcome: "lost",
  });
});

Deno.test("readNodeObjects() finds what unfinished moves and imports need, and a copy only when its volume is gone", async () => {
  await using s = harness();
  const name = volumeIdOf("dead-spare");
  const put = (status: LvmMove["status"]) =>
    s.api.restore(lvmMoves, {
      metadata: { name, uid: "m" },
      spec: { ...move().spec, driverName: DRIVER },
      ...(status && { status }),
    });
  const copy = copyIdOf({ ...move(), metadata: { name, uid: "m" } });
  const needs = async () => Object.fromEntries((await readNodeObjects(s.client, DEAD)).needs);
  put({ state: "Copying" });
  assertEquals(await needs(), { [name]: `LVMMove ${name}` });
  const object = s.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === name)!;
  s.api.restore(lvmVolumes, { ...object, status: { ...object.status, state: "Lost" } as never });
  assertEquals(await needs(), { [name]: `LVMMove ${name}`, [copy]: `LVMMove ${name}` });
  put({ state: "Removing", removing: true });
  assertEquals(await needs(), { [name]: `LVMMove ${name}` });
  put({ state: "Failed" });
  assertEquals(await needs(), {});
  const imported = { metadata: { name }, spec: { driverName: DRIVER } } as unknown as LvmImport;
  s.api.restore(lvmImports, imported);
  assertEquals(await needs(), { [name]: `LVMImport ${name}` });
  s.api.restore(lvmImports, { ...imported, status: { state: "Complete" } });
  assertEquals(await needs(), {});
});
