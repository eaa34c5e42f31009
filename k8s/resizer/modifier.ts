/**
 * The modifier: gives volumes the attributes of the VolumeAttributesClasses that their claims name, and reports the
 * progress in the status of the claims. It runs beside the resizer, under the same Lease, since csi-resizer does both.
 *
 * @module
 */

import { withReason } from "../../base/error.ts";
import { type ClaimSidecarOptions, sidecarController } from "../sidecars/sidecar_controller.ts";
import { orAbsent } from "../client/client.ts";
import { type Clock, systemClock, timestamp } from "../../base/clock.ts";
import { CallError, Code, codeName, type CsiClient, errorMessage, isMaybeInProgress } from "../sidecars/csi_client.ts";
import { Informer } from "../runtime/informer.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import {
  canceledPatch,
  failedPatch,
  modifiedPatch,
  nextModification,
  pendingPatch,
  reconcileInputs,
  startedPatch,
  volumeAttributesPatch,
} from "./modify_plan.ts";
import {
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumes,
  type VolumeAttributesClass,
  volumeAttributesClasses,
} from "../api/objects.ts";
import { boundClaim, CACHE_WAIT_MS, claimKeyOf, patchAtRevision, patchStatus } from "./claim_status.ts";
import { INFEASIBLE_RETRY_MS } from "../runtime/backoffs.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { modifySecretOf } from "../sidecars/volume_secrets.ts";

/** Options of the modifier. */
export interface ModifierOptions extends ClaimSidecarOptions {
  /** The driver. */
  readonly csi: Pick<CsiClient, "modifyVolume">;
  /** The delay after which an infeasible request is retried, in milliseconds; {@linkcode INFEASIBLE_RETRY_MS} by default. */
  readonly slowRetryMs?: number | undefined;
  /** The interval at which a missing kind is looked for, in milliseconds; a minute. */
  readonly missingKindRetryMs?: number | undefined;
}

/** A claim and its volume, to be given the attributes of a class. */
interface Modification {
  readonly claim: PersistentVolumeClaim;
  readonly volume: PersistentVolume;
  readonly attributesClass: VolumeAttributesClass;
}

/** The modifier. Two of them at the same time repeat each other's work without harm. */
export class Modifier {
  readonly #options: ModifierOptions;
  readonly #clock: Clock;
  /** The keys of claims whose last call certainly failed; the outcome of other calls is unknown. */
  readonly #finalErrors = new Set<string>();
  /** Infeasible requests, with the time of their next attempt. */
  readonly #slowSet = new Map<string, { className: string; until: number }>();
  readonly #controller: Controller;

  /** Creates it; nothing runs before {@linkcode Modifier.run}. */
  constructor(options: ModifierOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const controllerOptions = { ...options, cacheWaitMs: CACHE_WAIT_MS };
    this.#controller = sidecarController("modifier", controllerOptions, (key, signal) => this.#reconcile(key, signal));
  }

  /** Runs until the signal is aborted and all work in progress has ended. */
  async run(signal: AbortSignal): Promise<void> {
    const { client, claims, volumes, clock, missingKindRetryMs = 60_000 } = this.#options;
    // Kubernetes before 1.34 may lack the kind; then no claim names one.
    const classes = new Informer(client, volumeAttributesClasses, { missingKindRetryMs, clock });
    classes.subscribe((_, now) => now !== undefined && this.#requeueClaimsOfClass(now));
    const watching = classes.start(signal);
    await this.#controller.watch(volumes, (volume) => this.#dueClaimKeys(volume))
      .subscribe(claims, (key, now, before) => this.#onClaimChanged(key, now, before))
      .run(signal);
    await watching;
  }

  #onClaimChanged(key: string, now?: PersistentVolumeClaim, before?: PersistentVolumeClaim): void {
    if (now?.metadata.uid !== before?.metadata.uid) {
      this.#finalErrors.delete(key); // those of an earlier claim of the name
      this.#slowSet.delete(key);
    }
    if (now === undefined) return;
    if (before === undefined ? isDue(now) : reconcileInputs(now) !== reconcileInputs(before)) {
      this.#controller.add(key);
    }
  }

  /** Enqueues the claims that wait for a class, which exists now. */
  #requeueClaimsOfClass({ metadata: { name } }: VolumeAttributesClass): void {
    for (const { metadata, spec, status } of this.#options.claims.list()) {
      const { status: state, targetVolumeAttributesClassName: target } = status?.modifyVolumeStatus ?? {};
      const isWaiting = state === "Pending" ? spec?.volumeAttributesClassName === name : target === name;
      if (isWaiting) this.#controller.wake(`${metadata.namespace}/${metadata.name}`);
    }
  }

