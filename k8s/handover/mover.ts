/**
 * Moves volumes to other nodes, as LVMMoves request.
 *
 * @module
 */

import { systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { toStatusError } from "../api/object_status.ts";
import { transferredVolumeOf } from "../api/transfers.ts";
import { orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { lvmVolumes } from "../api/lvm_objects.ts";
import type { CsiNode } from "../api/objects.ts";
import { type ClusterTopology, isRegistered } from "../sidecars/claim_topology.ts";
import { classNameOf } from "../provisioner/claim.ts";
import { type HandoverObjects, refused } from "./handover.ts";
import {
  absenceOf,
  HandoverController,
  type HandoverControllerOptions,
  type HandoverKind,
  ownNode,
} from "./handover_controller.ts";
import { carryOut, type MoveActionsOptions } from "./move_actions.ts";
import {
  adoptionRefusal,
  agentsRefusal,
  blockingSnapshots,
  objectsRefusal,
  surroundingsRefusal,
} from "./move_checks.ts";
import {
  copyIdOf,
  isHeldFor,
  type LvmMove,
  lvmMoves,
  marksOf,
  MOVE_FINALIZER,
  type MoveObjects,
  type MoveStep,
  type OwnMoveStep,
} from "./moves.ts";
import { isUndone, nextStep } from "./move_step.ts";
import { eventAfter, eventsOf, statusBefore } from "./move_status.ts";
import { chooseCopyMode, hasSpaceForSnapshot } from "./copy_mode.ts";

/** Options of {@linkcode Mover}. The caller starts and shares the informers. */
export interface MoverOptions
  extends
    HandoverControllerOptions,
    Pick<MoveActionsOptions, "volumes" | "transfers" | "parseGroups">,
    Pick<ClusterTopology, "nodes"> {
  /** The CSINodes, which list the drivers of each node. */
  readonly csiNodes: Informer<CsiNode>;
  /** All LVMMoves. */
  readonly moves: Informer<LvmMove>;
}

/** The failures after which the same step may succeed. */
const PASSING_KINDS = ["Unavailable", "Busy", "StillRunning"];

/** Carries out LVMMoves. */
export class Mover extends HandoverController<LvmMove, MoveObjects, OwnMoveStep> {
  /** Creates it; nothing runs before {@linkcode HandoverController.run}. */
  constructor(options: MoverOptions) {
    super(moveKind(options), options);
  }
}

function moveKind(options: MoverOptions): HandoverKind<LvmMove, MoveObjects, OwnMoveStep> {
  const { moves, lvmNodes, csiNodes, clock = systemClock } = options;
  return {
    name: "mover",
    resource: lvmMoves,
    informer: moves,
    finalizer: MOVE_FINALIZER,
    marksOf: ({ self }) => marksOf(self),
    watch: (controller, named) => {
      const movesOf = (node: string) => named((spec) => spec.sourceNode === node || spec.targetNode === node);
      controller
        .watch(lvmNodes, ({ metadata: { name } }) => movesOf(name), { replay: false })
        .watch(csiNodes, ({ metadata: { name } }) => movesOf(name), { replay: false });
    },
    read: (move, common) => readObjects(move, common, options),
    refusalOf: (objects) => refusalOf(objects, options),
    nextStep: (objects) => guardStep(objects, nextStep(objects), options),
    statusBefore: (objects, step, failure) => statusBefore(objects, step, { now: clock.date(), failure }),
    carryOut: (step, objects) => carryOut(step, objects, { ...options, now: clock.date() }),
    eventsBefore: eventsOf,
    eventAfter: (move, step) => eventAfter(move, step, clock.date()),
    stepAfterFailure: (error, step, objects) => stepAfterFailure(error, step, objects, options),
  };
}

async function readObjects(
  move: LvmMove,
  common: Promise<HandoverObjects<LvmMove>>,
  options: MoverOptions,
): Promise<MoveObjects> {
  const [objects, copy] = await Promise.all([
    common,
    orAbsent(options.client.get(lvmVolumes, { name: copyIdOf(move) })),
  ]);
  const { volume } = objects;
  const isPrepared = volume !== undefined && isHeldFor(move, volume);
  const all = options.snapshots.list();
  const remaining = all.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  const source = ownNode(move.spec.sourceNode, options);
  return {
    ...objects,
    copy,
    snapshots: blockingSnapshots(move, volume, all, { withTemporary: isPrepared }),
    isSnapshotted: blockingSnapshots(move, volume, remaining).length > 0,
    temporary: remaining.filter((object) => transferredVolumeOf(object) === copyIdOf(move)),
    ...(volume !== undefined && { copyMode: chooseCopyMode(volume, source, move.spec) }),
    hasSpaceForSnapshot: volume !== undefined && hasSpaceForSnapshot(volume, source),
    topologyKey: options.topologyKey,
  };
}

/** Returns why a move cannot go on: one that copies, until it has changed the PersistentVolume. */
function refusalOf(objects: MoveObjects, options: MoverOptions): string | undefined {
  const { driverName, lvmVolumes, classes, parseGroups } = options;
  const { self: move, volume, claim } = objects;
  if (isUndone(move) || move.status?.removing) return undefined;
  if (volume === undefined) return `LVMVolume ${move.metadata.name} does not exist any more`; // its claim was deleted
  const { targetNode, adopt } = move.spec;
  const agents = agentsOf(move, options);
  if (move.status?.persistentVolume !== undefined) return adopt ? adoptionRefusal(objects, agents) : undefined;
  const refusal = objectsRefusal(objects, driverName);
  if (refusal !== undefined || isHeldFor(move, volume) || objects.copy !== undefined) return refusal;
  if (!isRegistered(targetNode, options)) { // its agent may be starting, which is waited for
    return adopt ? adoptionRefusal(objects, agents) : agentsRefusal(move, agents);
  }
  return surroundingsRefusal(objects, {
    ...agents,
    targetVolumes: lvmVolumes.list().filter(({ spec }) => spec.nodeName === targetNode),
    storageClass: classes.get(classNameOf(claim!)),
    cluster: options,
    parseGroups,
  });
}

/**
 * Returns a step, or a wait while an agent is away: one that has to copy may only be restarting, nobody is kept from a volume
 * for it, and where the target's node may be dead, the source is not removed. Nor is it when its disks were carried back.
 */
function guardStep(objects: MoveObjects, step: MoveStep, options: MoverOptions): MoveStep {
  const { self: move, volume, copy } = objects;
  const { targetNode, adopt } = move.spec;
  const isBeginning = step.do === "hold" || (step.do === "copy" && copy === undefined);
  const mustBeRegistered = isBeginning || (step.do === "record" && adopt);
  const isRemoval = step.do === "remove source" && volume?.metadata.deletionTimestamp === undefined;
  const refusal = isRemoval && adopt ? adoptionRefusal(objects, agentsOf(move, options)) : undefined;
  if (refusal !== undefined) return { do: "stop removing", error: refused(refusal).error };
  const message = mustBeRegistered && !isRegistered(targetNode, options)
    ? `waits until the driver is registered on node ${targetNode}`
    : isBeginning
    ? agentsRefusal(move, agentsOf(move, options))
    : step.do === "record" || step.do === "begin removing" || isRemoval
    ? absenceOf(targetNode, options)
    : undefined;
  return message === undefined ? step : { do: "wait", message, agents: [], isBlocked: true };
}

function agentsOf({ spec: { sourceNode, targetNode } }: LvmMove, options: MoverOptions) {
  const { agents, clock = systemClock } = options;
  return {
    lvmNodes: { source: ownNode(sourceNode, options), target: ownNode(targetNode, options) },
    isSilent: (node: string) => agents?.isSilent(node) ?? false,
    now: clock.date().getTime(),
  };
}

/** Returns the step in place of one that copies, and failed for good. */
function stepAfterFailure(
  error: unknown,
  step: MoveStep,
  objects: MoveObjects,
  options: MoverOptions,
): MoveStep | undefined {
  if (!(error instanceof StorageError) || !("goal" in step) || PASSING_KINDS.includes(error.kind)) return undefined;
  // without the agents, no node seems to have free space
  if (guardStep(objects, step, options) !== step) return undefined;
  return isHeldFor(objects.self, objects.volume!)
    ? { do: "fail", error: toStatusError(error) }
    : { do: "go offline", reason: error.message }; // less space is needed
}
