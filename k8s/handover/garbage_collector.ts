/**
 * Removes what a controller leaves that stalls during a move, and goes on after another one has completed or undone it: a volume
 * that is held, a PersistentVolume that is retained, a copy, and a volume that waits for the LV of a copy. It also removes finished
 * LVMMoves whose volumes are deleted.
 *
 * It never takes from a move what that needs:
 *
 * - All of it is of one LVMMove, by its uid. It is removed when the API server has no such LVMMove that is unfinished.
 * - It is changed only as it was read. A later move of the same volume first marks what it holds or retains as its own.
 * - A copy stays while the volume may still take its LV, and while no LV of the volume is known, or it is Lost or being deleted:
 *   the copy may be all that is left.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import type { VolumeId } from "../../base/ids.ts";
import {
  type LvmVolume,
  lvmVolumes,
  MOVE_ANNOTATION,
  RECLAIM_POLICY_ANNOTATION,
  wasCreated,
} from "../api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../api/objects.ts";
import { orAbsent, orAbsentOrChanged } from "../client/client.ts";
import type { ReconcileOutcome } from "../runtime/controller.ts";
import { sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import { release } from "./move_actions.ts";
import { restorePolicy } from "./persistent_volume.ts";
import { isAllThatIsLeft } from "./copy_step.ts";
import type { MoverOptions } from "./mover.ts";
import { isFinished } from "./handover.ts";
import { copyIdOf, type LvmMove, lvmMoves, MOVE_MARKS, moveUidOf } from "./moves.ts";

/** Options of {@linkcode MoveGarbageCollector}. The caller starts and shares the informers. */
export interface MoveGarbageCollectorOptions
  extends SidecarOptions, Pick<MoverOptions, "moves" | "lvmVolumes" | "persistentVolumes"> {
  /** The volumes of the cluster. */
  readonly volumes: Pick<MoverOptions["volumes"], "delete">;
}

/** The time after which something that may be needed is looked at again, in milliseconds. */
const RECHECK_MS = 60_000;

/** Why nothing is removed: there is nothing that a move may have left, or the move of it goes on. */
const NOTHING_LEFT = { nothingToDo: "it is gone, another driver's, or not what a move leaves" };
const IN_USE = { nothingToDo: "it is of a move that is not finished" };

/** Removes what is left of moves that are over. */
export class MoveGarbageCollector {
  readonly #options: MoveGarbageCollectorOptions;
  readonly #log = getLogger(["denolith", "move-garbage-collector"]);

  /** Creates it; nothing runs before {@linkcode MoveGarbageCollector.run}. */
  constructor(options: MoveGarbageCollectorOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { moves, lvmVolumes, persistentVolumes } = this.#options;
    const controller = sidecarController("move-garbage-collector", this.#options, (key) => this.#reconcile(key));
    await controller
      .watch(lvmVolumes, (volume) => isLeftover(volume) ? [volumeKey(volume.metadata.name)] : [])
      .watch(persistentVolumes, (volume) => isRetained(volume) ? [persistentVolumeKey(volume.metadata.name)] : [])
      .subscribe(moves, (_key, now, before) => {
        if (now !== undefined && !isFinished(now)) return;
        for (const key of keysOf((now ?? before)!)) controller.add(key);
      }, { replay: false })
      .subscribe(moves, (name, now, before) => {
        // one that ends without its volume is left to be read until another controller starts
        if (before === undefined && now !== undefined && isFinished(now)) controller.add(moveKey(name));
      })
      .subscribe(lvmVolumes, (name, now) => {
        if (now === undefined && moves.get(name) !== undefined) controller.add(moveKey(name));
      }, { replay: false })
      .run(signal);
  }

  async #reconcile(key: string): Promise<ReconcileOutcome> {
    const [kind, name] = key.split("/") as [string, string];
    if (kind === lvmMoves.plural) return await this.#collectMove(name);
    return kind === persistentVolumes.plural ? await this.#collectRetained(name) : await this.#collectVolume(name);
  }

