import { assert, assertEquals } from "@std/assert";
import { RESERVED, tagValue } from "../../lvm/model/tags.ts";
import type { FakeLv, FakeMachine } from "../fake/machine/machine.ts";
import { MemoryFiles } from "../fake/machine/memory_files.ts";
import { continueFrom, type Crash, newMachine, possibleCrashes, restartMachine } from "./crash_states.ts";
import { FOREIGN_NAME } from "./import_steps.ts";
import { CheckedExec } from "./invariants.ts";
import { type Lifecycle, Orchestrator, type Reaction, REACTIONS, type Scenario, type Step } from "./orchestrator.ts";
import { sampleCases } from "../rig/sample.ts";
import { SCENARIOS } from "./scenarios.ts";

/** One in so many crashes, each with one reaction, is continued in `task test`; `task test:crashes` continues all. */
const ONE_IN = 24;

/**
 * Continues a scenario after a crash, with a new driver.
 *
 * @throws {Error} when something is left at the end, or an invariant did not hold on the way
 */
async function continueAfter({ at, world }: Crash, scenario: Scenario, files: MemoryFiles, reaction: Reaction) {
  const { machine, lifecycle } = continueFrom(scenario, files.folder, world);
  const { state } = lifecycle;
  const steps = stepsAfter(lifecycle, world.step, reaction);
  if (steps === undefined) return;
  files.paths = world.paths;
  if (reaction.startsWith("restarts")) restartMachine(machine, state.acknowledged);
  const exec = new CheckedExec(machine, state.acknowledged);
  const orchestrator = new Orchestrator(exec, files.folder);
  try {
    await orchestrator.runSteps(steps);
    // a thin pool stays, and an LV of somebody else that was not imported
    const remaining = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined && lv.name !== FOREIGN_NAME);
    assertEquals(remaining.map(({ lv }) => `${lv.name} ${[...lv.tags]}`), [], "LVs are left");
    assertEquals([...machine.groups[0]!.tags], [], "records are left");
    assertEquals(machine.allLvs().filter(({ lv }) => lv.suspended), [], "devices are left suspended");
    assertEquals(machine.mounts.length, newMachine().mounts.length, "mounts are left");
    assertEquals(targetsIn(files), [], "targets are left");
    assertEquals(heldPools(machine, reaction), [], "metadata snapshots of pools are left");
    assertEquals(exec.violations, [], "invariants");
  } catch (error) {
    const onTheWay = exec.violations.length > 0 ? ` (${exec.violations[0]})` : "";
    throw new Error(`${at}; the orchestrator ${reaction}: ${error}${onTheWay}`, { cause: error });
  } finally {
    orchestrator.stop();
  }
}

/** Returns the steps of an orchestrator after a crash in a step; `undefined` if it has no creation to repeat. */
function stepsAfter({ steps, cleanup }: Lifecycle, step: number, reaction: Reaction): readonly Step[] | undefined {
  switch (reaction) {
    case "repeats":
      return steps.slice(step);
    case "gives up":
    case "restarts the machine, and gives up":
      return cleanup;
    case "restarts the machine, repeats a creation, and gives up": {
      const creation = steps.slice(step, step + 1).filter(({ name }) => name.startsWith("Create"));
      return creation.length > 0 ? [...creation, ...cleanup] : undefined;
    }
  }
}

/**
 * Returns the pools whose metadata snapshot is left. After a restart of the machine, the next list releases it: the kernel may
 * not have the pool before.
 */
function heldPools(machine: FakeMachine, reaction: Reaction): string[] {
  const held = machine.allLvs().map(({ lv }) => lv).filter(({ thinPool }) => thinPool?.metadataSnapshot);
  const isRestart = reaction.startsWith("restarts");
  const isRecorded = ({ tags }: FakeLv) => tagValue([...tags], RESERVED) !== undefined;
  return held.filter((lv) => !(isRestart && isRecorded(lv))).map(({ name }) => name);
}

/** Returns the targets that exist. The staging paths belong to the orchestrator. */
function targetsIn({ paths }: MemoryFiles): string[] {
  return paths.filter((path) => !path.startsWith("staging"));
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  Deno.test(`a driver may crash at any moment of a volume's lifecycle: ${name}`, async () => {
    using files = new MemoryFiles();
    const crashes = await possibleCrashes(scenario, files);
    assertEquals(targetsIn(files), [], "targets are left without a crash");
    assert(crashes.length > 5, `only ${crashes.length} crashes`);
    const failures: string[] = [];
    const all = REACTIONS.flatMap((reaction) => crashes.map((crash) => ({ crash, reaction })));
    for (const { crash, reaction } of await sampleCases(name, all, ONE_IN)) {
      await continueAfter(crash, scenario, files, reaction).catch(({ message }) => failures.push(message));
    }
    assertEquals(failures, [], `${failures.length} failures after ${crashes.length} crashes`);
  });
}
