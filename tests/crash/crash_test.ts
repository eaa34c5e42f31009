import { assert, assertEquals } from "@std/assert";
import { MemoryFiles } from "../fake/memory_files.ts";
import { continueFrom, type Crash, newMachine, possibleCrashes } from "./crash_states.ts";
import { CheckedExec } from "./invariants.ts";
import { Orchestrator, type Reaction, type Scenario } from "./orchestrator.ts";
import { SCENARIOS } from "./scenarios.ts";

/**
 * Continues a scenario after a crash, with a new driver.
 *
 * @throws {Error} when something is left at the end, or an invariant did not hold on the way
 */
async function continueAfter({ at, world }: Crash, scenario: Scenario, files: MemoryFiles, reaction: Reaction) {
  const { machine, lifecycle: { steps, cleanup, state } } = continueFrom(scenario, files.folder, world);
  files.paths = world.paths;
  const exec = new CheckedExec(machine, state.acknowledged);
  const orchestrator = new Orchestrator(exec, files.folder);
  try {
    await orchestrator.runSteps(reaction === "repeats" ? steps.slice(world.step) : cleanup);
    const remaining = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined); // a thin pool stays
    assertEquals(remaining.map(({ lv }) => `${lv.name} ${[...lv.tags]}`), [], "LVs are left");
    assertEquals([...machine.groups[0]!.tags], [], "records are left");
    assertEquals(machine.mounts.length, newMachine().mounts.length, "mounts are left");
    assertEquals(targetsIn(files), [], "targets are left");
    assertEquals(exec.violations, [], "invariants");
  } catch (error) {
    const onTheWay = exec.violations.length > 0 ? ` (${exec.violations[0]})` : "";
    throw new Error(`${at}; the orchestrator ${reaction}: ${error}${onTheWay}`, { cause: error });
  } finally {
    orchestrator.stop();
  }
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
    for (const reaction of ["repeats", "gives up"] as const) {
      for (const crash of crashes) {
        await continueAfter(crash, scenario, files, reaction).catch(({ message }) => failures.push(message));
      }
    }
    assertEquals(failures, [], `${failures.length} of ${2 * crashes.length} crashes`);
  });
}
