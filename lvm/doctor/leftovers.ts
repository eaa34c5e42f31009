/**
 * The doctor's check of what crashes and accidents left.
 *
 * @module
 */

import { findHeaderBackup } from "../encryption/header_tags.ts";
import { contentDevice, isMappingName } from "../encryption/mapping.ts";
import { PREVIOUS_KEY } from "../encryption/passphrase.ts";
import { VOLUME_KEY_KEY } from "../encryption/volume_key.ts";
import { type MappedDevice, resumeRemedy } from "../host/device_mapper.ts";
import type { Disk } from "../host/disks.ts";
import {
  type CheckResult,
  error,
  failureSummary,
  type Found,
  type HostFacts,
  info,
  NO_REPORT,
  skippedCheck,
  warning,
} from "./finding.ts";
import { isDriverDeviceName } from "../../base/ids.ts";
import type { Inconsistency, Inventory } from "../inventory/inventory.ts";
import { isDeletedNodeMount, isDriverVolumeMount, type Mount } from "../host/mounts.ts";
import { type LogicalVolume, lvPath } from "../model/report.ts";
import { cowState } from "../inventory/snapshot_finder.ts";
import { shellWord } from "../../base/text_table.ts";

/** Checks what was left unfinished, and what the driver does not change. */
export function checkLeftovers(facts: HostFacts): CheckResult {
  const { survey, inventory, driver, devices, disks, mounts, socket, halfReencrypted } = facts;
  const findings: Found[] = [];
  if ("value" in devices) findings.push(...suspendedDevices(devices.value));
  const onRemovedDisks = "value" in devices && "value" in disks
    ? devicesOnRemovedDisks(devices.value, disks.value)
    : [];
  findings.push(...onRemovedDisks);
  if ("error" in survey) findings.push(...skippedCheck(NO_REPORT).findings);
  else {
    findings.push(
      ...lost(inventory),
      ...inventory.inconsistencies.filter((inconsistency) => !isRecordOfLost(inconsistency, inventory)).map((
        inconsistency,
      ) => inconsistencyFinding(driver, inconsistency)),
      ...interruptedFormatting(inventory),
      ...interruptedKeyChanges(inventory, halfReencrypted),
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
      info(socket.path, "no process listens on this socket: a driver that crashed left it; the next start removes it"),
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

/** Finds suspended devices: whatever reads or writes one waits, also LVM's commands. */
function suspendedDevices(devices: readonly MappedDevice[]): Found[] {
  return devices.filter((device) => device.suspended && isDriverDeviceName(device.name)).map(({ name }) =>
    error(name, "it is suspended, as after a crash: every program that uses it waits", resumeRemedy(name))
  );
}

/**
 * Finds devices on removed disks. A disk that is attached again gets another number, so a device that was active on it
 * still refers to the old number.
 */
function devicesOnRemovedDisks(devices: readonly MappedDevice[], disks: readonly Disk[]): Found[] {
  const there = new Set([...disks, ...devices].map(({ number }) => number));
  return devices.filter(({ name, dependencies }) =>
    isDriverDeviceName(name) && dependencies.some((number) => !there.has(number))
  )
    .map(({ name, dependencies }) =>
      error(
        name,
        `its disk was removed (${
          dependencies.filter((number) => !there.has(number)).join(", ")
        }): reads and writes fail`,
        `attach the disk, unmount the device, then lvchange --activate n /dev/mapper/${name}; staging activates it again`,
      )
    );
}

function lost({ lost }: Inventory): Found[] {
  return lost.map(({ id, groupName: group, usedTag, error: { message }, replaced }) =>
    error(
      id,
      message,
      replaced
        ? `vgchange --deltag ${usedTag} ${group}   (if it is the right one: its data was copied there)`
        : `vgcfgrestore --list ${group}   (to restore it); vgchange --deltag ${usedTag} ${group}   (to forget it)`,
    )
  );
}

/** Reports whether an inconsistency is the record of a Lost volume, which has a finding already. */
function isRecordOfLost(inconsistency: Inconsistency, { lost }: Inventory): boolean {
  return inconsistency.kind === "dangling" && lost.some(({ usedTag }) => usedTag === inconsistency.subject);
}

function inconsistencyFinding(driver: string, { kind, subject, group, id, tags }: Inconsistency): Found {
  const claim = tags.filter((tag) => tag === `denolith=${driver}` || /^denolith\.(?:volume|snapshot)=/.test(tag));
  const untag = `lvchange ${claim.map((tag) => `--deltag ${tag}`).join(" ")} ${subject}`;
  switch (kind) {
    case "duplicate":
      return error(
        subject,
        `it is one of several logical volumes with the tags of ${id}: the driver changes none of them`,
        `${untag}   (the wrong one)`,
      );
    case "unreadable":
      return error(
        subject,
        `its tags cannot be parsed: ${tags.join(", ")}`,
        `correct the tags, or remove them: ${untag}`,
      );
    case "dangling":
      return warning(
        group,
        id === undefined
          ? `a record cannot be parsed: ${subject}`
          : `a record names a logical volume that does not exist: ${subject}`,
        `vgchange --deltag ${subject} ${group}`,
      );
    case "untagged":
      return info(subject, "it has a name of the driver, but no tags of it: the driver does not change it");
  }
}

function interruptedFormatting({ volumes }: Inventory): Found[] {
  return volumes.flatMap(({ id, tags: { format } }) =>
    format.state === "formatting"
      ? [info(id, `creating its ${format.type} filesystem was interrupted: the next NodeStageVolume repeats it`)]
      : []
  );
}

function interruptedKeyChanges({ volumes }: Inventory, halfReencrypted: ReadonlySet<string>): Found[] {
  return volumes.flatMap((volume) => {
    const { id, lv } = volume;
    const backup = findHeaderBackup(volume);
    return [
      ...(backup === undefined ? [] : [
        warning(
          id,
          "its passphrase is being changed, or a change was interrupted: the former one may still open it, and " +
            `${lvPath(backup)} has its LUKS header`,
          `start a pod with the volume, with the new passphrase in its secret, and the former one there as ${PREVIOUS_KEY}`,
        ),
      ]),
      ...(halfReencrypted.has(lv.devicePath)
        ? [
          info(
            id,
            "its data is being encrypted by another volume key, or that was interrupted: the next NodeStageVolume with its " +
              `passphrase and a ${VOLUME_KEY_KEY} continues it`,
          ),
        ]
        : []),
    ];
  });
}

function overflowingSnapshots({ snapshots }: Inventory): Found[] {
  return snapshots.flatMap((located) => {
    const { snapshot: { id }, lv, group } = located;
    const path = `${group.name}/${lv.name}`;
    const state = cowState(located);
    if (state === "Ok") return [];
    if (state === "Overflowed") {
      const found = `snapshot ${id} overflowed: its data is lost, and it still slows its volume down`;
      return [warning(path, found, `DeleteSnapshot, or lvremove ${path}`)];
    }
    const found =
      `the COW space of snapshot ${id} is ${lv.snapshotPercent} % full: when it is full, the snapshot's data is lost`;
    return [warning(path, found, `lvextend --size +1G ${path}`)];
  });
}

/**
 * Finds devices with the driver's names whose LV does not exist any more: the disk was removed, or its metadata
 * overwritten, while they were active.
 */
function staleDevices(devices: readonly MappedDevice[], lvs: readonly LogicalVolume[]): Found[] {
  const uuids = new Set(lvs.map(({ uuid }) => uuid.replaceAll("-", "")));
  const numbers = new Set(lvs.map(({ deviceNumber }) => deviceNumber));
  const isStale = ({ name, uuid, dependencies }: MappedDevice) =>
    isMappingName(name) ? !dependencies.some((number) => numbers.has(number)) : !uuids.has(lvUuidOf(uuid));
  return devices.filter((device) => isDriverDeviceName(device.name) && isStale(device)).map(({ name }) =>
    warning(
      name,
      "it is active in the kernel, but LVM has no such logical volume",
      `${isMappingName(name) ? "cryptsetup close" : "dmsetup remove"} ${name}   (after it is unmounted)`,
    )
  );
}

/**
 * Returns the UUID of the LV in the UUID of a device: `LVM-`, 32 characters of the group's UUID, 32 of the LV's, and
 * for a hidden layer its name.
 */
function lvUuidOf(deviceUuid: string): string {
  return deviceUuid.slice("LVM-".length + 32, "LVM-".length + 64);
}

function staleMounts(mounts: readonly Mount[], lvs: readonly LogicalVolume[]): Found[] {
  const active = lvs.filter((lv) => lv.active);
  const isOnActiveLv = (mount: Mount) =>
    active.some((lv) =>
      mount.deviceNumber === lv.deviceNumber || mount.source.startsWith(contentDevice(lv).devicePath)
    );
  return mounts.filter((mount) => isDeletedNodeMount(mount) || (isDriverVolumeMount(mount) && !isOnActiveLv(mount)))
    .map((mount) =>
      warning(
        mount.target,
        `${mount.source} is mounted here, but its device does not exist any more`,
        `umount ${shellWord(mount.target)}`,
      )
    );
}
