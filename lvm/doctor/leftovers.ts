/**
 * The doctor's look at device nodes, and at what crashes and accidents left.
 *
 * @module
 */

import type { Configuration } from "../model/configuration.ts";
import type { BlockDevice } from "../host/device.ts";
import type { MappedDevice } from "../host/device_mapper.ts";
import type { Disk } from "../host/disks.ts";
import {
  type CheckResult,
  failureSummary,
  type Finding,
  findingsOf,
  NO_REPORT,
  type Reading,
  skippedCheck,
} from "./finding.ts";
import { isDriverDeviceName } from "../ids.ts";
import type { Inconsistency, Inventory } from "../inventory/inventory.ts";
import { isDeletedNodeMount, isDriverVolumeMount, type Mount } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";
import { cowState } from "../inventory/snapshot_finder.ts";
import type { Survey } from "../model/survey.ts";

/** How udev is: it answers, was never there, or has left its socket and answers no more. */
export type UdevState = "running" | "absent" | "dead";

/** What {@linkcode checkUdev} looks at. */
export interface UdevReadings {
  /** LVM's settings. */
  readonly configuration: Reading<Configuration>;
  /** How udev is. */
  readonly udev: Reading<UdevState>;
  /** The driver's LVs that are active. */
  readonly activeLvs: readonly LogicalVolume[];
  /** The block devices whose nodes are at the paths of those LVs. */
  readonly deviceNodes: Reading<readonly BlockDevice[]>;
  /** Whether the commands run as root: udev answers nobody else. */
  readonly root: boolean;
}

/** Whether udev runs as LVM expects it, and the device nodes are there. */
export function checkUdev({ configuration, udev, activeLvs, deviceNodes, root }: UdevReadings): CheckResult {
  const { warning } = findingsOf("udev");
  const state = root && "value" in udev ? udev.value : undefined;
  const settings = "value" in configuration ? configuration.value : undefined;
  const findings = udevStates(state, settings);
  if ("value" in deviceNodes) findings.push(...wrongDeviceNodes(activeLvs, deviceNodes.value));
  else findings.push(warning("device nodes", `they could not be looked at: ${failureSummary(deviceNodes.error)}`));
  return { summary: `udev ${state ?? "unknown"}, ${activeLvs.length} device nodes`, findings };
}

/** Without udev, LVM finds the nodes of what it makes only if it is told to make them itself. */
function udevStates(state: UdevState | undefined, settings: Configuration | undefined): Finding[] {
  const { info, error } = findingsOf("udev");
  const [sync, rules] = (["activation/udev_sync", "activation/udev_rules"] as const).map((name) =>
    settings?.value(name)
  );
  if (state === undefined) return [];
  if (state === "running") {
    const found = "0, though udev runs: nodes can come late. In a container this is right";
    return sync === "0" ? [info("activation/udev_sync", found)] : [];
  }
  if (sync === "0" && rules === "0") return [info("udev", "it does not run; LVM makes device nodes itself")];
  const found = state === "dead"
    ? "it does not answer any more: whatever makes or removes a volume waits for it for ever"
    : "it does not run: no volume can be made, since LVM waits for nobody and finds no device node";
  return [
    error("udev", found, "systemctl restart systemd-udevd   (in a container: udev_sync = 0, and the host's /dev)"),
  ];
}

