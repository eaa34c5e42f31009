/**
 * Crashes in the lifecycle of a snapshot, and of a group snapshot, in a cluster: of the agent at every moment of every command, and of the agent
 * and of the controller before and after every request to the API server. The process starts again, and the
 * orchestrator repeats unanswered calls, or gives up and deletes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { controllerHandlers } from "../../csi/controller.ts";
import { groupControllerHandlers } from "../../csi/group_controller.ts";
import { Controller, GroupController } from "../../csi/proto/csi_pb.ts";
import { lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { StorageError } from "../../base/error.ts";
import { groupSnapshotIdOf, snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Locks } from "../../base/locks.ts";
import { mountCapability } from "../contract/helpers/host.ts";
import {
  CrashingClient,
  CrashingExec,
  type CrashPoint,
  crashPoints,
  type RequestCrashPoint,
  type StartedRequest,
} from "../crash/crashing_exec.ts";
import type { CsiClient } from "../contract/helpers/csi_client.ts";
import { callsTo, type Reaction } from "../crash/orchestrator.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { sampleCases } from "../rig/sample.ts";

/** The process that crashes, and the moment. */
type CrashCase =
  | { readonly of: "agent"; readonly at: CrashPoint | RequestCrashPoint }
  | { readonly of: "controller"; readonly at: RequestCrashPoint };

/** The progress of a lifecycle: commands and requests of the agent, and requests of the controller so far. */
type Progress = readonly [number, number, number];

const NODE = "node-1";

/** The calls of the controller. */
type Calls = Pick<CsiClient, "controller" | "group">;

/** The lifecycle of a snapshot, or of a group snapshot. */
interface Lifecycle {
  /** The names of the volumes. */
  readonly volumes: readonly string[];
  /** Takes it of the volumes. */
  readonly take: (calls: Calls) => Promise<unknown>;
  /** Deletes it. */
  readonly delete: (calls: Calls) => Promise<unknown>;
}

const SNAPSHOT: Lifecycle = {
  volumes: ["one"],
  take: ({ controller }) => controller.createSnapshot({ name: "cut", sourceVolumeId: volumeIdOf("one") }),
  delete: ({ controller }) => controller.deleteSnapshot({ snapshotId: snapshotIdOf("cut") }),
};

const GROUP_SNAPSHOT: Lifecycle = {
  volumes: ["one", "two"],
  take: ({ group }) =>
    group.createVolumeGroupSnapshot({ name: "cut", sourceVolumeIds: ["one", "two"].map(volumeIdOf) }),
  delete: ({ group }) => group.deleteVolumeGroupSnapshot({ groupSnapshotId: groupSnapshotIdOf("cut") }),
};

/** The maximum number of attempts of a call: one for each process that runs it, and one after each call that excludes it. */
const MAX_ATTEMPTS = 4;

/** A cluster whose processes crash, and its orchestrator. */
class CrashingCluster implements AsyncDisposable {
  readonly machine = new FakeMachine();
  readonly #exec: CrashingExec;
  readonly #agent: CrashingClient;
  readonly #controller: CrashingClient;
  readonly #cluster: FakeCluster;
  #calls: Calls;
  /** The calls that the controller has not answered. */
  #unanswered = new Set<Promise<unknown>>();
  /** Resolves when a process crashed and was started again. */
  readonly crashed: Promise<string>;

