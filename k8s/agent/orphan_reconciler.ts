/**
 * The orphans of a node: the agent finds them, reports them, and removes those that somebody asks to remove.
 *
 * An orphan is only removed when a person named its LV, and while all of this holds: it has been an orphan for some
 * time, the API server confirms that in a new answer, that answer is not empty, and nothing has the LV open.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { StorageError } from "../../base/error.ts";
import {
  findOrphanLvs,
  isKnown,
  type KnownObjects,
  type OrphanLv,
  type TaggedObject,
} from "../../lvm/inventory/inventory.ts";
import { type Locks, snapshotLock, volumeLock } from "../../base/locks.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { Snapshots } from "../../lvm/snapshots/snapshots.ts";
import type { Volumes } from "../../lvm/volumes/volumes.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import type { NewCondition } from "../api/conditions.ts";
import type { LvmNode, LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import {
  describeOrphan,
  knownObjects,
  listManaged,
  NONE_KNOWN,
  objectKindOf,
  orphanFoundMessage,
  orphansCondition,
  removalRequestOf,
  REMOVE_ORPHANS_ANNOTATION,
} from "./orphans.ts";
import type { NodeDriver } from "../api/volume_mapping.ts";
import type { NodeClient } from "../client/client.ts";

/** Options of {@linkcode OrphanReconciler}. */
export interface OrphanReconcilerOptions extends NodeClient {
  /** The LVMVolumes of this node. */
  readonly volumeObjects: Informer<LvmVolume>;
  /** The LVMSnapshots of this node. */
  readonly snapshotObjects: Informer<LvmSnapshot>;
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The volumes of this machine. */
  readonly volumes: Volumes;
  /** The snapshots of this machine. */
  readonly snapshots: Snapshots;
  /** Locks by volume and snapshot, shared with the Node service. */
  readonly locks: Locks;
  /** Called after an LV was removed. */
  readonly onChange: () => void;
  /** The time after which an LV without an object is reported as an orphan, in milliseconds; a minute by default. */
  readonly graceMs?: number;
}

/**
 * The time after which an LV without an object is an orphan, in milliseconds. LVs are created for objects, so for a
 * moment an LV may be without one.
 */
const GRACE_MS = 60_000;

const log = getLogger(["denolith", "orphans"]);

/** Finds, reports and removes the orphans of a node. */
export class OrphanReconciler {
  readonly #options: OrphanReconcilerOptions;
  readonly #nodeDriver: NodeDriver;
  readonly #clock: Clock;
  /** Since when LVs have looked like orphans, by UUID, in the clock's milliseconds. */
  #orphanSince: ReadonlyMap<string, number> = new Map();
  #orphans: readonly OrphanLv[] = [];
  /** The UUIDs of orphans that an event has reported. */
  #reported: ReadonlySet<string> = new Set();

  /** Knows of none before {@linkcode OrphanReconciler.observe}. */
  constructor(options: OrphanReconcilerOptions) {
    this.#options = options;
    this.#nodeDriver = { driver: options.driver, nodeName: options.nodeName };
    this.#clock = options.clock ?? systemClock;
  }

  /** Returns the orphans that were last observed. */
  get orphans(): readonly OrphanLv[] {
    return this.#orphans;
  }

