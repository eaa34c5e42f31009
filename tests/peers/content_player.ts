/**
 * Plays what the suites of the official snapshotter ask: there is a content, a snapshotter starts, and calls the driver.
 *
 * @module
 */

import {
  volumeGroupSnapshotClasses,
  volumeGroupSnapshotContents,
  volumeSnapshotClasses,
  volumeSnapshotContents,
} from "../../k8s/api/snapshot_objects.ts";
import type { Backoff } from "../../base/clock.ts";
import type { KubeObject, Resource } from "../../k8s/api/objects.ts";
import type { SnapshotOwnerKind } from "../../k8s/sidecars/class_parameters.ts";
import { groupSnapshotRules } from "../../k8s/snapshotter/group_content.ts";
import { snapshotRules } from "../../k8s/snapshotter/snapshot_content.ts";
import { DRIVER, type FakeControlPlane } from "../fake/cluster/control_plane.ts";
import { GroupControlPlane } from "../fake/cluster/group_control_plane.ts";
import { SnapshotControlPlane } from "../fake/cluster/snapshot_control_plane.ts";
import {
  backoffOf,
  beforeCalls,
  failure,
  type FailureCode,
  outcomeWhenSettled,
  type Row,
  type Secret,
  secretKeys,
} from "./rows.ts";

/** What holds for a content, or for the snapshot that it is for, when a snapshotter starts. */
export type Word =
  /** The snapshot was there before: `given`; and no owner has taken the content: `unbound`. */
  | "given"
  | "unbound"
  /** The driver does not have the snapshot. */
  | "unknown"
  /** The status has its handle: `taken`, and says that it is ready. */
  | "taken"
  | "ready"
  /** The status has an error. */
  | "failed"
  /** It was requested, and the outcome is not known. */
  | "marked"
  /** The owner of the content is being deleted: `released`; the content itself is: `deleted`. */
  | "released"
  | "deleted"
  /** The content lacks the finalizer, or has another one. */
  | "unprotected"
  | "held"
  /** It belongs to a group snapshot, as an annotation, or the status, says. */
  | "member"
  | "member by status";

/** What there is. */
export interface Situation {
  readonly is?: readonly Word[];
  /** Fields of the content's spec. */
  readonly spec?: Record<string, unknown>;
  readonly classParameters?: Record<string, string>;
  /** The secret that the content names, and the one that its class names for looking for a snapshot. */
  readonly secret?: Secret;
  readonly lookupSecret?: Secret;
  /** The driver's answers to the next calls: a code of gRPC, an error without one, or whether the snapshot is ready. */
  readonly answers?: readonly (FailureCode | "ready" | "unready")[];
  readonly retries?: true;
}

/** A cluster with one kind of contents and a driver that takes their snapshots. */
interface Harness extends AsyncDisposable {
  readonly controlPlane: FakeControlPlane;
  /** Starts a snapshotter. @param wrap wraps the driver */
  run(wrap: <T extends object>(driver: T) => T, backoff: Backoff): void;
  /** Gives the driver the snapshot `given`. */
  addGiven(): void;
  setReady(ready: boolean): void;
}

/** What differs between the kinds of contents. */
export interface Kind {
  start(): Promise<Harness>;
  readonly contents: Resource;
  readonly classes: Resource;
  readonly traits: Pick<typeof snapshotRules.traits, "finalizer" | "beingCreated" | "beingDeleted" | "deletionSecret">;
  readonly ownerKind: SnapshotOwnerKind;
  /** The beginning of the parameters that name the secret for looking for a snapshot. */
  readonly lookup: string;
  readonly fields: { readonly owner: string; readonly className: string; readonly handle: string };
  readonly source: object;
  readonly given: object;
  /** The status of a content whose snapshot was taken. */
  readonly taken: object;
}

