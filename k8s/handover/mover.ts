/**
 * Moves volumes to other nodes, as LVMMoves request.
 *
 * @module
 */

import { systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { transferredVolumeOf } from "../api/transfers.ts";
import { orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { lvmVolumes } from "../api/lvm_objects.ts";
import type { CsiNode } from "../api/objects.ts";
import { type ClusterTopology, isRegistered } from "../sidecars/claim_topology.ts";
import { type BoundVolumeInformers, sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import { classNameOf } from "../provisioner/claim.ts";
import { isFinished, refused } from "./handover.ts";
import {
  absenceOf,
  HandoverController,
  type HandoverControllerOptions,
  type HandoverKind,
  ownNode,
  readCommon,
} from "./handover_controller.ts";
import { carryOut, type MoveActionsOptions } from "./move_actions.ts";
import { agentsRefusal, blockingSnapshots, objectsRefusal, surroundingsRefusal } from "./move_checks.ts";
import {
  copyIdOf,
  isHeldFor,
  type LvmMove,
  lvmMoves,
  marksOf,
  MOVE_FINALIZER,
  MOVE_MARKS,
  type MoveObjects,
  type MoveStep,
  type OwnMoveStep,
} from "./moves.ts";
import { isUndone, nextStep } from "./move_step.ts";
import { eventAfter, eventsOf, statusBefore } from "./move_status.ts";
import { chooseWay, hasSpaceForSnapshot } from "./copy_mode.ts";

/** Options of {@linkcode Mover}. The caller starts and shares the informers. */
export interface MoverOptions
  extends
    SidecarOptions,
    HandoverControllerOptions,
    BoundVolumeInformers,
    Pick<MoveActionsOptions, "volumes" | "transfers" | "parseGroups">,
    Pick<ClusterTopology, "nodes"> {
  /** The CSINodes, which list the drivers of each node. */
  readonly csiNodes: Informer<CsiNode>;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** All LVMMoves. */
  readonly moves: Informer<LvmMove>;
}

/** The failures after which the same step may succeed. */
const PASSING_KINDS = ["Unavailable", "Busy", "StillRunning"];

/** Carries out LVMMoves. */
export class Mover {
  readonly #options: MoverOptions;

  /** Creates it; nothing runs before {@linkcode Mover.run}. */
  constructor(options: MoverOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { moves, lvmVolumes, lvmNodes, snapshots, claims, csiNodes, persistentVolumes } = this.#options;
    const moving = (name: string | undefined) => name !== undefined && moves.get(name) !== undefined ? [name] : [];
    const changes = { replay: false };
    const handovers = new HandoverController(this.#kind(), this.#options);
    await sidecarController("mover", this.#options, (name) => handovers.reconcile(name))
      .watch(moves)
      .watch(lvmVolumes, ({ metadata, spec }) => [...moving(metadata.name), ...moving(spec.source?.volume)], changes)
      .watch(lvmNodes, ({ metadata: { name } }) => this.#unfinishedOf(name), changes)
      .watch(snapshots, ({ spec }) => moving(spec.sourceVolume), changes)
      .watch(csiNodes, ({ metadata: { name } }) => this.#unfinishedOf(name), changes)
      .watch(persistentVolumes, ({ spec }) => moving(spec?.csi?.volumeHandle), changes)
      .watch(
        claims,
        ({ metadata: { uid } }) =>
          moves.list().filter(({ spec }) => spec.claim.uid === uid).map(({ metadata }) => metadata.name),
        changes,
      )
      .run(signal);
  }

  /** Returns the names of the moves from or to a node that are not finished. */
  #unfinishedOf(node: string): string[] {
    const isOf = ({ spec }: LvmMove) => spec.sourceNode === node || spec.targetNode === node;
    return this.#options.moves.list().filter((move) => isOf(move) && !isFinished(move)).map(({ metadata }) =>
      metadata.name
    );
  }

  #kind(): HandoverKind<LvmMove, MoveObjects, OwnMoveStep> {
    const { clock = systemClock } = this.#options;
    return {
      name: "mover",
      resource: lvmMoves,
      finalizer: MOVE_FINALIZER,
      marks: MOVE_MARKS,
      marksOf: ({ self }) => marksOf(self),
      read: (move) => this.#read(move),
      nextStep: (objects) => {
        const message = this.#refusal(objects);
        if (message !== undefined) return refused(message);
        return this.#waitForAgents(objects, nextStep(objects));
      },
      statusBefore: (objects, step, failure) => statusBefore(objects, step, { now: clock.date(), failure }),
      carryOut: (step, objects) => carryOut(step, objects, { ...this.#options, now: clock.date() }),
      eventsBefore: eventsOf,
      eventAfter: (move, step) => eventAfter(move, step, clock.date()),
      stepAfterFailure: (error, step, objects) => this.#stepAfterFailure(error, step, objects),
    };
  }

  async #read(move: LvmMove): Promise<MoveObjects> {
    const { client, snapshots, topologyKey } = this.#options;
    const [common, copy] = await Promise.all([
      readCommon(client, move),
      orAbsent(client.get(lvmVolumes, { name: copyIdOf(move) })),
    ]);
    const { volume } = common;
    const isPrepared = volume !== undefined && isHeldFor(move, volume);
    const all = snapshots.list();
    const blocking = blockingSnapshots(move, volume, all, { withTemporary: isPrepared });
    const temporary = all.filter((object) =>
      transferredVolumeOf(object) === copyIdOf(move) && object.metadata.deletionTimestamp === undefined
    );
    const { source } = this.#agentsOf(move).lvmNodes;
    return {
      ...common,
      copy,
      snapshots: blocking,
      temporary,
      topologyKey,
      ...(volume !== undefined && { way: chooseWay(volume, source, move.spec) }),
      hasSpaceForSnapshot: volume !== undefined && hasSpaceForSnapshot(volume, source),
    };
  }

  /** Returns why a move that has not changed the PersistentVolume yet cannot go on. */
  #refusal(objects: MoveObjects): string | undefined {
    const { driverName, lvmVolumes, classes, parseGroups } = this.#options;
    const { self: move, volume, claim } = objects;
    if (isUndone(move) || move.status?.removing) return undefined;
    if (volume === undefined) return `LVMVolume ${move.metadata.name} does not exist any more`; // its claim was deleted
    if (move.status?.persistentVolume !== undefined) return undefined;
    const refusal = objectsRefusal(objects, driverName);
    if (refusal !== undefined || isHeldFor(move, volume) || objects.copy !== undefined) return refusal;
    const { targetNode, adopt } = move.spec;
    const agents = this.#agentsOf(move);
    const isStarting = agentsRefusal(move, agents) === undefined && !isRegistered(targetNode, this.#options);
    if (isStarting && !adopt) return undefined; // it is waited for
    return surroundingsRefusal(objects, {
      ...agents,
      targetVolumes: lvmVolumes.list().filter(({ spec }) => spec.nodeName === targetNode),
      storageClass: classes.get(classNameOf(claim!)),
      cluster: this.#options,
      parseGroups,
    });
  }

  /**
   * Returns a step, or a wait while an agent is away: one that has to copy may only be restarting, nobody is kept from a volume
   * for it, and where the target's node may be dead, the source is not removed.
   */
  #waitForAgents({ self: move, volume, copy }: MoveObjects, step: MoveStep): MoveStep {
    const agents = this.#agentsOf(move);
    const { targetNode } = move.spec;
    const isNewCopy = step.do === "copy" && copy === undefined;
    const isRemoval = step.do === "remove source" && volume?.metadata.deletionTimestamp === undefined;
    const message = (step.do === "hold" || isNewCopy) && !isRegistered(targetNode, this.#options)
      ? `waits until the driver is registered on node ${targetNode}`
      : isNewCopy || step.do === "hold"
      ? agentsRefusal(move, agents)
      : step.do === "record" || step.do === "begin removing" || isRemoval
      ? absenceOf(targetNode, this.#options)
      : undefined;
    return message === undefined ? step : { do: "wait", message, agents: [], isBlocked: true };
  }

  #agentsOf({ spec: { sourceNode, targetNode } }: LvmMove) {
    const { agents, clock = systemClock } = this.#options;
    return {
      lvmNodes: { source: ownNode(sourceNode, this.#options), target: ownNode(targetNode, this.#options) },
      isSilent: (node: string) => agents?.isSilent(node) ?? false,
      now: clock.date().getTime(),
    };
  }

  /** Returns the step in place of one that copies, and failed for good. */
  #stepAfterFailure(error: unknown, step: MoveStep, objects: MoveObjects): MoveStep | undefined {
    if (!(error instanceof StorageError) || !("goal" in step) || PASSING_KINDS.includes(error.kind)) return undefined;
    // without the agents, no node seems to have free space
    if (this.#waitForAgents(objects, step) !== step) return undefined;
    const { kind: code, message } = error;
    return isHeldFor(objects.self, objects.volume!)
      ? { do: "fail", error: { code, message } }
      : { do: "go offline", reason: message }; // less space is needed
  }
}
