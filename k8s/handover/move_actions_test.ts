import { assertEquals, assertRejects } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { heldConditions } from "../api/volume_conditions.ts";
import {
  CREATED_ANNOTATION,
  FORGOTTEN_ANNOTATION,
  LVM_VOLUME_FINALIZER,
  type LvmSnapshot,
  type LvmVolume,
  MOVE_ANNOTATION,
  PENDING_ANNOTATION,
  RECLAIM_POLICY_ANNOTATION,
  REMOVE_ANNOTATION,
} from "../api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../api/objects.ts";
import { carryOut } from "./move_actions.ts";
import {
  copyIdOf,
  type LvmMove,
  type LvmMoveStatus,
  MOVE_FINALIZER,
  type MoveObjects,
  type OwnMoveStep,
} from "./moves.ts";
import { affinityTo, recordOf } from "./persistent_volume.ts";
import { HELD_COW } from "./copy_mode.ts";

const NAME = `v1-${"a".repeat(32)}`;
const NOW = new Date("2026-01-02T03:04:05Z");

const MOVE: LvmMove = {
  metadata: { name: NAME, uid: "m", resourceVersion: "1", finalizers: ["other", MOVE_FINALIZER] },
  spec: {
    ...{ driverName: "d", persistentVolume: "pv", claim: { namespace: "n", name: "c", uid: "u" } },
    ...{ sourceNode: "a", targetNode: "b" },
  },
};
const COPY = copyIdOf(MOVE);
const GOAL = { round: 1, name: transferSnapshotName(COPY, 1, 7), last: true, base: snapshotIdOf("base") };
const LAST = { ...GOAL, snapshot: snapshotIdOf(GOAL.name) };
const withStatus = (status: LvmMoveStatus): LvmMove => ({ ...MOVE, status });

const VOLUME = {
  metadata: {
    name: NAME,
    ...{ uid: "v", resourceVersion: "2", generation: 7, labels: { tier: "gold" } },
    annotations: {
      ...{ [MOVE_ANNOTATION]: "m", [REMOVE_ANNOTATION]: "true", [FORGOTTEN_ANNOTATION]: "dead" },
      ...{ [PENDING_ANNOTATION]: "true", [CREATED_ANNOTATION]: "true", note: "kept" },
    },
  },
  spec: {
    ...{ driverName: "d", requestName: "pv", nodeName: "a", size: "32Mi", volumeGroupPreference: "mostFree" },
    ...{
      volumeMode: "Block",
      shared: false,
      erase: "none",
      held: true,
      source: { volume: `v1-${"b".repeat(32)}` },
      sourceNode: "c",
    },
  },
  status: { state: "Ready", lvUUID: "lv", size: "32Mi" },
} as unknown as LvmVolume;
VOLUME.status!.conditions = heldConditions(VOLUME, {});
const READY = {
  metadata: { name: COPY, uid: "k", resourceVersion: "3", finalizers: [LVM_VOLUME_FINALIZER, "other"] },
  spec: { nodeName: "b", copy: { round: 1, snapshot: LAST.snapshot, base: LAST.base, last: true } },
  status: { state: "Ready", lvUUID: "b" },
} as unknown as LvmVolume;
const PV = {
  metadata: { name: "pv", uid: "p", resourceVersion: "4", finalizers: ["kubernetes.io/pv-protection", "other/one"] },
  spec: { nodeAffinity: affinityTo("a", "k"), persistentVolumeReclaimPolicy: "Delete", claimRef: { uid: "u" } },
} as unknown as PersistentVolume;
const RECORDED = withStatus({ persistentVolume: recordOf(PV) });

/** What an API server says that lets nobody change the affinity. */
const IMMUTABLE =
  'PersistentVolume "pv" is invalid: nodeAffinity: Invalid value: {"Required":{}}: field is immutable, ' +
  "except for updating from beta label to GA";
/** What an admission policy says, with the same status. */
const POLICY =
  'persistentvolumes "pv" is forbidden: ValidatingAdmissionPolicy "p" denied request: affinity is immutable';

interface Options {
  readonly objects?: Partial<MoveObjects>;
  /** The object that the API server has of the copy. */
  readonly copy?: LvmVolume | "none";
  /** What a patch fails with. */
  readonly refusal?: number;
  /** Why it fails. */
  readonly why?: string;
}

