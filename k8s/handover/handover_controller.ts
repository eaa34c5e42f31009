/**
 * Executes handovers: reads the objects, decides the next step, writes the status, and carries the step out.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { StorageError, truncate } from "../../base/error.ts";
import type { EventReason } from "../api/event_reasons.ts";
import { isSameContent } from "../api/object_status.ts";
import { type LvmNode, lvmVolumes } from "../api/lvm_objects.ts";
import { apiVersionOf, persistentVolumeClaims, persistentVolumes, type Resource } from "../api/objects.ts";
import type { Informer } from "../runtime/informer.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import type { ControllerName } from "../runtime/backoffs.ts";
import { type BoundVolumeInformers, sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { SilentAgents } from "../scheduling/agent_liveness.ts";
import { ApiError, isConflict, isTransient, type MergePatch, orAbsent } from "../client/client.ts";
import type { EventRecorder, EventType } from "../runtime/events.ts";
import {
  agentAbsence,
  type CommonStep,
  type Failure,
  type Handover,
  type HandoverObjects,
  isFinished,
  lifecycleStep,
  MAX_MESSAGE_LENGTH,
  refused,
  type Wait,
} from "./handover.ts";
import { deletePersistentVolume, recordedPolicyOf, restorePolicy, retain } from "./persistent_volume.ts";
import { patchAsRead, writeStatus } from "./writes.ts";

/** An event about a handover. */
export interface HandoverEvent {
  /** Its type. */
  readonly type: EventType;
  /** Its reason. */
  readonly reason: EventReason;
  /** Its message. */
  readonly message: string;
}

/** A step of a kind of its own. */
interface OwnStep {
  readonly do: string;
}

/** A step of a kind. */
type Step<S extends OwnStep> = S | CommonStep;

/** A part of the status of a handover. */
type StatusPatch<H extends Handover> = MergePatch<NonNullable<H["status"]>>;

/** A kind of handovers. */
export interface HandoverKind<H extends Handover, O extends HandoverObjects<H>, S extends OwnStep> {
  /** The name of its controller. */
  readonly name: ControllerName;
  /** The objects. */
  readonly resource: Resource<H>;
  /** All of them. */
  readonly informer: Informer<H>;
  /** The finalizer that keeps a handover until it is complete, or undone. */
  readonly finalizer: string;
  /** Returns the annotations of a PersistentVolume that it retains. */
  marksOf(objects: O): Record<string, string>;
  /** Watches what else its handovers depend on. @param named returns the names of unfinished handovers */
  watch(controller: Controller, named: (matches: (spec: H["spec"]) => boolean) => string[]): void;
  /** Reads the objects of a handover from the API server, not from a cache. @param common those that all have */
  read(self: H, common: Promise<HandoverObjects<H>>): Promise<O>;
  /** Returns why a handover cannot go on; `undefined` when it can. */
  refusalOf(objects: O): string | undefined;
  /** Returns the next step. */
  nextStep(objects: O): Step<S>;
  /** Returns the status before a step. @param failure why the last attempt of the step failed */
  statusBefore(objects: O, step: Step<S>, failure: string | undefined): NonNullable<H["status"]>;
  /** Carries out a step of its own. @returns the handover as the step wrote it, if it did */
  carryOut(step: S, objects: O): Promise<H | undefined | void>;
  /** Returns the events about what a status before a step changes. */
  eventsBefore?(self: H, status: NonNullable<H["status"]>, step: Step<S>): readonly HandoverEvent[];
  /** Returns the event about a step that was carried out and has written the handover. */
  eventAfter?(self: H, step: Step<S>): HandoverEvent | undefined;
  /** Returns what the status says of a failure; its message by default. */
  failureText?(error: Error): string;
  /** Returns the step in place of one that failed; `undefined` to try that again. */
  stepAfterFailure?(error: unknown, step: Step<S>, objects: O): Step<S> | undefined;
}

/** Options of a {@linkcode HandoverController}. The caller starts and shares the informers. */
export interface HandoverControllerOptions extends SidecarOptions, BoundVolumeInformers {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** All LVMNodes. */
  readonly lvmNodes: Informer<LvmNode>;
  /** The agents that are silent. */
  readonly agents?: SilentAgents | undefined;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** Returns the definitions that are too old: until they are not, no step is taken. */
  readonly outdatedDefinitions?: () => string | undefined;
}

/** The options that tell whether the agent of a node is there. */
type AgentOptions = Pick<HandoverControllerOptions, "driverName" | "lvmNodes" | "agents">;

