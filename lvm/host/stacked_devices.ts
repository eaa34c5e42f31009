/**
 * The devices that LVM must not read: what lies over a logical volume is a disk of the user of the volume, never one of this
 * machine.
 *
 * LVM itself skips logical volumes (lvm.conf(5), scan_lvs), and nothing that is made of one. kubelet keeps a loop device over
 * each block volume of a running pod, and the driver opens encrypted ones as mappings. Whoever uses such a volume can write the
 * header of a physical volume on it.
 *
 * @module
 */

import { asString, parseRows } from "../../base/json.ts";
import { StorageError } from "../../base/error.ts";
import { type Exec, isTimeout, refusalKind, runOk } from "../exec.ts";
import { MAPPING_GROUP } from "../../base/ids.ts";
import { type DeviceNode, readDeviceTree } from "../model/device_tree.ts";
import { readMounts } from "./mounts.ts";

/** The beginnings of names of devices that are not to be read: loop devices, unless they are of files, and our mappings. */
const NEVER = ["loop", plain(`mapper/${MAPPING_GROUP}-`)];

/** The pattern that an administrator adds to the filter of a host, whose LVM sees these devices, too. */
export const HOST_PATTERN = `r|^/dev/(${NEVER.join("|")})|`;

/** What kubelet calls the directories with the devices of block volumes. */
const KUBELET_DEVICES = "/volumeDevices/";

/**
 * The rules of udev(7) that an administrator adds on a host: udev does not look at what is on volumes then, and so starts nothing with
 * it, such as mdadm, and makes no links for its UUIDs and labels.
 */
export const HOST_UDEV_RULES = [
  `SUBSYSTEM=="block", KERNEL=="loop*", ATTR{loop/backing_file}=="*${KUBELET_DEVICES}*", ` +
  'ENV{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}="1"',
  `SUBSYSTEM=="block", ATTR{dm/name}=="*-vol--*|*-snap--*|*-cut--*|${MAPPING_GROUP}-*", ` +
  'ENV{DM_UDEV_DISABLE_DISK_RULES_FLAG}="1"',
] as const;

/** The file for them: before those of device-mapper. */
export const HOST_UDEV_FILE = "/etc/udev/rules.d/09-denolith.rules";

/** What the filter is made from. */
export interface StackedReadings {
  /** The loop devices of files. */
  readonly fileLoops: readonly string[];
  /** All devices. */
  readonly tree: readonly DeviceNode[];
}

/**
 * Reads what {@linkcode stackedFilter} needs.
 *
 * @param known stays where something cannot be read: a group that vanishes would look as if its volumes were lost
 * @throws {StorageError} those of {@linkcode orKnown}
 */
export async function readStackedDevices(
  exec: Exec,
  known?: StackedReadings,
): Promise<StackedReadings> {
  const [fileLoops, tree] = await Promise.all([
    orKnown(() => readFileLoops(exec), known?.fileLoops),
    orKnown(() => readDeviceTree(exec), known?.tree),
  ]);
  return { fileLoops, tree };
}

/**
 * Returns the patterns of a filter of LVM (lvm.conf(5), global_filter) that rejects each device over a logical volume.
 *
 * The kernel does not say which device a loop device is made of. So they reject all loop devices but those of files, and all
 * mappings of the driver. An array or a cache is rejected when one of its parts is a logical volume: whoever can write that part
 * may decide what is read from the whole.
 */
