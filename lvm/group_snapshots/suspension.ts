/**
 * Suspends devices for a moment, so that nothing is written to any of them meanwhile.
 *
 * A suspended device holds back everybody who writes to it. So before the first device is suspended, a process is started
 * that resumes all of them at the end of the time, whatever has become of the driver: find(1), which waits and then runs
 * dmsetup(8). It is ended when the driver has resumed the devices itself.
 *
 * @module
 */

import { type Clock, nextTurn, sleep, systemClock, withinDeadline } from "../../base/clock.ts";
import { lateCompletion, StorageError, truncate } from "../../base/error.ts";
import { type Command, type Exec, runOk } from "../exec.ts";
import { readMappedDevices } from "../host/device_mapper.ts";

/** The time that devices are suspended at most, in seconds. */
export const SUSPENSION_SECONDS = 10;

/** The time after which the process that resumes devices is ended, in milliseconds: it ends by itself before. */
const GUARD_MS = 120_000;

/** The maximum length of what find(1) says in a message, in characters. */
const MAX_REASON_LENGTH = 200;

/** The devices that are suspended. */
export interface SuspendedDevices {
  /** Resumes a device, which is not needed any more. */
  resume(name: string): Promise<void>;
  /** Notes that something else has resumed a device. */
  forget(name: string): void;
  /**
   * Makes sure that all devices that were not resumed are still suspended.
   *
   * @throws {StorageError} `Busy`.
   */
  requireSuspended(): Promise<void>;
}

/**
 * Runs a body while devices are suspended, and their filesystems frozen. However it ends, they are resumed.
 *
 * @param names the devices, by their names for dmsetup(8)
 * @throws {StorageError} `StillRunning` when the time is over, whose completion settles when the body has ended; `CommandFailed`
 * when a device cannot be suspended, or resumed; besides what the body throws
 */
export async function whileSuspended<T>(
  exec: Exec,
  names: readonly string[],
  body: (devices: SuspendedDevices) => Promise<T>,
  clock: Clock = systemClock,
): Promise<T> {
  const end = clock.now() + SUSPENSION_SECONDS * 1000;
  const guard = await startGuard(exec, names);
  const suspension = new Suspension(exec, clock, end, guard);
  const work = (async () => {
    await clearTables(exec, names);
    for (const name of names) await suspension.suspend(name);
    return { value: await body(suspension) };
  })();
  work.catch(() => {}); // after the end of the time, nobody else waits for it
  let failure: unknown;
  try {
    const done = await withinDeadline(work, end - clock.now(), { clock });
    if (done === undefined || clock.now() >= end) throw overdueError(work);
    return done.value;
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    await suspension.resumeAll().catch((error) => Promise.reject(withCompletion(error, failure)));
    guard.end();
  }
}

/** The time after the start of a process in which find(1) of an earlier one may resume devices, in milliseconds. */
const EARLIER_GUARD_MS = 2 * SUSPENSION_SECONDS * 1000;

/**
 * What find(1) of an earlier process may do. One that was killed while devices were suspended leaves find(1), which would
 * resume them during the next suspension, too.
 */
export class EarlierGuards {
  readonly #clock: Clock;
  readonly #end: number;
  readonly #signal: AbortSignal | undefined;

  /** Starts the time. @param signal aborted when the process is asked to end: then nobody waits any more */
  constructor(clock: Clock, signal?: AbortSignal) {
    this.#clock = clock;
    this.#end = clock.now() + EARLIER_GUARD_MS;
    this.#signal = signal;
  }

