/**
 * The modifier: gives volumes the attributes of the VolumeAttributesClasses that their claims name, and says in the claims'
 * status how far that is. It works beside the resizer, under the same Lease: csi-resizer does both.
 *
 * @module
 */

import { centralLoop, type ClaimLoopOptions } from "../sidecars/controller_options.ts";
import { isNotFound } from "../client/client.ts";
import { type Clock, systemClock, timestamp } from "../runtime/clock.ts";
import {
  CallError,
  Code,
  codeName,
  type CsiCalls,
  isExhausted,
  isMaybeInProgress,
  reasonOf,
} from "../sidecars/csi_client.ts";
import { Informer, type WaitOptions } from "../runtime/informer.ts";
import type { Loop } from "../runtime/controller.ts";
import {
  attributed,
  beginning,
  cancelled,
  factsOf,
  failing,
  modified,
  nextModification,
  pending,
  type StatusPatch,
} from "./modify_plan.ts";
import {
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type VolumeAttributesClass,
  volumeAttributesClasses,
} from "../api/objects.ts";
import { patchAnyhow } from "../client/patch_with_retry.ts";
import { claimKeyOf, isVolumeOf } from "./resize_plan.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { modifySecretOf } from "../provisioner/persistent_volume.ts";

/** What the modifier works with. */
export interface ModifierOptions extends ClaimLoopOptions {
  /** The driver. */
  readonly csi: Pick<CsiCalls, "modifyVolume">;
  /** When what was infeasible is tried again, in milliseconds; after 5 min. */
  readonly slowRetryMs?: number | undefined;
  /** When it is looked again for a kind that the cluster does not have, in milliseconds; after a minute. */
  readonly absentMs?: number | undefined;
}

/** Milliseconds in which a change that was made should be seen by the informers. */
const SEEN_WITHIN_MS = 1_000;

/** A claim and its volume, to be given the attributes of a class. */
interface Modification {
  readonly claim: PersistentVolumeClaim;
  readonly volume: PersistentVolume;
  readonly attributes: VolumeAttributesClass;
}

/** The modifier. Two of them at work do everything twice, and harm nothing. */
export class Modifier {
  readonly #options: ModifierOptions;
  readonly #clock: Clock;
  /** The keys of claims whose last call is known to have failed; of others that were begun nothing is known. */
  readonly #certain = new Set<string>();
  /** What was infeasible, and when it is tried again. */
  readonly #slow = new Map<string, { className: string; until: number }>();
  #stopping: AbortSignal | undefined;

