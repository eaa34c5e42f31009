/**
 * Disks that are carried from one guest to another, as in their commands.
 *
 * @module
 */

import { MAX_DATA_DISKS } from "./uml.ts";

/** The parameter of a disk in a command of user-mode Linux. */
const DISK = /^ubd(\d+)=(.+)$/;

/** The commands of two guests, when disks were carried from the first to the second. */
interface Carried {
  readonly from: string[];
  readonly to: string[];
}

/** The arguments that become a guest in user-mode Linux. */
type Arguments = readonly string[];

/**
 * Returns the arguments of two guests of user-mode Linux, when disks are carried from the first to the second. Those that stay
 * keep their names; those that come follow the others.
 *
 * @param files the images of the disks, in their order
 * @throws {Error} when the first guest lacks one of the disks, or the second has no place for it
 */
export function carryDisks(from: Arguments, to: Arguments, files: readonly string[]): Carried {
  const numbers = to.map((argument) => Number(DISK.exec(argument)?.[1] ?? -1));
  const next = Math.max(...numbers) + 1;
  if (next + files.length > MAX_DATA_DISKS + 2) throw new Error(`carry ${files}: the guest takes no more disks`);
  const missing = files.find((file) => !from.some((argument) => DISK.exec(argument)?.[2] === file));
  if (missing !== undefined) throw new Error(`carry ${missing}: the guest does not have it`);
  const last = to.findLastIndex((argument) => DISK.test(argument));
  const added = files.map((file, index) => `ubd${next + index}=${file}`);
  return {
    from: from.filter((argument) => !files.includes(DISK.exec(argument)?.[2] ?? "")),
    to: to.toSpliced(last + 1, 0, ...added),
  };
}
