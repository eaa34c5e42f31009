/**
 * Removes finalizers from the sources of volumes after these were created: those of claims that are cloned, the official
 * provisioner's cloning protection, and those that csi-provisioner (6.2 or later) leaves on a VolumeSnapshot when it
 * stops while a volume is created from it. The driver's own provisioner sets none on VolumeSnapshots: it continues a
 * recorded request without them.
 *
 * @module
 */

import { sidecarController } from "../sidecars/sidecar_controller.ts";
import { dataSourceOf } from "./claim.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import { isNotFound, orAbsent, orAbsentOrChanged } from "../client/client.ts";
import { CLONING_FINALIZER } from "./content_source.ts";
import { keyOf, type PersistentVolumeClaim, persistentVolumeClaims } from "../api/objects.ts";
import { type VolumeSnapshot, volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { defined } from "../../base/defined.ts";

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
    const options = { ...this.#options, waitsForNodes: false };
    const controller = sidecarController("cloning", options, (key, stopSignal) => this.#reconcile(key, stopSignal));
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
    if (claim === undefined || !isHeldByFinalizer(claim)) return { nothingToDo: "no finalizer keeps it from deletion" };
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

/** The finalizer of a VolumeSnapshot from which csi-provisioner creates a volume. */
export const SNAPSHOT_SOURCE_FINALIZER = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";

/** The key that has all VolumeSnapshots listed. */
const ALL = "*";

/** Removes the finalizer from VolumeSnapshots that no pending claim is created from. */
export class SnapshotProtection {
  readonly #options: ProvisionerOptions;
  /** The keys of the VolumeSnapshots that have the finalizer. */
  readonly #held = new Set<string>();

  /** Creates it; nothing runs before {@linkcode SnapshotProtection.run}. */
  constructor(options: ProvisionerOptions) {
    this.#options = options;
  }

  /**
   * Runs until the signal is aborted. It lists the VolumeSnapshots once: while it runs, csi-provisioner does not, since
   * both hold the same Lease.
   */
  async run(signal: AbortSignal): Promise<void> {
    const options = { ...this.#options, waitsForNodes: false };
    const controller = sidecarController("snapshotsources", options, async (key, reconcileSignal) => {
      return key === ALL
        ? await this.#listAll(controller, reconcileSignal)
        : await this.#reconcile(key, reconcileSignal);
    });
    controller.watch(this.#options.claims, (claim) => {
      const key = sourceKeyOf(claim);
      return key !== undefined && this.#held.has(key) ? [key] : [];
    });
    controller.add(ALL);
    await controller.run(signal);
  }

  async #listAll(controller: Controller, signal: AbortSignal): Promise<void> {
    try {
      for await (const { items } of this.#options.client.listPages(volumeSnapshots, { metadataOnly: true, signal })) {
        for (const key of items.filter(hasFinalizer).map(keyOf)) {
          this.#held.add(key);
          controller.add(key);
        }
      }
    } catch (error) {
      if (!isNotFound(error)) throw error; // otherwise the cluster has no snapshots
    }
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const { claims, client } = this.#options;
    const isPending = (claim: PersistentVolumeClaim) =>
      sourceKeyOf(claim) === key && (claim.status?.phase ?? "Pending") === "Pending";
    if (claims.list().some(isPending)) return { waitsFor: "the claims that are created from it" };
    const [namespace, name] = key.split("/") as [string, string];
    const snapshot = await orAbsent(client.get(volumeSnapshots, { namespace, name }, { signal }));
    if (snapshot !== undefined && hasFinalizer(snapshot) && await this.#isOurs(snapshot, signal)) {
      const { resourceVersion, finalizers = [] } = snapshot.metadata;
      const merge = { metadata: { finalizers: finalizers.filter((one) => one !== SNAPSHOT_SOURCE_FINALIZER) } };
      const patch = client.patch(volumeSnapshots, { namespace, name }, { merge, resourceVersion, signal });
      if (await orAbsentOrChanged(patch) === undefined) return { requeueAfterMs: 1_000 };
    }
    this.#held.delete(key);
  }

  /** Reports whether a VolumeSnapshot is of the driver. */
  async #isOurs({ status }: VolumeSnapshot, signal: AbortSignal): Promise<boolean> {
    const { client, driverName } = this.#options;
    const name = status?.boundVolumeSnapshotContentName;
    const content = name && await orAbsent(client.get(volumeSnapshotContents, { name }, { signal }));
    return content ? content.spec.driver === driverName : false;
  }
}

function hasFinalizer({ metadata }: VolumeSnapshot): boolean {
  return metadata.finalizers?.includes(SNAPSHOT_SOURCE_FINALIZER) ?? false;
}

/** Returns the key of the VolumeSnapshot that a claim is created from. */
function sourceKeyOf(claim: PersistentVolumeClaim): string | undefined {
  const source = dataSourceOf(claim);
  return source.kind === "snapshot" ? `${claim.metadata.namespace}/${source.name}` : undefined;
}
