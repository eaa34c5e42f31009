import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "../../lvm/error.ts";
import { type Command, describeCommand, type Exec, type Output } from "../../lvm/exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../lvm/ids.ts";
import { ConcurrentCallers, type Round, rounds } from "./concurrent_callers.ts";
import { type Csi, inProcessCalls, startDriverServices } from "./orchestrator.ts";
import { FakeMachine } from "../fake/machine.ts";

/** Seeds of runs that found something once; each is run again every time. */
const SEEDS: readonly number[] = [];

/** The number of additional random runs. */
const RUNS = 150;

/** The errors that a caller may get while others work. Internal is not among them. */
const EXPECTED = ["Busy", "NotFound", "FailedPrecondition", "InUse", "AlreadyExists", "OutOfRange", "NoSpace"];

/** A driver whose commands each wait for the scheduler, until it crashes. */
class ScheduledExec implements Exec {
  readonly crashed = Promise.withResolvers<void>();
  isCrashed = false;
  readonly #machine: FakeMachine;
  readonly #scheduler: fc.Scheduler;
  readonly #running: Map<string, string>;
  #commandsLeft: number;

  constructor(machine: FakeMachine, scheduler: fc.Scheduler, running: Map<string, string>, crashAfter = Infinity) {
    this.#machine = machine;
    this.#scheduler = scheduler;
    this.#running = running;
    this.#commandsLeft = crashAfter;
  }

  async run(command: Command): Promise<Output> {
    const lv = /vol-[0-9a-f]{32}/.exec(command.args.join(" ").replaceAll("--", "-"))?.[0];
    // a snapshot's commands name their origin, too, and may run beside each other
    const key = command.mutates && lv !== undefined && !command.args.includes("--snapshot") ? lv : undefined;
    if (key !== undefined) {
      const other = this.#running.get(key);
      assert(other === undefined, `${describeCommand(command)} while ${other} is under way`);
      this.#running.set(key, describeCommand(command));
    }
    try {
      await this.#scheduler.schedule(Promise.resolve(), describeCommand(command));
      if (this.isCrashed || this.#commandsLeft-- <= 0) {
        this.isCrashed = true;
        this.crashed.resolve();
        return await new Promise<never>(() => {});
      }
      return await this.#machine.run(command);
    } finally {
      if (key !== undefined) this.#running.delete(key);
    }
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }
}

async function runRounds(scheduler: fc.Scheduler, all: readonly Round[]): Promise<void> {
  const machine = new FakeMachine();
  machine.addGroup("data", 200n << 20n);
  const folder = await Deno.realPath(await Deno.makeTempDir());
  const callers = new ConcurrentCallers(folder, volumeIdOf, snapshotIdOf);
  try {
    for (const { requests, crashAfter } of all) {
      const exec = new ScheduledExec(machine, scheduler, new Map(), crashAfter);
      const driver = startDriverServices(exec, folder);
      const answered = Promise.all(
        requests.map((request) => expectAnswer(callers.send(inProcessCalls(driver), request))),
      );
      const done = answered.then(() => driver.background.idle());
      await scheduler.waitFor(Promise.race([done, exec.crashed.promise]));
      const stopped = driver.background.stop();
      if (!exec.isCrashed) await stopped;
      checkInvariants(machine);
    }
    const driver = startDriverServices(machine, folder);
    await driver.background.idle();
    const csi: Csi = inProcessCalls(driver);
    for (const request of callers.cleanupRequests()) await callers.send(csi, request);
    await driver.background.idle();
    await driver.background.stop();
    assertEquals(machine.allLvs().map(({ lv }) => lv.name), [], "LVs are left");
    assertEquals([...machine.groups[0]!.tags], [], "records are left");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function expectAnswer(answer: Promise<unknown>): Promise<void> {
  try {
    await answer;
  } catch (error) {
    if (!(error instanceof StorageError && EXPECTED.includes(error.kind))) throw error;
  }
}

/** Checks what must hold whenever the driver is idle or dead. */
function checkInvariants(machine: FakeMachine): void {
  const idTags = machine.allLvs().flatMap(({ lv }) =>
    [...lv.tags].filter((tag) => /^denolith\.(?:volume|snapshot)=/.test(tag))
  );
  assertEquals(idTags.length, new Set(idTags).size, "two LVs are one volume or snapshot");
  for (const { lv } of machine.allLvs()) assert(lv.tags.has("denolith=test.denolith.dev"), `${lv.name} has no owner`);
}

Deno.test({
  name: "concurrent callers in any order, and crashes of the driver: each volume has one LV, deleted ones none",
  // The operations and timers of a crashed driver would end with its process, which continues here.
  sanitizeOps: false,
  sanitizeResources: false,
  fn: interleavings,
});

async function interleavings(): Promise<void> {
  const property = fc.asyncProperty(fc.scheduler(), rounds, runRounds);
  for (const seed of SEEDS) await fc.assert(property, { seed, numRuns: RUNS });
  await fc.assert(property, { numRuns: RUNS });
}
