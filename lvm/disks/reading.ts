/**
 * Reads the disks of a machine, and judges those that rules name. It changes nothing.
 *
 * @module
 */

import { asArray, asObject, asString, asUnsignedInteger, parseRows } from "../../base/json.ts";
import { commandError, type Exec, runOk } from "../exec.ts";
import { readBlockDevices, readSignatures } from "../host/device.ts";
import { type Mount, readMounts } from "../host/mounts.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import type { GroupMatcher } from "../model/groups.ts";
import { type BlockDevice, type Disk, diskIdentity, type DiskLinks, diskName, objections } from "./judgement.ts";

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
export interface NamedDisk extends Pick<BlockDevice, "path" | "number" | "size" | "rotational"> {
  /** Its name in /dev/disk/by-id. */
  readonly name: string;
  /** All its names in /dev/disk/by-id. */
  readonly ids: readonly string[];
  /** The volume group of the first rule that names it. */
  readonly group: string;
  /** Tells it from another disk that has its name later; absent where udev does not say since when it is attached. */
  readonly identity?: string;
  /** The checks that it failed, each as a clause; none if nobody uses it, so that it is proposed. */
  readonly objections: readonly string[];
}

const LIST_DEVICES = [
  ...["--json", "--bytes", "--paths", "--all", "--output"],
  "NAME,MAJ:MIN,TYPE,SIZE,ROTA,RM,HOTPLUG,RO,TRAN,FSTYPE,PTTYPE,MOUNTPOINTS",
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
 * @param kubeletDirectory the data directory of kubelet, with the devices that pods have as block volumes
 * @throws {StorageError} `CommandFailed` when the devices or the mounts cannot be listed
 */
export async function readNamedDisks(
  exec: Exec,
  { rules, kubeletDirectory }: { readonly rules: readonly DiskRule[]; readonly kubeletDirectory: string },
): Promise<NamedDisks> {
  const devices = parseDevices(await runOk(exec, { program: "lsblk", args: LIST_DEVICES, mutates: false }));
  const disks: Disk[] = [];
  for (const device of devices.filter(({ type }) => type === "disk")) {
    disks.push({ ...device, links: await readLinks(exec, device.path) });
  }
  const surroundings = { disks, published: await readPublished(exec, kubeletDirectory) };
  const named: NamedDisk[] = [];
  for (const disk of disks) {
    const { path, number, size, rotational } = disk;
    const name = diskName(disk);
    const rule = name === undefined ? undefined : rules.find((rule) => isNamed(rule, name, disk));
    if (name === undefined || rule === undefined) continue;
    let found = objections(disk, surroundings);
    if (found.length === 0) found = await linkObjections(exec, name, number);
    if (found.length === 0) found = await signatureObjections(exec, path);
    const optional = defined({ rotational, identity: diskIdentity(disk) });
    named.push({ name, ids: disk.links.ids, path, number, size, ...optional, group: rule.group, objections: found });
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

/** The path of a disk by its name. */
export function byIdPath(name: string): string {
  return `/dev/disk/by-id/${name}`;
}

/** Follows the name of a disk: the link must lead to the disk that udev knows by it. */
async function linkObjections(exec: Exec, name: string, number: string): Promise<string[]> {
  const [device] = await readBlockDevices(exec, [byIdPath(name)]);
  if (device === undefined) return [`${byIdPath(name)} leads to no device`];
  return device.number === number ? [] : [`${byIdPath(name)} leads to another device (${device.name})`];
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
  return parseRows("lsblk", stdout, "blockdevices").map(parseDevice);
}

function parseDevice(row: Record<string, unknown>): BlockDevice {
  const text = (value: unknown) => value === null || value === undefined || value === "" ? undefined : asString(value);
  const children = asArray(row.children ?? []).map(asObject);
  return {
    path: asString(row.name),
    number: text(row["maj:min"])?.trim() ?? "",
    type: text(row.type) ?? "",
    size: row.size === null || row.size === undefined ? 0n : asUnsignedInteger(`${row.size}`),
    ...defined({ rotational: typeof row.rota === "boolean" ? row.rota : undefined }),
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
    ...defined({ attachedBy: properties.get("ID_PATH"), attachment: attachmentOf(properties) }),
    isPath: (properties.get("DM_MULTIPATH_DEVICE_PATH") ?? "0") !== "0" ||
      properties.get("ID_FS_TYPE") === "mpath_member",
  };
}

/** Returns when a device was attached. Kernels before 5.15 have no DISKSEQ. */
function attachmentOf(properties: ReadonlyMap<string, string>): string | undefined {
  const since = properties.get("USEC_INITIALIZED");
  return since === undefined ? undefined : `${properties.get("DISKSEQ") ?? "-"} ${since}`;
}

/**
 * Reads the devices that pods have as block volumes: their nodes are mounted somewhere, or stand below kubelet's folders
 * `volumeDevices`, as CSI drivers and kubelet make them: bind mounts, nodes of their own, or links.
 *
 * @param kubeletDirectory the data directory of kubelet
 * @returns their numbers, each with a path that says so
 * @throws {StorageError} `CommandFailed` when the mounts or the folders cannot be read
 */
async function readPublished(exec: Exec, kubeletDirectory: string): Promise<Map<string, string>> {
  const mounts = (await readMounts(exec)).filter(isNodeMount);
  const paths = [...mounts.map(({ target }) => target), ...await findDevices(exec, kubeletDirectory)];
  const published = new Map<string, string>();
  for (const path of new Set(paths)) {
    for (const { number } of await readBlockDevices(exec, [path])) published.set(number, path);
  }
  return published;
}

/** Reports whether a mount may be of a device's node: of a path in a filesystem that has such nodes. */
function isNodeMount({ fsType, root }: Mount): boolean {
  return /^(?:devtmpfs|tmpfs)$/.test(fsType) && root !== "/";
}

/**
 * Lists nodes and links below kubelet's folders `volumeDevices`. It does not enter the volumes of pods: those are at the greatest
 * depth that it looks at, or, with `plugins`, in folders `globalmount` and `mounts`.
 */
async function findDevices(exec: Exec, kubeletDirectory: string): Promise<string[]> {
  const isDevice = ["-path", "*/volumeDevices/*", "(", "-type", "b", "-o", "-type", "l", ")", "-print0"];
  const isVolume = ["(", "-name", "globalmount", "-o", "-name", "mounts", ")", "!", "-path", "*/volumeDevices/*"];
  const searches = [
    [`${kubeletDirectory}/pods`, "-maxdepth", "4", ...isDevice],
    [`${kubeletDirectory}/plugins`, "-maxdepth", "6", ...isVolume, "-prune", "-o", ...isDevice],
  ];
  const found: string[] = [];
  for (const args of searches) {
    const command = { program: "find", args: ["-H", ...args], mutates: false } as const;
    const output = await exec.run(command);
    // what pods end meanwhile takes away is no error that matters, and find(1) lists the rest
    const isGone = output.stderr.trim().split("\n").every((line) => / No such file or directory$/.test(line));
    if (output.code !== 0 && !isGone) throw commandError(command, output);
    found.push(...output.stdout.split("\0").filter((path) => path !== ""));
  }
  return found;
}
