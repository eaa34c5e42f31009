/**
 * Helpers of the suite of imports: volumes as other drivers make them, and a node plugin that mounts them.
 *
 * @module
 */

import manifest from "../../../../deno.json" with { type: "json" };
import { bundle } from "../../../../deploy/bundle.ts";
import { TempFolder } from "../../../rig/temp_folder.ts";
import { WAIT_MS } from "./object_watcher.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** The folder of the node plugin on the node. */
const PLUGIN_FOLDER = "/var/lib/other-driver";

/** The size of a volume. */
export const OTHER_SIZE = "96Mi";

/** A tag that somebody else has given the LVs. */
export const FOREIGN_TAG = "team=shop";

/** A volume of another driver. */
export interface OtherVolume {
  /** The name of its PersistentVolume. */
  readonly persistentVolume: string;
  /** The name of its LV. */
  readonly lvName: string;
  /** The full name of its class. */
  readonly className: string;
}

/** What a driver writes about a volume. */
interface OtherDriver {
  readonly provisioner: string;
  readonly parameters?: Readonly<Record<string, string>>;
  /** The source of the PersistentVolume. */
  readonly source: (lvName: string) => object;
  /** The key of its node affinity. */
  readonly topologyKey: string;
  /** The object by which it knows the volume; absent if it has none. */
  readonly object?: (name: string, lvName: string, namespace: string) => object;
}

/** The drivers, with objects as they write them. */
const OTHERS = {
  OpenEBS: {
    provisioner: "local.csi.openebs.io",
    parameters: { fsType: "ext4", storage: "lvm", volgroup: "data" },
    source: (lvName) => ({
      csi: {
        driver: "local.csi.openebs.io",
        fsType: "ext4",
        volumeAttributes: { "openebs.io/cas-type": "localpv-lvm", "openebs.io/volgroup": "data" },
        volumeHandle: lvName,
      },
    }),
    topologyKey: "openebs.io/nodename",
    object: (name, _lvName, namespace) => ({
      apiVersion: "local.openebs.io/v1alpha1",
      kind: "LVMVolume",
      metadata: {
        name,
        namespace,
        finalizers: ["lvm.openebs.io/finalizer"],
        labels: { "kubernetes.io/nodename": "node1" },
      },
      spec: {
        capacity: "100663296",
        ownerNodeID: "node1",
        shared: "no",
        thinProvision: "no",
        vgPattern: "^data$",
        volGroup: "data",
      },
      status: { state: "Ready" },
    }),
  },
  TopoLVM: {
    provisioner: "topolvm.io",
    parameters: { "csi.storage.k8s.io/fstype": "ext4", "topolvm.io/device-class": "data" },
    source: (lvName) => ({ csi: { driver: "topolvm.io", fsType: "ext4", volumeHandle: lvName } }),
    topologyKey: "topology.topolvm.io/node",
    object: (name, lvName) => ({
      apiVersion: "topolvm.io/v1",
      kind: "LogicalVolume",
      metadata: { name, finalizers: ["topolvm.io/logicalvolume"] },
      spec: { deviceClass: "data", name, nodeName: "node1", size: OTHER_SIZE },
      status: { currentSize: OTHER_SIZE, volumeID: lvName },
    }),
  },
  Local: {
    provisioner: "kubernetes.io/no-provisioner",
    source: (lvName) => ({ local: { path: `/dev/mapper/data-${lvName.replaceAll("-", "--")}`, fsType: "ext4" } }),
    topologyKey: "kubernetes.io/hostname",
  },
} as const satisfies Readonly<Record<string, OtherDriver>>;

/** Whose a volume is. */
export type Origin = keyof typeof OTHERS;

/** The kinds by which the drivers know their volumes, with what the tests need of their definitions. */
const DEFINITIONS = [
  { group: "local.openebs.io", version: "v1alpha1", plural: "lvmvolumes", kind: "LVMVolume", scope: "Namespaced" },
  { group: "topolvm.io", version: "v1", plural: "logicalvolumes", kind: "LogicalVolume", scope: "Cluster" },
].map(({ group, version, plural, kind, scope }) => ({
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: `${plural}.${group}` },
  spec: {
    ...{ group, scope, names: { kind, plural, singular: kind.toLowerCase(), listKind: `${kind}List` } },
    versions: [{
      ...{ name: version, served: true, storage: true },
      schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
    }],
  },
}));

/** Installs the kinds of the other drivers. */
export async function installDefinitions(ns: TestNamespace): Promise<void> {
  for (const definition of DEFINITIONS) {
    await ns.apply(definition);
    await ns.kubectl("wait", "--for=condition=established", "crd", definition.metadata.name, "--timeout=60s");
  }
}

