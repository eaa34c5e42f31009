/**
 * What the suites of the official provisioner (kubernetes-csi/external-provisioner) and of its library
 * (kubernetes-sigs/sig-storage-lib-external-provisioner) ask of a running provisioner: answers of the driver and retries,
 * sources of content, finalizers that protect them, and deletion.
 *
 * Not asked: several provisioners beside each other in one cluster, in-tree plugins, grants for other namespaces (alpha).
 *
 * @module
 */

import {
  csiNodes,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
} from "../../k8s/api/objects.ts";
import { type VolumeSnapshotContent, volumeSnapshotContents, volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { SELECTED_NODE_ANNOTATION } from "../../k8s/provisioner/claim.ts";
import { SNAPSHOT_SOURCE_FINALIZER } from "../../k8s/provisioner/cloning_protection.ts";
import { ALLOW_MODE_CHANGE_ANNOTATION, CLONING_FINALIZER } from "../../k8s/provisioner/content_source.ts";
import { VOLUME_FINALIZER } from "../../k8s/provisioner/persistent_volume.ts";
import { DRIVER, type FakeControlPlane, waitUntil } from "../fake/cluster/control_plane.ts";
import { type Outcome, simulated, type Situation } from "./claim_player.ts";
import { type Row, type Secret, secretKeys, SIDECARS, testRows } from "./rows.ts";

const OTHER = "example.com/other";
const CLAIM = { namespace: "default", name: "data" };

/** Canceled, DeadlineExceeded, Aborted, Unavailable. */
const UNCERTAIN: readonly number[] = [1, 4, 10, 14];
const [EXHAUSTED, ABORTED] = [8, 10];

const removeClaim = (s: FakeControlPlane) => s.remove(persistentVolumeClaims, CLAIM);
const selectNode = (node: string) => (s: FakeControlPlane) =>
  s.client.patch(persistentVolumeClaims, CLAIM, {
    merge: { metadata: { annotations: { [SELECTED_NODE_ANNOTATION]: node } } },
  });
const removeNodes = (s: FakeControlPlane) =>
  Promise.all([nodes, csiNodes].map((resource) => s.remove(resource, { name: "a" })));

testRows("csi-provisioner: answers of the driver", [
  ...[...Array.from({ length: 16 }, (_, index) => index + 1), "no code" as const].flatMap((code): Row[] => {
    const isUncertain = code === "no code" || UNCERTAIN.includes(code);
    const what = code === "no code" ? "an error without a code" : `gRPC code ${code}`;
    const says = code === ABORTED ? "Provisioning: no" : "ProvisioningFailed: no";
    const differs = code === ABORTED ? SIDECARS : undefined;
    const answers = [code];
    return [
      simulated(`${what}, no node selected`, { answers }, ["create", "Pending", says], differs),
      simulated(
        `${what}, a node selected: it is kept, unless it is full`,
        { node: "a", answers },
        ["create on a", code === EXHAUSTED ? "Pending" : "Pending on a", says],
        differs,
      ),
      simulated(
        `${what}, then the claim is gone: what may be in the making is made, and deleted`,
        { node: "a", answers, during: removeClaim, retries: true },
        [isUncertain ? "create on a, create on a, delete" : "create on a", "gone", ""],
        isUncertain ? SIDECARS : undefined,
      ),
    ];
  }),
  simulated("unknown, then made", { answers: [14], retries: true }, [
    "create, create",
    "Bound",
    "ProvisioningFailed: no",
  ]),
  simulated("a failure, then made", { answers: [13], retries: true }, [
    "create, create",
    "Bound",
    "ProvisioningFailed: no",
  ]),
  simulated(
    "an invalid parameter: tried again at the usual pace",
    { answers: [3], retries: true },
    ["create, create", "Bound", "ProvisioningFailed: no"],
    "docs/reference/errors.md, Retries",
  ),
  simulated("unknown, then full: the node is taken off", { node: "a", answers: [14, EXHAUSTED], retries: true }, [
    "create on a, create on a",
    "Pending",
    "ProvisioningFailed: no",
  ]),
  simulated(
    "unknown, and another node is chosen meanwhile: the same request",
    { node: "a", answers: [14], during: selectNode("b"), retries: true },
    ["create on a, create on a", "Bound on b", "ProvisioningFailed: no"],
  ),
  simulated(
    "unknown, and the node is removed meanwhile: the same request",
    { node: "a", answers: [14], during: removeNodes, retries: true },
    ["create on a, create on a", "Bound on a", "ProvisioningFailed: no"],
  ),
  simulated(
    "a failure, and another node is chosen meanwhile: a new request",
    { node: "a", answers: [13], during: selectNode("b"), retries: true },
    ["create on a, create on b", "Bound on b", "ProvisioningFailed: no"],
  ),
  simulated("the claim is gone when the volume is there", { during: removeClaim }, ["create, delete", "gone", ""]),
]);

const FAILS = "ProvisioningFailed: ";
const PERSISTENT_VOLUME = "create persistentvolumes";

testRows("csi-provisioner: what a request needs, and what it brings about", [
  simulated("a class that is missing", { claim: { storageClassName: "x" } }, [
    "",
    "Pending",
    `${FAILS}storageClassName "x"`,
  ]),
  simulated("a class of another driver", { storageClass: { provisioner: "other.example" } }, ["", "Pending", ""]),
  simulated("a secret", { secret: "readable" }, ["create with a secret", "Bound", ""]),
  simulated("a secret that does not exist", { secret: "missing" }, ["", "Pending", `${FAILS}get secrets s`]),
  simulated("a secret that may not be read", { secret: "forbidden" }, ["", "Pending", `${FAILS}get secrets s`]),
  simulated("a secret without a name", { secret: "unnamed" }, ["", "Pending", "one of them is missing"]),
  ...[DRIVER, "other.example"].map((driver): Row =>
    simulated(
      `an attributes class of ${driver}`,
      {
        claim: { volumeAttributesClassName: "v" },
        objects: (s) => s.addAttributesClass("v", { readIops: "1" }, driver),
      },
      driver === DRIVER
        ? ["create with readIops=1", "Bound", ""]
        : ["", "Pending", `${FAILS}volumeAttributesClassName`],
    )
  ),
  simulated("an attributes class that is missing", { claim: { volumeAttributesClassName: "v" } }, [
    "",
    "Pending",
    `${FAILS}get volumeattributesclasses v`,
  ]),
  simulated("a selected node that does not exist: chosen again", { node: "x" }, ["", "Pending", "no such node"]),
  simulated(
    "a selected node without the driver: chosen again",
    { node: "c", objects: (s) => s.addNode("c", { driver: false }) },
    ["", "Pending", "not registered"],
  ),
  simulated(
    "a selected node outside of the allowed topologies: chosen again",
    {
      node: "a",
      storageClass: { allowedTopologies: [{ matchLabelExpressions: [{ key: "zone", values: ["z"] }] }] },
    },
    ["", "Pending", "allowedTopologies"],
    "the library keeps the node, and the claim hangs",
  ),
  simulated("the PersistentVolume is saved at the third attempt", {
    refuses: [PERSISTENT_VOLUME, 500, 2],
    retries: true,
  }, ["create", "Bound", "refused by the row"]),
  simulated(
    "the PersistentVolume is refused again and again",
    { refuses: [PERSISTENT_VOLUME, 403, 5], retries: true },
    [
      "create, delete, create",
      "Bound",
      "refused by the row",
    ],
    SIDECARS,
  ),
  simulated(
    "the PersistentVolume cannot be saved, and the claim is gone",
    { refuses: [PERSISTENT_VOLUME, 500, 2], retries: true, during: removeClaim },
    ["create, delete", "gone", ""],
  ),
]);

/** What differs from a VolumeSnapshot that is ready, and from its content. */
interface SnapshotParts {
  readonly status?: object | null;
  readonly finalizers?: string[];
  readonly deleted?: true;
  /** The content; `null` when there is none. */
  readonly content?: {
    readonly spec?: Partial<VolumeSnapshotContent["spec"]>;
    readonly ref?: object;
    readonly status?: object;
    readonly annotations?: Record<string, string>;
  } | null;
}

/** Returns what adds the VolumeSnapshot `source`. */
const addSnapshot = (parts: SnapshotParts = {}) => async (s: FakeControlPlane) => {
  const { status = {}, finalizers = [], deleted, content = {} } = parts;
  const at = { name: "source", namespace: "default" };
  const ready = { boundVolumeSnapshotContentName: "content", readyToUse: true, ...status };
  const { metadata: { uid } } = s.api.put(volumeSnapshots, {
    metadata: { ...at, finalizers },
    ...(status !== null && { status: ready }),
  });
  if (deleted) await s.remove(volumeSnapshots, at);
  if (content === null) return;
  const volumeSnapshotRef = { ...at, uid: uid!, ...content.ref };
  s.api.put(volumeSnapshotContents, {
    metadata: { name: "content", annotations: content.annotations ?? {} },
    spec: { driver: DRIVER, deletionPolicy: "Delete", source: {}, volumeSnapshotRef, ...content.spec },
    status: { snapshotHandle: "s", ...content.status },
  });
};

const SNAPSHOT = { apiGroup: "snapshot.storage.k8s.io", kind: "VolumeSnapshot", name: "source" };
const refusedSource = (why: string): Outcome => ["", "Pending", `${FAILS}dataSource${why}`];
const snapshotRow = (asks: string, parts: SnapshotParts, wanted: Outcome, differs?: string) =>
  simulated(asks, { claim: { dataSource: SNAPSHOT }, objects: addSnapshot(parts) }, wanted, differs);
const madeFrom = (handle: string): Outcome => [`create from ${handle}`, "Bound", ""];
const BLOCK = { sourceVolumeMode: "Block" } as const;
const withAnnotation = (value: string) =>
  ({ content: { spec: BLOCK, annotations: { [ALLOW_MODE_CHANGE_ANNOTATION]: value } } }) as const;

testRows("csi-provisioner: a snapshot as the source", [
  snapshotRow("ready", {}, madeFrom("s")),
  ...[undefined, "default", ""].map((namespace) =>
    simulated(`by dataSourceRef, in namespace ${JSON.stringify(namespace)}`, {
      claim: { dataSourceRef: { ...SNAPSHOT, ...namespace !== undefined && { namespace } } },
      objects: addSnapshot(),
    }, madeFrom("s"))
  ),
  simulated("in another namespace", {
    claim: { dataSourceRef: { ...SNAPSHOT, namespace: "other" } },
    objects: addSnapshot(),
  }, refusedSource("Ref: snapshot other/source is in another namespace")),
  simulated("missing", { claim: { dataSource: SNAPSHOT } }, refusedSource(": VolumeSnapshot source: does not exist")),
  simulated("of another kind", { claim: { dataSource: { apiGroup: "x", kind: "Backup", name: "b" } } }, [
    "",
    "Pending",
    "Provisioning: Backup of x: waiting for",
  ]),
  snapshotRow("without a status", { status: null }, refusedSource(": VolumeSnapshot source is not bound yet")),
  snapshotRow(
    "without the name of its content",
    { status: { boundVolumeSnapshotContentName: undefined } },
    refusedSource(": VolumeSnapshot source is not bound yet"),
  ),
  snapshotRow(
    "not ready",
    { status: { readyToUse: false } },
    refusedSource(": VolumeSnapshot source is not ready yet"),
  ),
  snapshotRow(
    "nothing said of readiness",
    { status: { readyToUse: undefined } },
    refusedSource(": VolumeSnapshot source is not ready yet"),
  ),
  snapshotRow("without a content", { content: null }, refusedSource(": VolumeSnapshot source: VolumeSnapshotContent")),
  ...[{ uid: "x" }, { namespace: "x" }, { name: "x" }].map((ref) =>
    snapshotRow(
      `whose content belongs to another one, by its ${Object.keys(ref)}`,
      { content: { ref } },
      refusedSource(": VolumeSnapshot source: VolumeSnapshotContent content belongs to another"),
    )
  ),
  snapshotRow(
    "of another driver",
    { content: { spec: { driver: "x" } } },
    refusedSource(": VolumeSnapshot source is of the driver x"),
  ),
  snapshotRow(
    "without a handle",
    { content: { status: { snapshotHandle: undefined } } },
    refusedSource(": VolumeSnapshot source has no handle yet"),
  ),
  snapshotRow(
    "of a block volume",
    { content: { spec: BLOCK } },
    refusedSource(": VolumeSnapshot source is of a Block"),
  ),
  ...["true", "T", "1"].map((value) =>
    snapshotRow(`of a block volume, allowed by ${value}`, withAnnotation(value), madeFrom("s"))
  ),
  ...["false", "yes"].map((value) =>
    snapshotRow(
      `of a block volume, not allowed by ${value}`,
      withAnnotation(value),
      refusedSource(": VolumeSnapshot source is of a Block"),
    )
  ),
  simulated("of a block volume, for one", {
    claim: { dataSource: SNAPSHOT, volumeMode: "Block" },
    objects: addSnapshot({ content: { spec: BLOCK } }),
  }, madeFrom("s")),
  snapshotRow(
    "being deleted",
    { deleted: true, finalizers: [OTHER] },
    refusedSource(": VolumeSnapshot source is being deleted"),
  ),
  snapshotRow(
    "being deleted, with the provisioner's finalizer",
    { deleted: true, finalizers: [OTHER, SNAPSHOT_SOURCE_FINALIZER] },
    refusedSource(": VolumeSnapshot source is being deleted"),
    SIDECARS,
  ),
]);

/** What differs from a claim that is bound to the PersistentVolume `pv`, and from that. */
interface SourceParts {
  readonly metadata?: Partial<PersistentVolumeClaim["metadata"]>;
  readonly spec?: object;
  readonly phase?: string;
  readonly deleted?: true;
  /** The PersistentVolume; `null` when there is none. */
  readonly volume?: { readonly spec?: object; readonly ref?: object | null; readonly phase?: string } | null;
}

/** Returns what adds the claim `source`. */
const addSource = (parts: SourceParts = {}) => async (s: FakeControlPlane) => {
  const { metadata, spec = {}, phase = "Bound", deleted, volume = {} } = parts;
  const at = { name: "source", namespace: "default" };
  const claim = s.api.put(persistentVolumeClaims, {
    metadata: { ...at, ...metadata },
    spec: { volumeName: "pv", storageClassName: "c", ...spec },
    status: { phase },
  });
  if (deleted) await s.remove(persistentVolumeClaims, at);
  // Kubernetes makes it Lost
  if (volume === null && claim.spec?.volumeName !== undefined) {
    return await waitUntil(() => s.storedClaim("source")?.status?.phase !== phase, "the loss of the volume");
  }
  if (volume === null) return;
  const claimRef = { ...at, uid: claim.metadata.uid!, ...volume.ref };
  s.api.put(persistentVolumes, {
    metadata: { name: "pv" },
    spec: {
      ...{ persistentVolumeReclaimPolicy: "Retain", csi: { driver: DRIVER, volumeHandle: "v" } },
      ...(volume.ref !== null && { claimRef }),
      ...volume.spec,
    },
    status: { phase: volume.phase ?? "Bound" },
  });
};

const SOURCE = { kind: "PersistentVolumeClaim", name: "source" };
const sourceRow = (
  asks: string,
  parts: SourceParts,
  wanted: Outcome,
  differs?: string,
  more: object = {},
) => simulated(asks, { claim: { dataSource: SOURCE, ...more }, objects: addSource(parts) }, wanted, differs);
const refusedClaim = (why: string) => refusedSource(`: PersistentVolumeClaim source${why}`);

testRows("csi-provisioner: a claim as the source", [
  sourceRow("bound", {}, madeFrom("v")),
  simulated("bound: it is protected", { claim: { dataSource: SOURCE }, objects: addSource(), looksAt: "source" }, [
    "create from v",
    "there, protected",
    "",
  ]),
  sourceRow("of another class", { spec: { storageClassName: "now" } }, madeFrom("v")),
  sourceRow(
    "of no class",
    { spec: { storageClassName: undefined } },
    madeFrom("v"),
    "a volume that was written by hand",
  ),
  ...[undefined, "default"].map((namespace) =>
    simulated(`by dataSourceRef, in namespace ${namespace}`, {
      claim: { dataSourceRef: { ...SOURCE, ...namespace !== undefined && { namespace } } },
      objects: addSource(),
    }, madeFrom("v"))
  ),
  simulated("in another namespace", {
    claim: { dataSourceRef: { ...SOURCE, namespace: "other" } },
    objects: addSource(),
  }, refusedSource("Ref: claim other/source is in another namespace")),
  simulated("missing", { claim: { dataSource: SOURCE } }, refusedClaim(": does not exist")),
  sourceRow(
    "whose PersistentVolume is missing",
    { volume: null },
    refusedClaim(" is not bound yet"), // it is Lost
  ),
  // that of another claim, or Kubernetes would bind it
  ...["Pending", "Lost"].map((phase) =>
    sourceRow(`that is ${phase}`, { phase, volume: { ref: { uid: "other" } } }, refusedClaim(" is not bound yet"))
  ),
  sourceRow(
    "that names no volume",
    { spec: { volumeName: undefined }, volume: null },
    refusedClaim(" is not bound yet"),
  ),
  ...["Released", "Failed", "Pending", "Available"].map((phase) =>
    sourceRow(`whose PersistentVolume is ${phase}`, {
      volume: { phase, ref: { uid: "x" } },
    }, refusedClaim(": PersistentVolume pv is not bound to it"))
  ),
  sourceRow(
    "whose PersistentVolume names no claim",
    { volume: { ref: null } },
    refusedClaim(": PersistentVolume pv is not bound to it"),
  ),
  sourceRow(
    "whose PersistentVolume names a claim of another uid",
    { volume: { ref: { uid: "x" } } },
    refusedClaim(": PersistentVolume pv is not bound to it"),
  ),
  sourceRow(
    "of another driver",
    { volume: { spec: { csi: { driver: "x", volumeHandle: "v" } } } },
    refusedClaim(" is of the driver x"),
  ),
  sourceRow("of no CSI driver", { volume: { spec: { csi: undefined } } }, refusedClaim(" is of the driver (none)")),
  sourceRow(
    "being deleted",
    { deleted: true, metadata: { finalizers: [OTHER] } },
    refusedClaim(" is being deleted"),
  ),
  sourceRow("smaller than the clone", {}, madeFrom("v"), undefined, { resources: { requests: { storage: "9Gi" } } }),
  ...([
    ["Filesystem", "Filesystem"],
    ["Filesystem", undefined],
    [undefined, "Filesystem"],
    [undefined, undefined],
    ["Block", "Block"],
    ["Block", "Filesystem"],
    ["Block", undefined],
    ["Filesystem", "Block"],
    [undefined, "Block"],
  ] as const).map(([mode, volumeMode]) =>
    sourceRow(
      `of mode ${volumeMode}, for one of mode ${mode}`,
      { volume: { spec: { volumeMode } } },
      (mode === "Block") === (volumeMode === "Block") ? madeFrom("v") : refusedClaim(" is a"),
      undefined,
      { volumeMode: mode },
    )
  ),
]);

/** Returns what adds the source, and claims that are cloned from it, each in a phase. */
const withClones = (
  source: SourceParts,
  ...clones: readonly { readonly phase: string; readonly namespace?: string; readonly byRef?: true }[]
) =>
async (s: FakeControlPlane) => {
  for (const [index, { phase, namespace = "default", byRef }] of clones.entries()) {
    s.api.put(persistentVolumeClaims, {
      metadata: { name: `clone-${index}`, namespace },
      spec: { [byRef ? "dataSourceRef" : "dataSource"]: SOURCE },
      status: { phase },
    });
  }
  await addSource(source)(s);
};
const protection = (asks: string, objects: Situation["objects"], words: string) =>
  simulated(asks, { claim: null, objects: objects!, looksAt: "source" }, ["", words, ""]);
const DELETED: SourceParts = { deleted: true, metadata: { finalizers: [CLONING_FINALIZER] } };

testRows("csi-provisioner: protection of a claim that is cloned", [
  protection("no clone", withClones(DELETED), "gone"),
  protection("a clone that is Pending", withClones(DELETED, { phase: "Pending" }), "there, protected"),
  protection("by dataSourceRef", withClones(DELETED, { phase: "Pending", byRef: true }), "there, protected"),
  protection("a clone that is Bound", withClones(DELETED, { phase: "Bound" }), "gone"),
  protection("a clone that is Lost", withClones(DELETED, { phase: "Lost" }), "gone"),
  protection(
    "one clone of two is Pending",
    withClones(DELETED, { phase: "Bound" }, { phase: "Pending" }),
    "there, protected",
  ),
  protection("a clone of another namespace", withClones(DELETED, { phase: "Pending", namespace: "other" }), "gone"),
  protection("not being deleted", withClones({ metadata: { finalizers: [CLONING_FINALIZER] } }), "there, protected"),
  protection(
    "other finalizers stay",
    withClones({ deleted: true, metadata: { finalizers: [OTHER, CLONING_FINALIZER] } }),
    "there",
  ),
  protection("another finalizer alone", withClones({ deleted: true, metadata: { finalizers: [OTHER] } }), "there"),
]);

const LEFT: SnapshotParts = { finalizers: [OTHER, SNAPSHOT_SOURCE_FINALIZER] };
const leftRow = (asks: string, situation: Situation, wanted: Outcome, differs?: string) =>
  simulated(asks, { claim: null, objects: addSnapshot(LEFT), looksAt: "snapshot", ...situation }, wanted, differs);
/** Returns what adds the snapshot, and claims of others that are created from it, each in a phase. */
const withRestored =
  (...claims: readonly (readonly [phase: string, field: "dataSource" | "dataSourceRef"])[]) =>
  async (s: FakeControlPlane) => {
    for (const [index, [phase, field]] of claims.entries()) {
      const metadata = { name: `restored-${index}`, namespace: "default" };
      s.api.put(persistentVolumeClaims, { metadata, spec: { [field]: SNAPSHOT }, status: { phase } });
    }
    await addSnapshot(LEFT)(s);
  };
const PROTECTED: Outcome = ["", "there, protected", ""];

testRows("csi-provisioner: protection of a snapshot from which a claim is created", [
  leftRow("no claim", {}, ["", "there", ""]),
  leftRow("a claim that is Pending", { objects: withRestored(["Pending", "dataSource"]) }, PROTECTED),
  leftRow("by dataSourceRef", { objects: withRestored(["Pending", "dataSourceRef"]) }, PROTECTED),
  leftRow("a claim that gets its volume", { claim: { dataSource: SNAPSHOT } }, ["create from s", "there", ""]),
  leftRow("a claim that is Bound", { objects: withRestored(["Bound", "dataSource"]) }, ["", "there", ""]),
  leftRow(
    "one claim of two is Pending",
    { objects: withRestored(["Bound", "dataSource"], ["Pending", "dataSource"]) },
    PROTECTED,
  ),
  leftRow(
    "of another driver",
    { objects: addSnapshot({ ...LEFT, content: { spec: { driver: "x" } } }) },
    PROTECTED,
  ),
  leftRow("being deleted", { objects: addSnapshot({ deleted: true, finalizers: [SNAPSHOT_SOURCE_FINALIZER] }) }, [
    "",
    "gone",
    "",
  ]),
]);

/** What differs from a PersistentVolume that is Released, with the policy Delete and its finalizer. */
interface VolumeParts {
  readonly phase?: string;
  readonly policy?: string;
  readonly finalizers?: string[];
  readonly deleted?: true;
  readonly spec?: Partial<PersistentVolume["spec"]>;
  /** The secret that its annotations name. */
  readonly secret?: Secret;
}

const addVolume = (parts: VolumeParts = {}) => async (s: FakeControlPlane) => {
  const { phase = "Released", policy = "Delete", finalizers = [VOLUME_FINALIZER], deleted, spec, secret } = parts;
  s.api.put(persistentVolumes, {
    metadata: {
      ...{ name: "pv", finalizers },
      annotations: secretKeys(s.api, "volume.kubernetes.io/provisioner-deletion-secret", secret),
    },
    spec: { persistentVolumeReclaimPolicy: policy, csi: { driver: DRIVER, volumeHandle: "v" }, ...spec },
    status: { phase },
  });
  if (deleted) await s.remove(persistentVolumes, { name: "pv" });
};
const reclaims = (
  asks: string,
  parts: VolumeParts,
  wanted: Outcome,
  { differs, ...situation }: Situation & { readonly differs?: string } = {},
) => simulated(asks, { claim: null, objects: addVolume(parts), looksAt: "volume", ...situation }, wanted, differs);
const GONE: Outcome = ["delete", "gone", ""];

testRows("csi-provisioner: deletion of a volume", [
  reclaims("Released", {}, GONE),
  reclaims("Released, without the finalizer", { finalizers: [] }, GONE),
  reclaims("Released, and being deleted", { deleted: true }, GONE),
  reclaims("Released, being deleted, and without the finalizer", { deleted: true, finalizers: [OTHER] }, [
    "",
    "Released",
    "",
  ]),
  reclaims("Bound, and being deleted", { phase: "Bound", deleted: true }, ["", "Bound, protected", ""]),
  reclaims("Bound, without the finalizer", { phase: "Bound", finalizers: [] }, ["", "Bound, protected", ""]),
  reclaims("with the policy Retain", { policy: "Retain" }, ["", "Released", ""]),
  reclaims("of another driver", { spec: { csi: { driver: "x", volumeHandle: "v" } } }, ["", "Released, protected", ""]),
  reclaims("with a secret", { secret: "readable" }, ["delete with a secret", "gone", ""]),
  reclaims("a secret that does not exist", { secret: "missing" }, GONE),
  reclaims("a secret that may not be read", { secret: "forbidden" }, GONE),
  reclaims("a secret without a name", { secret: "unnamed" }, GONE),
  reclaims("a secret of the class alone", {}, GONE, { secret: "readable", differs: SIDECARS }),
  reclaims("the driver fails", {}, ["delete", "Released, protected", "VolumeFailedDelete: no"], { answers: [13] }),
  reclaims("the driver is busy", {}, ["delete", "Released, protected", "VolumeFailedDelete: no"], {
    answers: [ABORTED],
  }),
  reclaims("again after a failure", {}, ["delete, delete", "gone", "VolumeFailedDelete: no"], {
    answers: [13],
    retries: true,
  }),
  reclaims("the PersistentVolume cannot be deleted at first", {}, ["delete, delete", "gone", ""], {
    refuses: ["delete persistentvolumes", 500, 1],
    retries: true,
  }),
]);
