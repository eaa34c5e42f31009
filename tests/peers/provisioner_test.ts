/**
 * What the suites of the official provisioner (kubernetes-csi/external-provisioner) and of its library
 * (kubernetes-sigs/sig-storage-lib-external-provisioner) ask of decisions, as far as it can apply here: no in-tree plugin was
 * ever LVM, there is one driver, and volumes are provisioned centrally.
 *
 * @module
 */

import type { CsiNode, Node, PersistentVolume, PersistentVolumeClaim, StorageClass } from "../../k8s/api/objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { dataSourceOf, shouldProvision, waitsForConsumer } from "../../k8s/provisioner/claim.ts";
import {
  isManagedBy,
  nextReclaimStep,
  persistentVolumeFor,
  VOLUME_FINALIZER,
} from "../../k8s/provisioner/persistent_volume.ts";
import { createVolumeRequestFor, requireProvisionable } from "../../k8s/provisioner/volume_request.ts";
import { accessModeOf, CallError, isMaybeInProgress } from "../../k8s/sidecars/csi_client.ts";
import { readClassParameters, type SecretUse } from "../../k8s/sidecars/class_parameters.ts";
import { topologyOfAllNodes, topologyOfNode } from "../../k8s/sidecars/claim_topology.ts";
import { formatQuantity } from "../../base/size.ts";
import { refused, type Row, testRows } from "./rows.ts";

const DRIVER = "lvm.denolith.dev";

/** Canceled, DeadlineExceeded, Aborted, Unavailable. */
const UNCERTAIN: readonly number[] = [1, 4, 10, 14];

const KEY = "topology.lvm.denolith.dev/node";
const [NEW, BETA] = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
const SELECTED = "volume.kubernetes.io/selected-node";
const WITH = "csi.storage.k8s.io/";

type Spec = NonNullable<PersistentVolumeClaim["spec"]>;

function claimOf(
  annotations: Record<string, string> = {},
  spec: Spec = {},
  metadata: object = {},
): PersistentVolumeClaim {
  return {
    metadata: { name: "data", namespace: "shop", uid: "u", annotations, ...metadata },
    spec: {
      resources: { requests: { storage: "1Gi" } },
      accessModes: ["ReadWriteOnce"],
      storageClassName: "c",
      ...spec,
    },
  };
}

function classOf(more: Partial<StorageClass> = {}): StorageClass {
  return { metadata: { name: "c" }, provisioner: DRIVER, ...more };
}

const owns = (annotations: Record<string, string>, spec: Spec = {}, metadata = {}) => () =>
  shouldProvision(claimOf(annotations, spec, metadata), DRIVER);