  private constructor(cluster: FakeCluster, machine: FakeMachine, crashCase?: CrashCase) {
    this.machine = machine;
    this.#cluster = cluster;
    const command = crashCase !== undefined && "moment" in crashCase.at ? crashCase.at : undefined;
    const request = crashCase !== undefined && "when" in crashCase.at ? crashCase.at : undefined;
    this.#exec = new CrashingExec(machine, command);
    this.#agent = new CrashingClient(crashCase?.of === "agent" ? request : undefined);
    this.#controller = new CrashingClient(crashCase?.of === "controller" ? request : undefined);
    this.#calls = this.#callController();
    this.crashed = Promise.race([
      Promise.race([this.#exec.crashed, this.#agent.crashed]).then((at) => this.#restartAgent(at)),
      this.#controller.crashed.then((at) => this.#restartController(at)),
    ]);
  }

  static async start(crashCase?: CrashCase): Promise<CrashingCluster> {
    const machine = new FakeMachine();
    machine.addGroup("data", 1n << 30n);
    // The controller has to know the node before the agent crashes.
    const cluster = await FakeCluster.start({ [NODE]: machine });
    await cluster.stopAgent(NODE);
    const crashingCluster = new CrashingCluster(cluster, machine, crashCase);
    cluster.startAgent(NODE, crashingCluster.#exec, { wrap: (client) => crashingCluster.#agent.wrap(client) });
    await cluster.restartController({ wrap: (client) => crashingCluster.#controller.wrap(client) });
    crashingCluster.#calls = crashingCluster.#callController();
    return crashingCluster;
  }

  /** Makes a call. While another call excludes it (ABORTED), the orchestrator repeats it when that one has ended. */
  async call(send: (calls: Calls) => Promise<unknown>): Promise<void> {
    for (let attempt = 1;; attempt++) {
      const others = [...this.#unanswered];
      const call = send(this.#calls);
      this.#unanswered.add(call);
      try {
        return void await call;
      } catch (error) {
        const isExcluded = error instanceof StorageError && error.kind === "Busy" && others.length > 0;
        if (!isExcluded || attempt === MAX_ATTEMPTS) throw error;
        await Promise.allSettled(others);
      } finally {
        this.#unanswered.delete(call);
      }
    }
  }

  /** Waits until background work ends, and returns what is left. A process does not crash after that. */
  async readRemaining(): Promise<unknown[]> {
    const waitUntilIdle = () => this.#cluster.agent(NODE).machine.background.idle();
    await Promise.race([waitUntilIdle(), this.crashed.then(waitUntilIdle)]);
    for (const crashing of [this.#exec, this.#agent, this.#controller]) crashing.disarm();
    const { api } = this.#cluster;
    return [api.objects(lvmSnapshots), api.objects(lvmVolumes), this.machine.allLvs(), [
      ...this.machine.groups[0]!.tags,
    ]];
  }

  /** Returns the numbers of snapshots: LVs, and objects. */
  counts(): [number, number] {
    const snapshotLvs = this.machine.allLvs().filter(({ lv }) => lv.origin !== undefined);
    return [snapshotLvs.length, this.#cluster.api.objects(lvmSnapshots).length];
  }

  /** Returns the progress of the lifecycle. */
  progress(): Progress {
    return [this.#exec.commands.length, this.#agent.requests.length, this.#controller.requests.length];
  }

  /** Returns the crashes that were possible between two points. */
  possibleCrashes(from: Progress, to: Progress): CrashCase[] {
    const requests = (of: CrashCase["of"], all: readonly StartedRequest[], by: 1 | 2): CrashCase[] =>
      all.slice(from[by], to[by]).flatMap((request) =>
        (["before", "after"] as const).map((when) => ({ of, at: { ...request, when } }))
      );
    return [
      ...crashPoints(this.#exec.commands.slice(from[0], to[0])).map((at) => ({ of: "agent", at }) as const),
      ...requests("agent", this.#agent.requests, 1),
      ...requests("controller", this.#controller.requests, 2),
    ];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#cluster[Symbol.asyncDispose]();
  }

  #callController(): Calls {
    const { volumes, snapshots, groupSnapshots } = this.#cluster;
    const locks = new Locks();
    return {
      controller: callsTo(Controller, controllerHandlers({ volumes, snapshots, locks })),
      group: callsTo(GroupController, groupControllerHandlers(groupSnapshots, locks)),
    };
  }

  #restartAgent(at: string): string {
    this.#exec.kill();
    this.#agent.kill();
    this.#cluster.agent(NODE).crash();
    this.#cluster.startAgent(NODE, this.machine);
    return `the agent at ${at}`;
  }

  async #restartController(at: string): Promise<string> {
    await this.#cluster.restartController();
    this.#unanswered = new Set(); // the new process does not know of them
    this.#calls = this.#callController();
    return `the controller at ${at}`;
  }
}

/**
 * The record of a lifecycle: the crashes that were possible before the snapshot was taken, those after it, and the one
 * that happened.
 */
interface LifecycleRecord {
  readonly beforeTaken: readonly CrashCase[];
  readonly afterTaken: readonly CrashCase[];
  readonly crashedAt: string | undefined;
}

/** Creates and deletes volumes and what is taken of them. A process may crash once the volumes exist. */
async function runLifecycle(
  lifecycle: Lifecycle,
  crashCase?: CrashCase,
  reaction: Reaction = "repeats",
): Promise<LifecycleRecord> {
  const { volumes } = lifecycle;
  await using crashingCluster = await CrashingCluster.start(crashCase);
  const snapshot = async () => {
    await crashingCluster.call(lifecycle.take);
    assertEquals(crashingCluster.counts(), [volumes.length, volumes.length]);
  };
  const deleteSnapshot = () => crashingCluster.call(lifecycle.delete);
  const deleteVolumes = async () => {
    for (const volumeId of volumes.map(volumeIdOf)) {
      await crashingCluster.call(({ controller }) => controller.deleteVolume({ volumeId }));
    }
  };
  for (const name of volumes) {
    const request = { capacityRange: { requiredBytes: 32n << 20n }, volumeCapabilities: [mountCapability()] };
    await crashingCluster.call(({ controller }) => controller.createVolume({ name, ...request }));
  }
  const start = crashingCluster.progress();
  let taken = start;
  let crashedAt: string | undefined;
  for (const step of [snapshot, deleteSnapshot, deleteVolumes]) {
    const crashed = crashingCluster.crashed.then((at) => ({ at }));
    const outcome = crashedAt === undefined ? await Promise.race([step(), crashed]) : await step();
    if (step === snapshot) taken = crashingCluster.progress();
    if (outcome === undefined) continue;
    crashedAt = outcome.at;
    if (step !== snapshot || reaction === "repeats") await step();
  }
  assertEquals(await crashingCluster.readRemaining(), [[], [], [], []], "left");
  return {
    beforeTaken: crashingCluster.possibleCrashes(start, taken),
    afterTaken: crashingCluster.possibleCrashes(taken, crashingCluster.progress()),
    crashedAt,
  };
}

function nameOf({ of, at }: CrashCase): string {
  return `${of}, ${describePoint(at)}`;
}

// The operations of a crashed process stay pending, so the sanitizers cannot wait for them.
const NO_SANITIZERS = { sanitizeOps: false, sanitizeResources: false };

Deno.test.each<[string, Lifecycle, number]>([
  ["snapshot", SNAPSHOT, 45],
  ["group snapshot", GROUP_SNAPSHOT, 100],
])(
  "agent and controller may crash at any moment of the lifecycle of a %s: nothing is left, nothing is created twice",
  NO_SANITIZERS,
  async (name, lifecycle, leastCases) => {
    const { beforeTaken, afterTaken } = await runLifecycle(lifecycle);
    const again = await runLifecycle(lifecycle);
    const usual = new Set([...again.beforeTaken, ...again.afterTaken].map(nameOf));
    const cases = [
      ...[...beforeTaken, ...afterTaken].map((crashCase) => [crashCase, "repeats"] as const),
      ...beforeTaken.map((crashCase) => [crashCase, "gives up"] as const), // later, giving up is a repeated deletion
    ].filter(([crashCase]) => usual.has(nameOf(crashCase))); // what goes together once may go one by one another time
    assert(cases.length > leastCases, `only ${cases.length} crashes`);
    const failures: string[] = [];
    const missed: string[] = [];
    for (const [crashCase, reaction] of await sampleCases(name, cases, ONE_IN)) {
      const at = `${nameOf(crashCase)}, the orchestrator ${reaction}`;
      try {
        if (!await crashesAt(lifecycle, crashCase, reaction)) missed.push(at);
      } catch (error) {
        failures.push(`${at}: ${error}`);
      }
    }
    assertEquals(failures, []);
    assert(
      missed.length <= MAX_MISSED,
      `${missed.length} of ${cases.length} did not crash: ${missed.join("\n")}`,
    );
  },
);

/** One in so many crashes happens in `task test`; in `task test:crashes` all do. */
const ONE_IN = 18;

/** The number of points that the process may miss: requests of background work, which does several things at once or not. */
const MAX_MISSED = 3;

/** Runs a lifecycle up to three times until the process comes to its point, and returns whether it crashed there. */
async function crashesAt(lifecycle: Lifecycle, crashCase: CrashCase, reaction: Reaction): Promise<boolean> {
  for (let attempt = 1; attempt <= 3; attempt++) {
    if ((await runLifecycle(lifecycle, crashCase, reaction)).crashedAt !== undefined) return true;
  }
  return false;
}

function describePoint(point: CrashPoint | RequestCrashPoint): string {
  return "moment" in point
    ? `${point.moment.name} command ${point.occurrence} ${point.command}`
    : `${point.when} request ${point.occurrence} ${point.request}`;
}
