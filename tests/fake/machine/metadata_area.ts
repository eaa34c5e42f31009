/**
 * The metadata area of the fake machine's groups: LVM refuses a change that makes a group's metadata too large for it.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { failure, type FakeGroup, type FakeMachine } from "./machine.ts";

/** The size of a metadata area that pvcreate(8) makes by default, in bytes. */
export const METADATA_AREA_BYTES = 1044480n;

/** The bytes that an LV takes in the metadata without its tags, about. */
const LV_BYTES = 400;

/** The bytes that a change may add, at most: a command line has its limits. */
const CHANGE_BYTES = 150_000n;

/** Returns the bytes that LVM reports as free (vgs(8), vg_mda_free): half of the area, less the metadata. */
export function metadataFree({ metadataBytes, tags, lvs }: FakeGroup): bigint {
  const tagBytes = (each: ReadonlySet<string>) => [...each].reduce((sum, tag) => sum + tag.length + '"", '.length, 0);
  const used = lvs.reduce((sum, lv) => sum + LV_BYTES + lv.name.length + tagBytes(lv.tags), tagBytes(tags));
  return metadataBytes - BigInt(used);
}

/** Returns LVM's refusal of a change for which the metadata area has no space. Nothing is changed then. */
export function refuseFullMetadata(
  machine: FakeMachine,
  change: (machine: FakeMachine) => Output,
): Output | undefined {
  if (machine.groups.every((group) => metadataFree(group) > CHANGE_BYTES)) return undefined;
  const before = machine.groups.map(metadataFree);
  const [after] = machine.fork(undefined);
  change(after);
  const full = after.groups.find((group, index) => metadataFree(group) < 0n && metadataFree(group) < before[index]!);
  if (full === undefined) return undefined;
  const [path, size, limit] = [full.pvs[0]!.path, full.metadataBytes - metadataFree(full), full.metadataBytes];
  return failure(
    5,
    `  VG ${full.name} 30 metadata on ${path} (${size} bytes) exceeds maximum metadata size (${limit} bytes)\n` +
      `  WARNING: Failed to write an MDA of VG ${full.name}.\n  Failed to write VG ${full.name}.`,
  );
}

/** Leaves so many bytes free in the metadata area of a group. */
export function leaveMetadataFree(group: FakeGroup, bytes: bigint): void {
  group.metadataBytes += bytes - metadataFree(group);
}
