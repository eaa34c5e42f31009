/**
 * Volumes of other drivers that are imported in a fake cluster, and returned.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { snapshotIdOf, volumeLvName } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { persistentVolumeClaims, persistentVolumes } from "../../k8s/api/objects.ts";
import { importedCondition } from "../../k8s/api/volume_conditions.ts";
import { volumeOf } from "../../k8s/handover/replacements.ts";
import { type LvmImport, lvmImports, type Origin, REPLACED_CLASS_ANNOTATION } from "../../k8s/handover/imports.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { VOLUME_FINALIZER } from "../../k8s/provisioner/persistent_volume.ts";
import { TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { ImportCluster, OTHERS, SIZE } from "../fake/cluster/import_cluster.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { MiB } from "../fake/cluster/volume_cluster.ts";

/** Asserts that the volume is one of the driver, with its data, and used as such by the claim. */
async function assertImported(s: ImportCluster): Promise<void> {
  const { pvName, group } = OTHERS[s.origin];
  await waitUntil(() => s.volumeState === "Ready", "Ready");
  const [object] = s.cluster.api.objects(lvmVolumes);
  assertEquals([object!.metadata.name, object!.status?.lvName], [s.id, volumeLvName(s.id)]);
  assertEquals([s.lv!.name, [...s.lv!.content.data]], [volumeLvName(s.id), ["letters"]]);
  assert(s.machine.groups[0]!.tags.has(`denolith.used=${DRIVER}:${s.id}:${s.lv!.uuid}`));
  assertEquals(s.claim?.status?.phase, "Bound");
  const { metadata, spec } = s.persistentVolume!;
  assertEquals([metadata.name, metadata.labels], [pvName, { tier: "gold" }]);
  assertEquals(metadata.annotations, { "pv.kubernetes.io/provisioned-by": DRIVER, note: "kept" });
  assertEquals(spec?.csi, { driver: DRIVER, volumeHandle: s.id, fsType: "ext4" });
  assertEquals([spec?.local, nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY)], [undefined, "node1"]);
  assertEquals([spec?.claimRef?.uid, spec?.persistentVolumeReclaimPolicy], [s.claim!.metadata.uid, "Delete"]);
  const isReplaced = s.origin !== "Local";
  assertEquals(s.storageClass?.provisioner === DRIVER, isReplaced);
  if (!isReplaced) return;
  const { metadata: { annotations }, parameters, reclaimPolicy, volumeBindingMode } = s.storageClass!;
  assertEquals([annotations?.owner, reclaimPolicy, volumeBindingMode], ["storage", "Delete", "WaitForFirstConsumer"]);
  assertEquals(
    parameters,
    s.origin === "OpenEBS"
      ? { fsType: "ext4", volumeGroup: group, shared: "no" }
      : { "csi.storage.k8s.io/fstype": "ext4", volumeGroup: group },
  );
}

/** Asserts that everything is as it was before the import. */
function assertAsBefore(s: ImportCluster): void {
  const { lvName, source, storageClass } = OTHERS[s.origin];
  assertEquals([s.lv!.name, [...s.lv!.tags], [...s.lv!.content.data]], [lvName, [], ["letters"]]);
  assertEquals([...s.machine.groups[0]!.tags], []);
  assertEquals(s.cluster.api.objects(lvmVolumes), []);
  const { spec, metadata } = s.persistentVolume!;
  const driver = storageClass.provisioner;
  assertEquals(metadata.annotations, { "pv.kubernetes.io/provisioned-by": driver, note: "kept" });
  assertEquals({ ...(spec?.csi && { csi: spec.csi }), ...(spec?.local && { local: spec.local }) }, source);
  assertEquals([spec?.persistentVolumeReclaimPolicy, s.claim?.status?.phase], ["Delete", "Bound"]);
  assertEquals(s.storageClass?.provisioner, driver);
  assertEquals(s.storageClass?.parameters, storageClass.parameters);
  assertEquals(s.storageClass?.metadata.annotations, {
    "kubectl.kubernetes.io/last-applied-configuration": "{}",
    owner: "storage",
  });
  assertEquals(s.object?.metadata.finalizers, OTHERS[s.origin].object?.metadata.finalizers);
}

