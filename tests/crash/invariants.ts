/**
 * What must hold at every moment, whatever the driver is doing and whenever it crashes. A checked exec looks at the
 * machine after each command that changes something.
 *
 * @module
 */

import { type Command, describeCommand, type Exec, type Output } from "../../lvm/exec.ts";
import {
  COPY_SNAPSHOT,
  DELETED,
  ERASE,
  FORMAT,
  SNAPSHOT,
  SOURCE,
  tagValue,
  USED,
  VOLUME,
} from "../../lvm/model/tags.ts";
import { type VolumeId, volumeLvName } from "../../base/ids.ts";
import { type ContentState, parseFormat } from "../../lvm/settings/format.ts";
import { contentOf } from "../fake/machine/luks.ts";
import { type FakeGroup, type FakeLv, type FakeMachine, type FakeMount, isReadOnly } from "../fake/machine/machine.ts";

/** A mount that the driver has acknowledged. */
export interface AcknowledgedMount {
  readonly readOnly: boolean;
  /** Its other flags. */
  readonly flags: readonly string[];
}

/** What the driver has acknowledged, and nobody has asked it to undo since. */
export interface Acknowledged {
  /** The sizes of volumes in bytes, by id. */
  readonly volumes: Map<string, bigint>;
  /** The contents of volumes and snapshots that must not change, by id ({@linkcode describeContent}). */
  readonly contents: Map<string, string>;
  /** The mounts by target. */
  readonly mounts: Map<string, AcknowledgedMount>;
}

/** Returns that nothing is acknowledged. */
export function nothingAcknowledged(): Acknowledged {
  return { volumes: new Map(), contents: new Map(), mounts: new Map() };
}

/** Returns a text that is the same as long as nobody writes to a device. */
export function describeContent(lv: FakeLv): string {
  const { data, signatures } = contentOf(lv);
  return `${[...data].sort()} in ${signatures.map(({ type, uuid }) => `${type} ${uuid}`)}`;
}

/** An exec over the machine that checks the invariants. */
export class CheckedExec implements Exec {
  /** The violations so far. */
  readonly violations: string[];
  readonly #machine: FakeMachine;
  readonly #acknowledged: Acknowledged;

  /** Checks the machine as it is, and then after each change. */
  constructor(machine: FakeMachine, acknowledged: Acknowledged) {
    this.#machine = machine;
    this.#acknowledged = acknowledged;
    this.violations = violationsOf(machine, acknowledged).map((violation) => `at the start: ${violation}`);
  }

