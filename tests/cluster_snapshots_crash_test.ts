/**
 * Deaths in a snapshot's life in a cluster: of the agent at every moment of every command, and of the agent and of the controller
 * before and after every request to the API server. The process starts again, and the orchestrator repeats what was not answered,
 * or gives up and deletes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { controllerHandlers } from "../csi/controller.ts";
import { Controller } from "../csi/proto/csi_pb.ts";
import { lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { StorageError } from "../lvm/error.ts";
import { snapshotIdOf, volumeIdOf } from "../lvm/ids.ts";
import { Locks } from "../lvm/locks.ts";
import { mountCapability } from "./contract/host.ts";
import { momentsOf, MortalExec, MortalRequests, type Point, type RequestPoint } from "./crash/mortal.ts";
import { callsTo, type Csi, type Reaction } from "./crash/orchestrator.ts";
import { FakeCluster } from "./fake/agents.ts";
import { FakeMachine } from "./fake/machine.ts";

/** How somebody dies. */
type Death =
  | { readonly of: "agent"; readonly at: Point | RequestPoint }
  | { readonly of: "controller"; readonly at: RequestPoint };

/** How far a life is: the commands and the requests of the agent, and the requests of the controller so far. */
type Progress = readonly [number, number, number];

const NODE = "node-1";
const volumeId = volumeIdOf("one");
const snapshotId = snapshotIdOf("cut");

/** Failures for which an orchestrator repeats a call: ABORTED and UNAVAILABLE. */
const REPEATED = ["Busy", "StillRunning", "Unavailable"];

/** How long an orchestrator waits before it repeats a call, and how often it does. */
const [PAUSE_MS, TRIES] = [2, 1_000];

/** A cluster of mortals, and its orchestrator. */
class Mortals implements AsyncDisposable {
  readonly machine = new FakeMachine();
  readonly #exec: MortalExec;
  readonly #agent: MortalRequests;
  readonly #controller: MortalRequests;
  readonly #cluster: FakeCluster;
  #calls: Csi["controller"];
  /** Resolves when somebody died, and was started again. */
  readonly died: Promise<string>;

