/**
 * What version 0.1.0 wrote: its records in tests/fixtures/0.1.0, and fake machines in these states.
 *
 * @module
 */

import type { KubeObject } from "../../k8s/api/objects.ts";
import { type FakeGroup, type FakeLv, FakeMachine } from "../fake/machine.ts";
import { blankContent } from "../fake/device_content.ts";

/** The data that a pod wrote. */
export const POD_DATA = "the pod's data";

/** A logical volume, as LVM's metadata and its device have it. Sizes are in bytes. */
export interface RecordedLv {
  readonly name: string;
  readonly uuid: string;
  readonly size: number;
  readonly tags: readonly string[];
  readonly active: boolean;
  readonly createdAt: number;
  readonly permission?: "r";
  readonly origin?: { readonly name: string; readonly size: number };
  readonly pool?: string;
  readonly activationSkip?: boolean;
  readonly layout?: { readonly type: string; readonly stripes: number; readonly stripeSize: number };
  readonly pvSegments?: readonly { readonly subLv: string; readonly pvUuid: string; readonly size: number }[];
  readonly cow?: { readonly percent: number; readonly invalid: boolean };
  readonly thinPool?: { readonly metadataSize: number; readonly dataPercent: number; readonly metadataPercent: number };
  readonly filesystem?: { readonly type: string; readonly uuid: string; readonly size: number };
  /** True if the device begins with zeros. */
  readonly blank?: boolean;
  /** True if it has {@linkcode POD_DATA}. */
  readonly data?: boolean;
}

/** A volume group. */
export interface RecordedGroup {
  readonly name: string;
  readonly uuid: string;
  readonly size: number;
  readonly extentSize: number;
  readonly tags: readonly string[];
  readonly pvs: readonly { readonly path: string; readonly uuid: string }[];
  readonly lvs: readonly RecordedLv[];
}

/** A volume, as version 0.1.0 found it in the tags. */
export interface UnderstoodVolume {
  readonly id: string;
  readonly size: number;
  readonly lv: string;
  readonly used: boolean;
  readonly tags: {
    readonly format: { readonly state: string; readonly type?: string; readonly uuid?: string };
    readonly source?: unknown;
    readonly copied?: number | "all";
  };
}

/** A volume group at a moment, and what version 0.1.0 found in it. */
export interface RecordedState {
  readonly name: string;
  readonly group: RecordedGroup;
  readonly understood: { readonly volumes: readonly UnderstoodVolume[]; readonly lost: readonly string[] };
}

/** A cluster at a moment. */
export interface RecordedCluster {
  readonly name: string;
  readonly node: string;
  readonly groups: readonly RecordedGroup[];
  readonly objects: readonly KubeObject[];
}

/** Reads a file of records. */
export function readRecords<T>(file: string): T {
  return JSON.parse(Deno.readTextFileSync(new URL(`../fixtures/0.1.0/${file}`, import.meta.url)));
}

/** Returns a fake machine with recorded volume groups, as after a reboot: nothing is mounted. */
export function machineWith(groups: readonly RecordedGroup[]): FakeMachine {
  const machine = new FakeMachine();
  for (const { name, uuid, size, extentSize, tags, pvs, lvs } of groups) {
    const group = machine.addGroup(name, BigInt(size), BigInt(extentSize), pvs.length);
    Object.assign(group, { uuid, tags: new Set(tags), pvs: structuredClone(pvs) });
    for (const lv of lvs) addLv(machine, group, lv);
  }
  return machine;
}

function addLv(machine: FakeMachine, group: FakeGroup, recorded: RecordedLv): void {
  const { name, uuid, active, createdAt, permission = "rw", origin, pool, activationSkip } = recorded;
  const { layout, pvSegments, cow, thinPool, filesystem } = recorded;
  group.lvs.push({
    ...{ name, uuid, active, createdAt, permission },
    size: BigInt(recorded.size),
    tags: new Set(recorded.tags),
    suspended: false,
    setReadOnly: false,
    minor: machine.nextMinor(),
    cowPercent: cow?.percent ?? 0,
    invalid: cow?.invalid ?? false,
    zeroedTo: 0n,
    content: {
      ...blankContent(),
      zeroHead: recorded.blank ?? false,
      signatures: filesystem === undefined ? [] : [{ type: filesystem.type, uuid: filesystem.uuid }],
      filesystemBytes: BigInt(filesystem?.size ?? 0),
      data: new Set(recorded.data ? [POD_DATA] : []),
    },
    ...(origin && { origin: { name: origin.name, size: BigInt(origin.size) } }),
    ...(pool !== undefined && { pool }),
    ...(activationSkip !== undefined && { activationSkip }),
    ...(layout && { segment: { ...layout, stripeSize: BigInt(layout.stripeSize) } }),
    ...(layout?.type.startsWith("raid") &&
      { raid: { action: "idle", syncPercent: 100, mismatches: 0, refreshNeeded: false } }),
    ...(pvSegments && { pvSegments: pvSegments.map((segment) => ({ ...segment, size: BigInt(segment.size) })) }),
    ...(thinPool && { thinPool: poolOf(thinPool) }),
  });
}

function poolOf(recorded: NonNullable<RecordedLv["thinPool"]>): NonNullable<FakeLv["thinPool"]> {
  return {
    ...recorded,
    metadataSize: BigInt(recorded.metadataSize),
    transactionId: 9, // not recorded; none of its LVs is its last one
    zeroes: true,
    health: "",
    monitored: true,
    residualData: new Set(),
  };
}

/** Returns a value as the records have it: numbers and lists in place of bigints and sets. */
export function asRecorded(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (_, part) => {
    if (typeof part === "bigint") return Number(part);
    return part instanceof Set ? [...part] : part;
  }));
}
