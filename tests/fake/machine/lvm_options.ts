/**
 * The options of the subcommands of the fake machine's `lvm`.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { failure, type FakeLv } from "./machine.ts";

/** The options of lvextend that the fake knows, with their number of values. */
export const LVEXTEND_OPTIONS = { "--size": 1, "--poolmetadatasize": 1, "--config": 1 };

/** The options of lvchange that the fake knows, with their number of values. */
export const LVCHANGE_OPTIONS = {
  "--yes": 0,
  "--config": 1,
  "--activate": 1,
  "--activationmode": 1,
  "--ignoreactivationskip": 0,
  "--setactivationskip": 1,
  "--zero": 1,
  "--addtag": 1,
  "--deltag": 1,
  "--permission": 1,
  "--refresh": 0,
  "--select": 1,
  "--maxrecoveryrate": 1,
};

/** The options of lvcreate that the fake knows, with their number of values. */
export const LVCREATE_OPTIONS = {
  "--yes": 0,
  "--snapshot": 0,
  "--wipesignatures": 1,
  "--zero": 1,
  "--permission": 1,
  "--name": 1,
  "--size": 1,
  "--addtag": 1,
  "--config": 1,
  "--type": 1,
  "--thinpool": 1,
  "--virtualsize": 1,
  "--setactivationskip": 1,
  "--mirrors": 1,
  "--maxrecoveryrate": 1,
  "--stripes": 1,
  "--stripesize": 1,
  "--raidintegrity": 1,
  "--cachevol": 1,
  "--activate": 1,
};

/** Checks that the only setting of `--config` is the one for commands about thin pools. @throws {Error} otherwise */
export function checkConfig(
  options: ReadonlyMap<string, string[]>,
  known: string = "activation/monitoring=0",
): void {
  const [config = known] = options.get("--config") ?? [];
  if (config !== known) throw new Error(`the fake lvm has no setting ${config}`);
}

/**
 * Reads the arguments of a subcommand.
 *
 * @param known the options, with their number of values
 * @throws {Error} when lvm would refuse an argument, or when a name is dangerous: each is a mistake of the driver
 */
export function parseOptions(
  args: readonly string[],
  known: Readonly<Record<string, number>>,
): { options: Map<string, string[]>; positional: string[] } {
  const options = new Map<string, string[]>();
  const positional: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const arg = args[index]!;
    if (!arg.startsWith("-")) {
      positional.push(arg);
      continue;
    }
    if (!Object.hasOwn(known, arg)) throw new Error(`the fake lvm has no option ${arg} here: ${args.join(" ")}`);
    const values = options.get(arg) ?? [];
    if (known[arg] === 1) values.push(args[++index]!);
    options.set(arg, values);
  }
  if (positional.length === 0) throw new Error(`the fake lvm was given nothing to work on: ${args.join(" ")}`);
  // An empty name, a tag or a whole group instead of one LV would change far more than the driver means.
  if (positional.some((path) => path === "" || path.startsWith("@"))) {
    throw new Error(`a dangerous name: ${args.join(" ")}`);
  }
  for (const tag of [...options.get("--addtag") ?? [], ...options.get("--deltag") ?? []]) {
    if (!/^[A-Za-z0-9_+.\-/=!:&#]{1,1024}$/.test(tag)) throw new Error(`not a tag that LVM takes: ${tag}`);
  }
  return { options, positional };
}

/** Returns the value of an option that must be given once. @throws {Error} otherwise */
export function singleValue(options: ReadonlyMap<string, string[]>, name: string): string {
  const [value, ...more] = options.get(name) ?? [];
  if (value === undefined || more.length > 0) throw new Error(`lvm: ${name} must be given once`);
  return value;
}

/** Returns LVM's refusal of a size in extents. */
export function notLarger(size: bigint, current: bigint): Output {
  return failure(5, `  New size given (${size} extents) not larger than existing size (${current} extents)`);
}

/**
 * Changes the permission in LVM's metadata, and with it one of the kernel's two flags. For a device that is read-only
 * by the other one, LVM only loads its table again, which does not change that flag.
 */
export function changePermission(path: string, lv: FakeLv, permission: string): Output | undefined {
  if (lv.thinPool !== undefined) {
    return failure(5, `  Command on LV ${path} uses options invalid with LV type thinpool.`);
  }
  if (permission !== lv.permission) {
    lv.permission = permission === "r" ? "r" : "rw";
    return undefined;
  }
  if (permission === "r") return failure(5, `  Logical volume "${path}" is already read only.`);
  if (lv.active && lv.setReadOnly) return undefined;
  return failure(5, `  Logical volume ${path} is already writable.`);
}