  #dueClaimKeys(volume: PersistentVolume): string[] {
    const key = claimKeyOf(volume, this.#options.driverName);
    if (key === undefined) return [];
    const claim = this.#options.claims.get(key);
    return claim !== undefined && isDue(claim) ? [key] : [];
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const bound = boundClaim(key, this.#options);
    if (bound === undefined) return { nothingToDo: "it is gone, or not bound to a volume of the driver" };
    const { claim, volume } = bound;
    const step = nextModification(claim, { hasFinalError: this.#finalErrors.has(key) });
    if (step.action === "nothing") return { nothingToDo: "the volume has the attributes that it requests" };
    if (step.action === "cancel") return await this.#cancelModification(claim, signal);
    const slow = this.#slowSet.get(key);
    const remainingMs = slow?.className === step.className ? slow.until - this.#clock.now() : 0;
    if (remainingMs > 0) return { requeueAfterMs: remainingMs, waitsFor: "the next attempt of what is infeasible" };
    const { client } = this.#options;
    const attributesClass = await orAbsent(client.get(volumeAttributesClasses, { name: step.className }, { signal }));
    if (attributesClass === undefined) return await this.#reportMissingClass(claim, step, signal);
    const marked = await this.#markInProgress(claim, step.className, signal);
    return await this.#modifyVolume(key, { claim: marked, volume, attributesClass }, signal);
  }

  /** Records that a class does not exist. A modification in progress continues when the class is created again. */
  async #reportMissingClass(
    claim: PersistentVolumeClaim,
    { action: step, className }: { action: "continue" | "begin"; className: string },
    signal: AbortSignal,
  ): Promise<void> {
    if (step === "begin" && pendingPatch(claim) === undefined) return;
    const message = withReason(`VolumeAttributesClass ${className} does not exist`, "NoSuchAttributesClass");
    this.#options.events.record(claim, "Warning", "VolumeModifyFailed", message);
    if (step === "continue") throw new Error(message);
    const marked = await patchStatus(this.#options.client, claim, pendingPatch, signal);
    await this.#waitForCache(marked);
  }

  /** Marks a claim, unless somebody asked for another class meanwhile. */
  async #markInProgress(
    claim: PersistentVolumeClaim,
    className: string,
    signal: AbortSignal,
  ): Promise<PersistentVolumeClaim> {
    const merge = startedPatch(claim, className, this.#now());
    if (merge === undefined) return claim;
    const marked = await patchAtRevision(this.#options.client, claim, merge, signal);
    this.#options.events.record(
      claim,
      "Normal",
      "VolumeModify",
      `changing the volume to VolumeAttributesClass ${className}`,
    );
    return marked;
  }

  async #modifyVolume(
    key: string,
    { claim, volume, attributesClass }: Modification,
    signal: AbortSignal,
  ): Promise<void | { requeueAfterMs: number }> {
    const { client, csi, events, volumes } = this.#options;
    const { name: className } = attributesClass.metadata;
    const { name } = volume.metadata;
    try {
      this.#requireOwnDriver(attributesClass);
      const secrets = await readSecret(client, modifySecretOf(volume), { signal });
      const mutableParameters = attributesClass.parameters ?? {};
      await csi.modifyVolume({ volumeId: volume.spec!.csi!.volumeHandle, mutableParameters, secrets }, { signal });
    } catch (error) {
      if (signal.aborted) throw error;
      return await this.#recordFailure(key, { claim, className, error }, signal);
    }
    this.#finalErrors.delete(key);
    this.#slowSet.delete(key);
    // first the volume: a claim with the class is not reconciled again
    const merge = volumeAttributesPatch(volume, className);
    if (merge !== undefined) await client.patch(persistentVolumes, { name }, { merge, signal });
    const patched = await patchStatus(client, claim, (now) => modifiedPatch(now, className), signal);
    events.record(
      claim,
      "Normal",
      "VolumeModifySuccessful",
      `the volume has the attributes of VolumeAttributesClass ${className}`,
    );
    const isObserved = (now?: PersistentVolume) =>
      now === undefined || volumeAttributesPatch(now, className) === undefined;
    await this.#controller.waitForCache(volumes, name, isObserved);
    await this.#waitForCache(patched);
  }

  /** Records a failure, and decides when the request is retried. */
  async #recordFailure(
    key: string,
    { claim, className, error }: { claim: PersistentVolumeClaim; className: string; error: unknown },
    signal: AbortSignal,
  ): Promise<{ requeueAfterMs: number }> {
    const reason = codeName(error);
    const uncertain = isMaybeInProgress(error) || reason === "ResourceExhausted"; // as csi-resizer's IsFinalError has it
    const infeasible = reason === "InvalidArgument";
    const message = errorMessage(error);
    this.#options.events.record(claim, "Warning", "VolumeModifyFailed", message);
    if (uncertain) this.#finalErrors.delete(key);
    else this.#finalErrors.add(key);
    const failure = { className, reason, message, infeasible, uncertain, now: this.#now() };
    await this.#waitForCache(
      await patchStatus(this.#options.client, claim, (now) => failedPatch(now, failure), signal),
    );
    if (!infeasible) throw error;
    const requeueAfterMs = this.#options.slowRetryMs ?? INFEASIBLE_RETRY_MS;
    this.#slowSet.set(key, { className, until: this.#clock.now() + requeueAfterMs });
    return { requeueAfterMs };
  }

  async #cancelModification(claim: PersistentVolumeClaim, signal: AbortSignal): Promise<void> {
    this.#options.events.record(
      claim,
      "Normal",
      "VolumeModifyCanceled",
      "the claim asks for no other attributes any more",
    );
    await patchStatus(this.#options.client, claim, canceledPatch, signal);
  }

  async #waitForCache(patched: PersistentVolumeClaim): Promise<void> {
    const { namespace, name } = patched.metadata;
    const expected = reconcileInputs(patched);
    const isObserved = (now?: PersistentVolumeClaim) => now === undefined || reconcileInputs(now) === expected;
    await this.#controller.waitForCache(this.#options.claims, `${namespace}/${name}`, isObserved);
  }

  #requireOwnDriver({ driverName, metadata: { name } }: VolumeAttributesClass): void {
    if (driverName === this.#options.driverName) return;
    const message = `volumeAttributesClassName ${JSON.stringify(name)}: it is for ${driverName}`;
    throw new CallError(Code.InvalidArgument, withReason(message, "WrongAttributesClass"), "WrongAttributesClass");
  }

  #now(): string {
    return timestamp(this.#clock.date());
  }
}

/** Reports whether a change of a claim's volume may be due. */
function isDue(claim: PersistentVolumeClaim): boolean {
  return nextModification(claim, { hasFinalError: false }).action !== "nothing";
}
