/**
 * Machines for the tests of the status: healthy ones, with inconsistencies, and with a thin pool.
 *
 * @module
 */

import type { healthyMachine } from "./healthy_machine.ts";
import { type FakePool, newUuid } from "./machine.ts";
import { exactMatcher } from "../../../lvm/model/groups.ts";
import { volumeIdOf, volumeLvName } from "../../../base/ids.ts";
import { readStatus, type Status } from "../../../lvm/status/status.ts";
import { usedTag, volumeTags } from "../../../lvm/model/tags.ts";

/** The name of the driver whose status is read. */
export const DRIVER = "lvm.denolith.dev";

/** A healthy machine and what is on it. */
export type Healthy = ReturnType<typeof healthyMachine>;

/** Reads the status of a machine, of all its groups or of one. */
export function statusOf({ machine }: Healthy, groups?: string): Promise<Status> {
  return readStatus({
    exec: machine,
    driver: DRIVER,
    ...(groups === undefined ? {} : { groups: exactMatcher(groups) }),
  });
}

/** Adds one inconsistency of each kind. */
export function addInconsistencies({ machine, group, lv }: Healthy): void {
  group.tags.add(usedTag(DRIVER, volumeIdOf("gone"), "gone-uuid")).add(`denolith.used=${DRIVER}:odd`);
  const tags = volumeTags(DRIVER, {
    id: volumeIdOf("twice"),
    format: { state: "raw" },
    mkfsOptions: [],
    shared: true,
    erase: "zero",
  });
  const plain = { ...lv, active: false };
  group.lvs.push(
    { ...plain, name: "twice-a", uuid: newUuid(), tags: new Set(tags) },
    { ...plain, name: "twice-b", uuid: newUuid(), tags: new Set(tags) },
    { ...plain, name: "odd", uuid: newUuid(), tags: new Set([`denolith=${DRIVER}`]) },
    { ...plain, name: volumeLvName(volumeIdOf("bare")), uuid: newUuid(), tags: new Set() },
    { ...plain, name: "somebody-elses", uuid: newUuid(), tags: new Set() },
  );
  const fast = machine.addGroup("fast", 1n << 30n);
  fast.missingPvs = 1;
  const raw = volumeTags(DRIVER, {
    id: volumeIdOf("raw"),
    format: { state: "raw" },
    mkfsOptions: [],
    shared: true,
    erase: "zero",
  });
  const device = {
    ...lv,
    name: volumeLvName(volumeIdOf("raw")),
    uuid: newUuid(),
    tags: new Set(raw),
    minor: machine.nextMinor(),
  };
  fast.lvs.push(device);
  const node = { source: `devtmpfs[/dm-${device.minor}]`, fsType: "devtmpfs", root: `/dm-${device.minor}` };
  machine.mounts.push({ ...node, target: "/block", readOnly: true, deviceNumber: "0:5", lv: device });
}

/** Adds a thin pool of the driver of 100 MiB, with a volume of 64 MiB in it. @returns the pool and the volume */
export function thinPart({ group, lv }: Healthy) {
  const inactive = { ...lv, active: false };
  const thinPool: FakePool = {
    ...{ metadataSize: 4n << 20n, transactionId: 1, dataPercent: 40, metadataPercent: 10.84 },
    ...{ zeroes: true, health: "", monitored: false, residualData: new Set<string>() },
  };
  const pool = {
    ...{ ...lv, name: "data_thinpool", uuid: newUuid(), size: 100n << 20n, minor: 90 },
    ...{ tags: new Set([`denolith=${DRIVER}`, "denolith.pool=made"]), thinPool },
  };
  const id = volumeIdOf("thin");
  const format = { state: "raw" } as const;
  const limits = { readIops: { rate: 500n, perGiB: false }, writeBps: "max" } as const;
  const tags = volumeTags(DRIVER, { id, format, mkfsOptions: [], shared: true, erase: "zero", limits });
  const thin = { ...inactive, name: volumeLvName(id), uuid: newUuid(), tags: new Set(tags), pool: pool.name };
  group.lvs.push(pool, thin);
  return { id, pool, thin };
}