/** Carries out a step, and returns what was written, one line each. */
async function writesOf(
  step: OwnMoveStep,
  { objects = {}, copy = READY, refusal, why = IMMUTABLE }: Options = {},
): Promise<string[]> {
  const writes: string[] = [];
  const json = (value: unknown) => JSON.stringify(value);
  const client = {
    get: () =>
      copy === "none"
        ? Promise.reject(new ApiError("gone", { status: 404, reason: "NotFound" }))
        : Promise.resolve(copy),
    patch: (
      { plural }: { plural: string },
      { name }: { name: string },
      options: { dryRun?: boolean; subresource?: string },
    ) => {
      writes.push(`patch ${plural} ${name} ${json(options)}`);
      const isRefused = refusal !== undefined && options.subresource === undefined;
      return isRefused
        ? Promise.reject(new ApiError(why, { status: refusal, reason: "Invalid" }))
        : Promise.resolve({});
    },
    delete: ({ plural }: { plural: string }, { name }: { name: string }, options: object) => {
      writes.push(`delete ${plural} ${name} ${json(options)}`);
      return Promise.resolve();
    },
    create: ({ plural }: { plural: string }, object: object) => {
      writes.push(`create ${plural} ${json(object)}`);
      return Promise.resolve(object);
    },
  } as unknown as ApiClient;
  const all: MoveObjects = {
    ...{ self: MOVE, volume: VOLUME, copy: READY, persistentVolume: PV, claim: {} as PersistentVolumeClaim },
    ...{ snapshots: [], temporary: [], isSnapshotted: false, hasSpaceForSnapshot: true, topologyKey: "k", ...objects },
  };
  await carryOut(step, all, {
    ...{ client, topologyKey: "k", parseGroups: parseGroupList, now: NOW },
    volumes: {
      begin: ({ id, goal }, { allowed }) =>
        Promise.resolve(void writes.push(`begin ${id} ${goal.snapshot} ${allowed}`)),
      delete: (id, { uid, onlyIf } = {}) => {
        const released = { ...VOLUME, spec: { ...VOLUME.spec, held: false } };
        const guard = onlyIf && `if held: ${onlyIf(VOLUME)}, ${onlyIf(released)}`;
        return Promise.resolve(void writes.push(`delete volume ${id} ${uid} ${guard ?? "always"}`));
      },
    },
    transfers: {
      take: ({ name, source, cowSize }, { volume, node }) =>
        Promise.resolve(
          void writes.push(
            `take ${name} of ${source} ${
              cowSize === HELD_COW ? "small" : cowSize === FULL_COW ? "full" : "?"
            } for ${volume} ${node}`,
          ),
        ),
      discard: (id) => Promise.resolve(void writes.push(`discard ${id}`)),
    },
  });
  return writes;
}

const status = (value: object) => [
  `patch lvmmoves ${NAME} ${JSON.stringify({ merge: { status: value }, resourceVersion: "1", subresource: "status" })}`,
];
const patched = (plural: string, name: string, merge: object, resourceVersion: string) => [
  `patch ${plural} ${name} ${JSON.stringify({ merge, resourceVersion })}`,
];
const TAKEN = `take ${GOAL.name} of ${NAME} small for ${COPY} b`;

const STEPS: readonly [step: OwnMoveStep, options: Options, writes: readonly string[]][] = [
  [
    { do: "hold" },
    {},
    patched("lvmvolumes", NAME, { metadata: { annotations: { [MOVE_ANNOTATION]: "m" } }, spec: { held: true } }, "2"),
  ],
  [
    { do: "release" },
    {},
    patched("lvmvolumes", NAME, {
      metadata: { annotations: { [MOVE_ANNOTATION]: null, "lvm.denolith.dev/remove": null } },
      spec: { held: null },
    }, "2"),
  ],
  [
    { do: "release" },
    { objects: { volume: { ...VOLUME, metadata: { ...VOLUME.metadata, deletionTimestamp: "now" } } } },
    patched("lvmvolumes", NAME, { metadata: { annotations: { [MOVE_ANNOTATION]: null } }, spec: { held: null } }, "2"),
  ],
  [{ do: "copy", goal: LAST }, {}, [`begin ${COPY} ${LAST.snapshot} b`, TAKEN]],
  [{ do: "take snapshot", goal: { ...LAST, last: false } }, {}, [TAKEN.replace("small", "full")]],
  [{ do: "difference", goal: LAST }, {}, [
    TAKEN,
    ...patched("lvmvolumes", COPY, {
      spec: { copy: { round: 1, snapshot: LAST.snapshot, base: LAST.base, last: true } },
    }, "3"),
  ]],
  [
    { do: "discard snapshots" },
    { objects: { temporary: ["s", "t"].map((name) => ({ metadata: { name } }) as LvmSnapshot) } },
    ["discard s", "discard t"],
  ],
  [{ do: "go offline", reason: "full" }, {}, status({ copyMode: "Offline", offlineReason: "full" })],
  [{ do: "delete copy" }, {}, [`delete volume ${COPY} k always`]],
  [
    { do: "patch affinity", node: "b" },
    {},
    patched("persistentvolumes", "pv", { spec: { nodeAffinity: affinityTo("b", "k") } }, "4"),
  ],
  [{ do: "patch affinity", node: "b" }, { refusal: 422 }, [
    ...patched("persistentvolumes", "pv", { spec: { nodeAffinity: affinityTo("b", "k") } }, "4"),
    ...status({ affinityMethod: "Recreate" }),
  ]],
  [{ do: "remove source" }, {}, [`delete volume ${NAME} v if held: true, false`]],
  [{ do: "remove source" }, { copy: "none" }, []],
  [{ do: "remove source" }, { copy: { ...READY, status: { state: "Lost" } } as LvmVolume }, []],
  [{ do: "remove source" }, { copy: { ...READY, metadata: { ...READY.metadata, uid: "other" } } }, []],
  [
    { do: "remove source" },
    { copy: "none", objects: { volume: { ...VOLUME, metadata: { ...VOLUME.metadata, deletionTimestamp: "now" } } } },
    [`delete volume ${NAME} v always`],
  ],
  [
    { do: "remove source" },
    {
      copy: "none",
      objects: {
        self: { ...MOVE, spec: { ...MOVE.spec, adopt: true } },
        volume: { ...VOLUME, metadata: { ...VOLUME.metadata, finalizers: [LVM_VOLUME_FINALIZER] } },
      },
    },
    [...patched("lvmvolumes", NAME, { metadata: { finalizers: [] } }, "2"), `delete lvmvolumes ${NAME} {"uid":"v"}`],
  ],
  [
    { do: "stop removing", error: { code: "FailedPrecondition", message: "gone" } },
    {},
    status({
      ...{ removing: null, volume: null, error: { code: "FailedPrecondition", message: "gone" } },
      ...{ state: "Undoing", message: "gone" },
    }),
  ],
  [{ do: "forget copy" }, {}, [
    ...patched("lvmvolumes", COPY, { metadata: { finalizers: ["other"] } }, "3"),
    `delete lvmvolumes ${COPY} {"uid":"k"}`,
  ]],
  [
    { do: "forget copy" },
    { objects: { copy: { ...READY, metadata: { ...READY.metadata, finalizers: [] } } } },
    [`delete lvmvolumes ${COPY} {"uid":"k"}`],
  ],
  [
    { do: "finish", state: "Complete" },
    {},
    status({ state: "Complete", releasedTime: "2026-01-02T03:04:05Z", message: "" }),
  ],
];

