/**
 * An orchestrator that lives through the deaths of its driver: it repeats what was not answered, or gives up and deletes.
 *
 * @module
 */

import { create, type DescService, type Message } from "@bufbuild/protobuf";
import { parseGroupList } from "../../csi/parameters.ts";
import { type Services, standaloneServices } from "../../csi/standalone.ts";
import { Controller, Node } from "../../csi/proto/csi_pb.ts";
import { type Handlers, unaryMethods } from "../../csi/service.ts";
import type { Calls } from "../../csi/client.ts";
import { StorageError } from "../../lvm/error.ts";
import type { Exec } from "../../lvm/exec.ts";
import type { FakeMachine } from "../fake/machine.ts";
import { MortalExec, type Point } from "./mortal.ts";

/** The calls of a driver without a socket in between. */
export interface Csi {
  readonly controller: Calls<typeof Controller>;
  readonly node: Calls<typeof Node>;
}

/** One thing that the orchestrator wants. */
export interface Step {
  readonly name: string;
  readonly do: (csi: Csi) => Promise<unknown>;
}

/** How the orchestrator takes the death of its driver: it wants the same again, or nothing any more. */
export type Reaction = "repeats" | "gives up";

/** How often a call is repeated that fails for a reason that passes. */
const TRIES = 5;

/** The driver died. */
class Died extends Error {}

/** An orchestrator on a machine. */
export class Orchestrator {
  readonly #machine: FakeMachine;
  readonly #folder: string;
  #exec: MortalExec;
  #services: Services;
  /** What the driver died at, if it did. */
  diedAt: string | undefined;

  /** Starts a driver that dies at the point. */
  constructor(machine: FakeMachine, folder: string, point?: Point) {
    this.#machine = machine;
    this.#folder = folder;
    [this.#exec, this.#services] = this.#start(point);
  }

  /** The commands of the driver that runs now. */
  get commands(): MortalExec["commands"] {
    return this.#exec.commands;
  }

  /** Does the steps in their order; those of `giveUp` instead of the rest when the driver dies and the reaction is so. */
  async live(steps: readonly Step[], reaction: Reaction, giveUp: readonly Step[]): Promise<void> {
    for (const step of [...steps, this.#quiet]) {
      try {
        await this.#until(step);
      } catch (error) {
        if (!(error instanceof Died)) throw new Error(`${step.name}: ${error}`, { cause: error });
        this.diedAt = error.message;
        this.end();
        [this.#exec, this.#services] = this.#start();
        if (reaction === "gives up") return await this.live(giveUp, reaction, []);
        await this.#until(step);
      }
    }
  }

  /** Ends the driver; what a dead one waits for never comes. */
  end(): void {
    void this.#services.background.stop();
  }

  readonly #quiet: Step = { name: "background work", do: () => this.#services.background.settled() };

  #start(point?: Point): [MortalExec, Services] {
    const exec = new MortalExec(this.#machine, point);
    return [exec, driverOver(exec, this.#folder)];
  }

  async #until(step: Step): Promise<void> {
    const died = this.#exec.died.then((at) => Promise.reject(new Died(at)));
    for (let tries = 1;; tries++) {
      try {
        return void await Promise.race([step.do(callsOf(this.#services)), died]);
      } catch (error) {
        if (!passes(error) || tries === TRIES) throw error;
        await Promise.race([this.#services.background.settled(), died]);
      }
    }
  }
}

/** Whether the failure is one for which an orchestrator repeats a call soon: ABORTED, or no room yet. */
function passes(error: unknown): boolean {
  return error instanceof StorageError && ["Busy", "StillRunning", "NoSpace"].includes(error.kind);
}

/** A driver for the group `data` and mounts in the folder, with its background work started. */
export function driverOver(exec: Exec, folder: string): Services {
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

/** The calls of a driver. */
export function callsOf({ controller, node }: Services): Csi {
  return { controller: callsTo(Controller, controller), node: callsTo(Node, node) };
}

/** The calls of a service. */
export function callsTo<S extends DescService>(service: S, handlers: Handlers<S>): Calls<S> {
  const byName = handlers as Record<string, (request: Message) => Promise<Record<string, unknown>>>;
  const calls = unaryMethods(service).map((method) => [
    method.localName,
    async (request: Record<string, unknown> = {}) =>
      create(method.output, await byName[method.localName]!(create(method.input, request))),
  ]);
  return Object.fromEntries(calls);
}
