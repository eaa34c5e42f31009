/**
 * The fake machine's whole disks: those that nobody uses, and the physical volumes that pvcreate makes of them, after LVM 2.03,
 * util-linux 2.38 and udev 252.
 *
 * @module
 */

import type { Command, Output } from "../../../lvm/exec.ts";
import { parseOptions, singleValue } from "./lvm_options.ts";
import { groupNotFound } from "./lvm_lookup.ts";
import { expectArgs, failure, type FakeGroup, type FakeMachine, ok } from "./machine.ts";

/** A disk, apart from the physical volumes that groups were given by hand. */
export interface FakeDisk {
  path: string;
  /** Its device number. */
  number: string;
  size: bigint;
  /** Its names in /dev/disk/by-id. */
  ids: string[];
  /** The number of its attachment, as the kernel and udev count. */
  attached: number;
  /** The types of the signatures on it. */
  signatures: string[];
  /** Whether a program has it open exclusively. */
  isOpen?: boolean;
  /** The number of times that something was written to it. */
  writes: number;
}

/** Returns a disk that nobody uses, to be added to `host.disks`. */
export function spareDisk(letter: string, change: Partial<FakeDisk> = {}): FakeDisk {
  const index = letter.charCodeAt(0) - "a".charCodeAt(0);
  return {
    ...{ path: `/dev/sd${letter}`, number: `8:${16 * index}`, size: 10n << 30n, ids: [`ata-SPARE_${letter}`] },
    ...{ attached: 100 + index, signatures: [], writes: 0, ...change },
  };
}

/** Returns the disk at a path, or behind a name. */
export function diskAt({ host }: FakeMachine, at: string): FakeDisk | undefined {
  const path = host.podDevices.get(at) ?? at;
  return host.disks.find((disk) => disk.path === path || disk.ids.some((id) => path === `/dev/disk/by-id/${id}`));
}

/** Returns the UUID of the physical volume on a disk. */
function pvOf(machine: FakeMachine, { path }: FakeDisk): string | undefined {
  return [...machine.host.unusedPvs, ...machine.groups.flatMap(({ pvs }) => pvs)].find((pv) => pv.path === path)?.uuid;
}

function signaturesOf(machine: FakeMachine, disk: FakeDisk): string[] {
  return [...disk.signatures, ...(pvOf(machine, disk) === undefined ? [] : ["LVM2_member"])];
}

/** Lists all disks: `lsblk --json --bytes --paths --all --output …`. */
export function listDisks(machine: FakeMachine): Output {
  const row = (name: string, number: string, size: bigint) => ({
    ...{ name, "maj:min": number, type: "disk", size: Number(size), rota: false, rm: false, hotplug: false, ro: false },
    ...{ tran: "sata", fstype: null as string | null, pttype: null, mountpoints: [null as string | null] },
  });
  return ok(JSON.stringify({
    blockdevices: [
      { ...row("/dev/vda", "254:0", 1n << 33n), fstype: "ext4", mountpoints: ["/"] },
      ...machine.host.disks.map((disk) => ({
        ...row(disk.path, disk.number, disk.size),
        fstype: signaturesOf(machine, disk)[0] ?? null,
      })),
    ],
  }));
}

/** Returns the row of a disk in the output of `lsblk --nodeps`. */
export function diskRow(machine: FakeMachine, path: string): Record<string, unknown> | undefined {
  const disk = diskAt(machine, path);
  return disk &&
    { name: disk.path.replace("/dev/", ""), "maj:min": disk.number, size: Number(disk.size), ro: false };
}

/** Prints what udev knows of a disk: `udevadm info --query=property --name=…`. */
export function diskProperties(machine: FakeMachine, path: string): Output {
  const disk = diskAt(machine, path);
  if (disk === undefined) return path === "/dev/vda" ? ok("DEVNAME=/dev/vda\n") : failure(1, "Unknown device");
  const links = disk.ids.map((id) => `/dev/disk/by-id/${id}`).join(" ");
  return ok(
    `DEVLINKS=${links}\nID_PATH=pci-0000:00:1f.2-ata-${disk.number}\nDISKSEQ=${disk.attached}\n` +
      `USEC_INITIALIZED=${disk.attached}000\n`,
  );
}

/** Lists the signatures on a disk: `wipefs --no-act --json`. */
export function diskSignatures(machine: FakeMachine, path: string): Output | undefined {
  const disk = diskAt(machine, path);
  if (disk === undefined) return undefined;
  return ok(JSON.stringify({
    signatures: signaturesOf(machine, disk).map((type) => ({
      device: "x",
      offset: "0x438",
      type,
      uuid: null,
      label: null,
    })),
  }));
}

