/**
 * `kubectl denolith import` over a fake cluster with a volume of another driver.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  type KubeObject,
  type Lease,
  leases,
  persistentVolumes,
  type Pod,
  pods,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { objectsOf } from "../../k8s/handover/imports.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { addForeignLv } from "../fake/machine/foreign_lv.ts";
import { ImportCluster, OTHERS } from "../fake/cluster/import_cluster.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { MiB } from "../fake/cluster/volume_cluster.ts";

const IMPORT = ["import", "data", "--namespace", "shop"] as const;
const STOPPED = [...IMPORT, "--provisioner-stopped"] as const;

/** Returns a pod that uses the claim, on a node or on none yet. */
function podObject(nodeName: string | undefined): Pod {
  return {
    metadata: {
      ...{ name: "db-0", namespace: "shop" },
      ownerReferences: [{ apiVersion: "apps/v1", kind: "StatefulSet", name: "db", uid: "s", controller: true }],
    },
    spec: {
      containers: [],
      ...(nodeName !== undefined && { nodeName }),
      volumes: [{ name: "d", persistentVolumeClaim: { claimName: "data" } }],
    },
  };
}

/** Adds a pod that uses the claim by the other driver, and ends its use of the volume when it is deleted. */
function addPod(s: ImportCluster): void {
  const endUse = s.usePod();
  const { api } = s.cluster;
  api.put<Pod>(pods, podObject("node1"));
  api.collection(pods).listeners.add(({ deleted }) => void (deleted && endUse()));
}

Deno.test("kubectl denolith import --dry-run: shows a viewer what becomes what, and changes nothing", async () => {
  await using s = await ImportCluster.start();
  addPod(s);
  await s.cluster.client.delete(storageClasses, { name: "fast" });
  const parameters = { volgroup: "lvmvg", scheduler: "VolumeWeighted", formatOptions: "--evil" };
  s.cluster.api.put(storageClasses, { metadata: { name: "fast" }, provisioner: "local.csi.openebs.io", parameters });
  const plugin = pluginOver(s.cluster.api, { role: "viewer" });
  const { status, output, errors } = await plugin([...STOPPED, "--dry-run"]);
  assertEquals([status, errors, s.import], [0, "", undefined]);
  for (
    const text of [
      `Claim shop/data (32 MiB, of OpenEBS LVM LocalPV, lvmvg/${OTHERS.OpenEBS.lvName} on node node1) becomes volume ${s.id}:`,
      "StorageClass fast is created again for the driver, with volumeGroup: lvmvg, shared: no.",
      "Lost: scheduler: VolumeWeighted (the driver chooses a node by its free space alone)",
      "Lost: mkfsOptions: --evil (mkfs option",
      "Pods that use it: shop/db-0",
    ]
  ) assertStringIncludes(output, text);
  const json = JSON.parse((await plugin([...STOPPED, "--dry-run", "-o", "json"])).output);
  assertEquals([json.volume, json.pods, json.refusals, json.size], [s.id, ["shop/db-0"], [], 32 << 20]);
});

Deno.test("kubectl denolith import: refuses while the provisioner of the other driver runs, or may run", async () => {
  await using s = await ImportCluster.start("TopoLVM");
  const plugin = pluginOver(s.cluster.api);
  const unknown = await plugin(IMPORT);
  assertEquals([unknown.status, s.import], [1, undefined]);
  assertStringIncludes(
    unknown.output,
    "cannot be imported:\n  - no Lease says whether the provisioner of TopoLVM is stopped",
  );
  s.cluster.api.put<Lease>(leases, {
    metadata: { name: "topolvm-io", namespace: "topolvm-system" },
    spec: { holderIdentity: "p", leaseDurationSeconds: 15, renewTime: new Date().toISOString() },
  });
  const running = await plugin(STOPPED);
  assertEquals([running.status, s.import], [1, undefined]);
  assertStringIncludes(running.output, "p renews Lease topolvm-system/topolvm-io; scale it to zero");
  const missing = await plugin(["import", "other", "--namespace", "shop"]);
  assertStringIncludes(missing.errors, "importing claim shop/other: there is no such claim");
});