for (const origin of Object.keys(OTHERS) as Origin[]) {
  Deno.test(`a volume of ${origin} is imported, finished, and used as any other`, async () => {
    await using s = await ImportCluster.start(origin);
    s.startImporter();
    await s.addImport();
    await s.waitForState("Imported");
    await assertImported(s);
    assertEquals(s.object?.metadata.finalizers, OTHERS[origin].object?.metadata.finalizers);
    await s.finish();
    await s.waitForState("Complete");
    assertEquals(s.object, undefined);
    assertEquals(s.import?.status?.object?.spec, OTHERS[origin].object?.spec);
    const snapshot = { id: snapshotIdOf("s"), name: "s", source: s.id, cowSize: FULL_COW };
    await s.cluster.snapshots.create(snapshot);
    assertEquals(s.cluster.api.objects(lvmSnapshots).map(({ status }) => status?.readyToUse), [true]);
    await s.cluster.snapshots.delete(snapshot.id);
    await s.cluster.volumes.expand(s.id, { required: 2n * SIZE });
    assertEquals([s.lv!.size, s.lv!.name], [64n * MiB, volumeLvName(s.id)]);
    await s.cluster.client.delete(lvmImports, { name: s.id });
    await waitUntil(() => s.import === undefined, "no LVMImport");
    const hasFinalizer = () => s.persistentVolume?.metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false;
    await waitUntil(hasFinalizer, "the finalizer of the driver");
    await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
    await waitUntil(() => s.persistentVolume === undefined, "the end of the volume");
    await s.cluster.agent("node1").machine.background.idle();
    await waitUntil(() => s.lv === undefined, "no LV");
    const { residualData } = s.machine.groups[0]!;
    assertEquals([...residualData], [], "what was on it is erased");
  });

  Deno.test(`a volume of ${origin} is returned`, async () => {
    await using s = await ImportCluster.start(origin);
    s.startImporter();
    await s.addImport();
    await s.waitForState("Imported");
    await assertImported(s);
    await s.cancel();
    await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
    assertAsBefore(s);
  });
}

Deno.test("a volume that a pod uses is imported when it is unmounted; until then no pod can be started", async () => {
  await using s = await ImportCluster.start();
  const endPod = s.usePod();
  s.startImporter();
  await s.addImport();
  await waitUntil(() => s.import?.status?.message?.includes("its mount /var/lib/kubelet") ?? false, "the mount");
  assertEquals([s.claim?.status?.phase, s.persistentVolume, s.lv?.tags.size], ["Lost", undefined, 0]);
  endPod();
  await s.waitForState("Imported");
  await assertImported(s);
});

Deno.test("a volume with a snapshot can be used until that is deleted, and is returned then", async () => {
  await using s = await ImportCluster.start();
  s.startImporter();
  await s.addImport();
  await s.waitForState("Imported");
  const snapshot = { id: snapshotIdOf("s"), name: "s", source: s.id, cowSize: FULL_COW };
  await s.cluster.snapshots.create(snapshot);
  await s.cancel();
  const message = `it cannot be returned: waits until snapshots ${snapshot.id} are deleted`;
  await waitUntil(() => s.import?.status?.message === message, () => `the wait: ${JSON.stringify(s.import?.status)}`);
  await assertImported(s);
  await s.cluster.snapshots.delete(snapshot.id);
  await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
  assertAsBefore(s);
});

Deno.test("what an agent refuses is not changed", async () => {
  await using s = await ImportCluster.start();
  s.lv!.content.signatures = [{ type: "xfs", uuid: "1" }];
  s.startImporter();
  await s.addImport();
  const { status } = await s.waitForState("Failed");
  assertStringIncludes(status!.error!.message, "ext4 is expected, but it holds xfs with the UUID 1");
  assertAsBefore(s);
});

Deno.test("a class that several claims have is made anew once, and restored with the last of them", async () => {
  await using s = await ImportCluster.start();
  s.startImporter();
  await s.addImport();
  await s.waitForState("Imported");
  const { uid, annotations } = s.storageClass!.metadata;
  assertEquals(JSON.parse(annotations![REPLACED_CLASS_ANNOTATION]!).provisioner, "local.csi.openebs.io");
  const other = s.cluster.api.put(lvmImports, {
    ...structuredClone(s.import!),
    metadata: { name: `v1-${"0".repeat(32)}` },
    spec: { ...s.import!.spec, driverName: "other" },
  });
  await s.cluster.client.patch(lvmImports, { name: other.metadata.name }, {
    merge: { status: s.import!.status! },
    subresource: "status",
  });
  await s.cancel();
  await waitUntil(() => s.cluster.api.objects(lvmImports).length === 1, "one LVMImport");
  assertEquals(s.storageClass!.metadata.uid, uid);
});

