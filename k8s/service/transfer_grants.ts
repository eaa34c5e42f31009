/**
 * Renews the permissions to read snapshots while volumes are filled from them, and withdraws them afterwards. Deletes the
 * temporary snapshots that are not needed any more.
 *
 * It gives no permission: the LVMVolume of a volume may be written by the agent of its node, so it is no reason for one.
 *
 * @module
 */

import type { ReconcileOutcome } from "../runtime/controller.ts";
import { systemClock } from "../../base/clock.ts";
import { remoteSnapshotOf } from "../../lvm/copies/fetch.ts";
import { ignoreStorageError } from "../../base/error.ts";
import { parseSnapshotId, type SnapshotId } from "../../base/ids.ts";
import { type LvmSnapshot, lvmSnapshots, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import {
  formatGrant,
  grantAnnotation,
  grantsOf,
  type TransferGrant,
  transferredVolumeOf,
  transferRoundOf,
} from "../api/transfers.ts";
import { contentSourceOf } from "../api/volume_mapping.ts";
import { orAbsent, orAbsentOrChanged } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { ClusterSnapshots } from "./cluster_snapshots.ts";
import { isCreated } from "./stored_volume.ts";
import { GRANT_MS } from "./transfers.ts";

/** Options of {@linkcode TransferGrants}. */
export interface TransferGrantsOptions extends SidecarOptions {
  /** All LVMSnapshots. */
  readonly snapshots: Informer<LvmSnapshot>;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
  /** Deletes the temporary snapshots. */
  readonly deleted: () => Pick<ClusterSnapshots, "delete">;
}

/** The time from a change of a grant, after which it is looked at again, in milliseconds. */
const RECHECK_MS = 60_000;

/** What becomes of a grant. */
type GrantDecision = "keep" | "renew" | "withdraw";

/**
 * Decides what becomes of a grant.
 *
 * @param target the volume that is filled; `undefined` when there is none, or none yet
 * @param now the time, in milliseconds since 1970
 */
export function decideGrant(
  { node, until }: TransferGrant,
  snapshot: LvmSnapshot,
  target: LvmVolume | undefined,
  now: number,
): GrantDecision {
  if (target === undefined) return until > now ? "keep" : "withdraw";
  return !isFilled(target, snapshot) || target.spec.nodeName !== node
    ? "withdraw"
    : until - now > GRANT_MS / 2
    ? "keep"
    : "renew";
}

/** Reports whether a volume is being filled from a snapshot of another node. */
function isFilled(object: LvmVolume, snapshot: LvmSnapshot): boolean {
  const { metadata, spec, status } = object;
  const { metadata: { name }, spec: { driverName, nodeName } } = snapshot;
  if (spec.driverName !== driverName || metadata.deletionTimestamp !== undefined) return false;
  if (spec.sourceNode !== nodeName || isCreated(object)) return false;
  if (spec.copy !== undefined) return isOfRounds(object, snapshot);
  return status?.state !== "Failed" && snapshotNameOf(object) === name;
}

/**
 * Reports whether a snapshot is one of those from which a volume is filled one after the other, and is still needed: the one
 * that it should have, the one before until it has that, and one that was taken since.
 */
function isOfRounds(
  { metadata: { name: volume }, spec: { copy }, status }: LvmVolume,
  snapshot: LvmSnapshot,
): boolean {
  const { metadata: { name } } = snapshot;
  const isNext = transferredVolumeOf(snapshot) === volume && (transferRoundOf(snapshot) ?? 0) > copy!.round;
  return name === copy!.snapshot || (name === copy!.base && status?.copy?.snapshot !== copy!.snapshot) || isNext;
}

/** Returns the name of the LVMSnapshot from which a volume is filled; `undefined` for a volume that is filled from none. */
function snapshotNameOf(object: LvmVolume): SnapshotId | undefined {
  const { metadata: { name }, spec: { sourceNode, copy } } = object;
  const source = ignoreStorageError(() => contentSourceOf(object));
  if (sourceNode === undefined || source === undefined) return undefined;
  if (copy !== undefined) return parseSnapshotId(copy.snapshot);
  return remoteSnapshotOf(name as Parameters<typeof remoteSnapshotOf>[0], source);
}

/** Renews and withdraws permissions. Two of them at the same time do the same. */
export class TransferGrants {
  readonly #options: TransferGrantsOptions;

  /** Creates it; nothing runs before {@linkcode TransferGrants.run}. */
  constructor(options: TransferGrantsOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { snapshots, volumes } = this.#options;
    await sidecarController("transfer", this.#options, (name) => this.#reconcile(name, signal))
      .watch(snapshots)
      .watch(volumes, (volume) => [snapshotNameOf(volume) ?? [], volume.spec.copy?.base ?? []].flat(), {
        replay: false,
      })
      .run(signal);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { snapshots, volumes, client, driverName, clock = systemClock } = this.#options;
    const object = snapshots.get(name);
    if (object?.spec.driverName !== driverName || object.metadata.deletionTimestamp !== undefined) {
      return { nothingToDo: "it is gone, being deleted, or another driver's" };
    }
    const temporaryFor = transferredVolumeOf(object);
    if (temporaryFor === undefined && grantsOf(object).length === 0) return { nothingToDo: "no node asks to read it" };
    const now = clock.date().getTime();
    const changes = grantsOf(object).flatMap((grant) => {
      const decision = decideGrant(grant, object, volumes.get(grant.volume), now);
      const value = decision === "withdraw" ? null : formatGrant({ ...grant, until: now + GRANT_MS });
      return decision === "keep" ? [] : [[grantAnnotation(grant.volume), value] as const];
    });
    if (changes.length > 0) {
      const merge = { metadata: { annotations: Object.fromEntries(changes) } };
      const { resourceVersion } = object.metadata; // somebody who gives a permission meanwhile is right
      await orAbsentOrChanged(client.patch(lvmSnapshots, { name }, { merge, resourceVersion, signal }));
      return { requeueAfterMs: RECHECK_MS };
    }
    if (grantsOf(object).length > 0) return { requeueAfterMs: RECHECK_MS };
    const target = await orAbsent(client.get(lvmVolumes, { name: temporaryFor! }, { signal }));
    if (target !== undefined && isFilled(target, object)) {
      return { requeueAfterMs: RECHECK_MS, waitsFor: "the volume that is filled from it" };
    }
    await this.#options.deleted().delete(name as SnapshotId);
  }
}
