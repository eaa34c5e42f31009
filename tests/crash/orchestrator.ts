/**
 * An orchestrator that survives crashes of its driver: it repeats unanswered calls, or gives up and deletes.
 *
 * @module
 */

import { create, type DescService, type Message } from "@bufbuild/protobuf";
import { parseGroupList } from "../../csi/parameters.ts";
import { type CsiServices, standaloneServices } from "../../csi/standalone.ts";
import { Controller, Node } from "../../csi/proto/csi_pb.ts";
import { type Handlers, unaryMethods } from "../../csi/service.ts";
import type { UnaryCalls } from "../../csi/client.ts";
import { StorageError } from "../../lvm/error.ts";
import type { Exec } from "../../lvm/exec.ts";
import type { FakeMachine } from "../fake/machine.ts";
import { CrashingExec, type CrashPoint } from "./crashing_exec.ts";

/** The calls of a driver without a socket in between. */
export interface Csi {
  readonly controller: UnaryCalls<typeof Controller>;
  readonly node: UnaryCalls<typeof Node>;
}

/** A step of the orchestrator. */
export interface Step {
  readonly name: string;
  readonly run: (csi: Csi) => Promise<unknown>;
}

/** The orchestrator's reaction to a crash of the driver: it repeats the call, or it deletes what it had requested. */
export type Reaction = "repeats" | "gives up";

/** The number of times that a call is repeated after a transient failure. */
const MAX_ATTEMPTS = 5;

/** The error of a call during which the driver crashed. */
class CrashError extends Error {}

/** An orchestrator on a machine. */
export class Orchestrator {
  readonly #machine: FakeMachine;
  readonly #folder: string;
  #exec: CrashingExec;
  #services: CsiServices;
  /** The point at which the driver crashed, if it did. */
  crashedAt: string | undefined;

  /** Starts a driver that crashes at the point. */
  constructor(machine: FakeMachine, folder: string, point?: CrashPoint) {
    this.#machine = machine;
    this.#folder = folder;
    [this.#exec, this.#services] = this.#start(point);
  }

  /** The commands of the running driver. */
  get commands(): CrashingExec["commands"] {
    return this.#exec.commands;
  }

  /**
   * Runs the steps in order. After a crash, runs those of `cleanup` instead of the rest when the reaction is to give up.
   */
  async runSteps(steps: readonly Step[], reaction: Reaction, cleanup: readonly Step[]): Promise<void> {
    for (const step of [...steps, this.#idleStep]) {
      try {
        await this.#retry(step);
      } catch (error) {
        if (!(error instanceof CrashError)) throw new Error(`${step.name}: ${error}`, { cause: error });
        this.crashedAt = error.message;
        this.stop();
        [this.#exec, this.#services] = this.#start();
        if (reaction === "gives up") return await this.runSteps(cleanup, reaction, []);
        await this.#retry(step);
      }
    }
  }

  /** Ends the driver. The operations of a crashed driver stay pending. */
  stop(): void {
    void this.#services.background.stop();
  }

  readonly #idleStep: Step = { name: "background work", run: () => this.#services.background.idle() };

  #start(point?: CrashPoint): [CrashingExec, CsiServices] {
    const exec = new CrashingExec(this.#machine, point);
    return [exec, startDriverServices(exec, this.#folder)];
  }

  async #retry(step: Step): Promise<void> {
    const crashed = this.#exec.crashed.then((at) => Promise.reject(new CrashError(at)));
    for (let attempt = 1;; attempt++) {
      try {
        return void await Promise.race([step.run(inProcessCalls(this.#services)), crashed]);
      } catch (error) {
        if (!isRetryable(error) || attempt === MAX_ATTEMPTS) throw error;
        await Promise.race([this.#services.background.idle(), crashed]);
      }
    }
  }
}

/** Reports whether an orchestrator repeats a call soon after this failure: ABORTED, or not enough free space yet. */
function isRetryable(error: unknown): boolean {
  return error instanceof StorageError && ["Busy", "StillRunning", "NoSpace"].includes(error.kind);
}

/** Starts a driver for the group `data` with mounts in the folder, and its background work. */
export function startDriverServices(exec: Exec, folder: string): CsiServices {
  const services = standaloneServices({
    exec,
    driver: "test.denolith.dev",
    version: "0",
    nodeId: "node-1",
    groups: parseGroupList("data"),
    mountRoots: [folder],
    scratch: folder,
  });
  services.background.start();
  return services;
}

/** Returns the calls of a driver. */
export function inProcessCalls({ controller, node }: CsiServices): Csi {
  return { controller: callsTo(Controller, controller), node: callsTo(Node, node) };
}

/** Returns the calls of a service. */
export function callsTo<S extends DescService>(service: S, handlers: Handlers<S>): UnaryCalls<S> {
  const byName = handlers as Record<string, (request: Message) => Promise<Record<string, unknown>>>;
  const calls = unaryMethods(service).map((method) => [
    method.localName,
    async (request: Record<string, unknown> = {}) =>
      create(method.output, await byName[method.localName]!(create(method.input, request))),
  ]);
  return Object.fromEntries(calls);
}
