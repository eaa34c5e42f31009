/**
 * What the subcommands of the fake machine's `lvm` have in common: names, sizes, refusals.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { failure, type FakeGroup, type FakeLv, type FakeMachine } from "./machine.ts";

/** Returns the error of changes while PVs are missing. Changes of tags and removals are allowed. */
export function missingPvsError({ name }: FakeGroup): Output {
  return failure(
    5,
    `  Cannot change VG ${name} while PVs are missing.\n  See vgreduce --removemissing and vgextend --restoremissing.\n` +
      `  Cannot process volume group ${name}`,
  );
}

/**
 * Returns the size in extents that the COW space of an origin can ever need: LVM allocates no more (its
 * cow_max_extents).
 */
export function cowMaxExtents(origin: FakeLv, group: FakeGroup): bigint {
  const chunks = (origin.size + 4095n) / 4096n;
  const bytes = (1n + chunks + (chunks + 256n) / 256n) * 4096n;
  return (bytes + group.extentSize - 1n) / group.extentSize;
}

/** Returns a size in extents, the same on each of the PVs with different data. */
export function parseExtents(size: string, group: FakeGroup, dataStripes = 1n): bigint {
  const bytes = /^(\d+)b$/.exec(size)?.[1];
  if (bytes === undefined) throw new Error(`lvm: an odd size ${size}`);
  const row = group.extentSize * dataStripes;
  return (BigInt(bytes) + row - 1n) / row * dataStripes;
}

export function findLv(machine: FakeMachine, path: string): { group: FakeGroup; lv: FakeLv } | Output {
  const [groupName = "", name = ""] = path.split("/");
  if (name === "") throw new Error(`lvm: ${path} would mean all LVs of the group`);
  const group = machine.groups.find((group) => group.name === groupName);
  if (group === undefined) return groupNotFound(groupName);
  const lv = group.lvs.find((lv) => lv.name === name);
  return lv === undefined ? lvNotFound(path) : { group, lv };
}

export function groupNotFound(name: string): Output {
  return failure(5, `  Volume group "${name}" not found\n  Cannot process volume group ${name}`);
}

export function lvNotFound(path: string): Output {
  return failure(5, `  Failed to find logical volume "${path}"`);
}
