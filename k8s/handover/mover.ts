/**
 * Moves volumes to other nodes, as LVMMoves ask for it.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { systemClock } from "../../base/clock.ts";
import { StorageError, truncate } from "../../base/error.ts";
import { isSameContent } from "../api/object_status.ts";
import { transferredVolumeOf } from "../api/transfers.ts";
import { ApiError, isConflict, isTransient, orAbsent } from "../client/client.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { Informer } from "../runtime/informer.ts";
import { type LvmNode, lvmVolumes, type StatusError } from "../api/lvm_objects.ts";
import { type CsiNode, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { type ClusterTopology, isRegistered } from "../sidecars/claim_topology.ts";
import { type BoundVolumeInformers, sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { SilentAgents } from "../scheduling/agent_liveness.ts";
import { classNameOf } from "../provisioner/claim.ts";
import { carryOut, type MoveActionsOptions, writeStatus } from "./move_actions.ts";
import {
  agentAbsence,
  agentsRefusal,
  blockingSnapshots,
  nameAbsence,
  objectsRefusal,
  surroundingsRefusal,
} from "./move_checks.ts";
import { copyIdOf, isFinished, isHeldFor, type LvmMove, lvmMoves, type MoveObjects, type MoveStep } from "./moves.ts";
import { isUndone, nextStep } from "./move_step.ts";
import { eventAfter, eventsOf, MAX_MESSAGE_LENGTH, type MoveEvent, statusBefore } from "./move_status.ts";
import { chooseWay, hasSpaceForSnapshot } from "./copy_mode.ts";

/** Options of {@linkcode Mover}. The caller starts and shares the informers. */
export interface MoverOptions
  extends
    SidecarOptions,
    BoundVolumeInformers,
    Pick<MoveActionsOptions, "volumes" | "transfers" | "parseGroups">,
    Pick<ClusterTopology, "nodes"> {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** The CSINodes, which list the drivers of each node. */
  readonly csiNodes: Informer<CsiNode>;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** All LVMMoves. */
  readonly moves: Informer<LvmMove>;
  /** All LVMNodes. */
  readonly lvmNodes: Informer<LvmNode>;
  /** The agents that are silent. */
  readonly agents?: SilentAgents | undefined;
}

/** The time after which a move that waits is looked at again, in milliseconds, should a change have been missed. */
const RECHECK_MS = 60_000;

/** The failures after which the same step may succeed. */
const PASSING_KINDS = ["Unavailable", "Busy", "StillRunning"];

/** Carries out LVMMoves. Two of them at the same time do no harm: each step changes objects only as they were read. */
export class Mover {
  readonly #options: MoverOptions;
  /** The steps that were refused last, with what was said, by the names of the moves. */
  readonly #refused = new Map<string, { readonly step: MoveStep["do"]; readonly message: string }>();
  readonly #log = getLogger(["denolith", "mover"]);

  /** Creates it; nothing runs before {@linkcode Mover.run}. */
  constructor(options: MoverOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { moves, lvmVolumes, lvmNodes, snapshots, claims, csiNodes, persistentVolumes } = this.#options;
    const moving = (name: string | undefined) => name !== undefined && moves.get(name) !== undefined ? [name] : [];
    const changes = { replay: false };
    await sidecarController("mover", this.#options, (name) => this.#reconcile(name))
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

  /** Takes the next step of a move. */
  async #reconcile(name: string): Promise<void | { requeueAfterMs: number }> {
    const { client, driverName } = this.#options;
    const move = await orAbsent(client.get(lvmMoves, { name }));
    if (move === undefined || isFinished(move)) this.#refused.delete(name);
    if (move === undefined || move.spec.driverName !== driverName) return;
    const objects = await this.#read(move);
    const refusal = this.#refusal(objects);
    if (refusal !== undefined) return await this.#fail(move, { code: "FailedPrecondition", message: refusal });
    const step = this.#waitForAgents(objects, nextStep(objects));
    if (step.do === "nothing") return;
    const refused = this.#refused.get(name);
    // said again before the next attempt: each other message would be written, and wake this at once
    const described = await this.#describe(objects, step, refused?.step === step.do ? refused.message : undefined);
    if (step.do === "wait") return { requeueAfterMs: RECHECK_MS };
    if (step.do === "fail") return await this.#fail(described, step.error);
    try {
      await this.#carryOut(step, { ...objects, move: described });
      this.#refused.delete(name);
      this.#log.info("step", { move: name, step: step.do });
    } catch (error) {
      const describeRefusal = async (message: string) => {
        this.#refused.set(name, { step: step.do, message });
        await this.#describe({ ...objects, move: described }, step, message);
      };
      if (isRefused(error)) await describeRefusal(error.message);
      if (!(error instanceof StorageError)) throw error;
      const isFinal = "goal" in step && !PASSING_KINDS.includes(error.kind);
      // without the agents, no node seems to have free space
      if (isFinal && this.#waitForAgents(objects, step) === step) {
        const isUsable = !isHeldFor(move, objects.volume!); // offline, less space is needed
        if (!isUsable) return await this.#fail(described, { code: error.kind, message: error.message });
        const next = { do: "go offline", reason: error.message } as const;
        await this.#carryOut(next, { ...objects, move: described });
        return { requeueAfterMs: 0 };
      }
      await describeRefusal(error.message);
      throw error;
    }
    return { requeueAfterMs: 0 };
  }

  /** Reads the objects of a move from the API server, not from a cache. */
  async #read(move: LvmMove): Promise<MoveObjects> {
    const { client, snapshots, topologyKey } = this.#options;
    const { metadata: { name }, spec: { claim: { namespace, name: claimName }, persistentVolume: pvName } } = move;
    const [volume, copy, persistentVolume, claim] = await Promise.all([
      orAbsent(client.get(lvmVolumes, { name })),
      orAbsent(client.get(lvmVolumes, { name: copyIdOf(move) })),
      orAbsent(client.get(persistentVolumes, { name: pvName })),
      orAbsent(client.get(persistentVolumeClaims, { namespace, name: claimName })),
    ]);
    const isPrepared = volume !== undefined && isHeldFor(move, volume);
    const all = snapshots.list();
    const blocking = blockingSnapshots(move, volume, all, { withTemporary: isPrepared });
    const temporary = all.filter((object) =>
      transferredVolumeOf(object) === copyIdOf(move) && object.metadata.deletionTimestamp === undefined
    );
    const { source } = this.#agentsOf(move).lvmNodes;
    return {
      ...{ move, volume, copy, persistentVolume, claim, snapshots: blocking, temporary, topologyKey },
      ...(volume !== undefined && { way: chooseWay(volume, source, move.spec) }),
      hasSpaceForSnapshot: volume !== undefined && hasSpaceForSnapshot(volume, source),
    };
  }

