/**
 * Plays what the suites of the official provisioner and of its library ask of a running provisioner: there are objects, the
 * provisioner starts, and calls the driver.
 *
 * @module
 */

import {
  events,
  type KubeObject,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type StorageClass,
} from "../../k8s/api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { SELECTED_NODE_ANNOTATION, selectedNodeOf } from "../../k8s/provisioner/claim.ts";
import { SNAPSHOT_SOURCE_FINALIZER } from "../../k8s/provisioner/cloning_protection.ts";
import { CLONING_FINALIZER } from "../../k8s/provisioner/content_source.ts";
import { VOLUME_FINALIZER } from "../../k8s/provisioner/persistent_volume.ts";
import { Provisioner } from "../../k8s/provisioner/provisioner.ts";
import type { CreateVolumeRequest, DeleteVolumeRequest } from "../../k8s/sidecars/csi_client.ts";
import { DRIVER, FakeControlPlane, TOPOLOGY_KEY } from "../fake/cluster/control_plane.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
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

/** What is looked at. */
interface Look {
  /** Says in words what is true of it. */
  words(s: FakeControlPlane): string;
  /** Adds another object of its kind, which the provisioner reaches after it. */
  addNext(s: FakeControlPlane): unknown;
  /** Reports whether the provisioner has reached that. */
  isNextReached(s: FakeControlPlane): boolean;
}

const LOOKS = {
  /** The claim: its phase, and the node that is chosen for it. */
  claim: {
    words: (s) => {
      const claim = s.storedClaim();
      const node = claim && selectedNodeOf(claim);
      return claim === undefined ? "gone" : `${claim.status?.phase}${node === undefined ? "" : ` on ${node}`}`;
    },
    addNext: (s) => s.addClaim("next", { storageClassName: "now" }),
    isNextReached: (s) => s.api.objects(events).some(isAboutNext),
  },
  /** The PersistentVolume `pv`. */
  volume: {
    words: (s) => {
      const volume = s.storedVolumes.find(({ metadata }) => metadata.name === "pv");
      return volume === undefined ? "gone" : `${volume.status?.phase}${isHeld(volume, VOLUME_FINALIZER)}`;
    },
    addNext: (s) => {
      const spec = { persistentVolumeReclaimPolicy: "Delete", csi: { driver: DRIVER, volumeHandle: "next" } };
      s.api.put(persistentVolumes, { metadata: { name: "next" }, spec, status: { phase: "Released" } });
    },
    isNextReached: (s) => !s.storedVolumes.some(({ metadata }) => metadata.name === "next"),
  },
  /** The claim `source`, from which others are cloned. */
  source: {
    words: (s) => {
      const claim = s.storedClaim("source");
      return claim === undefined ? "gone" : `there${isHeld(claim, CLONING_FINALIZER)}`;
    },
    addNext: async (s) => {
      const metadata = { name: "next", namespace: "default", finalizers: [CLONING_FINALIZER] };
      s.api.put(persistentVolumeClaims, { metadata });
      await s.remove(persistentVolumeClaims, metadata);
    },
    isNextReached: (s) => s.storedClaim("next") === undefined,
  },
  /** The VolumeSnapshot `source`. They are listed once, in the order of their names. */
  snapshot: {
    words: (s) => {
      const snapshot = s.api.objects(volumeSnapshots).find(({ metadata }) => metadata.name === "source");
      return snapshot === undefined ? "gone" : `there${isHeld(snapshot, SNAPSHOT_SOURCE_FINALIZER)}`;
    },
    addNext: (s) => {
      const at = { name: "z-next", namespace: "default" };
      const spec = { driver: DRIVER, deletionPolicy: "Delete", source: {}, volumeSnapshotRef: at } as const;
      s.api.put(volumeSnapshotContents, { metadata: { name: "next" }, spec });
      s.api.put(volumeSnapshots, {
        metadata: { ...at, finalizers: [SNAPSHOT_SOURCE_FINALIZER] },
        status: { boundVolumeSnapshotContentName: "next" },
      });
    },
    isNextReached: (s) => !s.api.objects(volumeSnapshots).some(isHeldNext),
  },
} satisfies Record<string, Look>;

function isAboutNext({ involvedObject }: { involvedObject?: { name?: string } }): boolean {
  return involvedObject?.name === "next";
}

function isHeldNext(snapshot: KubeObject): boolean {
  return snapshot.metadata.name === "z-next" && isHeld(snapshot, SNAPSHOT_SOURCE_FINALIZER) !== "";
}

function isHeld({ metadata }: KubeObject, finalizer: string): string {
  return metadata.finalizers?.includes(finalizer) ? ", protected" : "";
}

