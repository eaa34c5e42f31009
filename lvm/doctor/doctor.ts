/**
 * The doctor: checks this machine as the driver would use it, and reports problems and their remedies.
 *
 * It changes nothing and reads everything with programs, so that it works where LVM is broken, missing or hanging: what
 * cannot be read in time is a finding, too. Everything is read concurrently, since the start of the programs takes most
 * of the time.
 *
 * @module
 */

import { type Exec, execWith, isTimeout, PROGRAM_DIRECTORIES, PROGRAMS, runOk } from "../exec.ts";
import { type Configuration, readConfiguration } from "../model/configuration.ts";
import { readBlockDevices } from "../host/device.ts";
import { readDmTargets, readLvmVersion, readMappedDevices, readModules } from "../host/device_mapper.ts";
import { readDisks } from "../host/disks.ts";
import { readStackedDevices, stackedFilter as filterOf } from "../host/stacked_devices.ts";
import { checkFilters } from "./filters.ts";
import { checkGroups } from "./groups.ts";
import { checkKernel, modulesToProbe } from "./kernel.ts";
import { checkLeftovers } from "./leftovers.ts";
import { checkLimits, readCgroupHierarchy } from "./limits.ts";
import { checkLocks, lockFolderCommand } from "./locks.ts";
import { checkMetadata } from "./metadata.ts";
import { checkPools, THIN_TOOLS } from "./pools.ts";
import { checkTools } from "./tools.ts";
import { checkUdev } from "./udev.ts";
import { StorageError } from "../../base/error.ts";
import {
  type CheckResult,
  type Found,
  type HostFacts,
  type Level,
  type ReadResult,
  type SocketState,
  type UdevState,
  worstLevel,
} from "./finding.ts";
import type { GroupMatcher } from "../model/groups.ts";
import { createFinders, groupsInUse, takeInventory } from "../inventory/inventory.ts";
import { readKernelRelease } from "../host/device_bytes.ts";
import { readMounts } from "../host/mounts.ts";
import type { LogicalVolume } from "../model/report.ts";
import { readSurvey, type Survey, SURVEY_COMMAND, UNLOCKED_SURVEY_COMMAND } from "../model/survey.ts";
import { FORMAT, ownersOf, tagValue } from "../model/tags.ts";
import { parseFormat } from "../settings/format.ts";
import { readHeaderKeys } from "../encryption/header.ts";

/** The checks, in the order of the output, each in the file of its name. */
export const CHECKS = {
  tools: checkTools,
  kernel: checkKernel,
  locks: checkLocks,
  filters: checkFilters,
  groups: checkGroups,
  metadata: checkMetadata,
  pools: checkPools,
  limits: checkLimits,
  udev: checkUdev,
  leftovers: checkLeftovers,
} as const satisfies Record<string, (facts: HostFacts) => CheckResult>;

/** The name of a check. */
export type CheckName = keyof typeof CHECKS;

/** The names of the checks, in the order of the output. */
export const CHECK_NAMES = Object.keys(CHECKS) as readonly CheckName[];

/** A finding of a check. */
export interface Finding extends Found {
  /** The check that found it. */
  readonly check: CheckName;
}

/** Options of {@linkcode examine}. */
export interface DoctorOptions {
  /** Runs the commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** The groups that the driver is to use; by default those that contain data of the driver, or else all. */
  readonly groups?: GroupMatcher;
  /** The driver's socket and its state; absent when it cannot be inspected. */
  readonly socket?: { readonly path: string; readonly state: SocketState };
}

/** The result of the doctor. */
export interface Diagnosis {
  /** The highest level that was found. */
  readonly level: Level;
  /** All checks, each with the highest level that it found, and a short summary of what it checked. */
  readonly checks: readonly { readonly check: CheckName; readonly level: Level; readonly summary: string }[];
  /** The findings of all checks. */
  readonly findings: readonly Finding[];
}

/** Deadlines of commands, in milliseconds: most respond at once, but a report takes longer on many disks. */
const COMMAND_DEADLINE_MS = 10_000;
const REPORT_DEADLINE_MS = 20_000;

/** Checks the machine. It never fails: what cannot be read is a finding. */
export async function examine(options: DoctorOptions): Promise<Diagnosis> {
  const { driver, groups: wanted, socket } = options;
  const facts = await readMachine(options);
  const { survey } = facts;
  const inventory = takeInventory("value" in survey ? survey.value.groups : [], createFinders(driver));
  const root = !("error" in survey && survey.error.kind === "FailedPrecondition");
  const all = { ...facts, driver, wanted, inventory, socket, root };
  const results = CHECK_NAMES.map((check) => ({ check, ...CHECKS[check](all) }));
  const findings = results.flatMap(({ check, findings }) => findings.map((found) => ({ check, ...found })));
  return {
    level: worstLevel(findings.map(({ level }) => level)),
    checks: results.map(({ check, findings, summary }) => ({
      check,
      level: worstLevel(findings.map(({ level }) => level)),
      summary,
    })),
    findings,
  };
}

/** What is read of the machine, before anything is decided from it. */
type MachineFacts = Omit<HostFacts, "driver" | "root" | "wanted" | "inventory" | "socket">;

