/**
 * The backup of a LUKS header. It exists only while key slots change, is in the group of its volume, and is overwritten before
 * it is removed: what is in it opens the volume by the previous passphrase.
 *
 * @module
 */

import type { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import { dd, type Exec } from "../exec.ts";
import { verifyDevice } from "../host/device.ts";
import { headerBackupLvName, uniqueLvName } from "../../base/ids.ts";
import { lvchange, lvcreate, WIPE_SIGNATURES } from "../model/command_lines.ts";
import {
  type BackedUpKeys,
  findHeaderBackup,
  type HeaderBackup,
  headerBackupTag,
  headerBackupTags,
  markSlotAdded,
} from "./header_tags.ts";
import { lvPath, type VolumeGroup } from "../model/report.ts";
import { ownersOf } from "../model/tags.ts";
import { LUKS_HEADER_BYTES } from "../settings/format.ts";
import type { EncryptedVolume } from "./mapping.ts";
import { destroyKeySlots } from "./header.ts";

/** The size of the blocks in which a header is copied, in bytes. */
const BLOCK_BYTES = 1n << 20n;

/**
 * Creates a backup of a volume's header, which is complete when this returns.
 *
 * @param keys the keys of the header
 * @throws {StorageError} `NoSpace` when the group has too little free space
 */
export async function createHeaderBackup(
  lvm: Lvm,
  volume: EncryptedVolume,
  keys: BackedUpKeys,
): Promise<HeaderBackup> {
  const { id, group, lv } = volume;
  const name = uniqueLvName(headerBackupLvName(id), group.lvs.map(({ name }) => name));
  const size = LUKS_HEADER_BYTES;
  const addtag = headerBackupTags(driverOf(volume), { id, keys });
  const command = lvcreate({ ...WIPE_SIGNATURES, zero: "y", name, size, addtag }, group.name);
  await lvm.allocate(group, size, command).catch((cause) => {
    if (!(cause instanceof StorageError && cause.kind === "NoSpace")) throw cause;
    throw new StorageError(
      "NoSpace",
      `changing the passphrase of volume ${id}: volume group ${group.name} has no 16 MiB free, where its LUKS header is kept ` +
        "meanwhile; extend the group, or give the secret the passphrase that the volume has",
      { cause },
    );
  });
  const created = await requireBackup(lvm, volume);
  await verifyDevice(lvm.exec, created.lv);
  await copyHeader(lvm.exec, lv.devicePath, created.lv.devicePath);
  return created;
}

/**
 * Records the key slot of the new passphrase in the tag of a backup, before any other one is destroyed.
 *
 * @returns the backup as it is then
 */
export async function recordAddedSlot(
  lvm: Lvm,
  volume: EncryptedVolume,
  backup: HeaderBackup,
  added: readonly [slot: number, salt: string],
): Promise<HeaderBackup> {
  const active = await activateHeaderBackup(lvm, volume, backup);
  const { lv, tags } = active;
  await lvm.changeTags(active, markSlotAdded(tags, added), { uuid: lv.uuid });
  const marked = await requireBackup(lvm, volume);
  if (marked.lv.uuid === lv.uuid && marked.tags.keys.added?.[0] === added[0]) return marked;
  throw new StorageError(
    "CommandFailed",
    `changing the passphrase of volume ${volume.id}: LVM did not tag ${lvPath(backup)}`,
  );
}

/** Returns a backup with its device active and verified. */
export async function activateHeaderBackup(
  lvm: Lvm,
  volume: EncryptedVolume,
  backup: HeaderBackup,
): Promise<HeaderBackup> {
  if (!backup.lv.active) await lvm.change(backup.group, lvchange({ activate: "y" }, lvPath(backup)));
  const active = backup.lv.active ? backup : await requireBackup(lvm, volume);
  await verifyDevice(lvm.exec, active.lv);
  return active;
}

/** Copies a LUKS header with its key slots from one device to another. Both are verified. */
export async function copyHeader(exec: Exec, from: string, to: string): Promise<void> {
  const blocks = { bs: BLOCK_BYTES, skip: 0, seek: 0, count: LUKS_HEADER_BYTES / BLOCK_BYTES };
  const flags = { iflag: "direct,fullblock", oflag: "direct", conv: "fsync,nocreat,notrunc" };
  await dd(exec, { if: from, of: to, ...blocks, ...flags }, { mutates: true });
}

/**
 * Requires that all of a LUKS header can be read, if it is there: cryptsetup and wipefs find none where the disk fails.
 *
 * @throws {StorageError} `CommandFailed`
 */
export async function requireReadableHeader(exec: Exec, device: string): Promise<void> {
  const blocks = { bs: BLOCK_BYTES, skip: 0, count: LUKS_HEADER_BYTES / BLOCK_BYTES };
  await dd(exec, { if: device, of: "/dev/null", ...blocks, iflag: "direct,fullblock" });
}

/** Overwrites a backup, and removes it. */
export async function removeHeaderBackup(lvm: Lvm, volume: EncryptedVolume, backup: HeaderBackup): Promise<void> {
  const { lv, group, tags } = await activateHeaderBackup(lvm, volume, backup);
  await destroyKeySlots(lvm.exec, lv.devicePath);
  const isRemoved = await lvm.remove(
    group,
    { yes: true, uuid: lv.uuid, tags: [headerBackupTag(tags)] },
    lvPath({ lv, group }),
  );
  if (isRemoved) return;
  const left = findHeaderBackup(volume, await currentGroup(lvm, volume));
  if (left === undefined) return;
  throw new StorageError("CommandFailed", `removing ${lvPath(left)}, which is overwritten: LVM did not remove it`);
}

async function requireBackup(lvm: Lvm, volume: EncryptedVolume): Promise<HeaderBackup> {
  const found = findHeaderBackup(volume, await currentGroup(lvm, volume));
  if (found?.lv.active) return found;
  throw new StorageError(
    "FailedPrecondition",
    `changing the passphrase of volume ${volume.id}: the backup of its LUKS header is ${
      found === undefined ? "gone" : "not active"
    }; try again`,
  );
}

async function currentGroup(lvm: Lvm, { group }: EncryptedVolume): Promise<VolumeGroup> {
  return (await lvm.report()).find(({ uuid }) => uuid === group.uuid) ?? { ...group, lvs: [] };
}

function driverOf({ lv }: EncryptedVolume): string {
  return ownersOf(lv.tags)[0]!;
}
