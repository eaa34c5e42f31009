/**
 * LVM's locks of volume groups on the fake machine: files that commands lock (lvm.conf(5), `locking_dir`).
 *
 * A report locks each group for reading, one after the other, and a change locks its group for writing. By default a
 * change that waits goes before reports that start later (`prioritise_write_locks`), so the locks are given in the order
 * of their requests.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { lvm } from "./lvm.ts";
import { type FakeMachine, ok } from "./machine.ts";

/** A mode of a lock: `shared` for reading, `exclusive` for writing. */
export type LvmLockMode = "shared" | "exclusive";

interface Request {
  readonly mode: LvmLockMode;
  readonly grant: () => void;
  granted: boolean;
}

/** The locks of a machine, by name of the group. */
export class LvmLocks {
  readonly #requests = new Map<string, Request[]>();

  /** True if something holds a lock. Otherwise no command waits, since commands take no time here. */
  get held(): boolean {
    return this.#requests.size > 0;
  }

  /** Takes the lock of a group, after all that were requested before. @returns the lock, to be disposed of */
  async acquire(group: string, mode: LvmLockMode): Promise<Disposable> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const request: Request = { mode, grant: resolve, granted: false };
    this.#requests.set(group, [...this.#requests.get(group) ?? [], request]);
    this.#grant(group);
    await promise;
    return { [Symbol.dispose]: () => this.#release(group, request) };
  }

  #release(group: string, request: Request): void {
    const left = this.#requests.get(group)!.filter((other) => other !== request);
    if (left.length === 0) this.#requests.delete(group);
    else this.#requests.set(group, left);
    this.#grant(group);
  }

  /** Grants the first request, and with a shared one those shared ones that follow it directly. */
  #grant(group: string): void {
    const requests = this.#requests.get(group) ?? [];
    const firstExclusive = requests.findIndex(({ mode }) => mode === "exclusive");
    const count = firstExclusive === 0 ? 1 : firstExclusive < 0 ? requests.length : firstExclusive;
    for (const request of requests.slice(0, count).filter(({ granted }) => !granted)) {
      request.granted = true;
      request.grant();
    }
  }
}

/** Runs an `lvm` command when it has its locks: a report one group after the other, any other command its one group. */
export async function runWithLocks(machine: FakeMachine, locks: LvmLocks, args: readonly string[]): Promise<Output> {
  if (args.includes("--nolocking")) return lvm(machine, args);
  if (args[0] !== "fullreport") {
    const group = machine.groups.find(({ name }) => args.some((arg) => arg === name || arg.startsWith(`${name}/`)));
    using _lock = group && await locks.acquire(group.name, "exclusive");
    return lvm(machine, args);
  }
  const at = args.indexOf("--devices");
  const visible = at < 0 ? machine : machine.withDevices(args[at + 1]!.split(","));
  const reportArgs = at < 0 ? args : args.toSpliced(at, 2);
  const entries: { vg?: unknown }[] = [];
  let output = lvm(visible, reportArgs); // for the disks without a group, and the warnings
  if (output.code !== 0) return output;
  const spare = (JSON.parse(output.stdout) as { report: typeof entries }).report.filter(({ vg }) => vg === undefined);
  for (const { name, pvs } of visible.groups) {
    using _lock = await locks.acquire(name, "shared");
    output = lvm(machine.withDevices(pvs.map(({ path }) => path)), reportArgs);
    const { report } = JSON.parse(output.stdout) as { report: typeof entries };
    entries.push(...report.filter(({ vg }) => vg !== undefined));
  }
  return { ...ok(JSON.stringify({ report: [...entries, ...spare] })), stderr: output.stderr };
}
