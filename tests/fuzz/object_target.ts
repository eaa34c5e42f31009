/**
 * Targets: the driver's own objects, changed, and as a newer version may write them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { parseGroupList } from "../../csi/group_list.ts";
import { conditionsOf } from "../../k8s/api/conditions.ts";
import type { LvmNode, LvmSnapshot, LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { KubeObject } from "../../k8s/api/objects.ts";
import { snapshotOf, snapshotRequestOf } from "../../k8s/api/snapshot_mapping.ts";
import {
  actualSize,
  contentSourceOf,
  desiredSizeRange,
  ioLimitsOf,
  volumeRequestOf,
} from "../../k8s/api/volume_mapping.ts";
import { freeCapacityOf } from "../../k8s/scheduling/free_capacity.ts";
import { readObjects } from "../../deploy/objects.ts";
import { FILESYSTEM_TYPES } from "../../lvm/settings/filesystem.ts";
import { LAYOUT_NAMES } from "../../lvm/settings/layouts.ts";
import { ERASURES } from "../../lvm/model/tags.ts";
import { requiredPvCount } from "../../lvm/model/layout.ts";
import { validator } from "./schemas.ts";
import { parsed } from "./expect.ts";
import { changedJson, extendedJson } from "./inputs.ts";
import { type Json, statelessTarget, type Target } from "./target.ts";

const CONDITION = {
  ...{
    type: "Healthy",
    observedGeneration: 1,
    status: "True",
    reason: "PhysicalVolumesPresent",
    message: "all are there",
  },
  lastTransitionTime: "2026-11-14T22:13:38Z",
};

const VOLUME = {
  kind: "LVMVolume",
  metadata: { name: "v1-11111111111111111111111111111111", uid: "u", generation: 2 },
  spec: {
    ...{ driverName: "lvm.denolith.dev", requestName: "pvc-1", nodeName: "node-1", size: "1Gi", sizeLimit: "2Gi" },
    ...{ volumeGroups: "data,/fast.*/", volumeGroupPreference: "leastFree", volumeMode: "Filesystem", fsType: "ext4" },
    ...{ mkfsOptions: ["-m", "0"], shared: true, erase: "zero", discard: true, fstrim: "24h" },
    layout: { type: "raid5", stripes: 2, stripeSize: "64Ki" },
    ioLimits: { readIops: "500", writeBpsPerGiB: "4Mi" },
    source: { snapshot: "v1-22222222222222222222222222222222" },
  },
  status: {
    state: "Ready",
    observedGeneration: 2,
    volumeGroup: "data",
    size: "1Gi",
    lvUUID: "u",
    conditions: [CONDITION],
  },
};

const THIN = {
  ...VOLUME,
  spec: {
    ...{ ...VOLUME.spec, source: { volume: "v1-22222222222222222222222222222222" }, layout: undefined, fsType: "xfs" },
    ...{ thinProvision: true, thinPoolSize: "10%", mkfsOptions: [] },
  },
};

const SNAPSHOT = {
  kind: "LVMSnapshot",
  metadata: { name: "v1-22222222222222222222222222222222", uid: "s", generation: 1 },
  spec: {
    ...{ driverName: "lvm.denolith.dev", requestName: "snapshot-1", nodeName: "node-1", cowSize: "20%" },
    sourceVolume: "v1-11111111111111111111111111111111",
  },
  status: {
    ...{ state: "Ready", observedGeneration: 1, volumeGroup: "data", volumeGroupUUID: "g", lvName: "snap-2" },
    ...{ lvUUID: "u", size: "16Mi", restoreSize: "64Mi", creationTime: "2026-11-14T22:13:38Z" },
    ...{ readyToUse: true, cowPercent: 3, conditions: [CONDITION] },
  },
};

const NODE = {
  kind: "LVMNode",
  metadata: { name: "node-1", uid: "n", generation: 1 },
  spec: { driverName: "lvm.denolith.dev" },
  status: {
    ...{ lastUpdateTime: "2026-11-14T22:13:38Z", thinPoolOvercommit: "1", conditions: [CONDITION] },
    total: { volumeGroups: 1, size: "240Gi", free: "240716Mi" },
    volumeGroups: [{
      ...{ name: "data", uuid: "g", size: "240Gi", free: "240716Mi", extentSize: "4Mi", lvCount: 9, pvCount: 1 },
      ...{ snapshotCount: 0, missingPVCount: 0, writeable: true, metadata: { size: "1020Ki", free: "508Ki" } },
      physicalVolumes: [{ uuid: "p", free: "36272Mi" }],
      volumes: [{ name: "v1-11111111111111111111111111111111", size: "1Gi" }],
      thinPools: [{
        ...{ name: "data_thinpool", size: "4Gi", owned: true, overcommit: "1", availableVirtual: "4032Mi" },
        ...{ dataPercent: 0, metadataPercent: 11 },
      }],
    }],
  },
};

const VOLUMES: readonly Json[] = [VOLUME, JSON.parse(JSON.stringify(THIN)) as Json];
const SNAPSHOTS: readonly Json[] = [SNAPSHOT];
const NODES: readonly Json[] = [NODE];