  /**
   * Compares a report with the objects; answers the condition that holds. None, while that is not certain: before the objects
   * are known, and while what looks like an orphan has to be watched for longer.
   */
  observe(groups: readonly VolumeGroup[]): NewCondition[] {
    const { volumeObjects, snapshotObjects, graceMs = GRACE_MS } = this.#options;
    if (!volumeObjects.hasSynced || !snapshotObjects.hasSynced) return [];
    const now = this.#clock.now();
    const objects = { volumes: volumeObjects.list(), snapshots: snapshotObjects.list() };
    const found = findOrphanLvs(groups, this.#nodeDriver.driver, knownObjects(objects, this.#nodeDriver));
    this.#orphanSince = new Map(found.map(({ uuid }) => [uuid, this.#orphanSince.get(uuid) ?? now]));
    this.#orphans = found.filter(({ uuid }) => now - this.#orphanSince.get(uuid)! >= graceMs);
    return this.#orphans.length === 0 && found.length > 0 ? [] : [orphansCondition(this.#orphans)];
  }

  /**
   * Records events about new orphans, and removes those that the LVMNode asks to remove. What fails is retried the next
   * time.
   */
  async reconcile(node: LvmNode): Promise<void> {
    for (const orphan of this.#orphans.filter(({ uuid }) => !this.#reported.has(uuid))) {
      this.#options.events.record(node, "Warning", "OrphanFound", orphanFoundMessage(orphan));
    }
    this.#reported = new Set(this.#orphans.map(({ uuid }) => uuid));
    const { lvUuids, noneKnown } = removalRequestOf(node.metadata.annotations);
    const requested = this.#orphans.filter(({ uuid }) => lvUuids.has(uuid));
    const known = requested.length === 0 ? undefined : await this.#listKnown();
    if (known === undefined) return;
    for (const orphan of requested) await this.#removeOrphan(node, orphan, { known, noneKnown });
  }

  /** Lists the objects of the node; `undefined` when the API server does not answer. */
  async #listKnown(): Promise<KnownObjects | undefined> {
    try {
      return knownObjects(await listManaged(this.#options.client, this.#nodeDriver), this.#nodeDriver);
    } catch (error) {
      log.warn(
        "orphans are kept although their removal is requested: the API server does not confirm that they are orphans",
        { error },
      );
      return undefined;
    }
  }

  async #removeOrphan(
    node: LvmNode,
    orphan: OrphanLv,
    proof: { known: KnownObjects; noneKnown: boolean },
  ): Promise<void> {
    const { events, onChange } = this.#options;
    try {
      await this.#deleteLv(requireUnknown(orphan, proof));
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      events.record(
        node,
        "Warning",
        "OrphanRemovalFailed",
        `${describeOrphan(orphan)} could not be removed: ${error.message}`,
      );
      return;
    }
    const message = `${
      describeOrphan(orphan)
    } is being removed, as the annotation ${REMOVE_ORPHANS_ANNOTATION} requests`;
    events.record(node, "Normal", "OrphanRemoved", message);
    onChange();
  }

  /**
   * Deletes an orphan as the kind that its tags say: it is erased, then removed.
   *
   * @throws {StorageError} `InUse` while it is open
   */
  async #deleteLv({ kind, id }: TaggedObject): Promise<void> {
    const { volumes, snapshots, locks } = this.#options;
    if (kind === "volume") await locks.run("removal", [volumeLock(id)], () => volumes.delete(id, { byReport: true }));
    else await locks.run("removal", [snapshotLock(id)], () => snapshots.delete(id));
  }
}

/**
 * Requires that no object of the API server's answer stands for an LV.
 *
 * @returns what the tags of the LV say it is
 */
function requireUnknown(
  { uuid, taggedAs }: OrphanLv,
  { known, noneKnown }: { known: KnownObjects; noneKnown: boolean },
): TaggedObject {
  const refusal = (why: string) => new StorageError("FailedPrecondition", why);
  if (taggedAs === undefined) throw refusal("its tags cannot be read; see denolith doctor on the node");
  if (isKnown(taggedAs, known)) throw refusal(`object ${taggedAs.id} exists now`);
  const others = taggedAs.kind === "volume" ? known.volumes : known.snapshots;
  if (others.size > 0 || noneKnown) return taggedAs;
  throw refusal(
    `the API server has no ${
      objectKindOf(taggedAs)
    } of this node at all, so it may have lost them. If that is correct, confirm it: ` +
      known.removeCommand(`${NONE_KNOWN},${uuid}`),
  );
}