/** Returns the LVMNode of a node with an agent of the driver. */
export function ownNode(name: string, { lvmNodes, driverName }: AgentOptions): LvmNode | undefined {
  const node = lvmNodes.get(name);
  return node?.spec.driverName === driverName ? node : undefined;
}

/** Returns how the agent of a node is away; `undefined` when it is there. */
export function absenceOf(name: string, options: AgentOptions): string | undefined {
  return agentAbsence(name, ownNode(name, options), (node) => options.agents?.isSilent(node) ?? false);
}

/** The time after which a handover that waits is looked at again, in milliseconds, should a change have been missed. */
const RECHECK_MS = 60_000;

/** Executes the handovers of a kind. */
export class HandoverController<H extends Handover, O extends HandoverObjects<H>, S extends OwnStep> {
  readonly #kind: HandoverKind<H, O, S>;
  readonly #options: HandoverControllerOptions;
  /** What the status says of the steps that failed last, by the names of the handovers. Without a step, reading failed. */
  readonly #failures = new Map<string, { readonly step: string | undefined; readonly message: string }>();

  /** Creates it; nothing runs before {@linkcode HandoverController.run}. */
  constructor(kind: HandoverKind<H, O, S>, options: HandoverControllerOptions) {
    this.#kind = kind;
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { lvmVolumes, snapshots, claims, persistentVolumes } = this.#options;
    const { name, informer } = this.#kind;
    const known = (key: string | undefined) => key !== undefined && informer.get(key) !== undefined ? [key] : [];
    const named = (matches: (spec: H["spec"]) => boolean) =>
      informer.list().filter((one) => !isFinished(one) && matches(one.spec)).map(({ metadata }) => metadata.name);
    const changes = { replay: false };
    const controller = sidecarController(name, this.#options, (key) => this.reconcile(key))
      .watch(informer)
      .watch(lvmVolumes, ({ metadata, spec }) => [...known(metadata.name), ...known(spec.source?.volume)], changes)
      .watch(snapshots, ({ spec }) => known(spec.sourceVolume), changes)
      .watch(persistentVolumes, ({ metadata }) => named((spec) => spec.persistentVolume === metadata.name), changes)
      .watch(claims, ({ metadata: { uid } }) => named((spec) => spec.claim.uid === uid), changes);
    this.#kind.watch(controller, named);
    await controller.run(signal);
  }

  /** Takes the next step of a handover. */
  async reconcile(name: string): Promise<ReconcileOutcome> {
    const kind = this.#kind;
    const self = await orAbsent(this.#options.client.get(kind.resource, { name }));
    if (self === undefined || isFinished(self)) this.#failures.delete(name);
    if (self?.spec.driverName !== this.#options.driverName) return { nothingToDo: "it is gone, or another driver's" };
    const first = lifecycleStep(self, kind.finalizer);
    if (first === "nothing") return { nothingToDo: "it is finished, or was deleted before it began" };
    if (first !== undefined) {
      await this.#setFinalizer(self, first); // of a finished one, the right to read its objects may be gone
      return { requeueAfterMs: 0 };
    }
    const objects = await kind.read(self, this.#read(self)).catch((error) => this.#reportFailure(error, self));
    const step = this.#nextStep(objects);
    const current = { ...objects, self: await this.#describe(objects, step) };
    if (step.do === "wait") return { requeueAfterMs: RECHECK_MS, waitsFor: (step as Wait).message };
    try {
      await this.#carryOut(step, current);
      this.#failures.delete(name);
      getLogger(["denolith", kind.name]).info("step", { name, step: step.do });
    } catch (error) {
      const instead = kind.stepAfterFailure?.(error, step, current);
      if (instead === undefined) return await this.#reportFailure(error, current.self, step.do);
      await this.#carryOut(instead, current);
    }
    return { requeueAfterMs: 0 };
  }

  async #read(self: H): Promise<HandoverObjects<H>> {
    const { client } = this.#options;
    const { metadata: { name }, spec: { claim: { namespace, name: claimName }, persistentVolume: volumeName } } = self;
    const [volume, persistentVolume, claim] = await Promise.all([
      orAbsent(client.get(lvmVolumes, { name })),
      orAbsent(client.get(persistentVolumes, { name: volumeName })),
      orAbsent(client.get(persistentVolumeClaims, { namespace, name: claimName })),
    ]);
    return { self, volume, persistentVolume, claim };
  }

  #nextStep(objects: O): Step<S> {
    const outdated = this.#options.outdatedDefinitions?.();
    if (outdated !== undefined) return { do: "wait", message: outdated, agents: [], isBlocked: true };
    const message = this.#kind.refusalOf(objects);
    if (message !== undefined) return refused(message);
    const step = this.#kind.nextStep(objects);
    return step.do === "wait" ? nameAbsence(step as Wait, this.#options) : step;
  }

  /** Writes the state, before a step that belongs to it, and records what changed. @returns the handover as it is then */
  async #describe(objects: O, step: Step<S>): Promise<H> {
    const { self } = objects;
    if (["fail", "finish", "remove finalizer"].includes(step.do)) return self;
    const { client } = this.#options;
    const { name, resourceVersion } = self.metadata;
    const failure = this.#failures.get(name);
    // said again before the next attempt: each other message would be written, and wake this at once
    const next = this.#kind.statusBefore(objects, step, failure?.step === step.do ? failure.message : undefined);
    if (isSameContent({ ...self.status, ...next }, self.status ?? {})) return self;
    const patch = { merge: { status: next } as MergePatch<H>, resourceVersion, subresource: "status" } as const;
    const described = await client.patch(this.#kind.resource, { name }, patch);
    this.#record(self, this.#kind.eventsBefore?.(self, next, step) ?? []);
    return described;
  }

  /** Carries a step out, and records the event about it. */
  async #carryOut(step: Step<S>, objects: O): Promise<void> {
    const written = await this.#execute(step, objects);
    const event = written && this.#kind.eventAfter?.(objects.self, step);
    if (event !== undefined) this.#record(objects.self, [event]);
  }

  /** Executes a step. @returns the handover as the step wrote it, if it did */
  async #execute(step: Step<S>, objects: O): Promise<H | undefined | void> {
    const { client } = this.#options;
    const { self, persistentVolume } = objects;
    switch (step.do) {
      case "remove finalizer":
        return await this.#setFinalizer(self, step.do);
      case "retain":
        return await retain(client, persistentVolume!, this.#kind.marksOf(objects));
      case "delete persistent volume":
        return await deletePersistentVolume(client, persistentVolume!);
      case "restore policy": {
        const marks = Object.keys(this.#kind.marksOf(objects));
        return await restorePolicy(client, persistentVolume!, recordedPolicyOf(self), marks);
      }
      case "fail": {
        const { error } = step as Failure;
        const message = truncate(error.message, MAX_MESSAGE_LENGTH);
        const status = { error: { ...error, message }, state: "Undoing", message };
        return await writeStatus(client, this.#kind.resource, self, status as StatusPatch<H>);
      }
      default:
        return await this.#kind.carryOut(step as S, objects);
    }
  }

  async #setFinalizer(self: H, step: "add finalizer" | "remove finalizer"): Promise<H | undefined> {
    const { finalizer, resource } = this.#kind;
    const others = (self.metadata.finalizers ?? []).filter((name) => name !== finalizer);
    const finalizers = step === "add finalizer" ? [...others, finalizer] : others;
    return await patchAsRead(this.#options.client, resource, self, { metadata: { finalizers } } as MergePatch<H>);
  }

  /** Writes why reading or a step failed, if that is not merely to be tried again. @throws the failure */
  async #reportFailure(error: unknown, self: H, step?: string): Promise<never> {
    if (error instanceof StorageError || isRefused(error)) {
      const { name } = self.metadata;
      const message = truncate(this.#kind.failureText?.(error) ?? error.message, MAX_MESSAGE_LENGTH);
      this.#failures.set(name, { step, message });
      const status = { state: self.status?.state ?? "Pending", message };
      if (self.status?.message !== message) {
        await writeStatus(this.#options.client, this.#kind.resource, self, status as StatusPatch<H>);
      }
    }
    throw error;
  }

  /** Records events about a handover: on itself, and on the claim, which people look at. */
  #record(self: H, recorded: readonly HandoverEvent[]): void {
    const { resource } = this.#kind;
    const about = [
      { ...self, apiVersion: apiVersionOf(resource), kind: resource.kind },
      { apiVersion: "v1", kind: persistentVolumeClaims.kind, metadata: self.spec.claim },
    ];
    for (const { type, reason, message } of recorded) {
      for (const object of about) this.#options.events.record(object, type, reason, message);
    }
  }
}

/** Returns a wait as it is, or, while an agent that it waits for is away, a wait that says that, too. */
export function nameAbsence(wait: Wait, options: AgentOptions): Wait {
  const [absence] = wait.agents.flatMap((node) => absenceOf(node, options) ?? []);
  return absence === undefined ? wait : { ...wait, message: `${wait.message}: ${absence}`, isBlocked: true };
}

/** Reports whether the API server refused a request, so that somebody has to do something, as where a webhook does not answer (500). */
function isRefused(error: unknown): error is ApiError {
  return error instanceof ApiError && !isConflict(error) && (!isTransient(error) || error.status === 500);
}