async function readMachine({ exec: host, driver, groups: wanted }: DoctorOptions): Promise<MachineFacts> {
  const exec = execWith(host, (command) => ({ ...command, deadlineMs: COMMAND_DEADLINE_MS }));
  const [programs, version, configuration, kernel, devices, disks, stackedFilter, mounts, udev, report] = await Promise
    .all([
      tryRead(() => readPrograms(exec)),
      tryRead(() => readLvmVersion(exec)),
      tryRead(() => readConfiguration(exec)),
      readKernel(exec),
      tryRead(() => readMappedDevices(exec)),
      tryRead(() => readDisks(exec)),
      tryRead(async () => filterOf(await readStackedDevices(exec))),
      tryRead(() => readMounts(exec)),
      tryRead(() => readUdev(exec)),
      readLvm(execWith(host, (command) => ({ ...command, deadlineMs: REPORT_DEADLINE_MS }))),
    ]);
  const all = "value" in report.survey ? report.survey.value.groups : [];
  const groups = groupsInUse(all, driver, wanted);
  // thin pools are skipped: LVM reports an internal device, whose node is not used
  const activeLvs = groups.flatMap(({ lvs }) =>
    lvs.filter((lv) => lv.active && lv.thinPool === undefined && ownersOf(lv.tags).includes(driver))
  );
  const encrypted = activeLvs.filter(({ tags }) => {
    const format = tagValue(tags, FORMAT);
    return format !== undefined && parseFormat(format)?.luks?.state === "formatted";
  });
  const [deviceNodes, hierarchy, systemId, halfReencrypted, lockFolder] = await Promise.all([
    tryRead(() => readBlockDevices(exec, activeLvs.map(({ devicePath }) => devicePath))),
    tryRead(() => readCgroupHierarchy(exec, "value" in mounts ? mounts.value : [])),
    groups.some((group) => group.systemId !== "") ? tryRead(() => readSystemId(exec)) : { value: "" },
    findHalfReencrypted(exec, encrypted),
    tryRead(() => readLockFolder(exec, configuration)),
  ]);
  return {
    programs,
    version,
    configuration,
    ...kernel,
    devices,
    disks,
    stackedFilter,
    mounts,
    udev,
    ...report,
    groups,
    activeLvs,
    deviceNodes,
    hierarchy,
    halfReencrypted,
    lockFolder,
    systemId: "value" in systemId ? systemId.value : "",
  };
}

/** Returns the devices of LVs whose LUKS headers say that their data is encrypted by two volume keys. */
async function findHalfReencrypted(exec: Exec, lvs: readonly LogicalVolume[]): Promise<ReadonlySet<string>> {
  const found = await Promise.all(lvs.map(async ({ devicePath }) => {
    const keys = await tryRead(() => readHeaderKeys(exec, devicePath));
    return "value" in keys && keys.value.isReencrypting ? [devicePath] : [];
  }));
  return new Set(found.flat());
}

/** Reads a report, if necessary without locks: one command that hangs blocks all others. */
async function readLvm(exec: Exec): Promise<{ survey: ReadResult<Survey>; lockStuck: boolean }> {
  const survey = await tryRead(() => readSurvey(exec, SURVEY_COMMAND));
  if ("value" in survey || !isTimeout(survey.error)) return { survey, lockStuck: false };
  const unlocked = await tryRead(() => readSurvey(exec, UNLOCKED_SURVEY_COMMAND));
  return "value" in unlocked ? { survey: unlocked, lockStuck: true } : { survey, lockStuck: false };
}

async function readKernel(exec: Exec): Promise<Pick<MachineFacts, "targets" | "modules" | "release">> {
  const [targets, release] = await Promise.all([
    tryRead(() => readDmTargets(exec)),
    tryRead(() => readKernelRelease(exec)),
  ]);
  const wanted = "value" in targets ? modulesToProbe(targets.value) : [];
  return { targets, release, modules: await tryRead(() => readModules(exec, wanted)) };
}

/**
 * Returns the programs that are installed in {@linkcode PROGRAM_DIRECTORIES}, of the closed list and of those that LVM
 * starts.
 */
async function readPrograms(exec: Exec): Promise<ReadonlySet<string>> {
  const names = [...PROGRAMS, ...THIN_TOOLS];
  const args = ["-b", "-B", ...PROGRAM_DIRECTORIES, "-f", ...names];
  const answer = await runOk(exec, { program: "whereis", args, mutates: false });
  const paths = new Set(answer.split(/\s+/));
  return new Set(names.filter((name) => PROGRAM_DIRECTORIES.some((directory) => paths.has(`${directory}/${name}`))));
}

/** Reads the state of udev (udevadm(8), control --ping). */
async function readUdev(exec: Exec): Promise<UdevState> {
  const seconds = Math.floor(COMMAND_DEADLINE_MS / 2 / 1000);
  const args = ["control", "--ping", `--timeout=${seconds}`];
  const { code, stderr } = await exec.run({ program: "udevadm", args, mutates: false });
  return code === 0 ? "running" : /No such file or directory/.test(stderr) ? "absent" : "dead";
}

/** Reads what {@linkcode lockFolderCommand} prints; nothing without the directory, which LVM creates. */
async function readLockFolder(exec: Exec, configuration: ReadResult<Configuration>): Promise<string> {
  const folder = "value" in configuration ? configuration.value.value("global/locking_dir") : undefined;
  return folder === undefined ? "" : (await exec.run(lockFolderCommand(folder))).stdout;
}

/** Reads the system id of this host (lvmsystemid(7)); empty for none. */
async function readSystemId(exec: Exec): Promise<string> {
  const answer = await runOk(exec, { program: "lvm", args: ["systemid"], mutates: false });
  return /system ID:[ \t]*(\S*)/.exec(answer)?.[1] ?? "";
}

async function tryRead<T>(read: () => Promise<T>): Promise<ReadResult<T>> {
  try {
    return { value: await read() };
  } catch (error) {
    if (error instanceof StorageError) return { error };
    // a program that this process may not run, by its mode or by the permissions of the process
    if (error instanceof Deno.errors.PermissionDenied || error instanceof Deno.errors.NotCapable) {
      return { error: new StorageError("CommandFailed", error.message, { cause: error }) };
    }
    throw error;
  }
}