  /** Returns why a move that has not changed the PersistentVolume yet cannot go on. */
  #refusal(objects: MoveObjects): string | undefined {
    const { driverName, lvmVolumes, classes, parseGroups } = this.#options;
    const { move, volume, claim } = objects;
    if (isFinished(move) || isUndone(move) || move.status?.removing) return undefined;
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
  #waitForAgents({ move, volume, copy }: MoveObjects, step: MoveStep): MoveStep {
    const agents = this.#agentsOf(move);
    const { targetNode } = move.spec;
    const isNewCopy = step.do === "copy" && copy === undefined;
    const isRemoval = step.do === "remove source" && volume?.metadata.deletionTimestamp === undefined;
    const message = (step.do === "hold" || isNewCopy) && !isRegistered(targetNode, this.#options)
      ? `waits until the driver is registered on node ${targetNode}`
      : isNewCopy || step.do === "hold"
      ? agentsRefusal(move, agents)
      : step.do === "record" || step.do === "begin removing" || isRemoval
      ? agentAbsence(targetNode, agents.lvmNodes.target, agents.isSilent)
      : undefined;
    if (message !== undefined) return { do: "wait", message, agents: [], isBlocked: true };
    return step.do === "wait" ? nameAbsence(step, move, agents) : step;
  }

  #agentsOf({ spec: { sourceNode, targetNode } }: LvmMove) {
    const { lvmNodes, agents, clock = systemClock } = this.#options;
    return {
      lvmNodes: { source: this.#ownNode(lvmNodes.get(sourceNode)), target: this.#ownNode(lvmNodes.get(targetNode)) },
      isSilent: (node: string) => agents?.isSilent(node) ?? false,
      now: clock.date().getTime(),
    };
  }

  #ownNode(node: LvmNode | undefined): LvmNode | undefined {
    return node?.spec.driverName === this.#options.driverName ? node : undefined;
  }

  /** Records why a move fails. What it changed is undone then. */
  async #fail(move: LvmMove, { code, message }: StatusError): Promise<void> {
    const error = { code, message: truncate(message, MAX_MESSAGE_LENGTH) };
    await writeStatus(this.#options.client, move, { error, state: "Undoing", message: error.message });
  }

  /** Writes the state, before a step that belongs to it, and records what changed. @returns the move as it is then */
  async #describe(objects: MoveObjects, step: MoveStep, failure?: string): Promise<LvmMove> {
    const { move } = objects;
    const { client, clock = systemClock } = this.#options;
    const { status = {} } = move;
    const next = statusBefore(objects, step, { now: clock.date(), failure });
    const isSame = isSameContent({ ...status, ...next }, status);
    if (isSame || step.do === "add finalizer" || step.do === "remove finalizer" || step.do === "finish") return move;
    const { name, resourceVersion } = move.metadata;
    const patch = { merge: { status: next }, resourceVersion, subresource: "status" } as const;
    const described = await client.patch(lvmMoves, { name }, patch);
    this.#record(move, eventsOf(move, next, step));
    return described;
  }

  /** Carries a step out, and records the end of a move. */
  async #carryOut(step: MoveStep, objects: MoveObjects): Promise<void> {
    const { clock = systemClock } = this.#options;
    const now = clock.date();
    const written = await carryOut(step, objects, { ...this.#options, now });
    const event = eventAfter(objects.move, step, now);
    if (event !== undefined && written !== undefined) this.#record(objects.move, [event]);
  }

  /** Records events about a move: on the LVMMove, and on the claim, which people look at. */
  #record(move: LvmMove, recorded: readonly MoveEvent[]): void {
    const { events } = this.#options;
    const { claim } = move.spec;
    const about = [
      { ...move, apiVersion: `${lvmMoves.group}/${lvmMoves.version}`, kind: lvmMoves.kind },
      { apiVersion: "v1", kind: persistentVolumeClaims.kind, metadata: claim },
    ];
    for (const { type, reason, message } of recorded) {
      for (const object of about) events.record(object, type, reason, message);
    }
  }
}

/** Reports whether the API server refused a write, so that somebody has to do something, as where a webhook does not answer (500). */
function isRefused(error: unknown): error is ApiError {
  return error instanceof ApiError && !isConflict(error) && (!isTransient(error) || error.status === 500);
}