  private constructor(cluster: FakeCluster, machine: FakeMachine, death?: Death) {
    this.machine = machine;
    this.#cluster = cluster;
    const command = death !== undefined && "moment" in death.at ? death.at : undefined;
    const request = death !== undefined && "when" in death.at ? death.at : undefined;
    this.#exec = new MortalExec(machine, command);
    this.#agent = new MortalRequests(death?.of === "agent" ? request : undefined);
    this.#controller = new MortalRequests(death?.of === "controller" ? request : undefined);
    this.#calls = this.#callController();
    this.died = Promise.race([
      Promise.race([this.#exec.died, this.#agent.died]).then((at) => this.#restartAgent(at)),
      this.#controller.died.then((at) => this.#restartController(at)),
    ]);
  }

  static async start(death?: Death): Promise<Mortals> {
    const machine = new FakeMachine();
    machine.addGroup("data", 1n << 30n);
    // the controller has to know the node before its agent can die
    const cluster = await FakeCluster.start({ [NODE]: machine });
    await cluster.stopAgent(NODE);
    const mortals = new Mortals(cluster, machine, death);
    cluster.startAgent(NODE, mortals.#exec, { wrap: (client) => mortals.#agent.wrap(client) });
    await cluster.restartController({ wrap: (client) => mortals.#controller.wrap(client) });
    mortals.#calls = mortals.#callController();
    return mortals;
  }

  /** Asks until it is done, or fails for a reason that does not pass. */
  async until(call: (controller: Csi["controller"]) => Promise<unknown>): Promise<void> {
    for (let tries = 1;; tries++) {
      try {
        return void await call(this.#calls);
      } catch (error) {
        if (!(error instanceof StorageError) || !REPEATED.includes(error.kind) || tries === TRIES) throw error;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    }
  }

  /** What is left, when nothing is done in the background any more; who has not died by then, lives. */
  async left(): Promise<unknown[]> {
    const settled = () => this.#cluster.agent(NODE).machine.background.settled();
    await Promise.race([settled(), this.died.then(settled)]);
    for (const mortal of [this.#exec, this.#agent, this.#controller]) mortal.spare();
    const { api } = this.#cluster;
    return [api.objects(lvmSnapshots), api.objects(lvmVolumes), this.machine.allLvs(), [
      ...this.machine.groups[0]!.tags,
    ]];
  }

  /** How many snapshots there are: LVs, and objects. */
  counts(): [number, number] {
    const stores = this.machine.allLvs().filter(({ lv }) => lv.origin !== undefined);
    return [stores.length, this.#cluster.api.objects(lvmSnapshots).length];
  }

  /** How far the life is. */
  now(): Progress {
    return [this.#exec.commands.length, this.#agent.requests.length, this.#controller.requests.length];
  }

  /** The deaths that were possible in between. */
  deaths(from: Progress, to: Progress): Death[] {
    const within = <T>(all: readonly T[], by: 0 | 1 | 2) =>
      all.map((one, index) => ({ one, index })).slice(from[by], to[by]);
    const requests = (of: Death["of"], all: readonly string[], by: 1 | 2): Death[] =>
      within(all, by).flatMap(({ one: request, index }) =>
        (["before", "after"] as const).map((when) => ({ of, at: { request, index, when } }))
      );
    return [
      ...within(this.#exec.commands, 0).flatMap(({ one: command, index }): Death[] =>
        momentsOf(command).map((moment) => ({ of: "agent", at: { command, index, moment } }))
      ),
      ...requests("agent", this.#agent.requests, 1),
      ...requests("controller", this.#controller.requests, 2),
    ];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#cluster[Symbol.asyncDispose]();
  }

  #callController(): Csi["controller"] {
    const { volumes, snapshots } = this.#cluster;
    return callsTo(Controller, controllerHandlers({ volumes, snapshots, locks: new Locks() }));
  }

  #restartAgent(at: string): string {
    this.#exec.kill();
    this.#agent.kill();
    this.#cluster.agent(NODE).kill();
    this.#cluster.startAgent(NODE, this.machine);
    return `the agent at ${at}`;
  }

  async #restartController(at: string): Promise<string> {
    await this.#cluster.restartController();
    this.#calls = this.#callController();
    return `the controller at ${at}`;
  }
}

/** What a life tells: the deaths that were possible in it until the snapshot was taken, and after that; and the one that came. */
interface Told {
  readonly taking: readonly Death[];
  readonly ending: readonly Death[];
  readonly diedAt: string | undefined;
}

/** A volume, its snapshot, and their end; somebody may die from the moment at which the volume is there. */
async function live(death?: Death, reaction: Reaction = "repeats"): Promise<Told> {
  await using mortals = await Mortals.start(death);
  const create = () =>
    mortals.until((controller) =>
      controller.createVolume({
        name: "one",
        capacityRange: { requiredBytes: 32n << 20n },
        volumeCapabilities: [mountCapability()],
      })
    );
  const snapshot = async () => {
    await mortals.until((controller) => controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId }));
    assertEquals(mortals.counts(), [1, 1]);
  };
  const deleteSnapshot = () => mortals.until((controller) => controller.deleteSnapshot({ snapshotId }));
  const deleteVolume = () => mortals.until((controller) => controller.deleteVolume({ volumeId }));
  await create();
  const begin = mortals.now();
  let taken = begin;
  let diedAt: string | undefined;
  for (const step of [snapshot, deleteSnapshot, deleteVolume]) {
    const died = mortals.died.then((at) => ({ at }));
    const outcome = diedAt === undefined ? await Promise.race([step(), died]) : await step();
    if (step === snapshot) taken = mortals.now();
    if (outcome === undefined) continue;
    diedAt = outcome.at;
    if (step !== snapshot || reaction === "repeats") await step();
  }
  assertEquals(await mortals.left(), [[], [], [], []], "left");
  return { taking: mortals.deaths(begin, taken), ending: mortals.deaths(taken, mortals.now()), diedAt };
}

// what the dead wait for never comes, so it cannot be waited for either
const DEAD_LEAVE_TIMERS = { sanitizeOps: false, sanitizeResources: false };

Deno.test(
  "agent and controller may die at any moment of a snapshot's life in a cluster: nothing is left, nothing is made twice",
  DEAD_LEAVE_TIMERS,
  async () => {
    const { taking, ending } = await live();
    const cases = [
      ...[...taking, ...ending].map((death) => [death, "repeats"] as const),
      ...taking.map((death) => [death, "gives up"] as const), // later, to give up is to repeat the deletion
    ];
    assert(cases.length > 45, `only ${cases.length} deaths`);
    const losses: string[] = [];
    let survivors = 0;
    for (const [death, reaction] of cases) {
      try {
        if ((await live(death, reaction)).diedAt === undefined) survivors++;
      } catch (error) {
        losses.push(`${death.of}, ${JSON.stringify(death.at)}, the orchestrator ${reaction}: ${error}`);
      }
    }
    assertEquals(losses, []);
    // what is done in the background may come sooner or later than in the life that was recorded
    assert(survivors < cases.length / 8, `${survivors} of ${cases.length} did not die`);
  },
);
