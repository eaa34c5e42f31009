/**
 * The tests that are skipped in the guest: those whose names begin with a prefix in the variable LEFT_OUT, which separates
 * prefixes by `|`, and those of other parts than the variable PART.
 *
 * `deno test --filter` cannot skip tests. It only selects them, and silently selects none for a pattern that it does not
 * support, such as a lookahead.
 *
 * @module
 */

import { partSelector } from "../suites.ts";

/** Prefixes of the titles of tests that run only with `--full`: other tests show nearly the same on real LVM. */
export const SKIPPED_PREFIXES = [
  // The drivers that are killed, and the power cuts, of several kinds of volumes.
  "drivers that are killed with their child processes during group snapshots",
  "a driver that is killed with its child processes during its calls continues after a restart: an encrypted",
  "a driver that is killed with its child processes during its calls continues after a restart: block",
  "the power may fail at any write: a group snapshot",
  "the power may fail at any write: a thin volume",
  "the power may fail at any write: an encrypted",
  // Each derives many keys, and differs little from its neighbours.
  "a volume from a group snapshot of encrypted",
  "a volume in use, a thin one and one with snapshots are not encrypted",
  "an interrupted encryption goes on",
  "a new passphrase that is taken back",
  "a third passphrase after an interruption",
  "an interrupted change is completed",
  "a passphrase is replaced only by",
  "a second key slot that has",
  "copies of encrypted volumes: of one",
  "the passphrase of a thin volume is changed when",
  "the passphrase of an ext4 is changed when",
  "the passphrase of a block volume is changed when",
  "a thick encrypted xfs made from",
  "a thick encrypted ext4 made from",
  "a thin encrypted ext4 made from",
  "encrypted ext4: staged",
  "encrypted btrfs: staged",
  "encrypted xfs: staged",
  "an LV of somebody else (ext4) that was imported is expanded",
  "an LV of somebody else (raw) that was imported is expanded",
  "an LV of somebody else with xfs is imported, used",
  "hostile: ",
  "ext2: ",
  "ext3: ",
  "ext4: a crash between mkfs",
  "btrfs: a crash between mkfs",
  // The driver decides these before it asks LVM.
  "createVolume() answers the ",
  "createVolume() from a source refuses",
  "createVolume() returns the same volume",
  "createVolume() refuses a name",
  "createVolume() takes the group",
  "createSnapshot() refuses",
  "listSnapshots() pages",
  "listVolumes() pages",
  "controllerModifyVolume() is offered",
  "nodePublishVolume() allows one target",
  "nodePublishVolume() of a volume that is not staged",
  "a copy whose size its pool may not",
  "a copy without a size",
  "a repeated request finds the thin volume",
  "a volume is used only for",
  "a volume that is written into its pod",
  "an LV of the volume's name",
  "the calls for health refuse invalid",
  "the driver advertises volume health",
  "two LVs that claim",
  "a request that cannot be thin",
  // The commands and their number are the same over the fake machine.
  "an instant copy takes",
  "controllerExpandVolume() takes one report",
  "createVolume() makes a thin pool when",
  // Other tests of their kind show the same.
  "a block volume is published only",
  "a clone of a mounted ext4",
  "a clone of a mounted thin ext4",
  "a pool's own tag",
  "a thin snapshot needs no COW space",
  "an encrypted volume of raid1 is",
  "an encrypted volume of raid1 yes",
  "an encrypted volume of raid5",
  "a volume expanded while it was not in use",
  "a volume whose LV was renamed",
  "btrfs: mounted with discard",
  "controllerExpandVolume() is not hindered",
  "controllerExpandVolume() keeps the layout",
  "controllerExpandVolume() leaves a volume alone",
  "createVolume() from a volume has",
  "without cgroups, limits are recorded",
  "a clone of a mounted ext2",
  "a clone of a mounted thin xfs",
  "a pod is held to the limits of its volume (block)",
  "getCapacity() returns the largest volume of a layout",
  "a copy of a volume or a snapshot may have another layout",
  "xfs: mounted with discard",
];

const prefixes = (Deno.env.get("LEFT_OUT") ?? "").split("|").filter((prefix) => prefix !== "");

const isInPart = partSelector(Deno.env.get("PART") ?? "");

/** Reports whether a test is skipped. Every test of a suite asks once, in the same order in each part. */
export function isSkipped(name: string): boolean {
  return prefixes.some((prefix) => name.startsWith(prefix)) || !isInPart();
}
