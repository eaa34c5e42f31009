/**
 * Volumes that are created on another node than their source: which nodes take part, the temporary snapshot of a source
 * volume, and the permission to read.
 *
 * A permission is given here alone, for a request that was checked. It is renewed and withdrawn by
 * {@linkcode TransferGrants}.
 *
 * @module
 */

import { type Clock, systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { type SnapshotId, snapshotIdOf, transferSnapshotName, type VolumeId } from "../../base/ids.ts";
import type { ContentSource } from "../../lvm/model/tags.ts";
import { FULL_COW, type SizeOrPercent } from "../../lvm/settings/cow_size.ts";
import { orAbsentOrChanged } from "../client/client.ts";
import { patchWithRetry } from "../client/patches.ts";
import type { Informer } from "../runtime/informer.ts";
import { type LvmSnapshot, lvmSnapshots } from "../api/lvm_objects.ts";
import { canTransfer, formatGrant, grantAnnotation, grantsOf, type TransferGrant } from "../api/transfers.ts";
import type { ClusterSnapshots } from "./cluster_snapshots.ts";
import { asWriteError, type NodeCallOptions } from "./remote_objects.ts";

/** How long a permission is valid, in milliseconds. */
export const GRANT_MS: number = 10 * 60 * 1000;

/** Options of {@linkcode ClusterTransfers}. */
export interface ClusterTransfersOptions extends Omit<NodeCallOptions, "waitMs"> {
  /** All LVMSnapshots. */
  readonly snapshots: Informer<LvmSnapshot>;
  /** Takes the temporary snapshots. */
  readonly taken: () => Pick<ClusterSnapshots, "create" | "delete">;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** A temporary snapshot. */
export interface TemporarySnapshot {
  /** The name under which it is requested. */
  readonly name: string;
  /** The volume. */
  readonly source: VolumeId;
  /** The size of its COW space, if the volume is thick. */
  readonly cowSize: SizeOrPercent;
}

/** What transfers need of the cluster. */
export class ClusterTransfers {
  readonly #options: ClusterTransfersOptions;
  readonly #clock: Clock;

  /** Creates the service; it keeps no state. */
  constructor(options: ClusterTransfersOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /**
   * Returns the nodes to which a snapshot of a node can be sent: none where its own agent does not take part.
   *
   * @param allowed the nodes in question; by default all
   */
  targetsOf(source: string, allowed?: readonly string[]): string[] {
    if (!this.#takesPart(source)) return [];
    const all = allowed ?? this.#options.nodes.list().map(({ metadata: { name } }) => name);
    return all.filter((name) => name !== source && this.#takesPart(name));
  }

  #takesPart(name: string): boolean {
    const { nodes, agents, driver } = this.#options;
    const node = nodes.get(name);
    if (node?.spec.driverName !== driver || agents?.isSilent(name)) return false;
    return canTransfer(node, this.#clock.date().getTime());
  }

  /**
   * Takes the temporary snapshot of a source volume, and allows the agent of the new volume's node to read the snapshot. It
   * may be repeated.
   *
   * @throws {StorageError} those of the snapshot; `NotFound` when the source was deleted
   */
  async prepare(id: VolumeId, source: ContentSource, node: string): Promise<void> {
    if (source.kind === "snapshot") return await this.#allow(source.id, id, node);
    await this.take({ name: transferSnapshotName(id), source: source.id, cowSize: FULL_COW }, { volume: id, node });
  }

  /**
   * Takes a temporary snapshot of a volume, and allows the agent of a node to fill another volume from it. It may be repeated.
   *
   * @throws {StorageError} those of the snapshot; `FailedPrecondition` when it is lost
   */
  async take(
    { name, source, cowSize }: TemporarySnapshot,
    { volume, node }: Pick<TransferGrant, "volume" | "node">,
  ): Promise<void> {
    const id = snapshotIdOf(name);
    const { ready } = await this.#options.taken().create({ id, name, source, cowSize });
    if (!ready) {
      throw new StorageError("FailedPrecondition", `reading volume ${source}: its temporary snapshot ${id} is lost`);
    }
    await this.#allow(id, volume, node);
  }

  /** Deletes a temporary snapshot. @throws {StorageError} */
  async discard(id: SnapshotId): Promise<void> {
    await this.#options.taken().delete(id);
  }

  async #allow(snapshot: SnapshotId, volume: VolumeId, node: string): Promise<void> {
    const { client, snapshots, driver } = this.#options;
    const what = `allowing node ${node} to read snapshot ${snapshot}`;
    const object = snapshots.get(snapshot) ?? await orAbsentOrChanged(client.get(lvmSnapshots, { name: snapshot }));
    if (object === undefined || object.spec.driverName !== driver) {
      throw new StorageError("NotFound", `${what}: there is no such LVMSnapshot`);
    }
    const now = this.#clock.date().getTime();
    const change = (current: LvmSnapshot) => {
      const known = grantsOf(current).find((grant) => grant.volume === volume);
      if (known?.node === node && known.until > now + GRANT_MS / 2) return undefined;
      const annotations = { [grantAnnotation(volume)]: formatGrant({ node, until: now + GRANT_MS }) };
      return { metadata: { annotations } };
    };
    try {
      await patchWithRetry(client, lvmSnapshots, object, change, {});
    } catch (error) {
      throw asWriteError(what, error);
    }
  }
}
