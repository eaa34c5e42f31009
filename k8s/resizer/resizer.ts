/**
 * The resizer: grows the volumes of claims that ask for more, and says in their status how far that is.
 *
 * @module
 */

import { centralLoop, type ClaimLoopOptions } from "../sidecars/controller_options.ts";
import { type Clock, systemClock, timestamp } from "../runtime/clock.ts";
import {
  type CsiCalls,
  type ExpandedVolume,
  isInfeasible,
  isMaybeInProgress,
  reasonOf,
} from "../sidecars/csi_client.ts";
import type { WaitOptions } from "../runtime/informer.ts";
import type { Loop } from "../runtime/controller.ts";
import {
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
} from "../api/objects.ts";
import { patchAnyhow } from "../client/patch_with_retry.ts";
import {
  beginning,
  capacityOf,
  claimKeyOf,
  failing,
  finished,
  grown,
  isFollowed,
  isVolumeOf,
  nextSize,
  SIZE_BEFORE,
  sizesOf,
  type StatusPatch,
  waitingForNode,
  wantsMore,
} from "./resize_plan.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { accessModeOf } from "../provisioner/volume_request.ts";

/** What the resizer works with. */
export interface ResizerOptions extends ClaimLoopOptions {
  /** The driver. */
  readonly csi: Pick<CsiCalls, "expandVolume">;
  /** When what was infeasible is tried again, in milliseconds; after 5 min. */
  readonly slowRetryMs?: number | undefined;
}

/** Milliseconds in which a change that was made should be seen by the informers. */
const SEEN_WITHIN_MS = 1_000;

/** The resizer. Two of them at work do everything twice, and harm nothing. */
export class Resizer {
  readonly #options: ResizerOptions;
  readonly #clock: Clock;
  /** The keys of claims whose last call failed for good. */
  readonly #failed = new Set<string>();
  /** What was infeasible, and when it is tried again. */
  readonly #slow = new Map<string, { bytes: bigint; until: number }>();
  #loop: Loop | undefined;
  #stopping: AbortSignal | undefined;

