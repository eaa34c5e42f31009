/**
 * Reads the disks of a machine, and judges those that rules name. It changes nothing.
 *
 * @module
 */

import { defined } from "../defined.ts";
import { StorageError } from "../error.ts";
import { type Exec, runOk } from "../exec.ts";
import { readSignatures } from "../host/device.ts";
import { type Mount, readMounts } from "../host/mounts.ts";
import { asArray, asObject, asString, asUnsignedInteger, parseJson } from "../json.ts";
import type { GroupMatcher } from "../model/groups.ts";
import type { BlockDevice, Disk, DiskLinks } from "./disk.ts";
import { diskName, objections } from "./judgement.ts";

/** A rule that proposes disks for a volume group. Sizes are in bytes. */
export interface DiskRule {
  /** The volume group. */
  readonly group: string;
  /** Matches the names of disks in /dev/disk/by-id. */
  readonly names: Pick<GroupMatcher, "matches">;
  /** The smallest disk. */
  readonly minBytes?: bigint;
  /** The largest disk. */
  readonly maxBytes?: bigint;
  /** True for disks that turn, false for others; absent for both. */
  readonly rotational?: boolean;
}

/** A disk that a rule names. */
export interface NamedDisk extends Pick<BlockDevice, "path" | "size" | "rotational"> {
  /** Its name in /dev/disk/by-id. */
  readonly name: string;
  /** The volume group of the first rule that names it. */
  readonly group: string;
  /** What speaks against it, each as a clause; nothing if nobody uses it, so that it is proposed. */
  readonly objections: readonly string[];
}

const LIST_DEVICES = [
  ...["--json", "--bytes", "--paths", "--all", "--output"],
  "NAME,TYPE,SIZE,ROTA,RM,HOTPLUG,RO,TRAN,FSTYPE,PTTYPE,MOUNTPOINTS",
];

/** The disks that rules name. */
export interface NamedDisks {
  /** They, in the order of their names. */
  readonly disks: readonly NamedDisk[];
  /** The names of all disks of the machine. */
  readonly names: ReadonlySet<string>;
}

/**
 * Reads the disks that the rules name.
 *
 * @throws {StorageError} `CommandFailed` when the devices or the mounts cannot be listed
 */
export async function readNamedDisks(exec: Exec, rules: readonly DiskRule[]): Promise<NamedDisks> {
  const devices = parseDevices(await runOk(exec, { program: "lsblk", args: LIST_DEVICES, mutates: false }));
  const disks: Disk[] = [];
  for (const device of devices.filter(({ type }) => type === "disk")) {
    disks.push({ ...device, links: await readLinks(exec, device.path) });
  }
  const surroundings = { disks, publishedPaths: publishedPaths(await readMounts(exec)) };
  const named: NamedDisk[] = [];
  for (const disk of disks) {
    const { path, size, rotational } = disk;
    const name = diskName(disk);
    const rule = name === undefined ? undefined : rules.find((rule) => isNamed(rule, name, disk));
    if (name === undefined || rule === undefined) continue;
    let found = objections(disk, surroundings);
    if (found.length === 0) found = await signatureObjections(exec, path);
    named.push({ name, path, size, ...defined({ rotational }), group: rule.group, objections: found });
  }
  return {
    disks: named.sort((a, b) => a.name < b.name ? -1 : 1),
    names: new Set(disks.flatMap((disk) => diskName(disk) ?? [])),
  };
}

function isNamed({ names, minBytes, maxBytes, rotational }: DiskRule, name: string, disk: BlockDevice): boolean {
  return names.matches(name) && (minBytes === undefined || disk.size >= minBytes) &&
    (maxBytes === undefined || disk.size <= maxBytes) &&
    (rotational === undefined || disk.rotational === rotational);
}

/** Reads the signatures of a disk itself: what lsblk(8) shows is what udev saw last. */
async function signatureObjections(exec: Exec, path: string): Promise<string[]> {
  try {
    return (await readSignatures(exec, path)).map(({ type }) => `it has a signature (${type})`);
  } catch (error) {
    if (error instanceof StorageError) return [`it cannot be read: ${error.message}`];
    throw error;
  }
}

/**
 * Parses the output of lsblk(8): the devices that are on no other one.
 *
 * @throws {StorageError} `CommandFailed` when it is not what lsblk writes
 */
export function parseDevices(stdout: string): BlockDevice[] {
  return asArray(asObject(parseJson("lsblk", stdout)).blockdevices).map((value) => parseDevice(asObject(value)));
}

function parseDevice(row: Record<string, unknown>): BlockDevice {
  const text = (value: unknown) => value === null || value === undefined || value === "" ? undefined : asString(value);
  const children = asArray(row.children ?? []).map(asObject);
  return {
    path: asString(row.name),
    type: text(row.type) ?? "",
    size: row.size === null || row.size === undefined ? 0n : asUnsignedInteger(`${row.size}`),
    ...(typeof row.rota === "boolean" ? { rotational: row.rota } : {}),
    // what lsblk does not say is taken for the worse
    removable: row.rm !== false || row.hotplug !== false,
    readOnly: row.ro !== false,
    ...defined({ transport: text(row.tran), signature: text(row.fstype) ?? text(row.pttype) }),
    mountPoints: asArray(row.mountpoints ?? []).flatMap((point) => text(point) ?? []),
    holders: children.map(({ name, type }) => ({ path: asString(name), type: text(type) ?? "" })),
  };
}

async function readLinks(exec: Exec, path: string): Promise<DiskLinks> {
  const args = ["info", "--query=property", `--name=${path}`];
  const output = await exec.run({ program: "udevadm", args, mutates: false });
  return output.code === 0 ? parseLinks(output.stdout) : { ids: [], isPath: false };
}

/** Parses the properties of a device, as udevadm(8) prints them. */
export function parseLinks(stdout: string): DiskLinks {
  const properties = new Map(
    stdout.split("\n").map((line) => {
      const equals = line.indexOf("=");
      return [line.slice(0, equals), line.slice(equals + 1)] as const;
    }),
  );
  const prefix = "/dev/disk/by-id/";
  const links = (properties.get("DEVLINKS") ?? "").split(" ").filter((link) => link.startsWith(prefix));
  return {
    ids: links.map((link) => link.slice(prefix.length)),
    ...defined({ attachedBy: properties.get("ID_PATH") }),
    isPath: (properties.get("DM_MULTIPATH_DEVICE_PATH") ?? "0") !== "0" ||
      properties.get("ID_FS_TYPE") === "mpath_member",
  };
}

/** Returns the paths of devices whose nodes are mounted somewhere. */
function publishedPaths(mounts: readonly Mount[]): string[] {
  return mounts.filter(({ fsType, root }) => /^(?:devtmpfs|tmpfs)$/.test(fsType) && root !== "/")
    .map(({ root }) => `/dev${root}`);
}