Deno.test("kubectl denolith import --evict: imports, is finished, and cannot be undone then", async () => {
  await using s = await ImportCluster.start();
  addPod(s);
  s.startImporter();
  const plugin = pluginOver(s.cluster.api);
  const { status, output, errors } = await plugin([...STOPPED, "--evict"]);
  assertEquals(status, 0, errors);
  assertStringIncludes(errors, "pod shop/db-0 is evicted");
  assertStringIncludes(output, "Claim shop/data is a volume of the driver. Return it with --cancel");
  assertEquals([s.persistentVolume?.spec?.csi?.driver, s.object?.metadata.name], [DRIVER, OTHERS.OpenEBS.pvName]);
  const again = await plugin(STOPPED);
  assertStringIncludes(again.errors, "it is a volume of the driver already");
  const finished = await plugin([...IMPORT, "--finish", "-o", "json"]);
  assertEquals([finished.status, JSON.parse(finished.output).state, s.object], [0, "Complete", undefined]);
  const late = await plugin([...IMPORT, "--cancel"]);
  assertEquals([late.status, s.import?.status?.state], [1, "Complete"]);
  assertStringIncludes(late.errors, "it is Complete already");
});

Deno.test("kubectl denolith import --evict: evicts no pod that starts when the volume is imported", async () => {
  await using s = await ImportCluster.start();
  addPod(s);
  s.startImporter();
  const { api } = s.cluster;
  let started: Promise<Pod> | undefined;
  // a StatefulSet, and a scheduler that has no node for a pod whose claim is Lost
  const isDeleted = ({ deleted }: { readonly deleted?: boolean }) => deleted === true;
  api.collection(pods).listeners.add((change) => {
    if (!isDeleted(change as never)) return;
    queueMicrotask(() => void api.put<Pod>(pods, podObject(undefined)));
  });
  api.collection(persistentVolumes).listeners.add(() => {
    const [pod] = api.objects(pods);
    if (pod === undefined || pod.spec?.nodeName !== undefined || s.persistentVolume === undefined) return;
    const merge = { spec: { nodeName: "node1" } };
    started ??= s.cluster.client.patch(pods, { namespace: "shop", name: "db-0" }, { merge });
  });
  const plugin = pluginOver(api);
  const { status, errors } = await plugin([...STOPPED, "--evict"]);
  assertEquals([status, errors], [0, "pod shop/db-0 is evicted"]);
  assertEquals((await started)?.spec?.nodeName, "node1");
});

Deno.test("kubectl denolith why: says of a claim that is Lost while its volume is imported that it is not to be deleted", async () => {
  await using s = await ImportCluster.start();
  const endUse = s.usePod();
  s.startImporter();
  const plugin = pluginOver(s.cluster.api, { role: "viewer" });
  await s.addImport();
  await waitUntil(() => s.claim?.status?.phase === "Lost", "a Lost claim");
  await waitUntil(() => s.import?.status?.message?.includes("its mount") ?? false, "the mount");
  const { output } = await plugin(["why", "data", "--namespace", "shop", "-o", "json"]);
  const { problems: [problem] } = JSON.parse(output);
  assertEquals([problem.severity, problem.reason], ["info", "BeingImported"]);
  assertStringIncludes(problem.message, "its mount /var/lib/kubelet/pods/1/mount uses it");
  endUse();
  await s.waitForState("Imported");
});

Deno.test("kubectl denolith import --cancel: returns the volume", async () => {
  await using s = await ImportCluster.start();
  s.startImporter();
  const plugin = pluginOver(s.cluster.api);
  const asked = await plugin([...STOPPED, "--wait=false", "--erase", "none"]);
  assertStringIncludes(asked.output, `kubectl get lvmimport ${s.id} --watch`);
  assertEquals(s.import?.spec.volume.erase, "none");
  await s.waitForState("Imported");
  const { status, output } = await plugin([...IMPORT, "--cancel"]);
  assertEquals(status, 0);
  assertStringIncludes(output, "Claim shop/data is returned.");
  assertEquals([s.lv?.name, s.lv?.tags.size], [OTHERS.OpenEBS.lvName, 0]);
  assertStringIncludes((await plugin([...IMPORT, "--cancel"])).errors, "claim shop/data is not being imported");
});