/** Says in words what a call asks for: the node, where there is one alone, the source, and whether there is a secret. */
function wordsOfCall(request: CreateVolumeRequest | DeleteVolumeRequest): string {
  const secret = Object.keys(request.secrets).length > 0 ? " with a secret" : "";
  if (!("claim" in request)) return `delete${secret}`;
  const [node, ...others] = request.topology.requisite.map((segments) => segments[TOPOLOGY_KEY]);
  const { source, mutableParameters } = request;
  const attributes = Object.entries(mutableParameters).map(([name, value]) => ` with ${name}=${value}`);
  return [
    ...["create", others.length === 0 && ` on ${node}`, source && ` from ${source.handle}`],
    ...[...attributes, secret],
  ].filter(Boolean).join("");
}

/** What there is when a provisioner starts, and what happens then. */
export interface Situation {
  /** Fields of the claim `data`, of the class `c`; `null` when there is none. */
  readonly claim?: Partial<NonNullable<PersistentVolumeClaim["spec"]>> | null;
  /** The node that the scheduler has chosen for it; by default, the class does not wait for one. */
  readonly node?: string;
  readonly storageClass?: Partial<StorageClass>;
  /** The secret that the class names for creating volumes. */
  readonly secret?: Secret;
  /** Adds other objects. */
  readonly objects?: (s: FakeControlPlane) => unknown;
  /** How the first calls of the driver fail. */
  readonly answers?: readonly FailureCode[];
  /** What happens during the first call. */
  readonly during?: (s: FakeControlPlane) => unknown;
  /** What the API server refuses so often, with this status. */
  readonly refuses?: readonly [request: string, status: number, times: number];
  readonly retries?: true;
  /** What is looked at in the end; the claim, by default. */
  readonly looksAt?: keyof typeof LOOKS;
}

/** What came of it: the calls of the driver, what is true of the object that is looked at, and its warnings. */
export type Outcome = readonly [calls: string, words: string, says: string];

/** Returns a row that is simulated. Of what is said, a part is wanted. */
export function simulated(asks: string, situation: Situation, wanted: Outcome, differs?: string): Row {
  return [asks, () => play(situation, wanted), wanted, differs];
}

async function play(situation: Situation, wanted: Outcome): Promise<Outcome> {
  const { claim = {}, node, storageClass, secret, looksAt = "claim" } = situation;
  const looks: Look = LOOKS[looksAt];
  await using s = await FakeControlPlane.start();
  for (const kind of [volumeSnapshots, volumeSnapshotContents]) s.api.addResource(kind);
  const volumeBindingMode = node === undefined ? "Immediate" : "WaitForFirstConsumer";
  const parameters = {
    ...storageClass?.parameters,
    ...secretKeys(s.api, "csi.storage.k8s.io/provisioner-secret", secret),
  };
  s.addStorageClass("c", { volumeBindingMode, ...storageClass, parameters });
  const annotations = node === undefined ? {} : { [SELECTED_NODE_ANNOTATION]: node };
  await situation.objects?.(s);
  if (claim !== null) s.addClaim("data", { storageClassName: "c", ...claim }, { annotations });

  const calls: string[] = [];
  const answers = [...situation.answers ?? []];
  const onCall = async (_: string, request: CreateVolumeRequest | DeleteVolumeRequest) => {
    if (("claim" in request ? request.claim.name : request.volumeId) === "next") return;
    calls.push(wordsOfCall(request));
    if (calls.length === 1) await situation.during?.(s);
    const answer = answers.shift();
    if (answer !== undefined) throw failure(answer);
  };
  const [refused, status, count] = situation.refuses ?? ["", 0, 0];
  let times = count;
  const options = s.controllerOptions("loop", (client) =>
    interceptClient(client, (request, when) => {
      if (request !== refused || when === "after" || times-- <= 0) return Promise.resolve();
      return Promise.reject(new ApiError("refused by the row", { status, reason: "Refused" }));
    }));
  const provisioner = new Provisioner({
    ...options,
    csi: beforeCalls(s.driver, onCall),
    backoff: backoffOf(situation),
    missingKindRetryMs: 5,
  });
  const outcome = (): Outcome => {
    const said = s.api.objects(events).filter((one) => !isAboutNext(one))
      .map(({ reason, message }) => `${reason}: ${message}`).filter((one) => !one.startsWith("ProvisioningSucceeded"));
    const says = said.find((one) => wanted[2] !== "" && one.includes(wanted[2])) === undefined
      ? said.join()
      : wanted[2];
    return [calls.join(", "), looks.words(s), says];
  };
  if (looksAt === "snapshot") looks.addNext(s);
  s.run((signal) => provisioner.run(signal));
  await outcomeWhenSettled(outcome, wanted);
  // a claim takes several requests, so those about the object before it have ended by then
  for (const next of new Set([looks, LOOKS.claim])) {
    if (next !== LOOKS.snapshot) await next.addNext(s);
    await outcomeWhenSettled(() => next.isNextReached(s), true);
  }
  return outcome();
}