/** Reports whether a command of find(1) looks for devices of pods. */
export function isDeviceSearch({ args }: Command): boolean {
  return args[0] === "-H";
}

/** Finds the devices of pods. */
export function findDevices({ host }: FakeMachine, { args }: Command): Output {
  expectArgs(args, /^-H \/\S+\/(?:pods -maxdepth 4|plugins -maxdepth 6) .*-path \*\/volumeDevices\/\* .*-print0$/);
  return ok(
    [...host.podDevices.keys()].filter((path) => path.startsWith(`${args[1]}/`)).map((path) => `${path}\0`).join(""),
  );
}

/** Makes a physical volume of a disk. */
export function pvcreate(machine: FakeMachine, args: readonly string[]): Output {
  const { options, positional: [path = ""] } = parseOptions(args, { "--uuid": 1, "--norestorefile": 0, "--config": 1 });
  const disk = diskAt(machine, path);
  if (disk === undefined) return failure(5, `  No device found for ${path}.`);
  if (disk.isOpen) return failure(5, `  Can't open ${disk.path} exclusively.  Mounted filesystem?`);
  const [signature] = disk.signatures;
  if (signature !== undefined) {
    return failure(
      5,
      `WARNING: ${signature} signature detected on ${disk.path} at offset 1080. Wipe it? [y/n]: [n]\n` +
        `  Aborted wiping of ${signature}.\n  1 existing signature left on the device.`,
    );
  }
  if (machine.groups.some(({ pvs }) => pvs.some((pv) => pv.path === disk.path))) {
    return failure(5, `  Can't initialize physical volume "${disk.path}" of volume group without -ff`);
  }
  disk.writes++;
  machine.host.unusedPvs = machine.host.unusedPvs.filter((pv) => pv.path !== disk.path);
  machine.host.unusedPvs.push({ path: disk.path, uuid: singleValue(options, "--uuid") });
  return ok(`  Physical volume "${disk.path}" successfully created.\n`);
}

/** Removes a physical volume. */
export function pvremove(machine: FakeMachine, args: readonly string[]): Output {
  const { positional: [path = ""] } = parseOptions(args, {});
  const disk = diskAt(machine, path);
  const group = machine.groups.find(({ pvs }) => pvs.some((pv) => pv.path === disk?.path));
  if (group !== undefined) return failure(5, `  PV ${path} is used by VG ${group.name} so please use vgreduce first.`);
  const before = machine.host.unusedPvs.length;
  machine.host.unusedPvs = machine.host.unusedPvs.filter((pv) => pv.path !== disk?.path);
  if (machine.host.unusedPvs.length === before) return failure(5, `  No PV found on device ${path}.`);
  disk!.writes++;
  return ok(`  Labels on physical volume "${path}" successfully wiped.\n`);
}

/** Creates a volume group of a physical volume. */
export function vgcreate(machine: FakeMachine, args: readonly string[]): Output {
  const { positional: [name = "", path = ""] } = parseOptions(args, {});
  if (machine.groups.some((group) => group.name === name)) {
    return failure(5, `  A volume group called ${name} already exists.`);
  }
  const pv = takeUnused(machine, path);
  if ("code" in pv) return pv;
  const group = machine.addGroup(name, 0n);
  Object.assign(group, { pvs: [], size: 0n });
  addPv(group, pv);
  return ok(`  Volume group "${name}" successfully created\n`);
}

/** Adds a physical volume to a volume group. */
export function vgextend(machine: FakeMachine, args: readonly string[]): Output {
  const { positional: [name = "", path = ""] } = parseOptions(args, {});
  const group = machine.groups.find((group) => group.name === name);
  if (group === undefined) return groupNotFound(name);
  const pv = takeUnused(machine, path);
  if ("code" in pv) return pv;
  // without a size, a physical volume has an equal share of the group
  for (const other of group.pvs) other.size ??= group.size / BigInt(group.pvs.length);
  addPv(group, pv);
  return ok(`  Volume group "${name}" successfully extended\n`);
}

function takeUnused(machine: FakeMachine, path: string): { path: string; uuid: string; disk: FakeDisk } | Output {
  const disk = diskAt(machine, path);
  const pv = machine.host.unusedPvs.find((pv) => pv.path === disk?.path);
  if (disk === undefined || pv === undefined) {
    throw new Error(`vgcreate or vgextend would make a physical volume of ${path}`);
  }
  disk.writes++;
  machine.host.unusedPvs = machine.host.unusedPvs.filter((other) => other !== pv);
  return { ...pv, disk };
}

function addPv(group: FakeGroup, { path, uuid, disk }: { path: string; uuid: string; disk: FakeDisk }): void {
  const size = (disk.size - (1n << 20n)) / group.extentSize * group.extentSize;
  group.pvs.push({ path, uuid, size });
  group.size += size;
}