Deno.test("kubectl denolith import: says why an agent refuses, and can be repeated", async () => {
  await using s = await ImportCluster.start();
  const { signatures } = s.lv!.content;
  s.lv!.content.signatures = [{ type: "xfs", uuid: "1" }];
  s.startImporter();
  const plugin = pluginOver(s.cluster.api);
  const refused = await plugin(STOPPED);
  assertEquals(refused.status, 1);
  assertStringIncludes(refused.output, "Claim shop/data stays as it is: importing lvmvg/");
  s.lv!.content.signatures = signatures;
  const { status } = await plugin([...STOPPED, "--finish"]); // in place of the failed one
  assertEquals([status, s.import?.status?.state], [0, "Complete"]);
  assert(s.lv!.tags.has(`denolith.volume=${s.id}`));
  await waitUntil(() => s.volumeState === "Ready", "Ready");
});

Deno.test("kubectl denolith import --cancel: says why a volume cannot be returned, and --finish keeps it", async () => {
  await using s = await ImportCluster.start();
  s.startImporter();
  const plugin = pluginOver(s.cluster.api);
  assertEquals((await plugin(STOPPED)).status, 0);
  const { group, lvName } = OTHERS.OpenEBS;
  await addForeignLv(s.machine, { group, name: lvName, bytes: 4n * MiB });
  const stop = new AbortController();
  const cancelled = plugin([...IMPORT, "--cancel"], { signal: stop.signal }).catch(() => {});
  await waitUntil(() => s.import?.status?.message?.includes("it cannot be returned") ?? false, "the obstacle");
  const { status, output } = await plugin([...IMPORT, "--finish"]);
  assertEquals(status, 0);
  assertStringIncludes(output, "Claim shop/data is a volume of the driver, and nothing is left of the other one.");
  await waitUntil(() => s.import === undefined, "no LVMImport");
  assertEquals([s.object, s.persistentVolume?.spec?.csi?.driver], [undefined, DRIVER]);
  stop.abort();
  await cancelled;
});

Deno.test("kubectl denolith import --dry-run: maps each parameter of a class, or names it as lost", async () => {
  await using s = await ImportCluster.start();
  await s.cluster.client.delete(storageClasses, { name: "fast" });
  const parameters = {
    ...{ storage: "lvm", volgroup: "lvmvg", vgpattern: "lvm.*", fsType: "ext4", shared: "yes", thinProvision: "no" },
    ...{ formatOptions: "-m 0", qosIopsReadLimit: "100", qosBandwithWritePerSec: "10Mi" },
    ...{ scheduler: "CapacityWeighted", raidType: "raid1", stripeCount: "2", mountOptions: "debug" },
    ...{ "csi.storage.k8s.io/node-stage-secret-name": "key", qosIopsWriteLimit: "none" },
  };
  const mountOptions = ["noatime"];
  s.cluster.api.put(storageClasses, {
    ...{ metadata: { name: "fast" }, provisioner: "local.csi.openebs.io", parameters, mountOptions },
    allowVolumeExpansion: true,
  });
  const plugin = pluginOver(s.cluster.api);
  const { storageClass } = JSON.parse((await plugin([...STOPPED, "--dry-run", "-o", "json"])).output);
  assertEquals(storageClass.parameters, {
    ...{ volumeGroup: "lvmvg", vgpattern: "lvm.*", fsType: "ext4", shared: "yes", thinProvision: "no" },
    ...{ mkfsOptions: "-m 0", readIops: "100", writeBps: "10Mi" },
  });
  const lost = ["scheduler", "raidType", "stripeCount", "mountOptions", "csi.storage.k8s.io/node-stage-secret-name"];
  assertEquals(storageClass.lost.map(({ name }: { name: string }) => name), [...lost, "writeIops"]);
  const { output } = await plugin([...STOPPED, "--dry-run"]);
  for (const { name, value, why } of storageClass.lost) {
    assertStringIncludes(output, `Lost: ${name}: ${value} (${why})`);
  }
  s.startImporter();
  assertEquals((await plugin([...STOPPED])).status, 0);
  const made = s.storageClass!;
  assertEquals([made.parameters, made.mountOptions, made.allowVolumeExpansion], [
    storageClass.parameters,
    mountOptions,
    true,
  ]);
});

