/**
 * An orchestrator, which calls a driver for the steps of a lifecycle, and repeats calls that it may repeat.
 *
 * @module
 */

import { create, type DescService, type Message } from "@bufbuild/protobuf";
import { parseGroupList } from "../../csi/group_list.ts";
import { type CsiServices, standaloneServices } from "../../csi/standalone.ts";
import { Controller, GetMetadataDeltaRequestSchema, GroupController, Node } from "../../csi/proto/csi_pb.ts";
import { type Handlers, unaryMethods } from "../../csi/service.ts";
import type { UnaryCalls } from "../contract/helpers/csi_client.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { StorageError } from "../../base/error.ts";
import { VolumeFinder } from "../../lvm/inventory/volume_finder.ts";
import { ImportedVolumes } from "../../lvm/volumes/imported_volumes.ts";
import { StagedVolumes } from "../../lvm/staging/staged_volumes.ts";
import { Staging } from "../../lvm/staging/staging.ts";
import type { Exec } from "../../lvm/exec.ts";
import type { FakeLv, FakeMachine } from "../fake/machine/machine.ts";
import type { Acknowledged } from "./invariants.ts";

/** The calls of a driver without a socket in between. */
export interface Csi {
  readonly controller: UnaryCalls<typeof Controller>;
  readonly group: UnaryCalls<typeof GroupController>;
  readonly node: UnaryCalls<typeof Node>;
  /** Lists what changed between two snapshots, to the end. */
  readonly listChanges: (base: string, target: string) => Promise<void>;
}

/** What a step may call: a driver, and what its agent does in a cluster. */
export interface StepCalls extends Csi {
  readonly imports: ImportedVolumes;
  readonly staging: Pick<Staging, "format">;
  /** Waits until the driver does nothing in the background. */
  readonly idle: () => Promise<void>;
}

/** A step of the orchestrator. */
export interface Step {
  readonly name: string;
  readonly run: (calls: StepCalls) => Promise<unknown>;
}

/** A lifecycle: its steps, and those of an orchestrator that gives up during it. */
export interface Lifecycle {
  readonly steps: readonly Step[];
  readonly cleanup: readonly Step[];
  /** Changes the new machine before the first step, if something has to be there. */
  readonly prepare?: () => void;
  /** What the steps so far found out. */
  readonly state: StepState;
}

/** The state of the steps: the ids that the driver returned, what it acknowledged, and what the pod wrote. */
export interface StepState {
  volumeId: string;
  snapshotId: string;
  copyId: string;
  acknowledged: Acknowledged;
  secrets: Record<string, string>;
  /** True once a change of the volume key has begun. */
  hasBegunKeyChange?: boolean;
  written?: { lv: FakeLv; content: string };
}

/** A lifecycle by name, in a folder, on a machine. */
export type Scenario = (machine: FakeMachine, folder: string) => Lifecycle;

/**
 * The orchestrator's reactions to a crash of the driver: it repeats the call, or it deletes what it had requested. The
 * machine may have crashed, too: then nothing is mounted any more, and no LV is active.
 */
export const REACTIONS = [
  "repeats",
  "gives up",
  "restarts the machine, and gives up",
  "restarts the machine, repeats a creation, and gives up",
] as const;

/** One of {@linkcode REACTIONS}. */
export type Reaction = typeof REACTIONS[number];

/** The name of the driver. */
const DRIVER = "test.denolith.dev";

/** The number of times that a call is repeated after a transient failure. */
const MAX_ATTEMPTS = 5;

/** An orchestrator with a driver of its own. */
export class Orchestrator {
  readonly #services: CsiServices;
  readonly #calls: StepCalls;

  /** Starts a driver that runs its commands by `exec`, with mounts in the folder. */
  constructor(exec: Exec, folder: string) {
    this.#services = startDriverServices(exec, folder);
    const finder = new VolumeFinder({ driver: DRIVER });
    const lvm = new Lvm(exec);
    const imports = new ImportedVolumes({ lvm, finder, onChange: () => {} });
    const staged = new StagedVolumes();
    const staging = new Staging({ lvm, volumes: finder, mountRoots: [folder], scratch: folder, staged });
    const idle = () => this.#services.background.idle();
    this.#calls = { ...inProcessCalls(this.#services), imports, staging, idle };
  }

  /**
   * Runs the steps in order, and waits for the background work as the last step.
   *
   * @param onStep called before each step with its number
   */
  async runSteps(steps: readonly Step[], onStep?: (index: number) => void): Promise<void> {
    for (const [index, step] of [...steps, this.#idleStep].entries()) {
      onStep?.(index);
      await this.#retry(step).catch((error) => {
        throw new Error(`${step.name}: ${error}`, { cause: error });
      });
    }
  }

  /** Ends the driver. */
  stop(): void {
    void this.#services.background.stop();
  }

  readonly #idleStep: Step = { name: "background work", run: () => this.#services.background.idle() };

  async #retry(step: Step): Promise<void> {
    for (let attempt = 1;; attempt++) {
      try {
        return void await step.run(this.#calls);
      } catch (error) {
        if (!isRetryable(error) || attempt === MAX_ATTEMPTS) throw error;
        await this.#services.background.idle();
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
    driver: DRIVER,
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
export function inProcessCalls({ controller, groupController, node, snapshotMetadata }: CsiServices): Csi {
  const listChanges = async (baseSnapshotId: string, targetSnapshotId: string) => {
    const request = create(GetMetadataDeltaRequestSchema, { baseSnapshotId, targetSnapshotId });
    for await (const _ of snapshotMetadata.getMetadataDelta!(request, new AbortController().signal));
  };
  return {
    controller: callsTo(Controller, controller),
    group: callsTo(GroupController, groupController),
    node: callsTo(Node, node),
    listChanges,
  };
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
