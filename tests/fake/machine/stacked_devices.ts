/**
 * What lies over the devices of the fake machine, and LVM's filters: lsblk and losetup of util-linux 2.38, LVM 2.03.
 *
 * A group of the machine is on such a device when its physical volumes have its path.
 *
 * @module
 */

import type { Output } from "../../../lvm/exec.ts";
import { devicePath, expectArgs, failure, type FakeLv, type FakeMachine, ok } from "./machine.ts";

/** A loop device. */
export interface FakeLoop {
  path: string;
  /** The path that the kernel shows. */
  file: string;
  /** The device that it is made of; absent for a file. */
  lv?: FakeLv;
  /** The type that udev has found on it. */
  found?: string;
}

/** Adds a loop device over an LV, as kubelet does for each block volume of a pod. @returns its path */
export function addKubeletLoop(machine: FakeMachine, lv: FakeLv): string {
  const path = `/dev/loop${machine.host.loops.length}`;
  const file = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/0d1f";
  machine.host.loops.push({ path, file, lv });
  return path;
}

/** Lists loop devices: `losetup --json --list --output …`. It prints nothing when there are none. */
export function losetup({ host }: FakeMachine, args: readonly string[]): Output {
  expectArgs(args, /^--json --list --output NAME,BACK-FILE,BACK-MAJ:MIN,RO$/);
  if (host.loops.length === 0) return ok();
  const loopdevices = host.loops.map(({ path, file, lv }) => ({
    ...{ name: path, "back-file": file, "back-maj:min": lv === undefined ? "     254:0  " : "       0:5  ", ro: false },
  }));
  return ok(JSON.stringify({ loopdevices }));
}

interface Row {
  readonly name: string;
  readonly kname: string;
  readonly type: string;
  readonly mountpoints: readonly (string | null)[];
  readonly children?: readonly Row[];
}

/** Lists all devices with what is made of them: `lsblk --json --paths --output …`. The kernel does not say it of loop devices. */
export function deviceTree(machine: FakeMachine, paths: readonly string[]): Output {
  const { groups, host } = machine;
  const parts = (rows: readonly Row[]) => rows.length === 0 ? {} : { children: rows };
  const over = (path: string): Row[] => {
    const mapping = host.mappings.get(path);
    return [...lvsOn(path), ...(mapping === undefined ? [] : [deviceRow(mapping, "crypt")])];
  };
  const lvRow = (path: string, type: string, lv: FakeLv): Row => {
    const targets = machine.mounts.filter((mount) => mount.lv === lv && mount.root === "/").map(({ target }) => target);
    const mountpoints = host.swapLvs.has(lv) ? ["[SWAP]"] : targets.length === 0 ? [null] : targets;
    const holder = host.holders.get(lv);
    const children = [
      ...(lv.mapping === undefined ? [] : [lvRow(`/dev/mapper/${lv.mapping.name}`, "crypt", lv.mapping)]),
      ...(holder === undefined ? [] : [deviceRow(holder, "crypt")]),
    ];
    return { name: path, kname: `/dev/dm-${lv.minor}`, type, mountpoints, ...parts([...children, ...over(path)]) };
  };
  const lvsOn = (path: string): Row[] =>
    groups.filter(({ pvs }) => pvs.some((pv) => pv.path === path))
      .flatMap((group) =>
        group.lvs.filter(({ active }) => active).map((lv) => lvRow(devicePath(group, lv), "lvm", lv))
      );
  const deviceRow = (path: string, type: string): Row => ({
    ...{ name: path, kname: path, type, mountpoints: [null], ...parts(over(path)) },
  });
  const isDisk = (path: string) => /^\/dev\/[sv]d/.test(path);
  const disks = new Set(groups.flatMap(({ pvs }) => pvs.map(({ path }) => path)).filter(isDisk));
  const rows = [
    ...host.loops.map(({ path }) => deviceRow(path, "loop")),
    { ...deviceRow("/dev/vda", "disk"), mountpoints: ["/"] },
    ...[...disks].map((path) => deviceRow(path, "disk")),
  ];
  const withChildren = (row: Row): Row[] => [row, ...(row.children ?? []).flatMap(withChildren)];
  const all = rows.flatMap(withChildren);
  return ok(
    JSON.stringify({
      blockdevices: paths.length === 0 ? rows : paths.map((path) => all.find(({ name }) => name === path)),
    }),
  );
}

/**
 * Returns the machine as LVM reads it: without LVs as disks, and without the disks that a filter rejects. A device passes when
 * its first matching pattern accepts it, or none matches.
 */
export function readByLvm(machine: FakeMachine, config = ""): FakeMachine {
  const filters = [...config.matchAll(/devices\/(?:global_)?filter=(\[[^\]]*"\]|\S+)/g)].map(([, value]) =>
    (value!.startsWith("[") ? JSON.parse(value!) as string[] : [value!]).map((pattern) => ({
      accepts: pattern[0] === "a",
      expression: new RegExp(pattern.slice(2, -1)),
    }))
  );
  const passes = (path: string) =>
    filters.every((filter) => filter.find(({ expression }) => expression.test(path))?.accepts ?? true);
  const paths = machine.groups.flatMap(({ pvs }) => pvs.map(({ path }) => path));
  const passing = paths.filter(passes);
  return passing.length === paths.length ? machine : machine.withDevices(passing);
}

/** Returns the refusal of a change in a group of which LVM finds another copy (lvm(8), duplicate PVs). */
export function refuseDuplicates({ groups }: FakeMachine, uuid: string): Output | undefined {
  const copies = groups.filter((group) => group.uuid === uuid);
  if (copies.length < 2) return undefined;
  return failure(5, `  Cannot update volume group ${copies[0]!.name} with duplicate PV devices.`);
}
