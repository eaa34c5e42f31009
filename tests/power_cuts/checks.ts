/**
 * Checks of a disk after a power cut, and at the end of what an orchestrator did after it.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { HostExec } from "../../lvm/exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../../lvm/client/client.ts";
import type { LogicalVolume, VolumeGroup } from "../../lvm/model/report.ts";
import { run } from "../demo/command.ts";
import { DISK_PATH, METADATA_BYTES, readAt } from "./logged_disk.ts";
import { type Step, type World, worldAfter } from "./life.ts";
import { DRIVER, GROUP } from "./orchestrator.ts";
import { findSecrets } from "./secret.ts";

/** A part of the disk, in bytes. */
interface Extent {
  readonly offset: number;
  readonly length: number;
}

/** Reads the volume group. @throws {Error} when LVM cannot read it */
export async function readGroup(): Promise<VolumeGroup> {
  const group = (await new Lvm(new HostExec({ readMs: 120_000 })).report()).find(({ name }) => name === GROUP);
  assert(group !== undefined, "the volume group is gone");
  return group;
}

/** Returns the UUIDs of the LVs of what exists, by tag. */
export function uuidsIn(group: VolumeGroup, world: World): Map<string, string> {
  return new Map(tagsOf(world).map((tag) => [tag, lvWith(group, tag)?.uuid ?? ""]));
}

function tagsOf({ volumes, snapshots }: World): string[] {
  return [...[...volumes.keys()].map(volumeTag), ...[...snapshots.keys()].map(snapshotTag)];
}

const volumeTag = (name: string) => `denolith.volume=${volumeIdOf(name)}`;
const snapshotTag = (name: string) => `denolith.snapshot=${snapshotIdOf(name)}`;

function lvWith({ lvs }: VolumeGroup, tag: string): LogicalVolume | undefined {
  const [lv, ...more] = lvs.filter(({ tags }) => tags.includes(tag));
  assertEquals(more.map(({ name }) => name), [], `further LVs with ${tag}`);
  return lv;
}

/**
 * Asserts that a disk has what was acknowledged before a power cut, and nothing that was acknowledged as deleted. The
 * step that was not acknowledged may have had any effect.
 *
 * @param uuids the UUIDs that the LVs had, by tag
 */
export async function requireAcknowledged(
  steps: readonly Step[],
  acknowledged: number,
  uuids: ReadonlyMap<string, string>,
): Promise<void> {
  const group = await readGroup();
  const before = worldAfter(steps.slice(0, acknowledged));
  const after = worldAfter(steps.slice(0, acknowledged + 1));
  const certain = tagsOf(before).filter((tag) => tagsOf(after).includes(tag));
  for (const tag of certain) assertEquals(lvWith(group, tag)?.uuid, uuids.get(tag), `the LV with ${tag}`);
  for (const [name, { mib }] of before.volumes) {
    const size = lvWith(group, volumeTag(name))?.size;
    assert(size === undefined || size >= BigInt(mib) << 20n, `volume ${name} has ${size} bytes`);
  }
  const possible = new Set([...tagsOf(before), ...tagsOf(after)]);
  const deleted = steps.slice(0, acknowledged).flatMap((_, index) => tagsOf(worldAfter(steps.slice(0, index))));
  for (const tag of deleted.filter((tag) => !possible.has(tag))) {
    assertEquals(lvWith(group, tag)?.name, undefined, `deleted, and back: ${tag}`);
  }
}

/** Asserts that a new volume could not read what another one had. */
export async function requireFreeSpaceWithoutSecrets(): Promise<void> {
  const fields = "pvseg_start,pvseg_size,lv_name,vg_extent_size";
  const options = ["--noheadings", "--nosuffix", "--units", "b", "--separator", ":", "--segments", "-o", fields];
  const report = await run("list free space", "lvm", ["pvs", ...options, DISK_PATH]);
  const free = report.trim().split("\n").map((line) => line.trim().split(":")).filter(([, , lv]) => lv === "");
  const extents = free.map(([start, count, , size]) => ({
    offset: METADATA_BYTES + Number(start) * Number(size),
    length: Number(count) * Number(size),
  }));
  assertEquals(await findSecretsOnDisk(extents), [], "data in the free space, by offset on the disk");
}

/** The description of an empty pool of the driver. */
const EMPTY_POOL = `${GROUP}_thinpool denolith.pool=made,denolith=${DRIVER}`;

/**
 * Asserts that everything was deleted, and erased.
 *
 * @param canHavePool whether an empty pool may be left: the driver removes a pool only together with its last volume
 */
export async function requireEmpty({ canHavePool }: { canHavePool: boolean }): Promise<void> {
  const group = await readGroup();
  const lvs = group.lvs.map(({ name, tags }) => `${name} ${tags}`);
  const hasPool = canHavePool && lvs.join() === EMPTY_POOL;
  assertEquals(hasPool ? [] : lvs, [], "LVs are left");
  assertEquals(group.tags, [], "records are left");
  if (!hasPool) assertEquals(group.free, group.size, "free space");
  const secrets = await findSecretsOnDisk([{ offset: METADATA_BYTES, length: Number(group.size) }]);
  assertEquals(secrets, [], "data that was not erased, by offset on the disk");
}

async function findSecretsOnDisk(extents: readonly Extent[]): Promise<number[]> {
  await run("drop what was read before", "blockdev", ["--flushbufs", DISK_PATH]);
  using disk = await Deno.open(DISK_PATH);
  const found: number[] = [];
  const part = 16 << 20;
  for (const { offset, length } of extents) {
    for (let start = 0; start < length; start += part) {
      const bytes = await readAt(disk, offset + start, Math.min(part, length - start));
      found.push(...findSecrets(bytes).map((secret) => offset + start + secret));
    }
  }
  return found;
}
