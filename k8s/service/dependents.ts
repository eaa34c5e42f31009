/**
 * The volumes and snapshots that depend on another one.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { ContentSource } from "../../lvm/model/tags.ts";
import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import { blocksSourceDeletion } from "../api/snapshot_mapping.ts";
import type { Informer } from "../runtime/informer.ts";
import { ObjectIndex } from "../runtime/object_index.ts";
import { isCreated } from "./stored_volume.ts";

/** Options of {@linkcode Dependents}. */
export interface DependentsOptions {
  /** The driver's name. */
  readonly driver: string;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
  /** All LVMSnapshots. */
  readonly snapshots: Informer<LvmSnapshot>;
}

/** Finds what depends on a volume or a snapshot. */
export class Dependents {
  /** The volumes that are being created from a source. */
  readonly #copies: ObjectIndex<LvmVolume>;
  /** The snapshots that prevent the deletion of a volume. */
  readonly #snapshots: ObjectIndex<LvmSnapshot>;

  /** Subscribes to the informers. */
  constructor({ driver, volumes, snapshots }: DependentsOptions) {
    this.#copies = new ObjectIndex(volumes, (object) => {
      const { spec: { driverName, source }, status } = object;
      if (source === undefined || driverName !== driver || isCreated(object) || status?.state === "Failed") return;
      const { snapshot, volume } = source;
      return snapshot === undefined ? `volume ${volume}` : `snapshot ${snapshot}`;
    });
    this.#snapshots = new ObjectIndex(snapshots, (object) => {
      const { driverName, sourceVolume } = object.spec;
      return driverName === driver && blocksSourceDeletion(object) ? sourceVolume : undefined;
    });
  }

  /**
   * Requires that no volume is being created from a source.
   *
   * @param operation beginning of the error message
   * @throws {StorageError} `Busy`, with the names of the volumes that are being created from the source
   */
  refuseWhileCopied({ kind, id }: ContentSource, operation: string): void {
    const names = [...this.#copies.get(`${kind} ${id}`).keys()];
    if (names.length === 0) return;
    throw new StorageError(
      "Busy",
      `${operation}: volume ${
        names.sort().join(", ")
      } is being created from it; wait until it is complete, or delete ` +
        "that volume",
    );
  }

  /** Requires that a volume has no snapshots. The node checks it as well, but a deletion cannot be undone by then. */
  requireNoSnapshots(id: VolumeId): void {
    const snapshots = [...this.#snapshots.get(id).values()];
    if (snapshots.length === 0) return;
    const names = snapshots.map(({ metadata: { name }, status }) => `${name} (${status?.lvName ?? "not taken yet"})`);
    throw new StorageError(
      "InUse",
      `deleting volume ${id}: it is the origin of the snapshots ${names.sort().join(", ")}; delete them first`,
      { reason: "HasSnapshots" },
    );
  }
}