  /** Waits until none is left. @returns whether that took time */
  async waitForEnd(): Promise<boolean> {
    const leftMs = this.#end - this.#clock.now();
    if (leftMs <= 0) return false;
    await sleep(this.#clock, leftMs, this.#signal);
    return true;
  }
}

/** The process that resumes the devices when the time is over. */
interface Guard {
  /** Why it runs no longer; `undefined` while it does. */
  readonly error: () => unknown;
  /** Ends it. */
  readonly end: () => void;
}

/** Starts the process that resumes the devices. @throws {StorageError} when it cannot be started */
async function startGuard(exec: Exec, names: readonly string[]): Promise<Guard> {
  const controller = new AbortController();
  let error: unknown;
  const run = exec.run(guardCommand(names, controller.signal)).then(
    ({ code, stderr }) => error = guardEndedError(code, stderr),
    (failure) => error = failure,
  );
  await Promise.race([run, nextTurn()]);
  if (error !== undefined) throw error;
  return { error: () => error, end: () => controller.abort() };
}

function guardEndedError(code: number, stderr: string): StorageError {
  const reason = truncate(`exit ${code} ${stderr.trim()}`.trim(), MAX_REASON_LENGTH);
  return new StorageError("CommandFailed", `suspending devices: find, which resumes them, ended early: ${reason}`);
}

/** Returns the command that waits, and then resumes each of the devices, in the order in which they were suspended. */
function guardCommand(names: readonly string[], signal: AbortSignal): Command {
  const execute = (...command: readonly string[]) => ["-exec", ...command, ";"];
  const resume = names.flatMap((name) =>
    [["clear", name], resumeArguments(name)].flatMap((args) => [",", ...execute("dmsetup", ...args)])
  );
  const args = ["/", "-maxdepth", "0", ...execute("sleep", `${SUSPENSION_SECONDS}`), ...resume];
  return { program: "find", args, mutates: false, deadlineMs: GUARD_MS, signal };
}

/** Returns arguments of dmsetup. The driver waits for no udev, which may be in another namespace. */
function resumeArguments(name: string): string[] {
  return ["resume", "--noudevsync", name];
}

/**
 * Removes tables that were loaded and are not in use: a command of LVM may have died, or hang, before it put them in use
 * ({@linkcode resumeSuspended}). Devices that have none stay as they are. It takes no lock of LVM: a command of another process
 * that begins at this moment may lose its tables, too (docs/adr/0026). Those that ran before, the report waited for.
 */
async function clearTables(exec: Exec, names: readonly string[]): Promise<void> {
  if (names.length > 0) await exec.run({ program: "dmsetup", args: ["clear", ...names], mutates: true });
}

/** Devices that are being suspended and resumed. */
class Suspension implements SuspendedDevices {
  readonly #exec: Exec;
  readonly #clock: Clock;
  readonly #end: number;
  readonly #guard: Guard;
  readonly #suspended = new Set<string>();
  #isOver = false;

  constructor(exec: Exec, clock: Clock, end: number, guard: Guard) {
    this.#exec = exec;
    this.#clock = clock;
    this.#end = end;
    this.#guard = guard;
  }

  /** Suspends a device, after all that was written to it before is on it. */
  async suspend(name: string): Promise<void> {
    this.#requireTime();
    const deadlineMs = Math.max(1, this.#end - this.#clock.now());
    this.#suspended.add(name);
    try {
      await runOk(this.#exec, { program: "dmsetup", args: ["suspend", name], mutates: true, deadlineMs });
    } catch (error) {
      // it may suspend the device after that was resumed
      void lateCompletion(error)?.catch(() => {}).then(() => this.resume(name)).catch(() => {});
      throw error;
    }
    if (this.#isOver) await this.resume(name);
    this.#requireTime();
  }

  async resume(name: string): Promise<void> {
    await runOk(this.#exec, { program: "dmsetup", args: resumeArguments(name), mutates: true });
    this.#suspended.delete(name);
  }

  forget(name: string): void {
    this.#suspended.delete(name);
  }

  async requireSuspended(): Promise<void> {
    this.#requireTime();
    const devices = await readMappedDevices(this.#exec);
    const resumed = [...this.#suspended].find((name) =>
      !devices.some((device) => device.name === name && device.suspended)
    );
    if (resumed === undefined) return;
    throw new StorageError("Busy", `suspending ${resumed}: another program has resumed it; try again`);
  }

  /** Resumes all devices that may be suspended. @throws {StorageError} the first error, after all were tried */
  async resumeAll(): Promise<void> {
    this.#isOver = true;
    await clearTables(this.#exec, [...this.#suspended]).catch(() => {}); // they are resumed in any case
    const results = await Promise.allSettled([...this.#suspended].map((name) => this.resume(name)));
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  /** Makes sure that there is time left, and that somebody else would resume the devices after it. */
  #requireTime(): void {
    const isOver = this.#isOver || this.#clock.now() >= this.#end;
    if (isOver) throw new StorageError("Busy", "suspending devices: the time is over");
    const error = this.#guard.error();
    if (error !== undefined) throw error;
  }
}

function overdueError(completion: Promise<unknown>): StorageError {
  return new StorageError(
    "StillRunning",
    `suspending devices: not done within ${SUSPENSION_SECONDS} s, so they were resumed; try again later`,
    { completion, reason: "SuspendedTooLong" },
  );
}

/** Returns the error of a resumption after another failure. What that left running has not ended because of it. */
function withCompletion(error: unknown, failure: unknown): unknown {
  const completions = [error, failure].map(lateCompletion).filter((each) => each !== undefined);
  if (lateCompletion(failure) === undefined) return error;
  const completion = Promise.allSettled(completions);
  return new StorageError("StillRunning", (error as Error).message, { cause: error, completion });
}