  /** Does nothing before {@linkcode Modifier.run}. */
  constructor(options: ModifierOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /** Works until the signal is aborted, and comes back when nothing is being worked on any more. It may be run again. */
  async run(signal: AbortSignal): Promise<void> {
    const { client, claims, volumes, clock, absentMs = 60_000 } = this.#options;
    this.#certain.clear();
    this.#slow.clear();
    this.#stopping = signal;
    const loop = centralLoop("modifier", this.#options, (key, ending) => this.#reconcile(key, ending));
    // Kubernetes before 1.34 need not have the kind; then no claim names one.
    const classes = new Informer(client, volumeAttributesClasses, { absentMs, clock });
    const undo = [
      claims.subscribe((key, now, before) => this.#follow(loop, key, now, before)),
      classes.subscribe((_, now) => now !== undefined && this.#wake(loop, now)),
    ];
    const watching = classes.start(signal);
    await loop.follow(claims, () => []).follow(volumes, (volume) => this.#concerned(volume)).run(signal);
    for (const one of undo) one();
    await watching;
  }

  #follow(loop: Loop, key: string, now?: PersistentVolumeClaim, before?: PersistentVolumeClaim): void {
    if (now === undefined) {
      this.#certain.delete(key);
      this.#slow.delete(key);
    } else if (before === undefined ? isDue(now) : factsOf(now) !== factsOf(before)) loop.add(key);
  }

  /** The claims that wait for a class that is there now. */
  #wake(loop: Loop, { metadata: { name } }: VolumeAttributesClass): void {
    for (const { metadata, spec, status } of this.#options.claims.list()) {
      const waits = spec?.volumeAttributesClassName === name && status?.modifyVolumeStatus?.status === "Pending";
      if (waits) loop.add(`${metadata.namespace}/${metadata.name}`);
    }
  }

  #concerned(volume: PersistentVolume): string[] {
    const key = claimKeyOf(volume, this.#options.driverName);
    if (key === undefined) return [];
    const claim = this.#options.claims.get(key);
    return claim !== undefined && isDue(claim) ? [key] : [];
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<void | { again: number }> {
    const { claims, volumes, driverName } = this.#options;
    const claim = claims.get(key);
    const volume = volumes.get(claim?.spec?.volumeName ?? "");
    if (claim === undefined || volume === undefined || !isVolumeOf(claim, volume, driverName)) return;
    const step = nextModification(claim, { certain: this.#certain.has(key) });
    if (step.do === "nothing") return;
    if (step.do === "cancel") return await this.#cancel(claim, signal);
    const slow = this.#slow.get(key);
    const wait = slow?.className === step.className ? slow.until - this.#clock.now() : 0;
    if (wait > 0) return { again: wait };
    const attributes = await this.#classNamed(step.className, signal);
    if (attributes === undefined) return await this.#wait(claim, step, signal);
    if (step.do === "continue") return await this.#modify(key, { claim, volume, attributes }, signal);
    const begun = await this.#begin(claim, step.className, signal);
    return await this.#modify(key, { claim: begun, volume, attributes }, signal);
  }

  async #classNamed(name: string, signal: AbortSignal): Promise<VolumeAttributesClass | undefined> {
    try {
      return await this.#options.client.get(volumeAttributesClasses, { name }, { signal });
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw error;
    }
  }

  /** Says that a class is not there. What was begun with it goes on when it is, which nobody need announce. */
  async #wait(
    claim: PersistentVolumeClaim,
    { do: step, className }: { do: "continue" | "begin"; className: string },
    signal: AbortSignal,
  ): Promise<void> {
    if (step === "begin" && pending(claim) === undefined) return;
    const message = `there is no VolumeAttributesClass ${className}`;
    this.#options.events.record(claim, "Warning", "VolumeModifyFailed", message);
    if (step === "continue") throw new Error(message);
    const marked = await this.#patch(claim, pending, signal);
    await this.#isSeen(marked);
  }

  /** At the revision that was decided on: someone may just have asked for another class. */
  async #begin(claim: PersistentVolumeClaim, className: string, signal: AbortSignal): Promise<PersistentVolumeClaim> {
    const merge = beginning(claim, className, this.#now());
    if (merge === undefined) return claim;
    const { namespace, name, resourceVersion } = claim.metadata;
    const options = { merge, resourceVersion, subresource: "status", signal } as const;
    const begun = await this.#options.client.patch(persistentVolumeClaims, { namespace, name }, options);
    this.#options.events.record(claim, "Normal", "VolumeModify", `the volume is being changed to ${className}`);
    return begun;
  }

  async #modify(
    key: string,
    { claim, volume, attributes }: Modification,
    signal: AbortSignal,
  ): Promise<void | { again: number }> {
    const { client, csi, events, volumes } = this.#options;
    const { name: className } = attributes.metadata;
    const { name } = volume.metadata;
    try {
      this.#requireOurs(attributes);
      const secrets = await readSecret(client, modifySecretOf(volume), { signal });
      const mutableParameters = attributes.parameters ?? {};
      await csi.modifyVolume({ volumeId: volume.spec!.csi!.volumeHandle, mutableParameters, secrets }, { signal });
    } catch (error) {
      if (signal.aborted) throw error;
      return await this.#fail(key, { claim, className, error }, signal);
    }
    this.#certain.delete(key);
    this.#slow.delete(key);
    // first the volume: a claim that says so is looked at no more
    const merge = attributed(volume, className);
    if (merge !== undefined) await client.patch(persistentVolumes, { name }, { merge, signal });
    const patched = await this.#patch(claim, (now) => modified(now, className), signal);
    events.record(claim, "Normal", "VolumeModifySuccessful", `the volume has the attributes of ${className}`);
    const isAttributed = (now?: PersistentVolume) => now === undefined || attributed(now, className) === undefined;
    await volumes.seen(name, isAttributed, this.#patience);
    await this.#isSeen(patched);
  }

  /** Says why it failed, and when it is tried again. */
  async #fail(
    key: string,
    { claim, className, error }: { claim: PersistentVolumeClaim; className: string; error: unknown },
    signal: AbortSignal,
  ): Promise<{ again: number }> {
    const uncertain = isMaybeInProgress(error) || isExhausted(error); // as csi-resizer's IsFinalError has it
    const reason = codeName(error);
    const infeasible = reason === "InvalidArgument";
    const message = reasonOf(error);
    this.#options.events.record(claim, "Warning", "VolumeModifyFailed", message);
    if (uncertain) this.#certain.delete(key);
    else this.#certain.add(key);
    const failure = { className, reason, message, infeasible, uncertain, now: this.#now() };
    await this.#isSeen(await this.#patch(claim, (now) => failing(now, failure), signal));
    if (!infeasible) throw error;
    const again = this.#options.slowRetryMs ?? 300_000;
    this.#slow.set(key, { className, until: this.#clock.now() + again });
    return { again };
  }

  async #cancel(claim: PersistentVolumeClaim, signal: AbortSignal): Promise<void> {
    this.#options.events.record(claim, "Normal", "VolumeModifyCanceled", "no other attributes are asked for any more");
    await this.#patch(claim, cancelled, signal);
  }

  /** Changes a claim's status. Conditions can only be written all at once, so what others wrote has to be known. */
  #patch(
    claim: PersistentVolumeClaim,
    change: (now: PersistentVolumeClaim) => StatusPatch | undefined,
    signal: AbortSignal,
  ): Promise<PersistentVolumeClaim> {
    const { client } = this.#options;
    return patchAnyhow(client, persistentVolumeClaims, claim, change, { subresource: "status", signal });
  }

  async #isSeen(patched: PersistentVolumeClaim): Promise<void> {
    const { namespace, name } = patched.metadata;
    const facts = factsOf(patched);
    const isSo = (now?: PersistentVolumeClaim) => now === undefined || factsOf(now) === facts;
    await this.#options.claims.seen(`${namespace}/${name}`, isSo, this.#patience);
  }

  #requireOurs({ driverName, metadata: { name } }: VolumeAttributesClass): void {
    if (driverName === this.#options.driverName) return;
    throw new CallError(
      Code.InvalidArgument,
      `volumeAttributesClassName ${JSON.stringify(name)}: it is for ${driverName}`,
    );
  }

  /** How long it is waited for what was done to be seen; not when the loop is to end. */
  get #patience(): WaitOptions {
    return { signal: this.#stopping, timeoutMs: SEEN_WITHIN_MS };
  }

  #now(): string {
    return timestamp(this.#clock.date());
  }
}

/** Whether a change of a claim's volume may be due. */
function isDue(claim: PersistentVolumeClaim): boolean {
  return nextModification(claim, { certain: false }).do !== "nothing";
}