/** Starts the node plugin of a driver on the node, as far as pods need it. */
export async function startNodePlugin(ns: TestNamespace, origin: Origin): Promise<void> {
  const { provisioner, topologyKey } = OTHERS[origin];
  await using folder = await TempFolder.create("/tmp", "denolith-other-");
  const module = await bundle("tests/cluster/other_driver/node_plugin.ts", folder.path);
  const { code, stderr } = await ns.node.exec(`mkdir -p ${PLUGIN_FOLDER} && cat > ${PLUGIN_FOLDER}/node_plugin.js`, {
    stdin: await Deno.readFile(module),
    timeoutMs: WAIT_MS,
  });
  if (code !== 0) throw new Error(`installing the node plugin: ${stderr}`);
  const volumes = Object.entries({ kubelet: "/var/lib/kubelet", dev: "/dev", plugin: PLUGIN_FOLDER });
  await ns.apply({
    apiVersion: "storage.k8s.io/v1",
    kind: "CSIDriver",
    metadata: { name: provisioner },
    spec: { attachRequired: false, podInfoOnMount: true, storageCapacity: false },
  });
  await ns.apply({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "node-plugin" },
    spec: {
      automountServiceAccountToken: false,
      terminationGracePeriodSeconds: 1,
      containers: [{
        name: "main",
        image: `denolith:${manifest.version}`,
        imagePullPolicy: "Never",
        command: [
          ...["/usr/bin/deno", "run", "--allow-all", `${PLUGIN_FOLDER}/node_plugin.js`],
          ...[provisioner, "data", ns.node.name, topologyKey],
        ],
        securityContext: { privileged: true, runAsUser: 0 },
        volumeMounts: volumes.map(([name, mountPath]) => ({
          name,
          mountPath,
          ...(name === "kubelet" && { mountPropagation: "Bidirectional" }),
        })),
      }],
      volumes: volumes.map(([name, path]) => ({ name, hostPath: { path } })),
    },
  });
  await ns.waitForRunning("node-plugin");
}

/** Makes an LV and the objects as another driver does for a claim, and the claim. */
export async function addOtherVolume(ns: TestNamespace, origin: Origin, claimName: string): Promise<OtherVolume> {
  const other: OtherDriver = OTHERS[origin];
  const persistentVolume = `pvc-${crypto.randomUUID()}`;
  const lvName = origin === "TopoLVM" ? crypto.randomUUID() : persistentVolume;
  await ns.runOnNode(
    `lvcreate -qq -y -W y -L ${
      OTHER_SIZE.slice(0, -1)
    } -n ${lvName} --addtag ${FOREIGN_TAG} data && mkfs.ext4 -q /dev/mapper/data-${lvName.replaceAll("-", "--")}`,
  );
  const className = `${ns.namespace}-${origin.toLowerCase()}`;
  await ns.apply({
    apiVersion: "storage.k8s.io/v1",
    kind: "StorageClass",
    metadata: { name: className },
    provisioner: other.provisioner,
    parameters: other.parameters,
    volumeBindingMode: "WaitForFirstConsumer",
    allowVolumeExpansion: true,
  });
  const object = other.object?.(persistentVolume, lvName, ns.namespace);
  if (object !== undefined) await ns.apply(object);
  await ns.apply({
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name: persistentVolume, annotations: { "pv.kubernetes.io/provisioned-by": other.provisioner } },
    spec: {
      ...other.source(lvName),
      accessModes: ["ReadWriteOnce"],
      capacity: { storage: OTHER_SIZE },
      claimRef: { apiVersion: "v1", kind: "PersistentVolumeClaim", namespace: ns.namespace, name: claimName },
      nodeAffinity: {
        required: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: other.topologyKey, operator: "In", values: ["node1"] }] }],
        },
      },
      persistentVolumeReclaimPolicy: "Delete",
      storageClassName: className,
      volumeMode: "Filesystem",
    },
  });
  await ns.createClaim({ name: claimName, class: className, size: OTHER_SIZE, volumeName: persistentVolume });
  await ns.waitForBound(claimName);
  return { persistentVolume, lvName, className };
}

/** Removes a volume as another driver does, when its claim is deleted. */
export async function removeOtherVolume(
  ns: TestNamespace,
  { persistentVolume, lvName }: OtherVolume,
  { claim, kind }: { readonly claim: string; readonly kind: string },
): Promise<void> {
  await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.kubectl("delete", "persistentvolume", persistentVolume);
  await ns.kubectl("patch", kind, persistentVolume, "--type=merge", "--patch", '{"metadata":{"finalizers":[]}}');
  await ns.kubectl("delete", kind, persistentVolume);
  await ns.runOnNode(`lvremove -qq -y data/${lvName}`);
}
