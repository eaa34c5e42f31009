/**
 * Runs of concurrent callers over a driver whose commands are interleaved in an order of fast-check's choice.
 *
 * Nothing in a run takes time of the machine: files are in memory, and commands answer at once when it is their turn. So
 * a run is the same each time it is repeated with its seed.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { nextTurn } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { type Command, describeCommand, type Exec, type Output } from "../../lvm/exec.ts";
import { currentRequestId, withRequestId } from "../../base/request_id.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import type { MemoryFiles } from "../fake/machine/memory_files.ts";
import {
  type CallerRequest,
  cleanupRequests,
  type CrashTime,
  PREPARATION,
  type Round,
  type Run,
  runs,
  send,
} from "./concurrent_callers.ts";
import { restartMachine } from "./crash_states.ts";
import { crashMomentsOf } from "./crashing_exec.ts";
import { type Acknowledged, nothingAcknowledged, violationsOf } from "./invariants.ts";
import { type Answer, Expectations } from "./expectations.ts";
import { type Csi, inProcessCalls, startDriverServices } from "./orchestrator.ts";
import { Overlaps } from "./overlap.ts";

/** The size of the volume group, in bytes: too small for everything at once. */
const GROUP_BYTES = 400n << 20n;

/** The errors after which nothing has changed. */
const REFUSALS = ["Busy", "FailedPrecondition", "InUse"];

/** The other errors that a caller may get while others work. Internal is not among them. */
const FAILURES = ["NotFound", "AlreadyExists", "OutOfRange", "NoSpace"];

/** How long the deletion of an encrypted volume may wait until its device is closed, in milliseconds. */
const CLOSE_WAIT_MS = 5_000;

/** A driver whose commands each wait for the scheduler, until it crashes. */
class ScheduledExec implements Exec {
  readonly crashed = Promise.withResolvers<void>();
  readonly overlaps: Overlaps;
  isCrashed = false;
  readonly #machine: FakeMachine;
  readonly #scheduler: fc.Scheduler;
  readonly #acknowledged: Acknowledged;
  readonly #crash: CrashTime | undefined;
  #commandCount = 0;

  constructor(machine: FakeMachine, scheduler: fc.Scheduler, acknowledged: Acknowledged, crash?: CrashTime) {
    this.#machine = machine;
    this.#scheduler = scheduler;
    this.#acknowledged = acknowledged;
    this.#crash = crash;
    this.overlaps = new Overlaps(machine);
  }

  async run(command: Command): Promise<Output> {
    if (this.isCrashed) return await PENDING_FOREVER;
    const end = this.#fail(() => this.overlaps.start(command, currentRequestId()?.split(",") ?? []));
    await this.#scheduler.schedule(DONE, describeCommand(command));
    if (this.isCrashed) return await PENDING_FOREVER;
    if (this.#commandCount++ === this.#crash?.after) return await this.#crashIn(command, this.#crash);
    try {
      return await this.#machine.run(command);
    } finally {
      end();
      if (command.mutates) this.#fail(() => this.#check(command));
    }
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }

  async #crashIn(command: Command, { moment }: CrashTime): Promise<never> {
    this.isCrashed = true;
    const moments = crashMomentsOf(command);
    const { name, effect } = moments[moment % moments.length]!;
    await effect(this.#machine, command, () => this.#machine.run(command));
    this.#fail(() => this.#check(command, ` (${name})`));
    this.crashed.resolve();
    return await PENDING_FOREVER;
  }

  #check(command: Command, crash = ""): void {
    const [violation] = violationsOf(this.#machine, this.#acknowledged);
    if (violation !== undefined) throw new Error(`after ${describeCommand(command)}${crash}: ${violation}`);
  }

  /** Runs a check. When it fails, the run fails: a driver may catch an error of a command. */
  #fail<T>(check: () => T): T {
    try {
      return check();
    } catch (error) {
      this.crashed.reject(error);
      throw error;
    }
  }
}

const DONE = Promise.resolve();
const PENDING_FOREVER = new Promise<never>(() => {});

/** The state after a number of requests of {@linkcode PREPARATION}. */
interface Prepared {
  readonly machine: FakeMachine;
  readonly acknowledged: Acknowledged;
  readonly paths: readonly string[];
}

/** Options of {@linkcode checkInterleavings}. */
export interface CheckOptions {
  /** The seed of the runs; random by default. */
  readonly seed?: number;
  /** The number of runs. */
  readonly numRuns: number;
  /** True to end at the first run that finds something, and not to look for a simpler one. */
  readonly endOnFailure?: boolean;
  /** What runs are made; without group snapshots by default. */
  readonly chosen?: fc.Arbitrary<Run>;
}

/** Makes runs with a seed. @returns what fast-check reports of them */
export function checkInterleavings(
  interleavings: Interleavings,
  { chosen = runs, ...options }: CheckOptions,
): Promise<fc.RunDetails<[fc.Scheduler, Run]>> {
  const property = fc.asyncProperty(fc.scheduler(), chosen, (scheduler, run) => interleavings.run(scheduler, run));
  return Promise.resolve(fc.check(property, options));
}

/** Runs concurrent callers, with mount points in files in memory. */
export class Interleavings {
  /** The number of answers by call and result. */
  readonly answers = new Map<string, number>();
  /** The number of crashes. */
  crashes = 0;
  readonly #files: MemoryFiles;
  readonly #prepared = new Map<number, Prepared>();

  readonly #isEncrypted: boolean;