/** Reads a volume as its agent, the controller and the scheduler's helper do. @returns what they read */
function readVolume(volume: LvmVolume): unknown {
  const request = parsed(["InvalidArgument"], () => volumeRequestOf(volume, parseGroupList));
  if (request !== undefined) checkRequest(request);
  return [
    request && { ...request, groups: String(request.groups) },
    parsed(["InvalidArgument"], () => desiredSizeRange(volume)),
    parsed(["InvalidArgument"], () => contentSourceOf(volume)),
    parsed(["InvalidArgument"], () => ioLimitsOf(volume)),
    parsed([], () => actualSize(volume)),
    conditionsOf(volume),
  ];
}

/** Requires that all fields of a request have values that this version knows. */
function checkRequest(request: ReturnType<typeof volumeRequestOf>): void {
  const { format, erase, preference, layout, mkfsOptions, shared, range, name, thin } = request;
  assert(format.state === "raw" || FILESYSTEM_TYPES.includes((format as { type: "ext4" }).type), "fsType");
  assert(ERASURES.includes(erase), `erase ${erase}`);
  assert(["leastFree", "mostFree"].includes(preference), `preference ${preference}`);
  assert(LAYOUT_NAMES.includes(layout.type), `layout ${layout.type}`);
  const pvs = requiredPvCount(layout);
  assert(Number.isSafeInteger(pvs) && pvs >= 1, `${pvs} physical volumes`);
  assert(Array.isArray(mkfsOptions) && mkfsOptions.every((option) => typeof option === "string"), "mkfsOptions");
  assert(typeof shared === "boolean" && typeof name === "string" && range.required > 0n);
  assert(thin?.pool === undefined || /^[A-Za-z0-9+_.][A-Za-z0-9+_.-]*$/.test(thin.pool), "thinPool");
}

/** Reads a snapshot as its agent and the controller do. @returns what they read */
function readSnapshot(snapshot: LvmSnapshot): unknown {
  return [parsed(["InvalidArgument"], () => snapshotRequestOf(snapshot)), parsed([], () => snapshotOf(snapshot))];
}

/** Reads a node and its volumes as the scheduler's helper does. @returns what it reads */
function readNode(node: LvmNode, volumes: readonly LvmVolume[]): unknown {
  const capacity = freeCapacityOf(node, volumes, parseGroupList);
  for (const { free, pending, pvs } of capacity.groups) {
    assert(free >= 0n && (pending ?? 0n) >= 0n && pvs.every((pv) => pv.free >= 0n), "negative space");
  }
  return capacity;
}

const READERS: Readonly<Record<string, (object: never) => unknown>> = {
  LVMVolume: readVolume,
  LVMSnapshot: readSnapshot,
  LVMNode: (node: LvmNode) => readNode(node, VOLUMES as unknown as LvmVolume[]),
};

/** The definition of LVMNodes without limits of values, as a newer version may have it: types never change in a version. */
const validateNode = validator(
  new Map([["LVMNode", withoutLimits(readObjects("crds").find(({ spec }) => spec.names.kind === "LVMNode")!)]]),
);

/** Returns the schema of a definition that allows any value of the right type. */
// deno-lint-ignore no-explicit-any
function withoutLimits(definition: any): Record<string, unknown> {
  const limits = ["enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "x-kubernetes-validations"];
  const text = JSON.stringify(
    definition.spec.versions[0].schema.openAPIV3Schema,
    (key, value) => limits.includes(key) && typeof value !== "object" || key === "enum" ? undefined : value,
  );
  return JSON.parse(text) as Record<string, unknown>;
}

/** Changes below `spec` and `status`: the metadata is the API server's own. */
function changed(bases: readonly Json[], part: string): fc.Arbitrary<Json> {
  return fc.constantFrom(...bases).chain((base) => {
    const object = base as Record<string, Json>;
    return changedJson([object[part] ?? {}]).filter((value) => typeof value === "object" && value !== null)
      .map((value) => ({ ...object, [part]: value }))
      .filter((value) => object.kind !== "LVMNode" || validateNode(value as unknown as KubeObject).length === 0);
  });
}

const kinds = { LVMVolume: VOLUMES, LVMSnapshot: SNAPSHOTS, LVMNode: NODES };

/** The targets. */
export const OBJECT_TARGETS: readonly Target[] = [
  statelessTarget({
    name: "objects",
    description: "LVMVolumes, LVMSnapshots and LVMNodes with values that no version writes",
    inputs: fc.oneof(
      ...Object.entries(kinds).flatMap(([kind, bases]) =>
        ["spec", "status"].map((part) => changed(bases, part).map((object) => ({ kind, object })))
      ),
    ),
    testRuns: 100,
    check: ({ kind, object }) => {
      READERS[kind]!(object as never);
      if (kind === "LVMVolume") readNode(NODES[0] as unknown as LvmNode, [object as unknown as LvmVolume]);
    },
  }),
  statelessTarget({
    name: "objects-newer",
    description: "the same objects with fields that this version does not know",
    inputs: fc.oneof(
      ...Object.entries(kinds).map(([kind, bases]) => extendedJson(bases).map((pair) => ({ kind, ...pair }))),
    ),
    testRuns: 50,
    check: ({ kind, base, extended }) => {
      const read = READERS[kind]!;
      assertEquals(withoutNew(read(extended as never)), withoutNew(read(base as never)));
    },
  }),
];

/** Returns a value without the fields that {@linkcode extendedJson} adds, in parts that are passed on as they are. */
function withoutNew(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNew);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).filter(([key]) => !key.endsWith("NewInV2")).map(([key, inner]) => [key, withoutNew(inner)]),
  );
}