export function stackedFilter({ fileLoops, tree }: StackedReadings): string[] {
  const over = new Set(stackedNames({ fileLoops, tree }));
  const others = [...over].map((name) => plain(name.replace(/^\/dev\//, "")))
    .filter((name) => !NEVER.some((prefix) => name.startsWith(prefix))).map((name) => `${name}$`);
  const rejection = `r|^/dev/(${[...NEVER, ...others].join("|")})|`;
  const allowed = fileLoops.filter((name) => !over.has(name)).map((name) => name.replace(/^\/dev\//, ""));
  return allowed.length === 0 ? [rejection] : [`a|^/dev/(${allowed.join("|")})(p[0-9]+)?$|`, rejection];
}

/**
 * Returns the names that {@linkcode stackedFilter} knows of each device that LVM may read, its own ones. CD drives have no physical
 * volumes, and loop devices are accepted by names of their own.
 */
export function namesOfOthers({ fileLoops, tree }: StackedReadings): string[][] {
  const over = new Set(stackedNames({ fileLoops, tree }));
  const all = (devices: readonly DeviceNode[]): DeviceNode[] =>
    devices.flatMap((each) => [each, ...all(each.children)]);
  return all(tree).filter(({ name, type }) => !over.has(name) && !["loop", "lvm", "rom"].includes(type))
    .map(({ name, kernelName }) => [name, kernelName]);
}

/** Reports whether a filter accepts all devices, by its first pattern: it is as if it were not set. */
export function acceptsAll([first]: readonly string[] = []): boolean {
  return first === undefined || /^a(.)\.\*\/?\1$/.test(first);
}

/** Reports whether a filter lets LVM read a device: the first pattern that matches decides. */
export function passesFilter(patterns: readonly string[], path: string): boolean {
  return firstMatch(patterns, path)?.[0] !== "r";
}

/** Reports whether a filter accepts a name by a pattern: LVM reads the device then, whatever other names it has. */
export function acceptsName(patterns: readonly string[], path: string): boolean {
  return firstMatch(patterns, path)?.[0] === "a";
}

function firstMatch(patterns: readonly string[], path: string): string | undefined {
  return patterns.find((pattern) => ignoreSyntaxError(() => new RegExp(pattern.slice(2, -1)).test(path)));
}

function ignoreSyntaxError(test: () => boolean): boolean {
  try {
    return test();
  } catch {
    return false; // a pattern that only LVM can read
  }
}

/** Returns a name as a pattern without characters that mean something else in a pattern of LVM, or in its settings. */
function plain(name: string): string {
  return name.replace(/[^\w/-]/g, ".");
}

/** Returns the names of all devices over logical volumes, also of those of which only a part is over one. */
function stackedNames({ fileLoops, tree }: StackedReadings): string[] {
  return namesOver(tree, (device) => device.type === "lvm" || isStackedLoop(device, fileLoops));
}

function isStackedLoop({ type, name }: DeviceNode, fileLoops: readonly string[]): boolean {
  return type === "loop" && !fileLoops.includes(name);
}

/** Returns the names of all devices over those that are selected. */
function namesOver(tree: readonly DeviceNode[], isSelected: (device: DeviceNode) => boolean, isOver = false): string[] {
  return tree.flatMap((device) => [
    // LVM skips logical volumes by itself, under whatever name
    ...(isOver && device.type !== "lvm" ? [device.name, device.kernelName] : []),
    ...namesOver(device.children, isSelected, isOver || isSelected(device)),
  ]);
}

/** Reads the loop devices that are made of files, and can be written to. */
async function readFileLoops(exec: Exec): Promise<string[]> {
  const args = ["--json", "--list", "--output", "NAME,BACK-FILE,BACK-MAJ:MIN,RO"];
  const answer = await runOk(exec, { program: "losetup", args, mutates: false }, refusalKind);
  if (answer.trim() === "") return [];
  const loops = parseRows("losetup", answer, "loopdevices")
    .filter(({ ro, "back-file": file }) => ro === false && isFilePath(asString(file ?? "")));
  if (loops.length === 0) return [];
  const nodes = (await readMounts(exec)).filter(({ fsType }) => fsType === "devtmpfs");
  return loops.filter((loop) =>
    !nodes.some(({ deviceNumber }) => asString(loop["back-maj:min"]).trim() === deviceNumber)
  )
    .map(({ name }) => asString(name));
}

/** Reports whether a path that losetup(8) shows can be that of a file. It shows `/` for a mount of a node that is gone. */
function isFilePath(path: string): boolean {
  return /^\/./.test(path) && !/^\/dev\/|\(deleted\)$/.test(path) && !path.includes(KUBELET_DEVICES);
}

/**
 * What cannot be read is no reason to go without LVM: then all loop devices are rejected that are not known.
 *
 * @throws {StorageError} when nothing is known, and the program may answer the next time: it was killed, or took too long
 */
async function orKnown<T>(read: () => Promise<T[]>, known: readonly T[] | undefined): Promise<readonly T[]> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof StorageError)) throw error;
    if (known === undefined && (error.kind === "CommandFailed" || isTimeout(error))) throw error;
    return known ?? [];
  }
}