  /**
   * @param isEncrypted true if all volumes are encrypted
   */
  constructor(files: MemoryFiles, { isEncrypted = false }: { readonly isEncrypted?: boolean } = {}) {
    this.#files = files;
    this.#isEncrypted = isEncrypted;
  }

  /** Makes the requests of a run, removes everything, and checks that nothing is left. */
  async run(scheduler: fc.Scheduler, { prepared, rounds }: Run): Promise<void> {
    const start = this.#prepared.get(prepared) ?? await this.#prepare(prepared);
    const [machine, acknowledged] = start.machine.fork(start.acknowledged);
    this.#files.paths = start.paths;
    const expectations = new Expectations(machine, this.#files.folder, acknowledged);
    for (const round of rounds) await this.#runRound(scheduler, machine, expectations, round);
    await this.#cleanUp(machine);
  }

  async #runRound(
    scheduler: fc.Scheduler,
    machine: FakeMachine,
    expectations: Expectations,
    { requests, crash }: Round,
  ) {
    const { folder } = this.#files;
    expectations.begin(requests);
    const exec = new ScheduledExec(machine, scheduler, expectations.acknowledged, crash);
    const driver = startDriverServices(exec, folder);
    const csi = inProcessCalls(driver);
    const answers: Answer[] = requests.map((request) => ({ request, result: "none" }));
    const calls = requests.map(async (request, index) => {
      const id = `call ${index}`;
      const answer = await answerTo(withRequestId(id, () => this.#send(csi, request)));
      // it unmounts the volume before it finds its mapping in use
      const isUnmounted = this.#isEncrypted && request.call === "unstage" && answer === "refused";
      const result = isUnmounted ? "failed" : answer;
      exec.overlaps.end(id);
      answers[index] = { request, result };
    });
    const done = Promise.all(calls).then(() => driver.background.idle());
    await waitWithoutClock(
      scheduler,
      Promise.race([done, exec.crashed.promise]),
      this.#isEncrypted ? CLOSE_WAIT_MS : 0,
    );
    const stopped = driver.background.stop();
    if (!exec.isCrashed) await stopped;
    this.#count(answers, exec.isCrashed);
    expectations.end(answers);
    if (exec.isCrashed && crash!.after % 2 === 1) restartMachine(machine, expectations.acknowledged);
    expectations.write();
    const [violation] = violationsOf(machine, expectations.acknowledged);
    assert(violation === undefined, violation);
  }

  #send(csi: Csi, request: CallerRequest): Promise<unknown> {
    return send(csi, this.#files.folder, request, this.#isEncrypted);
  }

  async #prepare(count: number): Promise<Prepared> {
    const machine = new FakeMachine();
    machine.addGroup("data", GROUP_BYTES);
    this.#files.paths = [];
    const expectations = new Expectations(machine, this.#files.folder);
    await this.#withDriver(machine, async (csi) => {
      for (const request of PREPARATION.slice(0, count)) {
        await this.#send(csi, request);
        expectations.end([{ request, result: "ok" }]);
        expectations.write();
      }
    });
    const prepared = { machine, acknowledged: expectations.acknowledged, paths: this.#files.paths };
    this.#prepared.set(count, prepared);
    return prepared;
  }

  async #cleanUp(machine: FakeMachine): Promise<void> {
    await this.#withDriver(machine, async (csi, idle) => {
      await idle();
      for (const request of cleanupRequests(machine)) await this.#send(csi, request);
    });
    const lvs = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined); // a thin pool stays
    assertEquals(lvs.map(({ lv }) => lv.name), [], "LVs are left");
    assertEquals([...machine.groups[0]!.tags], [], "records are left");
    assertEquals(machine.mounts.length, new FakeMachine().mounts.length, "mounts are left");
    assertEquals(machine.allLvs().filter(({ lv }) => lv.suspended).map(({ lv }) => lv.name), [], "suspended");
    assertEquals(violationsOf(machine, nothingAcknowledged()), []);
  }

  async #withDriver(machine: FakeMachine, body: (csi: Csi, idle: () => Promise<void>) => Promise<void>) {
    const driver = startDriverServices(machine, this.#files.folder);
    try {
      await body(inProcessCalls(driver), () => driver.background.idle());
      await driver.background.idle();
    } finally {
      await driver.background.stop();
    }
  }

  #count(answers: readonly Answer[], isCrashed: boolean): void {
    if (isCrashed) this.crashes++;
    for (const { request: { call }, result } of answers) {
      const key = `${call} ${result}`;
      this.answers.set(key, (this.answers.get(key) ?? 0) + 1);
    }
  }
}

/**
 * Lets the scheduler run commands until something is done.
 *
 * @param timerMs how long a timer may continue, in milliseconds
 * @throws {Error} when it is not done, and no command waits: then only a timer could continue
 */
async function waitWithoutClock(scheduler: fc.Scheduler, done: Promise<unknown>, timerMs: number): Promise<void> {
  let isDone = false;
  const settled = done.finally(() => isDone = true);
  settled.catch(() => {}); // it is awaited below
  while (!isDone) {
    await scheduler.waitIdle();
    if (isDone) break;
    await nextTurn();
    for (const end = Date.now() + timerMs; !isDone && scheduler.count() === 0 && Date.now() < end;) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    if (!isDone && scheduler.count() === 0) throw new Error("a call or work in the background waits for a timer");
  }
  await settled;
}

async function answerTo(call: Promise<unknown>): Promise<Answer["result"]> {
  try {
    await call;
    return "ok";
  } catch (error) {
    if (error instanceof StorageError && REFUSALS.includes(error.kind)) return "refused";
    if (error instanceof StorageError && FAILURES.includes(error.kind)) return "failed";
    throw error;
  }
}