/** Snapshots. */
export const SNAPSHOTS: Kind = {
  start: async () => {
    const s = await SnapshotControlPlane.start();
    return {
      controlPlane: s.controlPlane,
      run: (wrap, backoff) => void s.run({ ...s.options(), csi: wrap(s.driver), backoff }),
      addGiven: () => void s.driver.snapshots.set("given", { ready: true, request: null! }),
      setReady: (ready) => {
        s.driver.snapshotsReady = ready;
        for (const snapshot of s.driver.snapshots.values()) snapshot.ready = ready;
      },
      [Symbol.asyncDispose]: () => s[Symbol.asyncDispose](),
    };
  },
  contents: volumeSnapshotContents,
  classes: volumeSnapshotClasses,
  traits: snapshotRules.traits,
  ownerKind: "VolumeSnapshot",
  lookup: "csi.storage.k8s.io/snapshotter-list-secret",
  fields: { owner: "volumeSnapshotRef", className: "volumeSnapshotClassName", handle: "snapshotHandle" },
  source: { volumeHandle: "v1" },
  given: { snapshotHandle: "given" },
  taken: { snapshotHandle: "given", creationTime: 1, restoreSize: 1 },
};

/** Group snapshots. */
export const GROUPS: Kind = {
  start: async () => {
    const s = await GroupControlPlane.start();
    return {
      controlPlane: s.controlPlane,
      run: (wrap, backoff) => void s.run({ ...s.options(), csi: wrap(s.driver), backoff }),
      addGiven: () => void s.driver.groups.set("given", { name: "x", volumeIds: ["a"], parameters: {}, secrets: {} }),
      setReady: (ready) => void (s.driver.ready = ready),
      [Symbol.asyncDispose]: () => s[Symbol.asyncDispose](),
    };
  },
  contents: volumeGroupSnapshotContents,
  classes: volumeGroupSnapshotClasses,
  traits: groupSnapshotRules.traits,
  ownerKind: "VolumeGroupSnapshot",
  lookup: "csi.storage.k8s.io/group-snapshotter-get-secret",
  fields: {
    owner: "volumeGroupSnapshotRef",
    className: "volumeGroupSnapshotClassName",
    handle: "volumeGroupSnapshotHandle",
  },
  source: { volumeHandles: ["a", "b"] },
  given: { groupSnapshotHandles: { volumeGroupSnapshotHandle: "given", volumeSnapshotHandles: ["snapshot-of-a"] } },
  taken: {
    volumeGroupSnapshotHandle: "given",
    creationTime: "2026-01-01T00:00:00Z",
    volumeSnapshotInfoList: [{ volumeHandle: "a", snapshotHandle: "snapshot-of-a" }],
  },
};

/** The name of the annotation by which the snapshot-controller says that a snapshot belongs to a group. */
const MEMBER = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";

/** Puts the content of a situation, and its class, into a cluster. */
async function addContent(s: Harness, kind: Kind, situation: Situation): Promise<void> {
  const { is = [], spec = {}, classParameters = {}, secret, lookupSecret } = situation;
  const { api, client } = s.controlPlane;
  const { finalizer, beingCreated, beingDeleted, deletionSecret } = kind.traits;
  const has = (word: Word) => is.includes(word);
  if (!has("unknown")) s.addGiven();
  const parameters = { ...classParameters, ...secretKeys(api, kind.lookup, lookupSecret) };
  const owner = { namespace: "default", name: "owner", ...(!has("unbound") && { uid: "uid" }) };
  const put = (resource: Resource, object: object) => api.put<KubeObject>(resource, object as KubeObject);
  put(kind.classes, { metadata: { name: "c" }, driver: DRIVER, parameters });
  put(kind.classes, { metadata: { name: "foreign" }, driver: "other.example" });
  put(kind.classes, { metadata: { name: "next" }, driver: DRIVER });
  put(kind.contents, {
    metadata: {
      name: "content",
      finalizers: [...has("unprotected") ? [] : [finalizer], ...has("held") ? ["example.com/other"] : []],
      annotations: {
        ...(has("marked") && { [beingCreated]: "yes" }),
        ...(has("released") && { [beingDeleted]: "yes" }),
        ...(has("member") && { [MEMBER]: "g" }),
        ...secretKeys(api, deletionSecret, secret),
      },
    },
    spec: {
      driver: DRIVER,
      deletionPolicy: "Delete",
      [kind.fields.className]: "c",
      source: has("given") || has("unbound") ? kind.given : kind.source,
      [kind.fields.owner]: owner,
      ...spec,
    },
    status: {
      ...((has("taken") || has("ready")) && { ...kind.taken, readyToUse: has("ready") }),
      ...(has("failed") && { readyToUse: false, error: { message: "no", time: "2026-01-01T00:00:00Z" } }),
      ...(has("member by status") && { volumeGroupSnapshotHandle: "g" }),
    },
  });
  if (has("deleted")) await client.delete(kind.contents, { name: "content" });
}

