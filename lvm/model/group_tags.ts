/**
 * The tag of a snapshot that belongs to a group snapshot. It is in the command that creates the snapshot's LV, and says
 * `new` until all snapshots of the group are there and were created at one point in time. So what a crash left of a group is
 * known by any of its snapshots, also while others cannot be read.
 *
 * @module
 */

import { type GroupSnapshotId, parseGroupSnapshotId } from "../../base/ids.ts";
import { GROUP_SNAPSHOT, tagValue } from "./tag_text.ts";

/** The membership of a snapshot in a group snapshot. */
export interface Membership {
  /** The group snapshot. */
  readonly id: GroupSnapshotId;
  /** The number of its snapshots. */
  readonly count: number;
  /** True if all of them were created at one point in time. */
  readonly confirmed: boolean;
}

/** Returns the tag of a snapshot of a group. */
export function membershipTag({ id, count, confirmed }: Membership): string {
  return `${GROUP_SNAPSHOT}${id}:${count}${confirmed ? "" : ":new"}`;
}

/** Returns the membership of a snapshot; `undefined` for one that was created alone. */
export function parseMembership(tags: readonly string[]): Membership | undefined {
  const [, group = "", count, state] = /^([^:]*):([1-9]\d{0,3})(:new)?$/.exec(tagValue(tags, GROUP_SNAPSHOT) ?? "") ??
    [];
  const id = parseGroupSnapshotId(group);
  return id === undefined ? undefined : { id, count: Number(count), confirmed: state === undefined };
}

/** Returns arguments of lvchange that record that a new snapshot is part of a complete group. */
export function markConfirmed(membership: Membership): string[] {
  const [from, to] = [false, true].map((confirmed) => membershipTag({ ...membership, confirmed }));
  return ["--deltag", from!, "--addtag", to!];
}
