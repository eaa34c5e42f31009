/**
 * The states in which crashes of a driver leave the rest of the world: the machine, the folder of its mounts, and the
 * orchestrator. A new driver knows nothing else, so a test continues from such a state without running what led to it.
 *
 * @module
 */

import { join } from "@std/path";
import { type Command, describeCommand, type Exec } from "../../lvm/exec.ts";
import { FakeMachine } from "../fake/machine.ts";
import { type CrashMoment, crashMomentsOf } from "./crashing_exec.ts";
import { type Lifecycle, Orchestrator, type Scenario, type StepState } from "./orchestrator.ts";

/** The size of the volume group, in bytes. */
const GROUP_BYTES = 2n << 30n;

/** The state of the world beside the driver. */
export interface World {
  readonly machine: FakeMachine;
  /** The state of the orchestrator. */
  readonly state: StepState;
  /** The number of the step that the orchestrator waits for. */
  readonly step: number;
  /** The files and directories in the folder: their paths, those of directories with a slash. */
  readonly paths: readonly string[];
}

/** A crash: its point in words, and the state of the world after it. */
export interface Crash {
  readonly at: string;
  readonly world: World;
}

/** The state of the world before a command. */
interface CommandState {
  readonly command: Command;
  readonly world: World;
}

/**
 * Runs a scenario once, and returns the crashes that are possible in it. Of crashes after which the world is the same,
 * it returns the first one.
 *
 * @param folder an empty folder for the mounts
 */
export async function possibleCrashes(scenario: Scenario, folder: string): Promise<Crash[]> {
  const crashes = new Map<string, Crash>();
  for (const [index, { command, world }] of (await recordCommands(scenario, folder)).entries()) {
    for (const moment of crashMomentsOf(command)) {
      const after = await crashIn(scenario, folder, { command, world, moment });
      const key = describeWorld(after);
      if (crashes.has(key)) continue;
      crashes.set(key, { at: `command ${index} (${describeCommand(command)}), ${moment.name}`, world: after });
    }
  }
  return [...crashes.values()];
}

/** Runs a scenario, and records the state of the world before each command. */
async function recordCommands(scenario: Scenario, folder: string): Promise<CommandState[]> {
  const commands: CommandState[] = [];
  let step = 0;
  const machine = newMachine();
  const { steps, state } = scenario(machine, folder);
  const exec: Exec = {
    run: (command) => {
      const [copy, stateCopy] = machine.fork(state);
      const world = { machine: copy, state: stateCopy, step, paths: pathsIn(folder) };
      commands.push({ command, world });
      return machine.run(command);
    },
    idle: () => machine.idle(),
  };
  const orchestrator = new Orchestrator(exec, folder);
  try {
    await orchestrator.runSteps(steps, (index) => step = index);
  } finally {
    orchestrator.stop();
  }
  return commands;
}

/** Returns a machine with an empty volume group. */
export function newMachine(): FakeMachine {
  const machine = new FakeMachine();
  machine.addGroup("data", GROUP_BYTES);
  return machine;
}

/** Returns the state of the world after a crash at a moment of a command. */
async function crashIn(
  scenario: Scenario,
  folder: string,
  { command, world, moment }: CommandState & { readonly moment: CrashMoment },
): Promise<World> {
  const { machine, lifecycle: { state } } = continueFrom(scenario, folder, world);
  await moment.effect(machine, command, () => machine.run(command));
  return { ...world, machine, state };
}

/** Returns a machine and a lifecycle that continue from a state of the world, and can change without changing it. */
export function continueFrom(
  scenario: Scenario,
  folder: string,
  world: World,
): { machine: FakeMachine; lifecycle: Lifecycle } {
  const [machine, state] = world.machine.fork(world.state);
  const lifecycle = scenario(machine, folder);
  Object.assign(lifecycle.state, state);
  return { machine, lifecycle };
}

/** Makes an empty folder what it was in a state of the world. */
export function restorePaths(folder: string, { paths }: World): void {
  for (const path of paths) {
    if (path.endsWith("/")) Deno.mkdirSync(join(folder, path));
    else Deno.writeTextFileSync(join(folder, path), "");
  }
}

/** Returns the paths below a folder: directories before what is in them. */
export function pathsIn(folder: string): string[] {
  return [...Deno.readDirSync(folder)].flatMap(({ name, isDirectory }) =>
    isDirectory ? [`${name}/`, ...pathsIn(join(folder, name)).map((path) => `${name}/${path}`)] : [name]
  ).sort();
}

/** Returns a text that is the same for states of the world that differ in nothing. */
function describeWorld({ machine: { groups, mounts, busyTargets }, state, step, paths }: World): string {
  return JSON.stringify([groups, mounts, busyTargets, state, step, paths], (_, value) => {
    if (typeof value === "bigint") return `${value}n`;
    return value instanceof Set || value instanceof Map ? [...value] : value;
  });
}
