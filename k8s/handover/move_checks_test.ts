import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import { heldConditions, type HeldState } from "../api/volume_conditions.ts";
import type { ConditionReason } from "../api/condition_reasons.ts";
import {
  FORGOTTEN_ANNOTATION,
  type LvmNode,
  type LvmSnapshot,
  type LvmVolume,
  type LvmVolumeSpec,
  MOVE_ANNOTATION,
} from "../api/lvm_objects.ts";
import type { CsiNode, Node, PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { PROVISIONED_BY_ANNOTATION } from "../provisioner/persistent_volume.ts";
import { agentAbsence } from "./handover.ts";
import {
  agentsRefusal,
  blockingSnapshots,
  copyRequestOf,
  type MoveSurroundings,
  objectsRefusal,
  surroundingsRefusal,
} from "./move_checks.ts";
import { copyIdOf, type LvmMove, type MoveObjects } from "./moves.ts";
import { affinityTo } from "./persistent_volume.ts";

const [DRIVER, KEY, ID] = ["d", "node", `v1-${"a".repeat(32)}`];
const NOW = Date.parse("2026-01-01T00:00:00Z");

const MOVE: LvmMove = {
  metadata: { name: ID, uid: "m" },
  spec: {
    ...{ driverName: DRIVER, persistentVolume: "pv", claim: { namespace: "n", name: "c", uid: "u" } },
    ...{ sourceNode: "a", targetNode: "b" },
  },
};
const ADOPTION: LvmMove = { ...MOVE, spec: { ...MOVE.spec, adopt: true } };

function volume(spec: Partial<LvmVolumeSpec> = {}, more: Partial<LvmVolume> = {}): LvmVolume {
  return {
    metadata: { name: ID },
    spec: {
      ...{ driverName: DRIVER, requestName: "pv", nodeName: "a", size: "32Mi", volumeGroupPreference: "mostFree" },
      ...{ volumeMode: "Block", shared: false, erase: "none", ...spec },
    },
    status: { state: "Ready", volumeGroup: "data", volumeGroupUUID: "group", lvUUID: "lv", size: "32Mi" },
    ...more,
  } as LvmVolume;
}

function persistentVolume(spec: NonNullable<PersistentVolume["spec"]> = {}, annotations?: object): PersistentVolume {
  return {
    metadata: { name: "pv", annotations: { [PROVISIONED_BY_ANNOTATION]: DRIVER, ...annotations } },
    spec: {
      ...{ claimRef: { uid: "u" }, csi: { driver: DRIVER, volumeHandle: ID }, nodeAffinity: affinityTo("a", KEY) },
      ...spec,
    },
    status: { phase: "Bound" },
  } as PersistentVolume;
}

const OBJECTS: MoveObjects = {
  self: MOVE,
  volume: volume(),
  copy: undefined,
  persistentVolume: persistentVolume(),
  claim: { metadata: { name: "c", uid: "u" }, spec: { volumeName: "pv" } } as PersistentVolumeClaim,
  snapshots: [],
  temporary: [],
  isSnapshotted: false,
  hasSpaceForSnapshot: true,
  topologyKey: KEY,
};

const claim = (metadata: object, volumeName = "pv") =>
  ({ metadata: { name: "c", uid: "u", ...metadata }, spec: { volumeName } }) as PersistentVolumeClaim;
const deleting = { deletionTimestamp: "now" };

/** Returns a volume that is held for the move, with a status. */
function held(status: object, annotations: object = {}, state: HeldState = {}): LvmVolume {
  const metadata = { name: ID, generation: 7, annotations: { [MOVE_ANNOTATION]: "m", ...annotations } };
  const object = volume({ held: true }, { metadata, status: status as NonNullable<LvmVolume["status"]> });
  return { ...object, status: { ...object.status!, conditions: heldConditions(object, state) } };
}
const saved = held({ state: "Lost" }, { [FORGOTTEN_ANNOTATION]: "now" });
const LAST = { round: 0, snapshot: snapshotIdOf(transferSnapshotName(copyIdOf(MOVE), 0, 7)), last: true };
const READY = {
  metadata: { name: copyIdOf(MOVE) },
  spec: { nodeName: "b", copy: LAST },
  status: { state: "Ready", lvUUID: "b" },
} as unknown as LvmVolume;

/** Returns a volume with a condition about its keys. */
function withKeys(reason: ConditionReason, object: LvmVolume = volume()): LvmVolume {
  const condition = {
    type: "KeysChanged",
    status: "False",
    reason,
    message: "start a pod",
    lastTransitionTime: "",
  } as const;
  return { ...object, status: { ...object.status, conditions: [...object.status?.conditions ?? [], condition] } };
}

const forgotten = volume({}, { metadata: { name: ID, annotations: { [FORGOTTEN_ANNOTATION]: "now" } } });

const OBJECT_REFUSALS: readonly [what: string, objects: Partial<MoveObjects>, message: string | undefined][] = [
  ["a volume that can move", {}, undefined],
  ["a volume that can be adopted", { self: ADOPTION, volume: forgotten }, undefined],
  ["a move whose name is no id", { self: { ...MOVE, metadata: { name: "x" } } }, "its name is no id of a volume"],
  ["a move to the same node", { self: { ...MOVE, spec: { ...MOVE.spec, targetNode: "a" } } }, "is on node a already"],
  ["a claim that is gone", { claim: undefined }, "claim n/c does not exist any more"],
  ["a claim that another took the name of", { claim: claim({ uid: "other" }) }, "claim n/c does not exist any more"],
  ["a claim that is being deleted", { claim: claim({ deletionTimestamp: "now" }) }, "claim n/c is being deleted"],
  ["a claim of another PersistentVolume", { claim: claim({}, "other") }, "is not bound to PersistentVolume pv"],
  ["no volume", { volume: undefined }, "does not exist, or is being deleted"],
  [
    "a volume that is being deleted",
    { volume: volume({}, { metadata: { name: ID, deletionTimestamp: "now" } }) },
    "does not exist, or is being deleted",
  ],
  [
    "a volume that is not created",
    { volume: volume({}, { status: {} }) },
    "the volume is Pending: it is not created yet",
  ],
  [
    "a volume that failed",
    { volume: volume({}, { status: { state: "Failed", error: { code: "NoSpace", message: "full" } } }) },
    "the volume is Failed: full",
  ],
  [
    "a volume of whose data a part has another key",
    { volume: withKeys("ReencryptionInterrupted") },
    "a copy of the volume could not be used: start a pod",
  ],
  [
    "a volume that is being encrypted again",
    { volume: withKeys("KeyChangeRunning") },
    "could not be used: start a pod",
  ],
  ["a volume whose passphrase was not changed", { volume: withKeys("KeyChangeInterrupted") }, undefined],
  [
    "a volume that is held already",
    { volume: withKeys("ReencryptionInterrupted", held({ state: "Ready" })) },
    undefined,
  ],
  [
    "a volume of whose data a part has another key, and whose disks were carried",
    { self: ADOPTION, volume: withKeys("ReencryptionInterrupted", forgotten) },
    undefined,
  ],
  ["no PersistentVolume", { persistentVolume: undefined }, "is not bound to PersistentVolume pv"],
  [
    "a PersistentVolume that is Released",
    { persistentVolume: { ...persistentVolume(), status: { phase: "Released" } } },
    "is not bound to PersistentVolume pv",
  ],
  [
    "a PersistentVolume that is being deleted",
    { persistentVolume: { ...persistentVolume(), metadata: { ...persistentVolume().metadata, ...deleting } } },
    "is not bound to PersistentVolume pv",
  ],
  [
    "a PersistentVolume of no CSI driver",
    { persistentVolume: persistentVolume({ csi: undefined as never }) },
    "is not of volume",
  ],
  ["a volume whose node was forgotten, with a copy that is complete", { volume: saved, copy: READY }, undefined],
  ["a volume whose node was forgotten, with a copy that is not", { volume: saved }, "the volume is Lost"],
  [
    "a volume whose LV is gone, with a copy that is complete",
    { volume: held({ state: "Lost" }), copy: READY },
    undefined,
  ],
  [
    "a volume whose LV is gone, that somebody seemed to use, with a copy that is complete",
    { volume: held({ state: "Lost" }, {}, { user: "a program" }), copy: READY },
    undefined,
  ],
  ["a volume whose LV is gone, with a copy that is not", { volume: held({ state: "Lost" }) }, "the volume is Lost"],
  [
    "a volume that is neither Lost nor forgotten, with a copy that is complete",
    { volume: held({ state: "Failed" }), copy: READY },
    "the volume is Failed",
  ],
  ["a volume of another driver", { volume: volume({ driverName: "other" }) }, "does not exist, or is being deleted"],
  ["a volume on another node", { volume: volume({ nodeName: "c" }) }, "is on node c, not on node a"],
  ["a volume that is Lost", { volume: volume({}, { status: { state: "Lost" } }) }, "the volume is Lost"],
  [
    "a PersistentVolume of another claim",
    { persistentVolume: persistentVolume({ claimRef: { uid: "other" } }) },
    "is not bound to PersistentVolume pv",
  ],
  [
    "a PersistentVolume of another driver",
    {
      persistentVolume: persistentVolume({ csi: { driver: "other", volumeHandle: ID } }, {
        [PROVISIONED_BY_ANNOTATION]: "other",
      }),
    },
    "is not of volume",
  ],
  [
    "a PersistentVolume of another volume",
    { persistentVolume: persistentVolume({ csi: { driver: DRIVER, volumeHandle: "other" } }) },
    "is not of volume",
  ],
  [
    "another affinity",
    { persistentVolume: persistentVolume({ nodeAffinity: affinityTo("c", KEY) }) },
    "is not to node a alone",
  ],
];

for (const [what, objects, message] of OBJECT_REFUSALS) {
  Deno.test(`objectsRefusal() of ${what}`, () => {
    const refusal = objectsRefusal({ ...OBJECTS, ...objects }, DRIVER);
    if (message === undefined) assertEquals(refusal, undefined);
    else assertStringIncludes(refusal ?? "", message);
  });
}

function lvmNode(
  name: string,
  { free = "1Gi", validUntil = "2026-02-01T00:00:00Z", uuid = "group", sectorSize = "512" } = {},
): LvmNode {
  const physicalVolumes = [{ uuid: "pv", free }];
  const group = { name: "data", uuid, size: "1Gi", free, extentSize: "4Mi", writeable: true, missingPVCount: 0 };
  return {
    metadata: { name },
    spec: { driverName: DRIVER },
    status: {
      volumeGroups: [{ ...group, sectorSize, physicalVolumes, thinPools: [], volumes: [] }],
      transfer: { address: "1.2.3.4:1", certificate: "c", validUntil },
    },
  } as unknown as LvmNode;
}

const objectsByName = <T>(objects: Record<string, T>) => ({
  get: (name: string) => objects[name],
  list: () => Object.values(objects),
});
const csiNode = { metadata: { name: "b" }, spec: { drivers: [{ name: DRIVER, nodeID: "b", topologyKeys: [KEY] }] } };

function surroundings(more: Partial<MoveSurroundings> = {}): MoveSurroundings {
  return {
    lvmNodes: { source: lvmNode("a"), target: lvmNode("b") },
    isSilent: () => false,
    targetVolumes: [],
    storageClass: undefined,
    cluster: {
      ...{ driverName: DRIVER, topologyKey: KEY },
      nodes: objectsByName<Node>({ b: { metadata: { name: "b", labels: { [KEY]: "b" } } } }),
      csiNodes: objectsByName<CsiNode>({ b: csiNode }),
    },
    parseGroups: parseGroupList,
    now: NOW,
    ...more,
  };
}

const elsewhere = {
  allowedTopologies: [{ matchLabelExpressions: [{ key: KEY, values: ["c"] }] }],
} as unknown as StorageClass;
const carried = { lvmNodes: { source: undefined, target: lvmNode("b") } };
const adopting = { self: ADOPTION, volume: forgotten };

const SURROUNDINGS_REFUSALS: readonly [
  what: string,
  objects: Partial<MoveObjects>,
  surroundings: Partial<MoveSurroundings>,
  message: string | undefined,
][] = [
  ["nodes that can move it", {}, {}, undefined],
  ["a source without an agent", {}, carried, "node a has no agent"],
  ["a silent source", {}, { isSilent: (name) => name === "a" }, "bring the node back"],
  ["a silent target", {}, { isSilent: (name) => name === "b" }, "node b has not reported for minutes"],
  [
    "a target without transfers",
    {},
    { lvmNodes: { source: lvmNode("a"), target: lvmNode("b", { validUntil: "2025-01-01T00:00:00Z" }) } },
    "node b takes no part in transfers",
  ],
  ["a thick volume with a snapshot", { snapshots: ["s"] }, {}, "is the origin of the snapshots s"],
  [
    "a volume with checksums",
    { volume: volume({ layout: { type: "raid1", mirrors: 1, integrity: true } }) },
    {},
    "is raid1 with 1 mirror and integrity, and LVM takes no snapshots of such a volume, which it would be copied from",
  ],
  [
    "a volume with a cache",
    { volume: volume({ layout: { type: "cache", cacheSize: "8Mi" } }) },
    {},
    "is cache of 8Mi, and the driver takes no snapshots of such a volume",
  ],
  [
    "a volume with a layout that this version does not know",
    { volume: volume({ layout: { type: "raid7" } as never }) },
    {},
    "layout",
  ],
  [
    "disks that were carried, of a volume with a cache",
    {
      ...adopting,
      volume: { ...forgotten, spec: { ...forgotten.spec, layout: { type: "writecache", cacheSize: "8Mi" } } },
    },
    carried,
    undefined,
  ],
  [
    "a target without space",
    {},
    { lvmNodes: { source: lvmNode("a"), target: lvmNode("b", { free: "4Mi" }) } },
    "node b: ",
  ],
  [
    "a volume whose content could not be used on the disks of the target",
    { volume: volume({}, { status: { ...volume().status!, maximumSectorSize: "512" } }) },
    { lvmNodes: { source: lvmNode("a"), target: lvmNode("b", { sectorSize: "4Ki" }) } },
    "node b: volume group data, which it would be in, has logical sectors of",
  ],
  [
    "a volume whose content can be used on any disks",
    { volume: volume({}, { status: { ...volume().status!, maximumSectorSize: "4Ki" } }) },
    { lvmNodes: { source: lvmNode("a"), target: lvmNode("b", { sectorSize: "4Ki" }) } },
    undefined,
  ],
  [
    "a volume of which that is not known",
    {},
    { lvmNodes: { source: lvmNode("a"), target: lvmNode("b", { sectorSize: "4Ki" }) } },
    undefined,
  ],
  ["a class for other nodes", {}, { storageClass: elsewhere }, "not in the allowedTopologies"],
  ["disks that were carried", adopting, carried, undefined],
  ["disks of a node that may be alive", { self: ADOPTION }, carried, "node a is not forgotten"],
  ["disks whose node is back", adopting, {}, "node a has an agent again"],
  [
    "disks that are not there",
    adopting,
    { lvmNodes: { source: undefined, target: lvmNode("b", { uuid: "other" }) } },
    "does not report volume group data (UUID group)",
  ],
  [
    "disks on a node without an agent",
    adopting,
    { lvmNodes: { source: undefined, target: undefined } },
    "does not report",
  ],
  ["disks on a node that reports no groups", adopting, {
    lvmNodes: { source: undefined, target: { ...lvmNode("b"), status: {} } },
  }, "does not report"],
  ["a target without an agent", {}, { lvmNodes: { source: lvmNode("a"), target: undefined } }, "node b has no agent"],
  [
    "a thin volume with a snapshot and no pool",
    { volume: volume({ thinProvision: true }), snapshots: ["s"] },
    {},
    undefined,
  ],
  ["disks on a node that the class does not allow", adopting, { ...carried, storageClass: elsewhere }, "not in the"],
];

for (const [what, objects, more, message] of SURROUNDINGS_REFUSALS) {
  Deno.test(`surroundingsRefusal() of ${what}`, () => {
    const refusal = surroundingsRefusal({ ...OBJECTS, ...objects }, surroundings(more));
    if (message === undefined) assertEquals(refusal, undefined);
    else assertStringIncludes(refusal ?? "", message);
  });
}

Deno.test("surroundingsRefusal() fails as what it asks does", () => {
  const { cluster } = surroundings();
  const nodes = {
    get: () => {
      throw new TypeError("a mistake");
    },
    list: () => [],
  };
  assertThrows(() => surroundingsRefusal(OBJECTS, surroundings({ cluster: { ...cluster, nodes } })), TypeError);
});

Deno.test("blockingSnapshots() are those of the thick volume alone, with the temporary one when it is asked for", () => {
  const snapshot = (name: string, spec: Partial<LvmSnapshot["spec"]> = {}) =>
    ({
      metadata: { name },
      spec: { driverName: DRIVER, requestName: name, nodeName: "a", sourceVolume: ID, ...spec },
    }) as LvmSnapshot;
  const requestName = transferSnapshotName(copyIdOf(MOVE), 0);
  const temporary: string = snapshotIdOf(requestName);
  const all = [
    ...[snapshot("b"), snapshot("a"), snapshot(temporary, { requestName })],
    ...[snapshot("other", { sourceVolume: "other" }), snapshot("theirs", { driverName: "other" })],
  ];
  assertEquals(blockingSnapshots(MOVE, volume(), all), ["a", "b"]);
  assertEquals(blockingSnapshots(MOVE, volume(), all, { withTemporary: true }), ["a", "b", temporary].sort());
  assertEquals(blockingSnapshots(MOVE, volume({ thinProvision: true }), all), []);
  assertEquals(blockingSnapshots(MOVE, undefined, all), []);
});

Deno.test("agentsRefusal() says of a silent source that only its disks have the data", () => {
  const silent = (name: string) => ({ ...surroundings(), isSilent: (node: string) => node === name });
  const away = "has not reported for minutes";
  const restore = ". The data are on its disks alone: bring the node back, or restore a backup";
  assertEquals(agentsRefusal(MOVE, silent("a")), `the agent of node a ${away}${restore}`);
  assertEquals(agentsRefusal(MOVE, silent("b")), `the agent of node b ${away}`);
  assertEquals(agentsRefusal(MOVE, { ...surroundings(), ...carried }), "node a has no agent of the driver");
  assertEquals(agentsRefusal(MOVE, surroundings()), undefined);
  assertEquals(agentAbsence("a", lvmNode("a"), () => false), undefined);
});

Deno.test("copyRequestOf() asks for a volume of the same kind and size, filled from it", () => {
  const { id, name, range, source, sourceNode } = copyRequestOf(MOVE, volume({ sourceNode: "c" }), parseGroupList);
  assertEquals([id, name, source, sourceNode], [
    copyIdOf(MOVE),
    "denolith-move-m",
    { kind: "volume", id: ID as never },
    undefined,
  ]);
  assertEquals(range, { required: 32n << 20n });
  const pending = volume({ size: "16Mi" }, { status: {} });
  assertEquals(copyRequestOf(MOVE, pending, parseGroupList).range, { required: 16n << 20n });
});