  /** Deletes a finished LVMMove whose volume is deleted. The mover removes its finalizer. */
  async #collectMove(name: string): Promise<ReconcileOutcome> {
    const { client, driverName } = this.#options;
    const move = await this.#readMove(name);
    if (move === undefined || !isFinished(move) || move.spec.driverName !== driverName) {
      return { nothingToDo: "the move is gone, not finished, or another driver's" };
    }
    if (await orAbsent(client.get(lvmVolumes, { name })) !== undefined) return { nothingToDo: "its volume exists" };
    await orAbsentOrChanged(client.delete(lvmMoves, { name }, { uid: move.metadata.uid }));
  }

  /** Removes what is left of a volume, or a whole volume that is left. */
  async #collectVolume(name: string): Promise<ReconcileOutcome> {
    const { client, driverName, volumes } = this.#options;
    const cached = this.#options.lvmVolumes.get(name);
    if (cached?.spec.driverName !== driverName || !isLeftover(cached)) return NOTHING_LEFT;
    if (isOfMove(cached, this.#options.moves.get(movedNameOf(cached)))) return IN_USE;
    // before the LVMMove: a later one changes it
    const volume = await orAbsent(client.get(lvmVolumes, { name }));
    if (volume === undefined || !isLeftover(volume)) return NOTHING_LEFT;
    if (isOfMove(volume, await this.#readMove(movedNameOf(volume)))) return IN_USE;
    if (volume.spec.held) {
      this.#log.info("a volume that no move holds is released", { volume: name });
      return await release(client, volume);
    }
    const isNeeded = moveUidOf(volume) === undefined
      ? await this.#hasPersistentVolume(name)
      : await this.#isCopyNeeded(volume);
    if (isNeeded) return { requeueAfterMs: RECHECK_MS, waitsFor: "the end of the need for its volume" };
    this.#log.info("a volume that no move needs is deleted", { volume: name });
    await volumes.delete(name as VolumeId, { uid: volume.metadata.uid });
  }

  /** Restores the policy of a PersistentVolume. While its volume does not exist, nobody may take that for deleted. */
  async #collectRetained(name: string): Promise<ReconcileOutcome> {
    const { client, driverName } = this.#options;
    const cached = this.#options.persistentVolumes.get(name);
    const volumeId = cached?.spec?.csi?.volumeHandle;
    if (volumeId === undefined || cached?.spec?.csi?.driver !== driverName || !isRetained(cached)) return NOTHING_LEFT;
    if (isUnfinished(this.#options.moves.get(volumeId))) return IN_USE;
    const object = await orAbsent(client.get(persistentVolumes, { name }));
    if (object === undefined || !isRetained(object)) return NOTHING_LEFT;
    if (isUnfinished(await this.#readMove(volumeId))) return IN_USE;
    const isReleased = object.status?.phase === "Released";
    if (!isReleased && await orAbsent(client.get(lvmVolumes, { name: volumeId })) === undefined) {
      return { requeueAfterMs: RECHECK_MS, waitsFor: "the volume of the PersistentVolume" };
    }
    this.#log.info("a PersistentVolume that no move retains gets its policy back", { persistentVolume: name });
    await restorePolicy(client, object, object.metadata.annotations?.[RECLAIM_POLICY_ANNOTATION], MOVE_MARKS);
  }

  async #readMove(name: string): Promise<LvmMove | undefined> {
    return await orAbsent(this.#options.client.get(lvmMoves, { name }));
  }

  /** Reports whether a copy may be all that is left of its volume. */
  async #isCopyNeeded(copy: LvmVolume): Promise<boolean> {
    const volume = await orAbsent(this.#options.client.get(lvmVolumes, { name: movedNameOf(copy) }));
    // somebody who removes the finalizer of an LVMMove may do that while the volume is being deleted for it
    const hasLv = volume?.status?.lvUUID !== undefined && volume.metadata.deletionTimestamp === undefined;
    return !hasLv || isAllThatIsLeft(copy, volume);
  }

  async #hasPersistentVolume(volumeId: string): Promise<boolean> {
    const isOf = ({ spec }: PersistentVolume) => spec?.csi?.volumeHandle === volumeId;
    if (this.#options.persistentVolumes.list().some(isOf)) return true;
    return (await this.#options.client.list(persistentVolumes)).items.some(isOf);
  }
}

/**
 * Reports whether a volume may be left of a move: a held one, a copy, or one that waits for its LV. One that has ever had it may
 * have been restored without its status, before its PersistentVolume.
 */
function isLeftover(volume: LvmVolume): boolean {
  const { spec: { held, adoptsVolume }, status } = volume;
  const hadLv = status?.lvUUID !== undefined || wasCreated(volume);
  return held === true || moveUidOf(volume) !== undefined || (adoptsVolume !== undefined && !hadLv);
}

function isRetained({ metadata }: PersistentVolume): boolean {
  return metadata.annotations?.[MOVE_ANNOTATION] !== undefined;
}

/** Reports whether a volume is of an unfinished move. A later move holds for itself what was held for an earlier one. */
function isOfMove(volume: LvmVolume, move: LvmMove | undefined): boolean {
  const uid = moveUidOf(volume);
  return isUnfinished(move) && (uid === undefined || uid === move?.metadata.uid);
}

function isUnfinished(move: LvmMove | undefined): boolean {
  return move !== undefined && !isFinished(move);
}

/** Returns the name of the volume that moves, and of its LVMMove. */
function movedNameOf(volume: LvmVolume): string {
  return moveUidOf(volume) === undefined ? volume.metadata.name : volume.spec.source?.volume ?? "";
}

const moveKey = (name: string) => `${lvmMoves.plural}/${name}`;
const volumeKey = (name: string) => `${lvmVolumes.plural}/${name}`;
const persistentVolumeKey = (name: string) => `${persistentVolumes.plural}/${name}`;

/** Returns the keys of all that may be left of a move. */
function keysOf(move: LvmMove): string[] {
  const { metadata: { name }, spec: { persistentVolume } } = move;
  return [volumeKey(name), volumeKey(copyIdOf(move)), persistentVolumeKey(persistentVolume)];
}