/** Values that somebody may write into an LVMVolume, past its schema. */
const HOSTILE: readonly Record<string, unknown>[] = [
  { lvName: "../data" },
  { lvName: "--yes" },
  { lvName: "a b" },
  { lvName: "x,y" },
  { lvName: "pvc/../other" },
  { lvName: "" },
  { lvName: 5 },
  { volumeGroupUUID: "lvmvg" },
  { volumeGroupUUID: ["a"] },
  { action: "Remove" },
  { action: "Return", lvName: "-x" },
];

for (const hostile of HOSTILE) {
  Deno.test(`an LVMVolume that imports ${JSON.stringify(hostile)} is refused, and changes nothing`, async () => {
    await using s = await ImportCluster.start();
    const { import: object } = await s.plan();
    const volume = volumeOf(object as LvmImport);
    const imports = { ...volume.spec.imports!, action: "Import", ...hostile } as NonNullable<
      LvmVolume["spec"]["imports"]
    >;
    s.cluster.api.put(lvmVolumes, {
      ...volume,
      metadata: { ...volume.metadata, name: s.id },
      spec: { ...volume.spec, imports },
    });
    const condition = () => importedCondition(s.cluster.api.objects(lvmVolumes)[0]!);
    await waitUntil(() => condition()?.reason === "Refused", () => `Refused: ${JSON.stringify(condition())}`);
    assertEquals([s.lv!.name, s.lv!.tags.size, s.machine.allLvs().length], [OTHERS.OpenEBS.lvName, 0, 1]);
    assertEquals([...s.machine.groups[0]!.tags], []);
  });
}

for (const finish of [true, false]) {
  Deno.test(`a volume with a layout is imported with it${finish ? ", and stays" : ", and returned"}`, async () => {
    const machine = new FakeMachine();
    const group = OTHERS.TopoLVM.group;
    machine.addGroup(group, 1n << 30n, 4n << 20n, 3);
    const lvcreate = ["--type", "raid1", "--mirrors", "1", "--size", `${SIZE}b`];
    await using s = await ImportCluster.start("TopoLVM", { machine, lvcreate });
    s.startImporter();
    await s.addImport({ finish });
    await s.waitForState(finish ? "Complete" : "Imported");
    await waitUntil(() => s.volumeState === "Ready", "Ready");
    const [object] = s.cluster.api.objects(lvmVolumes);
    assertEquals(object!.spec.layout, { type: "raid1", mirrors: 1 });
    assertEquals(s.storageClass?.parameters?.layout, undefined, "the class says nothing of it");
    if (finish) return;
    await s.cancel();
    await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
    assertAsBefore(s);
  });
}