for (const [index, [step, options, expected]] of STEPS.entries()) {
  Deno.test(`carryOut() of ${step.do} (${index}) writes objects only as they were read`, async () => {
    const writes = (await writesOf(step, options)).map((line) => line.replaceAll("undefined", ""));
    assertEquals(writes, expected);
  });
}

Deno.test("carryOut() records how the affinity can be changed, records the volume before its removal, and creates it on the target", async () => {
  const record = async (refusal?: number) =>
    (await writesOf({ do: "record" }, refusal === undefined ? {} : { refusal })).at(-1)!;
  assertEquals((await writesOf({ do: "record" }))[0]!.includes('"dryRun":true'), true);
  assertEquals((await record()).includes('"affinityMethod":"Patch"'), true);
  assertEquals((await record(422)).includes('"affinityMethod":"Recreate"'), true);
  await assertRejects(() => writesOf({ do: "record" }, { refusal: 500 }), ApiError);
  await assertRejects(() => writesOf({ do: "patch affinity", node: "b" }, { refusal: 500 }), ApiError);
  const denied = { refusal: 422, why: POLICY };
  await assertRejects(() => writesOf({ do: "record" }, denied), ApiError, "denied request");
  await assertRejects(() => writesOf({ do: "patch affinity", node: "b" }, denied), ApiError, "denied request");
  const [begun] = await writesOf({ do: "begin removing" });
  const { merge: { status: { removing, volume } } } = JSON.parse(begun!.slice(begun!.indexOf("{")));
  assertEquals([removing, volume.metadata], [true, { labels: { tier: "gold" }, annotations: { note: "kept" } }]);
  const [created] = await writesOf({ do: "create volume" }, {
    objects: { self: withStatus({ removing: true, volume }) },
  });
  const object = JSON.parse(created!.slice(created!.indexOf("{")));
  assertEquals(object.metadata, { ...volume.metadata, name: NAME, finalizers: [LVM_VOLUME_FINALIZER] });
  assertEquals([object.spec.nodeName, object.spec.adoptsVolume, object.spec.held], ["b", COPY, undefined]);
  assertEquals([object.spec.source, object.spec.sourceNode], [undefined, undefined]);
  const adopt = { ...withStatus({ removing: true, volume }), spec: { ...MOVE.spec, adopt: true } };
  const [adopted] = await writesOf({ do: "create volume" }, { objects: { self: adopt } });
  assertEquals(JSON.parse(adopted!.slice(adopted!.indexOf("{"))).spec.adoptsVolume, NAME);
  const [pv] = await writesOf({ do: "create persistent volume", node: "b" }, { objects: { self: RECORDED } });
  const { metadata, spec } = JSON.parse(pv!.slice(pv!.indexOf("{")));
  assertEquals([metadata.name, spec.nodeAffinity, spec.persistentVolumeReclaimPolicy], [
    "pv",
    affinityTo("b", "k"),
    "Retain",
  ]);
  assertEquals(metadata.annotations, { [MOVE_ANNOTATION]: "m", [RECLAIM_POLICY_ANNOTATION]: "Delete" });
});