testRows("csi-provisioner: ownership of a claim", [
  ["the annotation names us", owns({ [NEW]: DRIVER }), true],
  ["the beta annotation names us", owns({ [BETA]: DRIVER }), true],
  ["the annotation names another driver, the beta one us", owns({ [NEW]: "x", [BETA]: DRIVER }), false],
  ["the annotation names us, the beta one another driver", owns({ [NEW]: DRIVER, [BETA]: "x" }), true],
  ["an empty annotation beside a beta one that names us", owns({ [NEW]: "", [BETA]: DRIVER }), false],
  ["both annotations name another driver", owns({ [NEW]: "x", [BETA]: "x" }), false],
  ["no annotation", owns({}), false],
  ["the claim names a volume", owns({ [NEW]: DRIVER }, { volumeName: "pv" }), false],
  ["the claim is migrated from another plugin to us", owns({ "pv.kubernetes.io/migrated-to": DRIVER }), false],
  [
    "the claim is being deleted",
    owns({ [NEW]: DRIVER }, {}, { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    false,
    "a claim that goes gets no volume",
  ],
]);

const waits = (annotations: Record<string, string>, volumeBindingMode?: string) => () =>
  waitsForConsumer(claimOf(annotations), classOf(volumeBindingMode === undefined ? {} : { volumeBindingMode }));

testRows("csi-provisioner: delayed binding", [
  ["no selected node", waits({}, "WaitForFirstConsumer"), true],
  ["an empty selected node", waits({ [SELECTED]: "" }, "WaitForFirstConsumer"), true],
  ["a selected node", waits({ [SELECTED]: "n1" }, "WaitForFirstConsumer"), false],
  ["Immediate", waits({}, "Immediate"), false],
  ["no binding mode", waits({}), false],
]);

const parametersOf = (parameters: Record<string, string>, claim = claimOf({ team: "blue" })) =>
  readClassParameters(parameters, claim, { volumeName: "pvc-u" });
const driverParameters = (parameters: Record<string, string>) => () => parametersOf(parameters).parameters;
const fsType = (parameters: Record<string, string>) => () => parametersOf(parameters).fsType;

testRows("csi-provisioner: parameters of a class", [
  ["no reserved key", driverParameters({ volumeGroup: "data" }), { volumeGroup: "data" }],
  ["reserved keys are not the driver's", driverParameters({ [`${WITH}fstype`]: "xfs", a: "1" }), { a: "1" }],
  ["reserved text in a value stays", driverParameters({ a: `${WITH}fstype` }), { a: `${WITH}fstype` }],
  ["nothing", driverParameters({}), {}],
  ["an unknown reserved key", driverParameters({ [`${WITH}colour`]: "red" }), refused("there is no such key")],
  ["no filesystem", fsType({}), ""],
  ["the filesystem by the reserved key", fsType({ [`${WITH}fstype`]: "xfs" }), "xfs"],
  ["the filesystem by the old key", fsType({ fstype: "xfs" }), "xfs"],
  ["the filesystem by the old key in another case", fsType({ fsType: "xfs" }), "xfs"],
  ["an empty filesystem", fsType({ [`${WITH}fstype`]: "" }), ""],
  ["the filesystem by both keys", fsType({ [`${WITH}fstype`]: "xfs", fstype: "xfs" }), refused("named twice")],
  ["the filesystem by the old key twice", fsType({ fsType: "xfs", FSTYPE: "ext4" }), refused("named twice")],
  [
    "old names of secrets",
    driverParameters({ csiProvisionerSecretName: "s" }),
    { csiProvisionerSecretName: "s" },
    "the driver refuses them by name",
  ],
]);

const USES = [
  ...["provisioner", "controller-publish", "controller-expand", "controller-modify"] as const,
  ...["node-stage", "node-publish", "node-expand"] as const,
];

function keysOf(use: SecretUse | ""): [name: string, namespace: string] {
  const start = use === "" ? WITH : `${WITH}${use}-`;
  return [`${start}secret-name`, `${start}secret-namespace`];
}

function secretRows(use: SecretUse | ""): Row[] {
  const [name, namespace] = keysOf(use);
  const secret = (parameters: Record<string, string>) => () => parametersOf(parameters).secrets[use || "node-stage"];
  const s = { name: "s", namespace: "n" };
  const what = use === "" ? "the default secret" : `the secret of ${use}`;
  return [
    [`${what}: none`, secret({}), undefined],
    [`${what}: both parts`, secret({ [name]: "s", [namespace]: "n" }), s],
    [`${what}: a name alone`, secret({ [name]: "s" }), refused("one of them is missing")],
    [`${what}: a namespace alone`, secret({ [namespace]: "n" }), refused("one of them is missing")],
    [`${what}: both empty`, secret({ [name]: "", [namespace]: "" }), refused("one of them is missing")],
    [`${what}: an invalid name`, secret({ [name]: "S!", [namespace]: "n" }), refused("not a valid name")],
    [`${what}: an invalid namespace`, secret({ [name]: "s", [namespace]: "a.b" }), refused("not a valid name")],
    [
      `${what}: templates`,
      secret({ [name]: "${pvc.name}-${pvc.annotations['team']}", [namespace]: "${pvc.namespace}" }),
      {
        name: "data-blue",
        namespace: "shop",
      },
    ],
    [`${what}: the volume's name`, secret({ [name]: "${pv.name}", [namespace]: "${pv.name}" }), {
      name: "pvc-u",
      namespace: "pvc-u",
    }],
    [
      `${what}: a namespace that the owner of the claim chooses`,
      secret({ [name]: "s", [namespace]: "${pvc.name}" }),
      refused("is not known here"),
    ],
    [
      `${what}: a namespace of an annotation`,
      secret({ [name]: "s", [namespace]: "${pvc.annotations['team']}" }),
      refused("is not known here"),
    ],
    [`${what}: an unknown token`, secret({ [name]: "${pvc.uid}", [namespace]: "n" }), refused("is not known here")],
    [
      `${what}: an annotation that the claim lacks`,
      secret({ [name]: "${pvc.annotations['tier']}", [namespace]: "n" }),
      refused("is not known here"),
    ],
    [
      `${what}: a dollar that begins no token`,
      secret({ [name]: "$foo", [namespace]: "n" }),
      refused("not a valid name"),
    ],
  ];
}

testRows("csi-provisioner: secrets", [
  ...(["", ...USES] as const).flatMap(secretRows),
  [
    "the default secret is that of every call",
    () => Object.keys(parametersOf({ [keysOf("")[0]]: "s", [keysOf("")[1]]: "n" }).secrets),
    USES,
  ],
  [
    "a secret of a call goes before the default one",
    () => {
      const [[name, namespace], [stage, stageNamespace]] = [keysOf(""), keysOf("node-stage")];
      const { secrets } = parametersOf({ [name]: "s", [namespace]: "n", [stage]: "t", [stageNamespace]: "m" });
      return [secrets["node-stage"], secrets["node-publish"]];
    },
    [{ name: "t", namespace: "m" }, { name: "s", namespace: "n" }],
  ],
]);

function requestOf(claim: PersistentVolumeClaim, storageClass = classOf(), parameters: Record<string, string> = {}) {
  const topology = { requisite: [{ [KEY]: "n1" }], preferred: [] };
  const classParameters = parametersOf(parameters, claim);
  return createVolumeRequestFor(claim, storageClass, { classParameters, topology, mutableParameters: {}, secrets: {} });
}

const access = (modes: string[]) => () => accessModeOf(modes);
const capability = (spec: Spec, storageClass = classOf(), parameters = {}) => () =>
  requestOf(claimOf({}, spec), storageClass, parameters).capabilities.map(({ access }) => access);
const mount = (fsType = "", flags: string[] = []) => [{ kind: "mount", fsType, flags }];

testRows("csi-provisioner: access", [
  ["ReadWriteOnce of a driver with single-node modes", access(["ReadWriteOnce"]), "SINGLE_NODE_MULTI_WRITER"],
  ["ReadWriteOncePod", access(["ReadWriteOncePod"]), "SINGLE_NODE_SINGLE_WRITER"],
  [
    "ReadWriteOncePod beside another mode",
    access(["ReadWriteOncePod", "ReadWriteOnce"]),
    refused("goes with no other"),
  ],
  ["ReadOnlyMany", access(["ReadOnlyMany"]), "MULTI_NODE_READER_ONLY"],
  ["ReadWriteMany", access(["ReadWriteMany"]), "MULTI_NODE_MULTI_WRITER"],
  ["ReadOnlyMany with ReadWriteOnce", access(["ReadOnlyMany", "ReadWriteOnce"]), "MULTI_NODE_SINGLE_WRITER"],
  ["no mode", access([]), refused("none that is known")],
  ["an unknown mode", access(["ReadNever"]), refused("none that is known")],
  ["volumeMode Filesystem", capability({ volumeMode: "Filesystem" }), mount()],
  ["no volumeMode", capability({}), mount()],
  ["volumeMode Block", capability({ volumeMode: "Block" }), [{ kind: "block" }]],
  ["mount options of the class", capability({}, classOf({ mountOptions: ["noatime"] })), mount("", ["noatime"])],
  ["the filesystem of the class", capability({}, classOf(), { fstype: "xfs" }), mount("xfs")],
  [
    "a selector",
    () => requireProvisionable(claimOf({}, { selector: { matchLabels: { a: "b" } } }), classOf()),
    refused("selector: not supported"),
  ],
  ["a class that is missing", () => requireProvisionable(claimOf(), undefined), refused("there is no such class")],
]);

const bytes = (storage: string) => () => requestOf(claimOf({}, { resources: { requests: { storage } } })).requiredBytes;

testRows("csi-provisioner: sizes", [
  ...[
    ["1", 1n],
    ["1024", 1024n],
    ["1k", 1000n],
    ["1Ki", 1024n],
    ["1G", 1_000_000_000n],
    ["1.5Gi", 1_610_612_736n],
    ["0.5", 1n],
    ["1500m", 2n],
    ["1e3", 1000n],
    ["1E3", 1000n],
    ["1.5e1", 15n],
    ["23.625G", 23_625_000_000n],
    ["8Ei", (1n << 63n) - 1n], // the largest quantity
  ].map(([text, size]): Row => [`${text} in whole bytes, rounded up`, bytes(text as string), size]),
  ["no size", () => requestOf(claimOf({}, { resources: {} })).requiredBytes, refused("missing, or no quantity")],
  ["a size that is none", bytes("ten"), refused("missing, or no quantity")],
  ...[0n, 1n, 1000n, 1024n, 1_500_000n, 1n << 40n].map((size): Row => [
    `${size} bytes are written as a quantity of the same value`,
    () => quantityToBytes(formatQuantity(size)),
    size,
  ]),
]);

function volumeFor(claim = claimOf(), { storageClass = classOf(), parameters = {}, created = {} } = {}) {
  const request = requestOf(claim, storageClass, parameters);
  const classParameters = parametersOf(parameters, claim);
  return persistentVolumeFor(DRIVER, { claim, storageClass, classParameters, request }, {
    ...{ volumeId: "v1-x", capacityBytes: 1n << 30n, volumeContext: {}, topology: [{ [KEY]: "n1" }] },
    ...created,
  });
}

const [STAGE, STAGE_NAMESPACE] = keysOf("node-stage");
const [DELETE, DELETE_NAMESPACE] = keysOf("provisioner");
const SECRET = { name: "s", namespace: "n" };

testRows("csi-provisioner: PersistentVolumes", [
  ["the size that the driver answers", () => volumeFor().spec?.capacity, { storage: "1Gi" }],
  [
    "the size of the claim where the driver answers none",
    () => volumeFor(claimOf(), { created: { capacityBytes: 0n } }).spec?.capacity,
    { storage: "1Gi" },
  ],
  ["the name of the claim's uid", () => volumeFor().metadata.name, "pvc-u"],
  ["access modes of the claim", () => volumeFor().spec?.accessModes, ["ReadWriteOnce"]],
  ["the mode of the claim", () => volumeFor(claimOf({}, { volumeMode: "Block" })).spec?.volumeMode, "Block"],
  ["the class of the claim", () => volumeFor().spec?.storageClassName, "c"],
  ["a reference to the claim", () => volumeFor().spec?.claimRef?.uid, "u"],
  ["no policy is Delete", () => volumeFor().spec?.persistentVolumeReclaimPolicy, "Delete"],
  ["a finalizer with the policy Delete", () => volumeFor().metadata.finalizers, [VOLUME_FINALIZER]],
  [
    "no finalizer with the policy Retain",
    () => volumeFor(claimOf(), { storageClass: classOf({ reclaimPolicy: "Retain" }) }).metadata.finalizers,
    undefined,
  ],
  ["no filesystem unless the class names it", () => volumeFor().spec?.csi?.fsType, undefined],
  [
    "the filesystem of the class",
    () => volumeFor(claimOf(), { parameters: { fstype: "xfs" } }).spec?.csi?.fsType,
    "xfs",
  ],
  [
    "no filesystem of a block volume",
    () => volumeFor(claimOf({}, { volumeMode: "Block" }), { parameters: { fstype: "xfs" } }).spec?.csi?.fsType,
    undefined,
  ],
  [
    "the secret of the stage is referred to",
    () => volumeFor(claimOf(), { parameters: { [STAGE]: "s", [STAGE_NAMESPACE]: "n" } }).spec?.csi?.nodeStageSecretRef,
    SECRET,
  ],
  [
    "the secret of the deletion is in annotations",
    () => {
      const { annotations = {} } =
        volumeFor(claimOf(), { parameters: { [DELETE]: "s", [DELETE_NAMESPACE]: "n" } }).metadata;
      return ["name", "namespace"].map((part) =>
        annotations[`volume.kubernetes.io/provisioner-deletion-secret-${part}`]
      );
    },
    ["s", "n"],
  ],
  [
    "the attributes class of the claim",
    () => volumeFor(claimOf({}, { volumeAttributesClassName: "gold" })).spec?.volumeAttributesClassName,
    "gold",
  ],
  ["no topology, no affinity", () => volumeFor(claimOf(), { created: { topology: [] } }).spec?.nodeAffinity, undefined],
  [
    "a term for each topology, with its segments in order",
    () =>
      volumeFor(claimOf(), { created: { topology: [{ b: "2", a: "1" }, { a: "3" }] } }).spec?.nodeAffinity?.required
        ?.nodeSelectorTerms.map(({ matchExpressions = [] }) =>
          matchExpressions.map(({ key, values }) => `${key}=${values}`)
        ),
    [["a=1", "b=2"], ["a=3"]],
  ],
]);

interface VolumeState {
  readonly phase?: string;
  readonly policy?: string;
  readonly guarded?: boolean;
  readonly deleting?: boolean;
}

const step = ({ phase, policy = "Delete", guarded = false, deleting = false }: VolumeState) => () =>
  nextReclaimStep({
    metadata: {
      name: "pv",
      ...(guarded && { finalizers: ["other", VOLUME_FINALIZER] }),
      ...(deleting && { deletionTimestamp: "2026-01-01T00:00:00Z" }),
    },
    spec: { persistentVolumeReclaimPolicy: policy },
    ...(phase !== undefined && { status: { phase } }),
  } as PersistentVolume);

const managed = (csi: object | undefined, annotations = {}) => () =>
  isManagedBy({ metadata: { name: "pv", annotations }, spec: { csi } } as PersistentVolume, DRIVER);
const PROVISIONED_BY = "pv.kubernetes.io/provisioned-by";

testRows("csi-provisioner: deletion of a PersistentVolume", [
  ["ours, made for a claim", managed({ driver: DRIVER }, { [PROVISIONED_BY]: DRIVER }), true],
  ["ours, written by hand", managed({ driver: DRIVER }), true],
  ["of another driver", managed({ driver: "x" }), false],
  ["of our driver by another provisioner", managed({ driver: DRIVER }, { [PROVISIONED_BY]: "x" }), false],
  ["without CSI", managed(undefined), false],
  ["Released", step({ phase: "Released" }), "delete volume"],
  ["Released, with our finalizer", step({ phase: "Released", guarded: true }), "delete volume"],
  ["Released and being deleted, with it", step({ phase: "Released", guarded: true, deleting: true }), "delete volume"],
  ["Released and being deleted, without it", step({ phase: "Released", deleting: true }), "nothing"],
  ["Bound without it", step({ phase: "Bound" }), "add finalizer"],
  ["Bound with it", step({ phase: "Bound", guarded: true }), "nothing"],
  ["Bound and being deleted", step({ phase: "Bound", guarded: true, deleting: true }), "nothing"],
  ["Available", step({ phase: "Available", guarded: true }), "nothing"],
  ["no phase yet", step({ guarded: true }), "nothing"],
  ["Retain with it", step({ phase: "Released", policy: "Retain", guarded: true }), "remove finalizer"],
  ["Retain without it", step({ phase: "Released", policy: "Retain" }), "nothing"],
  ["Recycle with it", step({ phase: "Released", policy: "Recycle", guarded: true }), "remove finalizer"],
  [
    "Failed with the policy Delete",
    step({ phase: "Failed", guarded: true }),
    "delete volume",
    "kube-controller-manager makes it so where an annotation is missing",
  ],
  [
    "Available and being deleted, with it",
    step({ phase: "Available", guarded: true, deleting: true }),
    "delete volume",
    "else it is Terminating for ever",
  ],
]);

testRows("csi-provisioner: answers of the driver after which a volume may be in the making", [
  ...Array.from({ length: 16 }, (_, index) => index + 1).map((code): Row => [
    `gRPC code ${code}`,
    () => isMaybeInProgress(new CallError(code, "failed")),
    UNCERTAIN.includes(code),
  ]),
  ["no gRPC status", () => isMaybeInProgress(new Error("connection lost")), true],
]);

const snapshotGroup = "snapshot.storage.k8s.io";
const source = (spec: Spec) => () => dataSourceOf(claimOf({}, spec)).kind;
const snapshot = { apiGroup: snapshotGroup, kind: "VolumeSnapshot", name: "s" };
const otherClaim = { kind: "PersistentVolumeClaim", name: "c" };

testRows("csi-provisioner: sources", [
  ["none", source({}), "nothing"],
  ["a snapshot by dataSource", source({ dataSource: snapshot }), "snapshot"],
  ["a snapshot by dataSourceRef", source({ dataSourceRef: snapshot }), "snapshot"],
  ["a claim without a group", source({ dataSource: otherClaim }), "claim"],
  ["a claim with an empty group", source({ dataSource: { ...otherClaim, apiGroup: "" } }), "claim"],
  ["a snapshot of another group", source({ dataSourceRef: { ...snapshot, apiGroup: "x" } }), "populator"],
  ["another kind of the snapshots' group", source({ dataSourceRef: { ...snapshot, kind: "Backup" } }), "populator"],
]);

/** A cluster of nodes, with their labels, and whether the driver is registered there. */
function cluster(
  nodes: Readonly<Record<string, { labels?: Record<string, string>; driver?: boolean; noCsiNode?: boolean }>>,
) {
  const all = Object.entries(nodes).map(([name, { labels = {} }]) =>
    ({ metadata: { name, labels: { [KEY]: name, ...labels } } }) as Node
  );
  const csi = Object.entries(nodes).filter(([, { noCsiNode }]) => !noCsiNode).map(([name, { driver = true }]) =>
    ({ metadata: { name }, spec: { drivers: driver ? [{ name: DRIVER, nodeID: name }] : [] } }) as CsiNode
  );
  const byName = <T extends { metadata: { name: string } }>(objects: readonly T[]) => ({
    get: (name: string) => objects.find(({ metadata }) => metadata.name === name),
    list: () => objects,
  });
  return { driverName: DRIVER, topologyKey: KEY, nodes: byName(all), csiNodes: byName(csi) };
}

const NODES = {
  n1: { labels: { zone: "a", disk: "ssd" } },
  n2: { labels: { zone: "a" } },
  n3: { labels: { zone: "b", disk: "ssd" } },
};
const term = (key: string, ...values: string[]) => ({ key, values });
const allowed = (...terms: ReturnType<typeof term>[][]) =>
  terms.map((matchLabelExpressions) => ({ matchLabelExpressions })) as NonNullable<StorageClass["allowedTopologies"]>;
const nodesOf = (list: readonly Readonly<Record<string, string>>[]) => list.map((segments) => segments[KEY]);
const requisite =
  (topologies?: StorageClass["allowedTopologies"], nodes: Parameters<typeof cluster>[0] = NODES) => () =>
    nodesOf(topologyOfAllNodes(topologies, cluster(nodes)).requisite);
const selected =
  (name: string, topologies?: StorageClass["allowedTopologies"], nodes: Parameters<typeof cluster>[0] = NODES) => () =>
    nodesOf(topologyOfNode(name, topologies, cluster(nodes)).requisite);
const preferred = (claim: string) => () => nodesOf(topologyOfAllNodes(undefined, cluster(NODES), claim).preferred);

testRows("csi-provisioner: topology", [
  ["all nodes with the driver", requisite(), ["n1", "n2", "n3"]],
  ["an empty list of allowed topologies", requisite([]), ["n1", "n2", "n3"]],
  ["one expression with one value", requisite(allowed([term("zone", "a")])), ["n1", "n2"]],
  ["one expression with two values", requisite(allowed([term("zone", "a", "b")])), ["n1", "n2", "n3"]],
  ["two expressions of a term, both of which must hold", requisite(allowed([term("zone", "a"), term("disk", "ssd")])), [
    "n1",
  ]],
  ["two terms, one of which must hold", requisite(allowed([term("zone", "b")], [term("disk", "ssd")])), ["n1", "n3"]],
  ["terms that overlap", requisite(allowed([term("zone", "a")], [term("zone", "a", "b")])), ["n1", "n2", "n3"]],
  [
    "a topology that no node has",
    requisite(allowed([term("zone", "z")])),
    refused("registered on no node of the allowed"),
  ],
  ["no node", requisite(undefined, {}), refused("registered on no node")],
  ["the driver on one node", requisite(undefined, { n1: {}, n2: { driver: false } }), ["n1"]],
  ["a node without a CSINode", requisite(undefined, { n1: {}, n2: { noCsiNode: true } }), ["n1"]],
  ["the selected node alone", selected("n2"), ["n2"]],
  ["a selected node in the allowed topologies", selected("n3", allowed([term("zone", "b")])), ["n3"]],
  [
    "a selected node outside of them",
    selected("n1", allowed([term("zone", "b")])),
    refused("not in the allowedTopologies"),
  ],
  ["a selected node that is not there", selected("n9"), refused("there is no such node")],
  [
    "a selected node without a CSINode",
    selected("n1", undefined, { n1: { noCsiNode: true } }),
    refused("is not registered there"),
  ],
  [
    "a selected node without the driver",
    selected("n1", undefined, { n1: { driver: false } }),
    refused("is not registered"),
  ],
  [
    "a claim of no StatefulSet",
    preferred("data"),
    [],
    "the driver chooses the node by free space",
  ],
  [
    "replicas of a StatefulSet begin at another node each",
    () => [0, 1, 2, 3].map((ordinal) => preferred(`data-web-${ordinal}`)()[0]),
    ["n1", "n2", "n3", "n1"],
  ],
  [
    "two claims of one replica prefer the same node",
    () => preferred("data-web-1")()[0] === preferred("logs-web-1")()[0],
    true,
  ],
  ["a number that is too large for an ordinal", preferred("data-web-12345678901"), []],
]);