Deno.test("a finished import is deleted although the controller has no rights for imports any more", async () => {
  await using s = await ImportCluster.start("TopoLVM");
  s.startImporter();
  await s.addImport({ finish: true });
  await s.waitForState("Complete");
  s.cluster.api.faults.forbidden.add("logicalvolumes");
  await s.cancel();
  await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.metadata)}`);
  await assertImported(s);
});

for (const missing of ["read objects", "delete"] as const) {
  Deno.test(`an import without a right, to ${missing}, says so, and goes on when it has it`, async () => {
    await using s = await ImportCluster.start("TopoLVM");
    let isForbidden = true;
    const calls: string[] = [];
    s.startImporter((_index, send, call) => {
      if (isForbidden) calls.push(call);
      if (call !== missing || !isForbidden) return send();
      return Promise.reject(new ApiError(`no right to ${call}`, { status: 403, reason: "Forbidden" }));
    });
    const { import: object } = await s.plan();
    if (missing === "read objects") s.cluster.api.faults.forbidden.add("logicalvolumes");
    s.cluster.api.put(lvmImports, object!);
    const message = () => s.import?.status?.message ?? "";
    await waitUntil(() => message().includes("importRights"), () => `the message: ${JSON.stringify(s.import?.status)}`);
    assertStringIncludes(message(), missing === "read objects" ? "logicalvolumes" : "no right to delete");
    assertEquals(s.import?.status?.error, undefined, "it did not fail");
    const { length } = calls.filter((call) => call === "patch");
    await new Promise((resolve) => setTimeout(resolve, 300));
    assertEquals(calls.filter((call) => call === "patch").length, length, "it is said once");
    isForbidden = false;
    s.cluster.api.faults.forbidden.clear();
    await s.waitForState("Imported");
    await waitUntil(() => message() === "it can be returned, or finished", message);
    await assertImported(s);
  });
}

Deno.test("an import that failed, and is undone without a right, says once which right is missing", async () => {
  await using s = await ImportCluster.start("TopoLVM");
  let [isUndone, patches] = [false, 0];
  s.startImporter((_index, send, call) => {
    if (isUndone && call === "patch") patches++;
    if (call !== "delete" || !isUndone) return send();
    return Promise.reject(new ApiError("no right to delete", { status: 403, reason: "Forbidden" }));
  });
  await s.addImport();
  await s.waitForState("Imported");
  isUndone = true;
  const error = { code: "FailedPrecondition", message: "it cannot be imported" };
  const { name } = s.import!.metadata;
  s.cluster.api.collection(lvmImports).patch({ status: { error } }, { name, namespace: undefined }, "status");
  const message = () => s.import?.status?.message ?? "";
  await waitUntil(() => message().includes("importRights"), () => `the message: ${JSON.stringify(s.import?.status)}`);
  const before = patches;
  await new Promise((resolve) => setTimeout(resolve, 300));
  assertEquals([patches, message().includes("importRights")], [before, true]);
});

/** Adds an import of the same LV: of the same claim, or of another one whose PersistentVolume has the same path. */
function addRival(s: ImportCluster, first: LvmImport, of: "claim" | "LV"): string {
  const name = `v1-${"b".repeat(32)}`;
  const { spec } = structuredClone(first);
  if (of === "LV") {
    const { api } = s.cluster;
    const { metadata: { labels }, spec: { claimRef, csi: _, ...rest } = {}, status } = structuredClone(
      s.persistentVolume!,
    );
    const claim = { namespace: "shop", name: "copy" };
    const { spec: claimSpec } = structuredClone(s.claim!);
    const { metadata: { uid } } = api.put(persistentVolumeClaims, {
      ...{ metadata: { ...claim }, spec: { ...claimSpec, volumeName: "twin" }, status: { phase: "Bound" } },
    });
    api.put(persistentVolumes, {
      metadata: { name: "twin", labels: labels! },
      spec: { ...rest, ...OTHERS.Local.source, claimRef: { ...claimRef, ...claim, uid: uid! } },
      status: status!,
    });
    Object.assign(spec, { persistentVolume: "twin", claim: { ...claim, uid: uid! } });
  }
  s.cluster.api.put(lvmImports, { metadata: { name }, spec });
  return name;
}

for (const shared of ["claim", "LV"] as const) {
  for (const isLate of [false, true]) {
    Deno.test(`of two imports of one ${shared}, the second${isLate ? ", asked for later," : ""} is refused, and nothing is lost`, async () => {
      await using s = await ImportCluster.start("Local");
      const first = await s.addImport();
      const before = isLate ? undefined : addRival(s, first, shared);
      s.startImporter();
      const find = (name: string) => s.cluster.api.objects(lvmImports).find(({ metadata }) => metadata.name === name);
      const stateOf = (name: string) => find(name)?.status?.state;
      const described = () => JSON.stringify(s.cluster.api.objects(lvmImports).map(({ status }) => status));
      if (isLate) await waitUntil(() => stateOf(s.id) === "Imported", described);
      const name = before ?? addRival(s, first, shared);
      const names = [s.id, name]; // of those that were asked for in the same second, any may come first
      await waitUntil(() => names.map(stateOf).sort().join() === "Failed,Imported", described);
      const [winner, loser] = names.sort((a, b) => stateOf(b)!.localeCompare(stateOf(a)!));
      if (isLate) assertEquals(winner, s.id);
      const { message = "" } = find(loser!)!.status!.error!;
      assertStringIncludes(
        message,
        `LVMImport ${winner} imports the same ${shared === "claim" ? "claim" : "logical volume"}`,
      );
      assertEquals([s.lv!.name, [...s.lv!.content.data]], [volumeLvName(winner as typeof s.id), ["letters"]]);
      assertEquals(s.cluster.api.objects(lvmVolumes).map(({ metadata }) => metadata.name), [winner]);
      const volumes = s.cluster.api.objects(persistentVolumes);
      const sources = volumes.map(({ spec }) => spec?.csi?.volumeHandle ?? spec?.local?.path).sort();
      assertEquals(sources, shared === "claim" ? [winner] : ["/dev/data/archive-2019", winner]);
      for (const claim of s.cluster.api.objects(persistentVolumeClaims)) assertEquals(claim.status?.phase, "Bound");
      assertEquals(volumes.map(({ spec }) => spec?.persistentVolumeReclaimPolicy), volumes.map(() => "Delete"));
    });
  }
}
