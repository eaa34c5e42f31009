/**
 * How a move copies: online, while the volume is used, or offline, while nobody may use it.
 *
 * Online takes two snapshots of the volume at a time: what differs between them is what is sent while nobody may use it.
 *
 * @module
 */

import { formatBytes, parseQuantity } from "../../base/size.ts";
import { cowBytes, FULL_COW, type SizeOrPercent } from "../../lvm/settings/cow_size.ts";
import { poolNameIn } from "../../lvm/pools/pool.ts";
import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import { actualSize, thinSpecOf } from "../api/volume_mapping.ts";
import type { ChosenCopyMode } from "./moves.ts";

/** The COW space of a snapshot that is taken while nobody uses the volume: nothing is written to it. */
export const HELD_COW: SizeOrPercent = { bytes: 4n << 20n };

/** Chooses how a volume is copied. @param source its node, as its agent reports it */
export function chooseCopyMode(
  volume: LvmVolume,
  source: LvmNode | undefined,
  { offline = false }: { readonly offline?: boolean | undefined } = {},
): ChosenCopyMode {
  const reason = offline ? "it was asked for" : spaceReason(volume, source, { snapshots: 2n });
  return reason === undefined ? { mode: "Online" } : { mode: "Offline", reason };
}

/** Reports whether another snapshot can be taken of a volume that is used, beside those that there are. */
export function hasSpaceForSnapshot(volume: LvmVolume, source: LvmNode | undefined): boolean {
  return spaceReason(volume, source, { snapshots: 1n }) === undefined;
}

/** Returns why there is no space for snapshots of a volume that is used, of which the last is taken when it is not used. */
function spaceReason(
  volume: LvmVolume,
  source: LvmNode | undefined,
  { snapshots }: { readonly snapshots: bigint },
): string | undefined {
  const { volumeGroup } = volume.status ?? {};
  const size = actualSize(volume) ?? 0n;
  const group = source?.status?.volumeGroups?.find(({ name }) => name === volumeGroup);
  if (group === undefined) return `node ${volume.spec.nodeName} does not report volume group ${volumeGroup}`;
  const thin = thinSpecOf(volume);
  if (thin !== undefined) {
    const pool = poolNameIn(group.name, thin);
    const { availableVirtual = "" } = group.thinPools?.find(({ name }) => name === pool) ?? {};
    const available = parseQuantity(availableVirtual) ?? 0n;
    const needed = snapshots * size;
    return available >= needed ? undefined : shortage(needed, available, `thin pool ${group.name}/${pool}`);
  }
  const extentSize = parseQuantity(group.extentSize) ?? 1n;
  const needed = cowBytes(FULL_COW, size, extentSize) + cowBytes(HELD_COW, size, extentSize);
  const free = parseQuantity(group.free) ?? 0n;
  return free >= needed ? undefined : shortage(needed, free, `volume group ${group.name}`);
}

function shortage(needed: bigint, free: bigint, where: string): string {
  return `temporary snapshots of a volume in use take ${formatBytes(needed)}, and the ${where} has ${
    formatBytes(free)
  } free`;
}
