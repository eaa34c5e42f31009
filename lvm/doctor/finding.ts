/**
 * Findings of the doctor, and helpers that all of its checks use.
 *
 * @module
 */

import type { StorageError } from "../../base/error.ts";
import type { BlockDevice } from "../host/device.ts";
import type { LvmVersion, MappedDevice } from "../host/device_mapper.ts";
import type { Disk } from "../host/disks.ts";
import type { Mount } from "../host/mounts.ts";
import type { Inventory } from "../inventory/inventory.ts";
import type { Configuration, Setting } from "../model/configuration.ts";
import type { GroupMatcher } from "../model/groups.ts";
import type { LogicalVolume } from "../model/report.ts";
import type { Survey, SurveyedGroup } from "../model/survey.ts";
import { defined } from "../../base/defined.ts";

/**
 * The level of a finding. `info`: for information. `warning`: something works now, or in most cases, but may fail
 * later. `error`: an operation of the driver fails, or will fail.
 */
export type Level = "ok" | "info" | "warning" | "error";

/** What a check found. */
export interface Found {
  /** The severity. */
  readonly level: Exclude<Level, "ok">;
  /** The subject: a program, a group, a logical volume, a setting. */
  readonly subject: string;
  /** The result of the check, in words. */
  readonly message: string;
  /** The remedy: a command where there is one. */
  readonly remedy?: string;
}

/** The result of a check. */
export interface CheckResult {
  /** A few words on what was checked. */
  readonly summary: string;
  /** The findings of the check; empty when nothing is wrong. */
  readonly findings: readonly Found[];
}

/** The state of udev: it responds, was never there, or left its socket and does not respond any more. */
export type UdevState = "running" | "absent" | "dead";

/** The state of a socket: there is none, nothing listens on it, or a process does. */
export type SocketState = "absent" | "stale" | "listening";

/** A hierarchy of cgroup v2. */
export interface CgroupHierarchy {
  /** The path at which it is mounted. */
  readonly root: string;
  /** Its controllers. */
  readonly controllers: readonly string[];
}

/** A value that was read from the machine, or the error why it could not be read. */
export type ReadResult<T> = { readonly value: T } | { readonly error: StorageError };

/** What the checks decide from. */
export interface HostFacts {
  /** The driver's name. */
  readonly driver: string;
  /** True if the commands run as root: LVM and udev respond to nobody else. */
  readonly root: boolean;
  /** The requested groups; `undefined` for those that the driver uses. */
  readonly wanted: GroupMatcher | undefined;
  /** The programs that are installed. */
  readonly programs: ReadResult<ReadonlySet<string>>;
  /** LVM's version, with that of the kernel's device-mapper. */
  readonly version: ReadResult<LvmVersion>;
  /** LVM's settings. */
  readonly configuration: ReadResult<Configuration>;
  /** The device-mapper targets that the kernel has now. */
  readonly targets: ReadResult<ReadonlyMap<string, string>>;
  /** The probed modules that can be loaded. */
  readonly modules: ReadResult<ReadonlySet<string>>;
  /** The release of the kernel. */
  readonly release: ReadResult<string>;
  /** All devices of device-mapper. */
  readonly devices: ReadResult<readonly MappedDevice[]>;
  /** The disks that the kernel has. */
  readonly disks: ReadResult<readonly Disk[]>;
  /** The filter by which LVM does not read devices over logical volumes for the driver. */
  readonly stackedFilter: ReadResult<readonly string[]>;
  /** The mount table. */
  readonly mounts: ReadResult<readonly Mount[]>;
  /** The state of udev. */
  readonly udev: ReadResult<UdevState>;
  /** LVM's report. */
  readonly survey: ReadResult<Survey>;
  /** True if LVM reported only without locks. */
  readonly lockStuck: boolean;
  /** The directory of locks, as `lockFolderCommand` describes it; empty while there is none. */
  readonly lockFolder: ReadResult<string>;
  /** The groups of the report that the driver uses. */
  readonly groups: readonly SurveyedGroup[];
  /** The driver's volumes and snapshots in the report. */
  readonly inventory: Inventory;
  /** The system id of this host (lvmsystemid(7)); empty for none. */
  readonly systemId: string;
  /** The driver's LVs that are active. */
  readonly activeLvs: readonly LogicalVolume[];
  /** The block devices whose nodes are at the paths of those LVs. */
  readonly deviceNodes: ReadResult<readonly BlockDevice[]>;
  /** The hierarchy of cgroup v2, if there is one. */
  readonly hierarchy: ReadResult<CgroupHierarchy | undefined>;
  /** The devices of LVs of the driver whose data is encrypted by two volume keys. */
  readonly halfReencrypted: ReadonlySet<string>;
  /** The driver's socket and its state; `undefined` when it cannot be inspected. */
  readonly socket: { readonly path: string; readonly state: SocketState } | undefined;
}

/** Creates what a check found, of one level. */
type CreateFound = (subject: string, message: string, remedy?: string) => Found;

function creatorOf(level: Found["level"]): CreateFound {
  return (subject, message, remedy) => ({ level, subject, message, ...defined({ remedy }) });
}

export const info: CreateFound = creatorOf("info");
export const warning: CreateFound = creatorOf("warning");
export const error: CreateFound = creatorOf("error");

const LEVELS: readonly Level[] = ["ok", "info", "warning", "error"];

/** Returns the highest of the levels; `ok` for none. */
export function worstLevel(levels: readonly Level[]): Level {
  return LEVELS[Math.max(0, ...levels.map((level) => LEVELS.indexOf(level)))]!;
}

/** Formats the error of a failed command without its arguments: those of a report fill a screen. */
export function failureSummary(error: StorageError): string {
  return error.message.replace(/^(\S+ \S+) .*?: (?=exit \d|no answer )/s, "$1: ");
}

/** Returns the result of a check whose subject could not be read, for a reason that another check reports. */
export function skippedCheck(why: string): CheckResult {
  return { summary: "not checked", findings: [info("lvm", why)] };
}

/** Reasons to skip a check: there is no report, or there are no settings. */
export const NO_REPORT = "it does not report its volume groups";
export const NO_SETTINGS = "its settings cannot be read";

/** The file of LVM's settings. */
export const LVM_CONF = "/etc/lvm/lvm.conf";

/** Returns the remedy that changes a setting of LVM. */
export function settingRemedy(setting: Setting, value: string): string {
  const [section, name] = setting.split("/");
  return `${name} = ${value} in the section ${section} of ${LVM_CONF}`;
}

/** Returns the command that installs a package on Debian, and its variant for RHEL in parentheses. */
export function installCommand(debian: string, redHat = debian): string {
  return `apt-get install ${debian}` + (redHat === debian ? "   (or dnf)" : `   (or dnf install ${redHat})`);
}