  async run(command: Command): Promise<Output> {
    try {
      return await this.#machine.run(command);
    } finally {
      if (command.mutates) {
        const found = violationsOf(this.#machine, this.#acknowledged);
        this.violations.push(...found.map((violation) => `after ${describeCommand(command)}: ${violation}`));
      }
    }
  }

  idle(): Promise<void> {
    return this.#machine.idle();
  }
}

/** Returns the violations of the invariants in the present state. */
export function violationsOf(machine: FakeMachine, acknowledged: Acknowledged): string[] {
  return [
    ...[...acknowledged.volumes].flatMap(([id, bytes]) => missingVolume(machine, id, bytes)),
    ...[...acknowledged.contents].flatMap(([id, content]) => changedContent(machine, id, content)),
    ...[...acknowledged.mounts].flatMap(([target, mount]) => changedMount(machine, target, mount)),
    ...machine.groups.flatMap((group) => [
      ...group.lvs.flatMap((lv) => [
        ...usedBeforeRecorded(machine, group, lv),
        ...writableSnapshot(lv),
        ...failedWrites(lv),
      ]),
      ...danglingRecords(group),
      ...overallocatedPools(group),
      ...readableDeletedData(group),
    ]),
  ];
}

/** An acknowledged volume has one LV, which is large enough. */
function missingVolume(machine: FakeMachine, id: string, bytes: bigint): string[] {
  const lvs = machine.allLvs().filter(({ lv }) => lv.tags.has(VOLUME + id));
  if (lvs.length !== 1) return [`the acknowledged volume ${id} has ${lvs.length} LVs`];
  const { size } = lvs[0]!.lv;
  return size < bytes ? [`the acknowledged volume ${id} has ${size} of ${bytes} bytes`] : [];
}

/** The data of an acknowledged volume or snapshot is still there. */
function changedContent(machine: FakeMachine, id: string, content: string): string[] {
  const lv = machine.allLvs().find(({ lv: { tags } }) => tags.has(VOLUME + id) || tags.has(SNAPSHOT + id))?.lv;
  if (lv === undefined) return [`${id}, which has data, has no LV`];
  const actual = describeContent(lv);
  return actual === content ? [] : [`${id} holds ${actual}, and not ${content}`];
}

/** An acknowledged mount is there with its flags; read-only stays read-only, and read-write stays read-write. */
function changedMount(machine: FakeMachine, target: string, { readOnly, flags }: AcknowledgedMount): string[] {
  const mount = machine.mounts.findLast((mount) => mount.target === target);
  if (mount === undefined) return [`the acknowledged mount ${target} is gone`];
  // A read-only mount of a device node does not keep anybody from writing to the device.
  const isWritable = isNodeMount(mount) ? !isReadOnly(mount.lv!) : !mount.readOnly;
  if (isWritable === readOnly) return [`${target} is ${readOnly ? "read-write, not read-only" : "read-only"}`];
  if (mount.lv?.active === false) return [`${target} leads to a removed device`];
  const missing = flags.filter((flag) => !mount.flags?.includes(flag));
  return missing.length > 0 ? [`${target} lacks ${missing}`] : [];
}

function isNodeMount({ lv, root }: FakeMount): boolean {
  return lv !== undefined && root !== "/";
}

/**
 * Before the first mount or write of a pod, the use is recorded in a tag of the volume's group. Before mkfs writes, its UUID is recorded
 * in a tag of the LV, and before the first mount, that mkfs has ended.
 */
function usedBeforeRecorded(machine: FakeMachine, group: FakeGroup, lv: FakeLv): string[] {
  const tags = [...lv.tags];
  const id = tagValue(tags, VOLUME);
  if (id === undefined || !lv.name.startsWith("vol-")) return []; // it is being imported: nobody uses it
  const { name, uuid, content: { zeroHead, signatures, data } } = lv;
  const mounts = machine.mounts.filter((mount) =>
    mount.lv !== undefined && [lv, lv.mapping].includes(mount.lv) && !mount.target.includes("/copy-")
  );
  // a volume that was moved has the LV of its copy
  const isCopy = tagValue(tags, SOURCE) !== undefined || name !== volumeLvName(id as VolumeId);
  const isWritten = !isCopy && (!zeroHead || signatures.length > 0);
  const format = tagValue(tags, FORMAT) ?? "";
  const found: string[] = [];
  const { luks, ...content } = parseFormat(format)!;
  const layers = [
    { state: luks?.state ?? content.state, recorded: luks ?? content, signatures, isWritten },
    ...(luks === undefined ? [] : [insideOf(lv, content, isCopy)]),
  ];
  // a filesystem may be created ahead, without anybody's data
  const isInUse = luks === undefined && content.state !== "raw" ? !isCopy && data.size > 0 : isWritten;
  if ((isInUse || mounts.length > 0) && ![...group.tags].some((tag) => tag.endsWith(`:${id}:${uuid}`))) {
    found.push(`${name} is ${isInUse ? "written to" : "mounted"}, and its use is not recorded`);
  }
  for (const { state, recorded, signatures, isWritten } of layers) {
    if (isWritten && ["wanted", "unformatted"].includes(state)) {
      found.push(`${name} is written to, and that is not recorded`);
    }
    if (!isCopy && "uuid" in recorded && signatures.some(({ uuid }) => uuid.toLowerCase() !== recorded.uuid)) {
      found.push(`${name} has another filesystem than the recorded one`);
    }
  }
  const mounted = mounts.find(({ root }) => root === "/");
  if (mounted !== undefined && layers.some(({ state }) => state !== "formatted")) {
    found.push(`${name} is mounted at ${mounted.target} as ${format}`);
  }
  return found;
}

/** What is below the LUKS header of a volume. Its start is random before anything is written. */
function insideOf(lv: FakeLv, content: ContentState, isCopy: boolean) {
  const signatures = lv.content.luks?.content.signatures ?? [];
  return { state: content.state, recorded: content, signatures, isWritten: !isCopy && signatures.length > 0 };
}

/** The LV of a snapshot stays read-only. */
function writableSnapshot(lv: FakeLv): string[] {
  const isSnapshot = [...lv.tags].some((tag) => tag.startsWith(SNAPSHOT) || tag.startsWith(COPY_SNAPSHOT));
  return isSnapshot && lv.permission !== "r" ? [`${lv.name} is a writable snapshot`] : [];
}

/** What pods write while a device is suspended does not fail when it is resumed. */
function failedWrites(lv: FakeLv): string[] {
  return lv.failedWrites ? [`${lv.name} was resumed with the table of a killed command: writes to it failed`] : [];
}

/** A record of use without its LV means that the volume is Lost. */
function danglingRecords(group: FakeGroup): string[] {
  const uuids = new Set(group.lvs.map(({ uuid }) => uuid));
  return [...group.tags].filter((tag) => tag.startsWith(USED) && !uuids.has(tag.split(":").at(-1)!)).map((tag) =>
    `${tag} has no LV`
  );
}

/** The LVs of a thin pool have no more virtual size than the pool, since no overcommitment is configured. */
function overallocatedPools({ lvs, extentSize }: FakeGroup): string[] {
  // nothing is written to an LV by which the driver makes LVM send messages to a pool
  const isUnwritten = ({ tags, size }: FakeLv) =>
    size === extentSize && tagValue([...tags], DELETED) !== undefined && tags.has(`${ERASE}none`);
  return lvs.filter(({ thinPool }) => thinPool !== undefined).flatMap(({ name, size }) => {
    const allocated = lvs.reduce((sum, lv) => lv.pool === name && !isUnwritten(lv) ? sum + lv.size : sum, 0n);
    return allocated > size ? [`the thin pool ${name} of ${size} bytes has allocated ${allocated}`] : [];
  });
}

/** Data of a deleted LV cannot be read from a new one, unless its volume is not to be erased. A new filesystem has none. */
function readableDeletedData({ lvs, residualData, residualSignatures }: FakeGroup): string[] {
  const pools = lvs.filter(({ thinPool }) => thinPool !== undefined && !thinPool.zeroes);
  const readable = [...residualData, ...pools.flatMap(({ thinPool }) => [...thinPool!.residualData])];
  const leaked = lvs.flatMap(({ thinPool }) => [...thinPool?.leaked?.data ?? []]);
  const mounted = residualSignatures.filter(({ wasMounted }) => wasMounted);
  const filesystems = mounted.map(({ type, uuid }) => `${uuid}, ${type}`);
  const found = [...readable, ...leaked, ...filesystems].filter((name) => !name.startsWith(KEPT));
  return found.length > 0 ? [`the free space shows ${found}`] : [];
}

/** The beginning of the names of data and of the UUIDs of filesystems that are not erased. */
export const KEPT = "kept:";