Deno.test("kubectl denolith import --dry-run: names each volume of others, and what it becomes or why it is not imported", async () => {
  await using s = await ImportCluster.start();
  const { api } = s.cluster;
  const plugin = pluginOver(api, { role: "viewer" });
  const { spec } = structuredClone(s.persistentVolume!);
  const addObject = (name: string) => {
    const { spec } = OTHERS.OpenEBS.object!;
    api.put(
      objectsOf("OpenEBS")!,
      { metadata: { name, namespace: "openebs" }, spec: structuredClone(spec) } as KubeObject,
    );
  };
  const add = (name: string, phase: string, more: object) => {
    const csi = { ...spec!.csi!, volumeHandle: name };
    api.put(persistentVolumes, { metadata: { name }, spec: { ...spec, csi, ...more }, status: { phase } });
    addObject(name);
  };
  add("pvc-released", "Released", { claimRef: { ...spec!.claimRef, uid: "gone" } });
  add("pvc-retained", "Released", {
    claimRef: { ...spec!.claimRef, uid: "gone" },
    persistentVolumeReclaimPolicy: "Retain",
  });
  add("pvc-available", "Available", { claimRef: undefined });
  addObject("pvc-alone");
  api.put(objectsOf("TopoLVM")!, OTHERS.TopoLVM.object!);
  api.put(persistentVolumes, {
    metadata: { name: "other" },
    spec: { ...spec, csi: { driver: "ebs.csi.aws.com", volumeHandle: "v" } },
    status: { phase: "Bound" },
  });
  const { status, output, errors } = await plugin(["import", "--dry-run", "--provisioner-stopped"]);
  assertEquals([status, errors], [0, ""]);
  const [lvm, ebs] = ["of OpenEBS LVM LocalPV", "LVMVolume.local.openebs.io"];
  for (
    const text of [
      `Claim shop/data (32 MiB, ${lvm}, lvmvg/${OTHERS.OpenEBS.lvName}, node node1) becomes volume ${s.id}.`,
      `PersistentVolume pvc-released (32 MiB, ${lvm}, lvmvg/pvc-released, node node1) is not imported:\n` +
      "  - its claim is gone (Released): to keep the data, remove spec.claimRef of the PersistentVolume, let a claim bind to it",
      "  - its reclaim policy is Delete: OpenEBS LVM LocalPV may remove it at any time; set Retain first\n",
      `PersistentVolume pvc-retained (32 MiB, ${lvm}, lvmvg/pvc-retained, node node1) is not imported:`,
      `PersistentVolume pvc-available (32 MiB, ${lvm}, lvmvg/pvc-available, node node1) is not imported:\n` +
      "  - no claim is bound to it (Available): let a claim bind to it",
      `${ebs} openebs/pvc-alone (${lvm}, lvmvg/pvc-alone, node node1) is not imported:\n` +
      "  - no PersistentVolume is for it, and so no claim",
      "LogicalVolume.topolvm.io pvc-e7fb0eba-ab5e-429a-9e70-5cf198db1e72 (of TopoLVM, node node1) is not imported:",
    ]
  ) assertStringIncludes(output, text);
  assertEquals([output.match(/reclaim policy is Delete/g)!.length, output.includes("ebs.csi.aws.com")], [1, false]);
  const { volumes } = JSON.parse((await plugin(["import", "--dry-run", "-o", "json"])).output);
  assertEquals(volumes.length, 6);
  assertEquals(volumes[0].name, "Claim shop/data");
  assertStringIncludes(volumes[0].reasons.join(), "no Lease says whether the provisioner");
  const unasked = await plugin(["import"]);
  assertEquals(unasked.status, 2);
  assertStringIncludes(unasked.errors, "import: CLAIM is missing; without it, --dry-run lists all volumes of others");

  s.startImporter();
  await s.addImport();
  await s.waitForState("Imported");
  const after = await plugin(["import", "--dry-run", "--provisioner-stopped"]);
  assertStringIncludes(
    after.output,
    `LVMImport ${s.id} imports it for claim shop/data (Imported); --finish removes`,
  );
});

Deno.test("kubectl denolith import --dry-run: says that there is nothing to import, where no other driver is", async () => {
  await using s = await ImportCluster.start("Local");
  await s.cluster.client.delete(persistentVolumes, { name: "archive" });
  await s.cluster.client.patch(persistentVolumes, { name: "archive" }, { merge: { metadata: { finalizers: [] } } });
  const { status, output } = await pluginOver(s.cluster.api)(["import", "--dry-run"]);
  assertEquals(status, 0);
  assertStringIncludes(output, "There are no volumes of other drivers that could be imported.");
});
