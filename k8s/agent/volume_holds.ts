/**
 * Volumes that nobody may begin to use on this node, because they are being moved to another one.
 *
 * An LVM tag records it, so that staging decides by it whatever becomes of this process. The condition `Held` reports it: it is
 * written after the tag was added, and removed before the tag is.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import type { Volume } from "../../lvm/inventory/volume.ts";
import { type Locks, volumeLock } from "../../base/locks.ts";
import type { HeldVolumes } from "../../lvm/volumes/held_volumes.ts";
import { type ApiClient, orAbsentOrChanged } from "../client/client.ts";
import { patchWithRetry } from "../client/patches.ts";
import { type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { heldCondition, heldConditions, type HeldState } from "../api/volume_conditions.ts";

/** Options of {@linkcode VolumeHolds}. */
export interface VolumeHoldsOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** Holds the volumes. */
  readonly heldVolumes: Pick<HeldVolumes, "set" | "userOf">;
  /** Locks by volume, shared with the Node service. */
  readonly locks: Locks;
  /** Enqueues an object at once. */
  readonly requeue: (name: string) => void;
}

/** Holds the volumes whose objects ask for it. */
export class VolumeHolds {
  readonly #options: VolumeHoldsOptions;
  /** What is known of held volumes. */
  readonly #states = new Map<string, HeldState>();
  /** The volumes whose tag a report showed, although their objects do not ask for it. */
  readonly #leftovers = new Set<string>();

  /** Creates it. */
  constructor(options: VolumeHoldsOptions) {
    this.#options = options;
  }

  /** Returns what is known of a held volume; `undefined` when nothing is known since this process started. */
  stateOf(id: VolumeId): HeldState | undefined {
    return this.#states.get(id);
  }

  /** Holds or releases a volume as its object asks, and writes the condition. @throws {StorageError} */
  async reconcile(object: LvmVolume): Promise<void> {
    const { metadata: { name, deletionTimestamp }, spec: { held = false }, status } = object;
    // a volume that comes back to this node, under the same name, has another LV
    if (!held || deletionTimestamp !== undefined) this.#states.delete(name);
    if (status?.state !== "Ready" || deletionTimestamp !== undefined) return;
    const condition = heldCondition(object);
    const isReported = condition !== undefined;
    if (held ? condition?.status === "True" && this.#states.has(name) : !isReported && !this.#leftovers.has(name)) {
      return;
    }
    const id = name as VolumeId;
    const { heldVolumes, locks } = this.#options;
    if (!held) {
      if (isReported && !await this.#removeCondition(object)) return; // its change enqueues it again
      await locks.run("holding", [volumeLock(id)], () => heldVolumes.set(id, false));
      this.#leftovers.delete(name);
      return;
    }
    if (!this.#states.has(name)) {
      await locks.run("holding", [volumeLock(id)], () => heldVolumes.set(id, true));
    }
    const user = await heldVolumes.userOf(id); // without the lock, which would delay the unmount
    const state = user === undefined ? {} : { user };
    this.#states.set(name, state);
    await this.#writeCondition(object, state);
  }

  /** Requeues a volume whose tag differs from what its object asks, or that is not in use any more, by a report. */
  observe({ metadata: { name }, spec: { held = false } }: LvmVolume, { lv, tags }: Volume): void {
    const isLeftover = !held && tags.held === true;
    if (isLeftover) this.#leftovers.add(name);
    if (isLeftover || (held && this.#states.get(name)?.user !== undefined && !lv.open)) this.#options.requeue(name);
  }

  /** Removes the condition, unless the volume is held again by now. @returns whether it is removed */
  async #removeCondition(object: LvmVolume): Promise<boolean> {
    const written = await this.#writeCondition(object, undefined);
    return written !== undefined && !written.spec.held;
  }

  /**
   * Writes the condition alone, while the object asks for it: a reconcile attempt may be writing the rest of the status.
   *
   * @returns the object as it is then; `undefined` when it is gone, or others changed it again and again
   */
  async #writeCondition(object: LvmVolume, state: HeldState | undefined): Promise<LvmVolume | undefined> {
    const change = (now: LvmVolume) => {
      const isCurrent = (now.spec.held ?? false) === (state !== undefined);
      return isCurrent ? { status: { conditions: heldConditions(now, state) } } : undefined;
    };
    const { client } = this.#options;
    return await orAbsentOrChanged(patchWithRetry(client, lvmVolumes, object, change, { subresource: "status" }));
  }
}
