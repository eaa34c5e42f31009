/**
 * The fake machine's devices while they are suspended: what suspends and resumes them, and what a pool does meanwhile.
 *
 * @module
 */

import { type Command, describeCommand, type Output } from "../../../lvm/exec.ts";
import { StorageError } from "../../../base/error.ts";
import { devicePath, expectArgs, failure, type FakeLv, type FakeMachine, ok } from "./machine.ts";
import { mappingsOf } from "./luks.ts";
import { copyContent, kernelPools } from "./thin.ts";

/** A command of find(1) that waits, and then resumes devices. */
export interface FakeGuard {
  /** The names of the devices. */
  readonly names: readonly string[];
  /** Lets its time pass. */
  readonly expire: () => void;
}

/** The commands that will resume devices, by their machine. */
const guards = new WeakMap<FakeMachine, FakeGuard[]>();

/** What waits for the device of an LV, until it is resumed. */
const waiting = new WeakMap<FakeLv, PromiseWithResolvers<void>>();

/** Returns the commands that will resume devices of a machine. */
export function guardsOf(machine: FakeMachine): FakeGuard[] {
  const known = guards.get(machine) ?? [];
  guards.set(machine, known);
  return known;
}

/** Writes to the device of an LV, as a pod does: it waits while the device is suspended. */
export async function write(lv: FakeLv, data: string): Promise<void> {
  while (lv.suspended) {
    const { promise } = waiting.get(lv) ?? waiting.set(lv, Promise.withResolvers<void>()).get(lv)!;
    await promise;
  }
  lv.content.data.add(data);
}

/**
 * Resumes the device of an LV: who waited for it continues. The kernel puts the table in use that was loaded last. That of a
 * killed command leads to a device which has none yet, so what waited to be written fails.
 */
export function setResumed(lv: FakeLv): void {
  if (lv.suspended && lv.killedTable === "beside") lv.failedWrites = true;
  lv.suspended = false;
  waiting.get(lv)?.resolve();
  waiting.delete(lv);
}

/** Waits as find(1) does with `-exec sleep`, until it is killed or a test lets the time pass; then resumes devices. */
export async function find(machine: FakeMachine, { args, signal }: Command): Promise<Output> {
  expectArgs(
    args,
    /^\/ -maxdepth 0 -exec sleep 10 ;(?: , -exec dmsetup clear \S+ ; , -exec dmsetup resume --noudevsync \S+ ;)*$/,
  );
  const names = [...args.join(" ").matchAll(/--noudevsync (\S+)/g)].map(([, name]) => name!);
  const { promise, resolve } = Promise.withResolvers<"expired" | "killed">();
  const guard = { names, expire: () => resolve("expired") };
  const running = guardsOf(machine);
  running.push(guard);
  signal?.addEventListener("abort", () => resolve("killed"));
  const end = await promise;
  running.splice(running.indexOf(guard), 1);
  if (end === "killed") {
    throw new StorageError("Unavailable", `find ${args.join(" ")}: it was ended, since its caller no longer waits`);
  }
  for (const name of names) {
    clear(machine, [name]);
    resume(machine, name);
  }
  return ok();
}

/** Removes the tables of devices that are not in use, by their names. */
export function clear(machine: FakeMachine, names: readonly string[]): Output {
  const lvs = names.map((name) => lvOfDevice(machine, name));
  for (const lv of lvs) if (lv?.killedTable === "beside") delete lv.killedTable;
  const missing = names.find((_, index) => lvs[index] === undefined);
  return missing === undefined ? ok() : failure(1, `Device ${missing} not found\nCommand failed.`);
}

/** Suspends a device, by its name. */
export function suspend(machine: FakeMachine, name: string): Output {
  const lv = lvOfDevice(machine, name);
  if (lv === undefined) return failure(1, `Device ${name} not found\nCommand failed.`);
  lv.suspended = true;
  return ok();
}

/** Resumes a device, by its name. One that is not suspended stays as it is. */
export function resume(machine: FakeMachine, name: string): Output {
  const lv = lvOfDevice(machine, name);
  if (lv === undefined) {
    return failure(1, `device-mapper: resume ioctl on ${name}  failed: No such device or address\nCommand failed.`);
  }
  setResumed(lv);
  return ok();
}

/** Sends a message about one of its LVs to a pool. */
export function changeThin(machine: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^message \S+-tpool 0 (?:delete \d+|create_snap \d+ \d+)$/);
  const { group, lv: pool } =
    kernelPools(machine).find(({ group, lv }) => `${devicePath(group, lv)}-tpool` === `/dev/mapper/${args[1]}`) ?? {};
  const [verb, number, originNumber] = args[3]!.split(" ");
  const ofNumber = (wanted: string | undefined) =>
    group?.lvs.find((lv) => lv.pool === pool?.name && `${thinId(lv)}` === wanted);
  const [lv, origin] = [ofNumber(number), ofNumber(originNumber)];
  const refuse = (reason: string) =>
    failure(1, `device-mapper: message ioctl on ${args[1]}  failed: ${reason}\nCommand failed.`);
  if (lv === undefined || verb === "delete" && lv.lost) return refuse("No data available");
  if (verb === "delete") {
    if (lv.active) return refuse("Device or resource busy");
    lv.lost = true;
    return ok();
  }
  if (!lv.lost) return refuse("File exists");
  if (origin === undefined) return refuse("No data available");
  if (origin.active && !origin.suspended) {
    throw new Error(`${describeCommand({ program: "dmsetup", args, mutates: true })}:
    the origin is not suspended, so that the snapshot would not be of one point in time`);
  }
  delete lv.lost;
  lv.content = copyContent(origin);
  return ok();
}

/** Removes the device of an LV that has no table in use. */
export function removeTableless(machine: FakeMachine, name: string): Output {
  const lv = lvOfDevice(machine, name);
  if (lv?.killedTable !== "only") throw new Error(`the driver removes ${name}, which is in use`);
  delete lv.killedTable;
  machine.removeDevice(lv);
  return ok();
}

/** Returns the number of a thin LV in its pool. */
export function thinId({ transactionId }: FakeLv): number {
  return (transactionId ?? 0) + 1;
}

/** Returns the active LV of a device's name, also while it is suspended. */
function lvOfDevice(machine: FakeMachine, name: string): FakeLv | undefined {
  return [...machine.allLvs(), ...mappingsOf(machine)].find(({ group, lv }) =>
    lv.active && devicePath(group, lv) === `/dev/mapper/${name}`
  )?.lv;
}