/** What came of a situation: the calls of the driver, what is true of the content, and the reasons of its events. */
export type Outcome = readonly [calls: string, content: string, events: string];

/** Plays a situation until the wanted outcome is there, and the snapshotter has seen another content after it. */
async function play(kind: Kind, situation: Situation, wanted: unknown): Promise<Outcome> {
  await using s = await kind.start();
  const calls: string[] = [];
  const answers = [...situation.answers ?? []];
  const onCall = (call: string, { name, secrets }: { name?: string; secrets: object }) => {
    if (name?.endsWith("next")) return;
    const [word] = /^[a-z]+/.exec(call)!;
    calls.push(Object.keys(secrets).length > 0 ? `${word} with a secret` : word);
    const answer = answers.shift();
    if (answer === "ready" || answer === "unready") s.setReady(answer === "ready");
    else if (answer !== undefined) throw failure(answer);
  };
  await addContent(s, kind, situation);
  const of = (name: string) => s.controlPlane.api.objects(kind.contents).find(({ metadata }) => metadata.name === name);
  const outcome = (): Outcome => {
    const reasons = s.controlPlane.eventReasons().map((reason) => reason.replace(/^Group/, ""));
    return [calls.join(", "), wordsOf(kind, of("content")), [...new Set(reasons)].join()];
  };
  s.run((driver) => beforeCalls(driver, onCall), backoffOf(situation));
  await outcomeWhenSettled(outcome, wanted);
  s.controlPlane.api.put<KubeObject>(kind.contents, {
    metadata: { name: "next", finalizers: [kind.traits.finalizer] },
    spec: {
      ...{ driver: DRIVER, deletionPolicy: "Delete", source: kind.source, [kind.fields.className]: "next" },
      [kind.fields.owner]: { namespace: "default", name: "next", uid: "next" },
    },
  } as KubeObject);
  await outcomeWhenSettled(() => /taken/.test(wordsOf(kind, of("next"))), true);
  return outcome();
}

/** Returns what makes rows that are simulated with a kind. */
export function rowsPlayedWith(kind: Kind) {
  return (asks: string, situation: Situation, wanted: Outcome, differs?: string): Row => [
    asks,
    (wanted) => play(kind, situation, wanted),
    wanted,
    differs,
  ];
}

/** Says in words what is true of a content. A group snapshot lists its snapshots, which are counted. */
function wordsOf({ traits, fields }: Kind, content: KubeObject | undefined): string {
  if (content === undefined) return "gone";
  const { metadata: { finalizers = [], annotations = {} }, status = {} } = content as KubeObject & {
    status?: Record<string, unknown>;
  };
  const { [fields.handle]: handle, readyToUse, error, volumeSnapshotInfoList: list } = status;
  return [
    !finalizers.includes(traits.finalizer) && "unprotected",
    annotations[traits.beingCreated] !== undefined && "marked",
    handle !== undefined && "taken",
    Array.isArray(list) && `${list.length} listed`,
    readyToUse !== undefined && (readyToUse ? "ready" : "unready"),
    error !== undefined && "failed",
  ].filter(Boolean).join(" ");
}
