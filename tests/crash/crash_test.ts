import { assert, assertEquals } from "@std/assert";
import { FakeMachine } from "../fake/machine.ts";
import { crashMomentsOf, type CrashPoint } from "./crashing_exec.ts";
import { Orchestrator, type Reaction } from "./orchestrator.ts";
import { type Scenario, SCENARIOS } from "./scenarios.ts";

const BYTES = 2n << 30n;

/** Runs a scenario on a machine of its own. @returns the commands of a lifecycle without a crash */
async function runScenario(scenario: Scenario, reaction: Reaction, point?: CrashPoint) {
  const machine = new FakeMachine();
  machine.addGroup("data", BYTES);
  const mounts = machine.mounts.length;
  const folder = await Deno.realPath(await Deno.makeTempDir());
  let orchestrator: Orchestrator | undefined;
  try {
    const { steps, cleanup } = scenario(machine, folder);
    orchestrator = new Orchestrator(machine, folder, point);
    await orchestrator.runSteps(steps, reaction, cleanup);
    const [group] = machine.groups;
    const remaining = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined); // a thin pool stays
    assertEquals(remaining.map(({ lv }) => `${lv.name} ${[...lv.tags]}`), [], "LVs are left");
    assertEquals([...group!.tags], [], "records are left");
    assertEquals(machine.mounts.length, mounts, "mounts are left");
    const targets = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => !name.startsWith("staging"));
    assertEquals(targets, [], "targets are left");
    return orchestrator.commands;
  } catch (error) {
    throw new Error(`${orchestrator?.crashedAt ?? "no crash"}; the orchestrator ${reaction}: ${error}`, {
      cause: error,
    });
  } finally {
    orchestrator?.stop();
    await Deno.remove(folder, { recursive: true });
  }
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  Deno.test(`a driver may crash at any moment of a volume's lifecycle: ${name}`, async () => {
    const commands = await runScenario(scenario, "repeats");
    const points = commands.flatMap((command, index) =>
      crashMomentsOf(command).map((moment) => ({ index, command, moment }))
    );
    assert(points.length > 5, `only ${points.length} points`);
    const failures: string[] = [];
    for (const reaction of ["repeats", "gives up"] as const) {
      for (const point of points) {
        await runScenario(scenario, reaction, point).catch(({ message }) => failures.push(message));
      }
    }
    assertEquals(failures, [], `${failures.length} of ${2 * points.length} crashes`);
  });
}
