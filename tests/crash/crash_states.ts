/**
 * The states in which crashes of a driver leave the rest of the world: the machine, the folder of its mounts, and the
 * orchestrator. A new driver knows nothing else, so a test continues from such a state without running what led to it.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { type Command, describeCommand, type Exec } from "../../lvm/exec.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import type { MemoryFiles } from "../fake/machine/memory_files.ts";
import { type CrashMoment, crashMomentsOf, describeMachine } from "./crashing_exec.ts";
import { type Acknowledged, CheckedExec } from "./invariants.ts";
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
  /** The exit status of the command. */
  readonly code: number;
  readonly world: World;
}

/**
 * Runs a scenario once, and returns the crashes that are possible in it. Of crashes after which the world is the same,
 * it returns the first one. So a crash during a command, which leaves what a crash before or after it leaves, is none.
 *
 * @param files an empty folder for the mounts
 */
export async function possibleCrashes(scenario: Scenario, files: MemoryFiles): Promise<Crash[]> {
  const crashes = new Map<string, Crash>();
  for (const [index, { command, code, world }] of (await recordCommands(scenario, files)).entries()) {
    const [before, ...later] = crashMomentsOf(command);
    for (const moment of [before!, ...later.reverse()]) { // the moment after the command before those during it
      const after = await crashIn(scenario, files, { command, code, world, moment });
      const key = describeWorld(after);
      if (crashes.has(key)) continue;
      crashes.set(key, { at: `command ${index} (${describeCommand(command)}), ${moment.name}`, world: after });
    }
  }
  return [...crashes.values()];
}

/** Runs a scenario, and records the state of the world before each command. */
async function recordCommands(scenario: Scenario, files: MemoryFiles): Promise<CommandState[]> {
  const commands: CommandState[] = [];
  let step = 0;
  const machine = newMachine();
  const { steps, state, prepare } = scenario(machine, files.folder);
  prepare?.();
  const checked = new CheckedExec(machine, state.acknowledged);
  const exec: Exec = {
    run: async (command) => {
      const [copy, stateCopy] = machine.fork(state);
      const world = { machine: copy, state: stateCopy, step, paths: files.paths };
      const output = await checked.run(command);
      commands.push({ command, code: output.code, world });
      return output;
    },
    idle: () => machine.idle(),
  };
  const orchestrator = new Orchestrator(exec, files.folder);
  try {
    await orchestrator.runSteps(steps, (index) => step = index);
  } finally {
    orchestrator.stop();
  }
  assertEquals(checked.violations, [], "without a crash");
  return commands;
}

/** Returns a machine with an empty volume group. */
export function newMachine(): FakeMachine {
  const machine = new FakeMachine();
  machine.addGroup("data", GROUP_BYTES);
  return machine;
}

/**
 * Returns the state of the world after a crash at a moment of a command.
 *
 * @throws {Error} when the command ends in another way than it did without a crash
 */
async function crashIn(
  scenario: Scenario,
  files: MemoryFiles,
  { command, code, world, moment }: CommandState & { readonly moment: CrashMoment },
): Promise<World> {
  const { machine, lifecycle: { state } } = continueFrom(scenario, files.folder, world);
  files.paths = world.paths;
  await moment.effect(machine, command, async () => {
    const output = await machine.run(command);
    assertEquals(output.code, code, `${describeCommand(command)}: ${output.stderr}`);
    return output;
  });
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

/** Restarts a machine that activates no LV by itself, as after a power cut: its mounts are gone, and all devices of LVs. */
export function restartMachine(machine: FakeMachine, acknowledged: Acknowledged): void {
  machine.mounts.splice(0, Infinity, ...newMachine().mounts);
  machine.openLvs.length = 0;
  machine.busyTargets.clear();
  machine.host.missingDeviceNodes.clear();
  for (const { lv } of machine.allLvs()) {
    Object.assign(lv, { active: false, suspended: false, setReadOnly: false, mapping: undefined });
    delete lv.killedTable;
    delete lv.thinPool?.activeParts;
  }
  acknowledged.mounts.clear();
}

/** Returns a text that is the same for states of the world that differ in nothing. */
function describeWorld({ machine, state, step, paths }: World): string {
  return describeMachine(machine, [state, step, paths]);
}
