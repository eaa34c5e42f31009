/**
 * The separation of a copy-on-write snapshot from its origin.
 *
 * @module
 */

import { type ErrorKind, StorageError } from "../../base/error.ts";
import { type Lvm, requirePvs } from "../client/client.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { lvconvert } from "../model/commands.ts";

/**
 * Separates a copy-on-write snapshot from its origin, so that the origin is free of it. The COW space stays, as an LV with the
 * same tags (lvconvert(8), --splitsnapshot). The function accepts a snapshot that is separate or gone already.
 *
 * @throws {StorageError} `FailedPrecondition` when LVM refuses, as while PVs of the group are missing.
 */
export async function splitSnapshot(lvm: Lvm, group: VolumeGroup, lv: LogicalVolume): Promise<void> {
  const path = lvPath({ group, lv });
  requirePvs(`separating ${path} from its origin`, group);
  try {
    await changeIgnoring(["NotFound"], lvm, group, lvconvert({ yes: true, splitsnapshot: true }, path));
  } catch (error) {
    // of the refusals of this kind, one alone means that it is separate already
    if (!(error instanceof StorageError && ALREADY_SEPARATE.test(error.message))) throw error;
  }
}

/** LVM's message about an LV that is no snapshot. */
const ALREADY_SEPARATE = /does not accept LV type/i;

/**
 * Runs a change, and ignores the refusals that show that it is done already.
 *
 * @param ignoredKinds the kinds of those refusals
 * @throws {StorageError} all other kinds.
 */
export async function changeIgnoring(
  ignoredKinds: readonly ErrorKind[],
  lvm: Lvm,
  group: VolumeGroup,
  args: readonly string[],
): Promise<void> {
  try {
    await lvm.change(group, args);
  } catch (error) {
    if (!(error instanceof StorageError && ignoredKinds.includes(error.kind))) throw error;
  }
}
