import { assert, assertEquals } from "@std/assert";
import { continueFrom, type Crash, newMachine, pathsIn, possibleCrashes, restorePaths } from "./crash_states.ts";
import { Orchestrator, type Reaction, type Scenario } from "./orchestrator.ts";
import { SCENARIOS } from "./scenarios.ts";

/** Continues a scenario after a crash, with a new driver. @throws {Error} when something is left at the end */
async function continueAfter({ at, world }: Crash, scenario: Scenario, folder: string, reaction: Reaction) {
  const { machine, lifecycle: { steps, cleanup } } = continueFrom(scenario, folder, world);
  restorePaths(folder, world);
  const orchestrator = new Orchestrator(machine, folder);
  try {
    await orchestrator.runSteps(reaction === "repeats" ? steps.slice(world.step) : cleanup);
    const remaining = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined); // a thin pool stays
    assertEquals(remaining.map(({ lv }) => `${lv.name} ${[...lv.tags]}`), [], "LVs are left");
    assertEquals([...machine.groups[0]!.tags], [], "records are left");
    assertEquals(machine.mounts.length, newMachine().mounts.length, "mounts are left");
    const targets = pathsIn(folder).filter((path) => !path.startsWith("staging"));
    assertEquals(targets, [], "targets are left");
  } catch (error) {
    throw new Error(`${at}; the orchestrator ${reaction}: ${error}`, { cause: error });
  } finally {
    orchestrator.stop();
    for (const { name } of [...Deno.readDirSync(folder)]) Deno.removeSync(`${folder}/${name}`, { recursive: true });
  }
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  Deno.test(`a driver may crash at any moment of a volume's lifecycle: ${name}`, async () => {
    const folder = await Deno.realPath(await Deno.makeTempDir());
    try {
      const crashes = await possibleCrashes(scenario, folder);
      for (const path of pathsIn(folder)) assert(path.startsWith("staging"), `${path} is left without a crash`);
      for (const { name } of [...Deno.readDirSync(folder)]) Deno.removeSync(`${folder}/${name}`);
      assert(crashes.length > 5, `only ${crashes.length} crashes`);
      const failures: string[] = [];
      for (const reaction of ["repeats", "gives up"] as const) {
        for (const crash of crashes) {
          await continueAfter(crash, scenario, folder, reaction).catch(({ message }) => failures.push(message));
        }
      }
      assertEquals(failures, [], `${failures.length} of ${2 * crashes.length} crashes`);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}