  /** Does nothing before {@linkcode Resizer.run}. */
  constructor(options: ResizerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Works until the signal is aborted, and comes back when nothing is being worked on any more. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    const { claims, volumes } = this.#options;
    this.#failed.clear();
    this.#slow.clear();
    const loop = centralLoop("resizer", this.#options, (key, ending) => this.#reconcile(key, ending));
    [this.#loop, this.#stopping] = [loop, signal];
    loop.follow(claims, () => []).follow(volumes, (volume) => this.#concerned(volume));
    const undo = claims.subscribe((key, now, before) => {
      if (now !== undefined && (before === undefined || facts(now) !== facts(before))) {
        if (wantsMore(now) || before !== undefined) loop.add(key);
      }
      if (now === undefined) [this.#failed, this.#slow].forEach((memory) => memory.delete(key));
    });
    await loop.run(signal);
    undo();
    this.#loop = undefined;
  }

  /** Tries again, soon, the claims for which there was no space: to be called when a node has more. */
  poke(): void {
    const keys = [...this.#slow.keys()];
    this.#slow.clear();
    for (const key of keys) this.#loop?.add(key);
  }

  /** How long it is waited for what was done to be seen; not when the loop is to end. */
  get #patience(): WaitOptions {
    return { signal: this.#stopping, timeoutMs: SEEN_WITHIN_MS };
  }

  #concerned(volume: PersistentVolume): string[] {
    const key = claimKeyOf(volume, this.#options.driverName);
    if (key === undefined) return [];
    const claim = this.#options.claims.get(key);
    const due = volume.metadata.annotations?.[SIZE_BEFORE] !== undefined || claim !== undefined && wantsMore(claim);
    return due ? [key] : [];
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<void | { again: number }> {
    const { claims, volumes, driverName } = this.#options;
    const claim = claims.get(key);
    const volume = volumes.get(claim?.spec?.volumeName ?? "");
    if (claim === undefined || volume === undefined || !isVolumeOf(claim, volume, driverName)) return;
    if (isFollowed(claim, volume)) await this.#forgetSizeBefore(volume, signal);
    const bytes = wantsMore(claim) ? nextSize(claim, volume, { failed: this.#failed.has(key) }) : undefined;
    if (bytes === undefined) return;
    const slow = this.#slow.get(key);
    const wait = slow?.bytes === bytes ? slow.until - this.#clock.now() : 0;
    if (wait > 0) return { again: wait };
    return await this.#resize(key, { claim, volume, bytes }, signal);
  }

  async #resize(
    key: string,
    { claim, volume, bytes }: { claim: PersistentVolumeClaim; volume: PersistentVolume; bytes: bigint },
    signal: AbortSignal,
  ): Promise<void | { again: number }> {
    const { events } = this.#options;
    const begun = beginning(claim, bytes, this.#now());
    // At the revision that was decided on: someone may just have asked for another size.
    const marked = begun === undefined ? claim : await this.#begin(claim, begun, signal);
    if (begun !== undefined) events.record(marked, "Normal", "Resizing", `volume ${volume.metadata.name} is growing`);
    let expanded: ExpandedVolume;
    try {
      expanded = await this.#expand(volume, bytes, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return await this.#fail(key, { claim: marked, bytes, error }, signal);
    }
    this.#failed.delete(key);
    this.#slow.delete(key);
    await this.#record({ claim: marked, volume, expanded }, signal);
  }

  #begin(claim: PersistentVolumeClaim, merge: StatusPatch, signal: AbortSignal): Promise<PersistentVolumeClaim> {
    const { namespace, name, resourceVersion } = claim.metadata;
    const options = { merge, resourceVersion, subresource: "status", signal } as const;
    return this.#options.client.patch(persistentVolumeClaims, { namespace, name }, options);
  }

  async #expand(volume: PersistentVolume, requiredBytes: bigint, signal: AbortSignal): Promise<ExpandedVolume> {
    const { client, csi } = this.#options;
    const { csi: source, accessModes = [], volumeMode, mountOptions = [] } = volume.spec!;
    const { volumeHandle: volumeId, fsType = "", controllerExpandSecretRef: named } = source!;
    const reference = named?.name && named.namespace ? { name: named.name, namespace: named.namespace } : undefined;
    const access = volumeMode === "Block"
      ? { kind: "block" } as const
      : { kind: "mount", fsType, flags: mountOptions } as const;
    const secrets = await readSecret(client, reference, { signal });
    const capability = { mode: accessModeOf(accessModes), access };
    return await csi.expandVolume({ volumeId, requiredBytes, capability, secrets }, { signal });
  }

  /** Writes down what came of it: first the volume's size, then what is still due. */
  async #record(
    { claim, volume, expanded }: { claim: PersistentVolumeClaim; volume: PersistentVolume; expanded: ExpandedVolume },
    signal: AbortSignal,
  ): Promise<void> {
    const { client, events, volumes, claims } = this.#options;
    const { capacityBytes, nodeExpansionRequired } = expanded;
    const before = nodeExpansionRequired ? claim.status?.capacity?.["storage"] : undefined;
    const { name } = volume.metadata;
    const merge = grown(volume, capacityBytes, { before });
    if (merge !== undefined) await client.patch(persistentVolumes, { name }, { merge, signal });
    const patched = await this.#patchAnyhow(claim, (now) => {
      return nodeExpansionRequired ? waitingForNode(now, this.#now()) : finished(now, capacityBytes);
    }, signal);
    if (nodeExpansionRequired) {
      events.record(claim, "Normal", "FileSystemResizeRequired", "a node has to grow the filesystem");
    } else events.record(claim, "Normal", "VolumeResizeSuccessful", `volume ${name} has grown`);
    const key = `${claim.metadata.namespace}/${claim.metadata.name}`;
    const { state } = sizesOf(patched);
    await volumes.seen(name, (now) => now === undefined || capacityOf(now) >= capacityBytes, this.#patience);
    await claims.seen(key, (now) => now === undefined || sizesOf(now).state === state, this.#patience);
  }

  /** Says why it failed, and when it is tried again. */
  async #fail(
    key: string,
    { claim, bytes, error }: { claim: PersistentVolumeClaim; bytes: bigint; error: unknown },
    signal: AbortSignal,
  ): Promise<{ again: number }> {
    const message = reasonOf(error);
    const infeasible = isInfeasible(error);
    this.#options.events.record(claim, "Warning", "VolumeResizeFailed", message);
    if (isMaybeInProgress(error)) {
      this.#failed.delete(key);
      throw error;
    }
    this.#failed.add(key);
    await this.#patchAnyhow(claim, (now) => failing(now, { message, infeasible, now: this.#now() }), signal);
    if (!infeasible) throw error;
    const again = this.#options.slowRetryMs ?? 300_000;
    this.#slow.set(key, { bytes, until: this.#clock.now() + again });
    return { again };
  }

  async #forgetSizeBefore({ metadata: { name } }: PersistentVolume, signal: AbortSignal): Promise<void> {
    const merge = { metadata: { annotations: { [SIZE_BEFORE]: null } } };
    await this.#options.client.patch(persistentVolumes, { name }, { merge, signal });
    const isGone = (now?: PersistentVolume) => now?.metadata.annotations?.[SIZE_BEFORE] === undefined;
    await this.#options.volumes.seen(name, isGone, this.#patience);
  }

  /** Changes a claim and its status. Conditions can only be written all at once, so what others wrote has to be known. */
  #patchAnyhow(
    claim: PersistentVolumeClaim,
    change: (now: PersistentVolumeClaim) => StatusPatch | undefined,
    signal: AbortSignal,
  ): Promise<PersistentVolumeClaim> {
    const { client } = this.#options;
    return patchAnyhow(client, persistentVolumeClaims, claim, change, { subresource: "status", signal });
  }

  #now(): string {
    return timestamp(this.#clock.date());
  }
}

/** What of a claim decides about a resize: other changes, such as those of messages, are no reason to look again. */
function facts({ spec, status }: PersistentVolumeClaim): string {
  const { resources, volumeName } = spec ?? {};
  const { phase, capacity, allocatedResourceStatuses } = status ?? {};
  return JSON.stringify([resources?.requests, volumeName, phase, capacity, allocatedResourceStatuses]);
}
