import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "../lvm/error.ts";
import { type Command, describe, type Exec, type Output } from "../lvm/exec.ts";
import { snapshotIdOf, volumeIdOf } from "../lvm/ids.ts";
import { Crowd, type Round, rounds } from "./crash/crowd.ts";
import { callsOf, type Csi, driverOver } from "./crash/orchestrator.ts";
import { FakeMachine } from "./fake/machine.ts";

/** Seeds of runs that found something once; each is run again every time. */
const SEEDS: readonly number[] = [];

/** How many random runs there are besides. */
const RUNS = 150;

/** What a caller may be told when others are at work, too. INTERNAL is not among it. */
const EXPECTED = ["Busy", "NotFound", "FailedPrecondition", "InUse", "AlreadyExists", "OutOfRange", "NoSpace"];

/** A driver whose commands each wait for the scheduler, until it dies. */
class ScheduledExec implements Exec {
  readonly died = Promise.withResolvers<void>();
  dead = false;
  readonly #machine: FakeMachine;
  readonly #scheduler: fc.Scheduler;
  readonly #underWay: Map<string, string>;
  #left: number;

  constructor(machine: FakeMachine, scheduler: fc.Scheduler, underWay: Map<string, string>, deathAfter = Infinity) {
    this.#machine = machine;
    this.#scheduler = scheduler;
    this.#underWay = underWay;
    this.#left = deathAfter;
  }

  async run(command: Command): Promise<Output> {
    const lv = /vol-[0-9a-f]{32}/.exec(command.args.join(" ").replaceAll("--", "-"))?.[0];
    // a snapshot's commands name their origin, too, and may run beside each other
    const key = command.mutates && lv !== undefined && !command.args.includes("--snapshot") ? lv : undefined;
    if (key !== undefined) {
      const other = this.#underWay.get(key);
      assert(other === undefined, `${describe(command)} while ${other} is under way`);
      this.#underWay.set(key, describe(command));
    }
    try {
      await this.#scheduler.schedule(Promise.resolve(), describe(command));
      if (this.dead || this.#left-- <= 0) {
        this.dead = true;
        this.died.resolve();
        return await new Promise<never>(() => {});
      }
      return await this.#machine.run(command);
    } finally {
      if (key !== undefined) this.#underWay.delete(key);
    }
  }

  settled(): Promise<void> {
    return Promise.resolve();
  }
}

async function play(scheduler: fc.Scheduler, all: readonly Round[]): Promise<void> {
  const machine = new FakeMachine();
  machine.addGroup("data", 200n << 20n);
  const folder = await Deno.realPath(await Deno.makeTempDir());
  const crowd = new Crowd(folder, volumeIdOf, snapshotIdOf);
  try {
    for (const { wishes, deathAfter } of all) {
      const exec = new ScheduledExec(machine, scheduler, new Map(), deathAfter);
      const driver = driverOver(exec, folder);
      const asked = Promise.all(wishes.map((wish) => expectAnswer(crowd.ask(callsOf(driver), wish))));
      const done = asked.then(() => driver.background.settled());
      await scheduler.waitFor(Promise.race([done, exec.died.promise]));
      const stopped = driver.background.stop();
      if (!exec.dead) await stopped;
      check(machine);
    }
    const driver = driverOver(machine, folder);
    await driver.background.settled();
    const csi: Csi = callsOf(driver);
    for (const wish of crowd.farewell()) await crowd.ask(csi, wish);
    await driver.background.settled();
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

/** What must hold whenever the driver rests, or is dead. */
function check(machine: FakeMachine): void {
  const claims = machine.allLvs().flatMap(({ lv }) =>
    [...lv.tags].filter((tag) => /^denolith\.(?:volume|snapshot)=/.test(tag))
  );
  assertEquals(claims.length, new Set(claims).size, "two LVs are one volume or snapshot");
  for (const { lv } of machine.allLvs()) assert(lv.tags.has("denolith=test.denolith.dev"), `${lv.name} has no owner`);
}

Deno.test({
  name: "callers at once, in any order, over deaths of the driver: one LV for each volume, and nothing is left",
  // what a driver waited for when it died ends with its process, which goes on here; so do its timers
  sanitizeOps: false,
  sanitizeResources: false,
  fn: interleavings,
});

async function interleavings(): Promise<void> {
  const property = fc.asyncProperty(fc.scheduler(), rounds, play);
  for (const seed of SEEDS) await fc.assert(property, { seed, numRuns: RUNS });
  await fc.assert(property, { numRuns: RUNS });
}
