import { assert, assertEquals } from "@std/assert";
import { FakeMachine } from "./fake/machine.ts";
import { momentsOf, type Point } from "./crash/mortal.ts";
import { Orchestrator, type Reaction } from "./crash/orchestrator.ts";
import { type Scenario, SCENARIOS } from "./crash/scenarios.ts";

const BYTES = 2n << 30n;

/** Plays a scenario on a machine of its own, and answers the commands of a life without a death. */
async function play(scenario: Scenario, reaction: Reaction, point?: Point) {
  const machine = new FakeMachine();
  machine.addGroup("data", BYTES);
  const mounts = machine.mounts.length;
  const folder = await Deno.realPath(await Deno.makeTempDir());
  let orchestrator: Orchestrator | undefined;
  try {
    const { steps, giveUp } = scenario(machine, folder);
    orchestrator = new Orchestrator(machine, folder, point);
    await orchestrator.live(steps, reaction, giveUp);
    const [group] = machine.groups;
    const rest = machine.allLvs().filter(({ lv }) => lv.thinPool === undefined); // a thin pool stays
    assertEquals(rest.map(({ lv }) => `${lv.name} ${[...lv.tags]}`), [], "LVs are left");
    assertEquals([...group!.tags], [], "records are left");
    assertEquals(machine.mounts.length, mounts, "mounts are left");
    const targets = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => !name.startsWith("staging"));
    assertEquals(targets, [], "targets are left");
    return orchestrator.commands;
  } catch (error) {
    throw new Error(`${orchestrator?.diedAt ?? "no death"}; the orchestrator ${reaction}: ${error}`, { cause: error });
  } finally {
    orchestrator?.end();
    await Deno.remove(folder, { recursive: true });
  }
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  Deno.test(`a driver may die at any moment of a volume's life: ${name}`, async () => {
    const commands = await play(scenario, "repeats");
    const points = commands.flatMap((command, index) =>
      momentsOf(command).map((moment) => ({ index, command, moment }))
    );
    assert(points.length > 5, `only ${points.length} points`);
    const losses: string[] = [];
    for (const reaction of ["repeats", "gives up"] as const) {
      for (const point of points) {
        await play(scenario, reaction, point).catch(({ message }) => losses.push(message));
      }
    }
    assertEquals(losses, [], `${losses.length} of ${2 * points.length} deaths`);
  });
}