function wrongDeviceNodes(activeLvs: readonly LogicalVolume[], deviceNodes: readonly BlockDevice[]): Finding[] {
  const { error } = findingsOf("udev");
  return activeLvs.flatMap(({ devicePath, deviceNumber }) => {
    const name = devicePath.replace(/^.*\//, "");
    const node = deviceNodes.find((each) => each.name === name);
    if (node !== undefined && node.number === deviceNumber) return [];
    const found = node === undefined
      ? "no block device is there, though LVM has it active"
      : `it is the device ${node.number}, but LVM has ${deviceNumber} active`;
    return [error(devicePath, found, `dmsetup mknodes ${name}   (in a container: mount the host's /dev)`)];
  });
}

/** What {@linkcode checkLeftovers} looks at. */
export interface LeftoverReadings {
  /** LVM's report. */
  readonly survey: Reading<Survey>;
  /** What is of the driver in it. */
  readonly inventory: Inventory;
  /** The driver's name. */
  readonly driver: string;
  /** All devices of device-mapper. */
  readonly devices: Reading<readonly MappedDevice[]>;
  /** The disks that the kernel has. */
  readonly disks: Reading<readonly Disk[]>;
  /** The mount table. */
  readonly mounts: Reading<readonly Mount[]>;
  /** The driver's socket, and what is on it; `undefined` when it could not be looked at. */
  readonly socket: { readonly path: string; readonly state: SocketState } | undefined;
}

/** What is at the path of a socket: nothing, one that nobody answers on, or one that somebody does. */
export type SocketState = "absent" | "stale" | "listening";

/** What was left half-done, and what the driver refuses to touch. */
export function checkLeftovers(readings: LeftoverReadings): CheckResult {
  const { survey, inventory, driver, devices, disks, mounts, socket } = readings;
  const { info, warning } = findingsOf("leftovers");
  const findings: Finding[] = [];
  if ("value" in devices) findings.push(...suspendedDevices(devices.value));
  const onRemovedDisks = "value" in devices && "value" in disks
    ? devicesOnRemovedDisks(devices.value, disks.value)
    : [];
  findings.push(...onRemovedDisks);
  if ("error" in survey) findings.push(...skippedCheck("leftovers", NO_REPORT).findings);
  else {
    findings.push(
      ...lost(inventory),
      ...inventory.inconsistencies.filter((inconsistency) => !isRecordOfLost(inconsistency, inventory)).map((
        inconsistency,
      ) => inconsistencyFinding(driver, inconsistency)),
      ...interruptedFormatting(inventory),
      ...overflowingSnapshots(inventory),
    );
    const lvs = survey.value.groups.flatMap((group) => group.lvs);
    if ("value" in devices) {
      const isReported = (name: string) => onRemovedDisks.some(({ subject }) => subject === name);
      findings.push(...staleDevices(devices.value.filter(({ name }) => !isReported(name)), lvs));
    }
    if ("value" in mounts) findings.push(...staleMounts(mounts.value, lvs));
    else findings.push(warning("mounts", failureSummary(mounts.error)));
  }
  if (socket?.state === "stale") {
    findings.push(
      info(socket.path, "nobody answers on this socket: a driver that crashed left it; the next start removes it"),
    );
  }
  const { volumes, snapshots } = inventory;
  const serving = socket?.state === "listening" ? "a driver is serving" : "no driver is serving";
  return {
    summary: `${count(volumes.length, "volume")}, ${count(snapshots.length, "snapshot")}; ${
      socket === undefined ? "socket unknown" : serving
    }`,
    findings,
  };
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** Whoever reads or writes a suspended device waits, and so do LVM's commands that look at it. */
function suspendedDevices(devices: readonly MappedDevice[]): Finding[] {
  const { error } = findingsOf("leftovers");
  return devices.filter((device) => device.suspended && isDriverDeviceName(device.name)).map(({ name }) =>
    error(name, "it is suspended: whatever uses it waits, as after a crash between two steps", `dmsetup resume ${name}`)
  );
}

/** A disk that comes back has another number, so what was active on it stays on one that is no more. */
function devicesOnRemovedDisks(devices: readonly MappedDevice[], disks: readonly Disk[]): Finding[] {
  const { error } = findingsOf("leftovers");
  const there = new Set([...disks, ...devices].map(({ number }) => number));
  return devices.filter(({ name, dependencies }) =>
    isDriverDeviceName(name) && dependencies.some((number) => !there.has(number))
  )
    .map(({ name, dependencies }) =>
      error(
        name,
        `it is on a disk that is gone (${
          dependencies.filter((number) => !there.has(number)).join(", ")
        }): it answers with errors`,
        `with the disk back: unmount it, then lvchange --activate n /dev/mapper/${name}; staging activates it anew`,
      )
    );
}

function lost({ lost }: Inventory): Finding[] {
  const { error } = findingsOf("leftovers");
  return lost.map(({ id, groupName: group, usedTag, error: { message }, replaced }) =>
    error(
      id,
      message,
      replaced
        ? `see docs/guides/volume-repair.md, "Lost volume"`
        : `vgcfgrestore --list ${group}   (to bring it back); vgchange --deltag ${usedTag} ${group}   (to give it up)`,
    )
  );
}

/** A Lost volume is told as such, and not once more as its record. */
function isRecordOfLost(inconsistency: Inconsistency, { lost }: Inventory): boolean {
  return inconsistency.kind === "dangling" && lost.some(({ usedTag }) => usedTag === inconsistency.subject);
}

function inconsistencyFinding(driver: string, { kind, subject, group, id, tags }: Inconsistency): Finding {
  const { error, warning, info } = findingsOf("leftovers");
  const claim = tags.filter((tag) => tag === `denolith=${driver}` || /^denolith\.(?:volume|snapshot)=/.test(tag));
  const untag = `lvchange ${claim.map((tag) => `--deltag ${tag}`).join(" ")} ${subject}`;
  switch (kind) {
    case "duplicate":
      return error(
        subject,
        `it is one of several that claim to be ${id}: the driver touches none of them`,
        `${untag}   (the wrong one)`,
      );
    case "unreadable":
      return error(subject, `its tags cannot be read: ${tags.join(", ")}`, `correct the tags, or give it up: ${untag}`);
    case "dangling":
      return warning(
        group,
        id === undefined
          ? `a record cannot be read: ${subject}`
          : `a record names a logical volume that is gone: ${subject}`,
        `vgchange --deltag ${subject} ${group}`,
      );
    case "untagged":
      return info(subject, "it has a name as the driver gives them, but none of its tags: the driver leaves it alone");
  }
}

function interruptedFormatting({ volumes }: Inventory): Finding[] {
  const { info } = findingsOf("leftovers");
  return volumes.flatMap(({ id, tags: { format } }) =>
    format.state === "formatting"
      ? [info(id, `making its ${format.type} was begun and not finished: the next NodeStageVolume does it again`)]
      : []
  );
}

function overflowingSnapshots({ snapshots }: Inventory): Finding[] {
  const { warning } = findingsOf("leftovers");
  return snapshots.flatMap((located) => {
    const { snapshot: { id }, lv, group } = located;
    const path = `${group.name}/${lv.name}`;
    const state = cowState(located);
    if (state === "Ok") return [];
    if (state === "Overflowed") {
      const found = `snapshot ${id} overflowed: its content is gone, and it still slows its volume down`;
      return [warning(path, found, `DeleteSnapshot, or lvremove ${path}`)];
    }
    const found = `the store of snapshot ${id} is ${lv.snapshotPercent} % full: when it is full, the snapshot is gone`;
    return [warning(path, found, `lvextend --size +1G ${path}`)];
  });
}

/** Devices with our names whose LV is gone: the disk was pulled, or its metadata overwritten, while they were active. */
function staleDevices(devices: readonly MappedDevice[], lvs: readonly LogicalVolume[]): Finding[] {
  const { warning } = findingsOf("leftovers");
  const uuids = new Set(lvs.map(({ uuid }) => uuid.replaceAll("-", "")));
  return devices.filter(({ name, uuid }) => isDriverDeviceName(name) && !uuids.has(lvUuidOf(uuid))).map(({ name }) =>
    warning(
      name,
      "it is active in the kernel, but LVM knows no such logical volume",
      `dmsetup remove ${name}   (when it is unmounted)`,
    )
  );
}

/** `LVM-`, 32 characters of the group's UUID, 32 of the LV's, and for a hidden layer its name. */
function lvUuidOf(deviceUuid: string): string {
  return deviceUuid.slice("LVM-".length + 32, "LVM-".length + 64);
}

function staleMounts(mounts: readonly Mount[], lvs: readonly LogicalVolume[]): Finding[] {
  const { warning } = findingsOf("leftovers");
  const active = lvs.filter((lv) => lv.active);
  const isOnActiveLv = (mount: Mount) =>
    active.some((lv) => mount.deviceNumber === lv.deviceNumber || mount.source.startsWith(lv.devicePath));
  return mounts.filter((mount) => isDeletedNodeMount(mount) || (isDriverVolumeMount(mount) && !isOnActiveLv(mount)))
    .map((mount) =>
      warning(mount.target, `${mount.source} is mounted here, but its device is gone`, `umount ${mount.target}`)
    );
}
