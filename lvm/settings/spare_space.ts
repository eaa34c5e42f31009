/**
 * The spare space of a volume group: free space that volumes never get. An administrator sets it by a tag of the group,
 * so that it goes where the disks go, and every program of the driver knows it by LVM's report (docs/adr/0015).
 *
 * {@linkcode spaceForVolumes} is the only function that decides which part of the free space of a group is for volumes.
 *
 * @module
 */

import { formatBytes, max, min, roundUp } from "../../base/size.ts";
import { parseSizeOrPercent, type SizeOrPercent } from "./cow_size.ts";

/** The spare space of a volume group; a tag of the group, set by an administrator. */
export const SPARE = "denolith.spare=";

/** The space of a volume group, in bytes. */
export interface GroupSpace {
  /** What volumes may get now. */
  readonly free: bigint;
  /** What LVM would allocate now, and volumes never get; absent for none. */
  readonly spare?: bigint;
}

/** What decides about the spare space of a group: its tags, its whole size, and the size of an extent, in bytes. */
export interface SpareSpaceOptions {
  readonly tags: readonly string[];
  readonly size: bigint;
  readonly extentSize: bigint;
}

/**
 * Parses the value of the tag, such as `10Gi` or `5percent`: LVM allows no percent sign in tags.
 *
 * @returns the spare space; `undefined` for text that is neither a quantity above zero nor 1percent to 100percent
 */
export function parseSpareSpace(text: string): SizeOrPercent | undefined {
  return text.includes("%") ? undefined : parseSizeOrPercent(text.replace(/percent$/, "%"));
}

/** Returns the tags of a group that set its spare space, and cannot be read. */
export function unreadableSpareTags(tags: readonly string[]): string[] {
  return spareTags(tags).filter((tag) => parseSpareSpace(tag.slice(SPARE.length)) === undefined);
}

/**
 * Returns the spare space that the tags of a group request, in bytes, in whole extents. Of several tags, the largest one
 * counts. A tag that cannot be read keeps all of the group, since nothing that was given to a volume can be taken back.
 */
export function requestedSpareBytes(
  { tags, size, extentSize }: SpareSpaceOptions,
): bigint {
  const sizes = spareTags(tags).map((tag) => {
    const spare = parseSpareSpace(tag.slice(SPARE.length)) ?? { percent: 100n };
    return roundUp("bytes" in spare ? spare.bytes : size * spare.percent / 100n, extentSize);
  });
  return max(0n, ...sizes);
}

/**
 * Divides the space that LVM would allocate now between volumes and the spare space, which comes first.
 *
 * @param free the space that LVM would allocate, in bytes
 */
export function spaceForVolumes(
  group: SpareSpaceOptions,
  free: bigint,
): GroupSpace {
  const requested = requestedSpareBytes(group);
  if (requested === 0n) return { free };
  const spare = min(requested, free);
  return { free: free - spare, spare };
}

/** Formats the free space of a group for messages: `5 GiB free`, or `5 GiB free and 10 GiB of spare space`. */
export function describeFree({ free, spare = 0n }: GroupSpace): string {
  return `${formatBytes(free)} free${spare === 0n ? "" : ` and ${formatBytes(spare)} of spare space`}`;
}

function spareTags(tags: readonly string[]): string[] {
  return tags.filter((tag) => tag.startsWith(SPARE));
}
