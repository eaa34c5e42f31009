/**
 * Removes the finalizer of claims after all volumes that are cloned from them were created: the official provisioner's
 * cloning protection.
 *
 * @module
 */

import { sidecarController } from "../sidecars/sidecar_controller.ts";
import { dataSourceOf } from "./claim.ts";
import type { ReconcileOutcome } from "../runtime/controller.ts";
import { orAbsentOrChanged } from "../client/client.ts";
import { CLONING_FINALIZER } from "./content_source.ts";
import { type PersistentVolumeClaim, persistentVolumeClaims } from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { defined } from "../../lvm/defined.ts";

/** Removes the finalizer from claims that are being deleted, and that no pending claim is cloned from. */
export class CloningProtection {
  readonly #options: ProvisionerOptions;

  /** Creates it; nothing runs before {@linkcode CloningProtection.run}. */
  constructor(options: ProvisionerOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { claims } = this.#options;
    const controller = sidecarController(
      "cloning",
      { ...this.#options, waitsForNodes: false },
      (key, reconcileSignal) => this.#reconcile(key, reconcileSignal),
    );
    controller.watch(claims, (claim) => {
      const { kind, ...source } = dataSourceOf(claim);
      // the source of a claim that is bound or deleted is no longer protected
      const names = kind === "claim" && "name" in source ? [`${claim.metadata.namespace}/${source.name}`] : [];
      return isHeldByFinalizer(claim) ? [...names, `${claim.metadata.namespace}/${claim.metadata.name}`] : names;
    });
    await controller.run(signal);
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { claims, client } = this.#options;
    const claim = claims.get(key);
    if (claim === undefined || !isHeldByFinalizer(claim)) return;
    if (claims.list().some((other) => isPendingCloneOf(other, claim))) return { waitsFor: "its clones" };
    const { namespace, name, finalizers = [], resourceVersion } = claim.metadata;
    const merge = { metadata: { finalizers: finalizers.filter((one) => one !== CLONING_FINALIZER) } };
    // A change enqueues the claim again.
    await orAbsentOrChanged(
      client.patch(persistentVolumeClaims, { namespace, name }, { merge, resourceVersion, signal }),
    );
  }
}

function isHeldByFinalizer({ metadata }: PersistentVolumeClaim): boolean {
  return metadata.deletionTimestamp !== undefined && (metadata.finalizers?.includes(CLONING_FINALIZER) ?? false);
}

/** Reports whether a claim waits for a volume that is cloned from another claim. */
export function isPendingCloneOf(
  { metadata, spec, status }: PersistentVolumeClaim,
  sourceClaim: PersistentVolumeClaim,
): boolean {
  const dataSource = dataSourceOf({ metadata, ...defined({ spec }) });
  return dataSource.kind === "claim" && dataSource.name === sourceClaim.metadata.name &&
    metadata.namespace === sourceClaim.metadata.namespace && (status?.phase ?? "Pending") === "Pending";
}
