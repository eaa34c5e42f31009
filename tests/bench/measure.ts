import { median, round } from "./statistics.ts";
import type { Admin } from "./plain_side.ts";
import type { Operation, OperationResult } from "./result.ts";
import type { Side, Sides } from "./sides.ts";
import type { CountingExec } from "./measured_driver.ts";

/** Operations that follow each other at once. */
type Sequence<O extends Operation> = readonly O[];

/** The times of some runs of an operation, in milliseconds, and what the administrator typed in the last. */
export interface Times {
  readonly driver: number[];
  readonly plain: number[];
  typedCommands: string[];
}

/** Runs each operation once. @returns how many commands of the driver had ended by the end of each */
export async function countCommands<O extends Operation>(
  sequences: readonly Sequence<O>[],
  driver: Sides<O>,
  exec: CountingExec,
): Promise<Record<O, number>> {
  const counts: [O, number][] = [];
  for (const sequence of sequences) {
    await prepareAll(driver, sequence);
    const before = exec.completed;
    for (const operation of sequence) {
      await driver[operation].run();
      counts.push([operation, exec.completed - before]);
    }
  }
  return Object.fromEntries(counts) as Record<O, number>;
}

/**
 * Makes each operation so many times, once by the driver and then at once by the administrator, so that whatever else the
 * machine does weighs on both.
 */
export async function takeTimes<O extends Operation>(
  sequences: readonly Sequence<O>[],
  sides: { driver: Sides<O>; plain: Sides<O>; admin: Admin },
  runs: number,
): Promise<Record<O, Times>> {
  const entries = sequences.flat().map((operation) => [operation, { driver: [], plain: [], typedCommands: [] }]);
  const times: Record<O, Times> = Object.fromEntries(entries);
  for (let run = 0; run < runs; run++) {
    for (const sequence of sequences) {
      await prepareAll(sides.driver, sequence);
      const start = performance.now();
      for (const operation of sequence) {
        await sides.driver[operation].run();
        times[operation].driver.push(performance.now() - start);
      }
      for (const operation of sequence) await measurePlain(sides.plain[operation], sides.admin, times[operation]);
    }
  }
  return times;
}

async function measurePlain(side: Side, admin: Admin, times: Times): Promise<void> {
  await side.prepare?.();
  admin.takeTyped();
  const start = performance.now();
  await side.run();
  times.plain.push(performance.now() - start);
  times.typedCommands = admin.takeTyped();
}

async function prepareAll<O extends Operation>(sides: Sides<O>, sequence: Sequence<O>): Promise<void> {
  for (const operation of sequence) await sides[operation].prepare?.();
}

/** Returns the result of an operation from its times and its number of commands. */
export function operationResult({ driver, plain, typedCommands }: Times, commands?: number): OperationResult {
  const [driverMs, plainMs] = [median(driver), median(plain)];
  return {
    driverMs: round(driverMs),
    plainMs: round(plainMs),
    ratio: round(driverMs / plainMs, 2),
    ...commands !== undefined && { commands },
    plain: typedCommands,
    runs: driver.length,
  };
}
