/**
 * A machine that behaves like the tools: same commands, answers, refusals, captured from the real ones. It keeps its state, so a
 * driver can be stopped and started over it. It throws for a command, an option or a state that it does not know.
 *
 * @module
 */

import { nextTurn } from "../../../base/clock.ts";
import { type Command, describeCommand, type Exec, type Output, type Program } from "../../../lvm/exec.ts";
import { StorageError } from "../../../base/error.ts";
import type { Segment } from "../../../lvm/model/report.ts";
import { type FakePv, type FakePvSegment, withPvs } from "./pvs.ts";
import { type FakeHost, healthyHost } from "./machine_host.ts";
import { passOn } from "./block_tools.ts";
import type { DeviceContent } from "./device_content.ts";
import { findDevices, isDeviceSearch } from "./disks.ts";
import { cryptsetupWith, isMapping, mappingsOf } from "./luks.ts";
import { lvm } from "./lvm.ts";
import { type LvmLockMode, LvmLocks, runWithLocks } from "./lvm_locks.ts";
import { mountTable } from "./mount_tools.ts";
import { isDeviceStream, streamDevice } from "./stream_tools.ts";
import { readByLvm } from "./stacked_devices.ts";
import { find } from "./suspension.ts";
import { TOOLS } from "./tools.ts";

/** A logical volume. */
export interface FakeLv {
  name: string;
  uuid: string;
  size: bigint;
  tags: Set<string>;
  active: boolean;
  suspended: boolean;
  /** Whether LVM lets its device be written to: `lvchange --permission`. */
  permission: "r" | "rw";
  /** Whether its device is read-only since `blockdev --setro`. The kernel keeps this apart from the permission. */
  setReadOnly: boolean;
  minor: number;
  createdAt: number;
  content: DeviceContent;
  /** Its mapping, while that is open: a device that dm-crypt has made of it. */
  mapping?: FakeLv | undefined;
  origin?: { name: string; size: bigint };
  /** Usage of a snapshot's COW space, in percent, while it has not overflowed. */
  cowPercent: number;
  /** The numbers of the origin's chunks that are in a snapshot's COW space. */
  cowChunks?: Set<number>;
  invalid: boolean;
  /** The name of its thin pool. */
  pool?: string;
  /** The numbers of the chunks of its pool that were allocated when it was written to, as a thin LV. */
  thinChunks?: Set<number>;
  transactionId?: number; // as a thin LV, that of its pool before its own
  /** True while its pool has not made it: `lvcreate` was interrupted after it had changed LVM's metadata. */
  pending?: boolean;
  lost?: boolean; // whether its pool does not have it, and LVM does not tell the pool to make it
  /** Its state as a thin pool. */
  thinPool?: FakePool;
  /** True if activating its group skips it. */
  activationSkip?: boolean;
  /** Its layout; linear by default. */
  segment?: Segment;
  /** Its cache, which its group does not have among its LVs. */
  cache?: FakeLv;
  /** What LVM says of the health of its cache; empty when all is well. */
  cacheHealth?: string;
  /** Its extents on the PVs; by default, all of them are on the first PV. */
  pvSegments?: FakePvSegment[];
  /** The kernel's state of a RAID LV while it is active. `dropped`: it continues without a PV that is there. */
  raid?: {
    action: string;
    syncPercent: number;
    mismatches: number;
    refreshNeeded: boolean;
    /** True until the images are synchronized for the first time. */
    isNew?: boolean;
    /** True while lvcreate(8), --maxrecoveryrate, slows the synchronization down: here it does not continue. */
    isSlowed?: boolean;
    /** Names of data that is on an image which did not get later writes, until the image is synchronized. */
    staleData?: Set<string> | undefined;
  };
  incomplete?: boolean; // whether lvcreate was interrupted before the LV was complete
  killedTable?: "only" | "beside"; // whether its device has a table that a killed command loaded, in use or not
  failedWrites?: true; // whether writes that waited for its device have failed
  zeroedTo: bigint; // the number of bytes from the start of its device that were overwritten with zeros
  copied?: { from: FakeLv; to: bigint }; // up to where it has been overwritten with another device, and with which
}

/** A thin pool beside its LV, whose size is that of its data. */
export interface FakePool {
  metadataSize: bigint;
  /** The number of its last transaction: a creation or a removal in it. */
  transactionId: number;
  /** The state of a message that LVM keeps: the pool has followed it, or only the number of the transaction is missing. */
  oldMessage?: "followed" | "half-followed";
  leaked?: DeviceContent; // the content of an LV that was not removed
  activeParts?: readonly string[]; // the LVs it consists of that are active alone
  metadataSnapshot?: boolean;
  /** Usage of its data and its metadata, in percent. */
  dataPercent: number;
  metadataPercent: number;
  /** True if new blocks read as zeros. */
  zeroes: boolean;
  /** True if the kernel demands a check of its metadata. */
  needsCheck?: boolean;
  /** The value of lv_health_status. */
  health: "" | "out_of_data" | "metadata_read_only" | "failed";
  /** True if dmeventd monitors it. */
  monitored: boolean;
  /** Names of data that its free blocks, and its former place on the PVs, would show if they were not zeroed. */
  residualData: Set<string>;
}

/** A volume group. */
export interface FakeGroup {
  name: string;
  uuid: string;
  size: bigint;
  extentSize: bigint;
  tags: Set<string>;
  /** The number of its PVs that are missing: the first ones. */
  missingPvs: number;
  exported: boolean;
  readOnly: boolean;
  /** What LVM says instead of changing it, as for duplicate PVs. */
  unchangeable?: string;
  /** The maximum number of its LVs. */
  maxLvs?: number;
  /** The bytes that its metadata may have. */
  metadataBytes: bigint;
  systemId: string;
  lockType: string;
  pvs: FakePv[];
  /** The size of the logical sectors of its disks, in bytes; 512 by default. */
  sectorBytes?: number;
  lvs: FakeLv[];
  /** Names of data that its free space shows, and so a new LV. */
  residualData: Set<string>;
  /** The signatures that its free space shows, and so a new LV from which lvcreate does not wipe them. */
  residualSignatures: DeviceContent["signatures"];
}

/** An entry of the mount table. */
export interface FakeMount {
  target: string;
  source: string;
  fsType: string;
  root: string;
  readOnly: boolean;
  /** Its other flags, such as `nosuid`; by default none. */
  flags?: string[];
  /** True if all mounts of the filesystem are read-only, since the first one was. */
  filesystemReadOnly?: boolean;
  /** True if the kernel has made the filesystem read-only after an error. */
  remountedReadOnly?: boolean;
  deviceNumber: string;
  lv?: FakeLv;
  context?: string; // SELinux's, if the filesystem was mounted with one
}

/** Runs before a command and may answer in its place, fail, or never answer. */
export type Fault = (command: Command) => Promise<Output | undefined> | Output | undefined;

/** The mount point of cgroup v2. */
export const CGROUP_ROOT = "/sys/fs/cgroup";

const ROOT_MOUNTS: FakeMount[] = [
  { target: "/dev", source: "devtmpfs", fsType: "devtmpfs", root: "/", readOnly: false, deviceNumber: "0:5" },
  { target: "/", source: "/dev/vda", fsType: "ext4", root: "/", readOnly: false, deviceNumber: "254:0" },
  { target: CGROUP_ROOT, source: "cgroup2", fsType: "cgroup2", root: "/", readOnly: false, deviceNumber: "0:27" },
];

/** The machine. */
export class FakeMachine implements Exec {
  /** Its volume groups. */
  readonly groups: FakeGroup[] = [];
  /** Its mount table. */
  readonly mounts: FakeMount[] = [...ROOT_MOUNTS];
  /** LVs whose devices a process has open, as often as it has. */
  readonly openLvs: FakeLv[] = [];
  /** Targets that cannot be unmounted now. */
  readonly busyTargets: Set<string> = new Set();
  /** Disks that do not answer, and the promise that resolves when they answer again. */
  readonly hungPvs: Map<string, PromiseWithResolvers<void>> = new Map();
  /** The state of the machine apart from its groups. */
  readonly host: FakeHost = healthyHost();
  /** A function that runs before each command, and may replace its result. */
  fault: Fault | undefined;
  /** Whether the driver can read the mount table as a file; otherwise findmnt lists the mounts. */
  hasMountTable = true;
  readonly #locks = new LvmLocks();
  #clock = 1_700_000_000;

  /** Adds an empty volume group on some disks of equal size. */
  addGroup(name: string, bytes: bigint, extentSize = 4n << 20n, pvCount = 1): FakeGroup {
    const before = this.groups.reduce((count, group) => count + group.pvs.length, 0);
    const group: FakeGroup = {
      name,
      uuid: newUuid(),
      size: bytes,
      extentSize,
      tags: new Set<string>(),
      missingPvs: 0,
      exported: false,
      readOnly: false,
      metadataBytes: 520192n,
      systemId: "",
      lockType: "",
      pvs: Array.from({ length: pvCount }, (_, index) => ({
        path: `/dev/vd${String.fromCharCode("b".charCodeAt(0) + before + index)}`,
        uuid: newUuid(),
      })),
      lvs: [],
      residualData: new Set<string>(),
      residualSignatures: [],
    };
    this.groups.push(group);
    return group;
  }

  async run(command: Command): Promise<Output> {
    const injected = await this.fault?.(command);
    if (injected !== undefined) return injected;
    if (command.program === "lvm") this.#requireResponsiveDisks(command);
    if (this.host.missing.has(command.program)) {
      const cause = new Deno.errors.NotFound();
      throw new StorageError("Unavailable", `${command.program}: not found`, { cause });
    }
    if (command.program === "find") {
      if (command.args.includes("-printf")) return ok(this.host.lockFolder);
      return isDeviceSearch(command) ? findDevices(this, command) : await find(this, command);
    }
    const tool = command.program === "cryptsetup"
      ? await cryptsetupWith(command.input)
      : command.program === "lvm"
      ? (machine: FakeMachine, args: readonly string[]) => lvm(readByLvm(machine, command.config), args)
      : TOOLS[command.program];
    if (tool === undefined) throw new Error(`the fake machine has no ${command.program}: ${describeCommand(command)}`);
    if (command.program === "lvm" && this.#locks.held) {
      return await runWithLocks(readByLvm(this, command.config), this.#locks, command.args);
    }
    if (isDeviceStream(command)) return await streamDevice(this, command);
    if (!command.mutates || command.deadlineMs !== 0) return await passOn(command, tool(this, command.args));
    const completion = nextTurn().then(() => tool(this, command.args));
    throw new StorageError("StillRunning", `${describeCommand(command)}: still running`, { completion });
  }

  /** Takes LVM's lock of a group, as another program does. @returns the lock, to be disposed of */
  lockGroup(group: string, mode: LvmLockMode): Promise<Disposable> {
    return this.#locks.acquire(group, mode);
  }

  /** Opens the device of an LV, as a process does that reads or writes it. @returns what closes it */
  openDevice(path: string): Disposable {
    const lv = this.lvAt(path);
    if (lv === undefined) throw new Deno.errors.NotFound(path);
    this.openLvs.push(lv);
    return { [Symbol.dispose]: () => void this.openLvs.splice(this.openLvs.indexOf(lv), 1) };
  }

  /** Returns a machine in the same state without the fault, and a copy of a state with the parts of the new machine. */
  fork<State>(state: State): [machine: FakeMachine, state: State] {
    const copy = structuredClone({ machine: { ...this, fault: undefined }, state });
    const machine = Object.assign(new FakeMachine(), copy.machine);
    machine.#clock = this.#clock;
    return [machine, copy.state];
  }

  /** This machine with no other disks than these. */
  withDevices(pvs: readonly string[]): FakeMachine {
    return Object.create(this, {
      groups: { value: this.groups.flatMap((group) => withPvs(group, pvs)) },
      nextMinor: { value: () => this.nextMinor() },
      removeDevice: { value: (lv: FakeLv) => this.removeDevice(lv) },
      now: { value: () => this.now() },
      fork: { value: (state: unknown) => this.fork(state) },
    });
  }

  /**
   * Fails when a disk hangs: lvm reads all disks, or those of `--devices`, in every command. Its deadline passes at
   * once here.
   */
  #requireResponsiveDisks(command: Command): void {
    const at = command.args.indexOf("--devices");
    const pvs = at < 0 ? [...this.hungPvs.keys()] : command.args[at + 1]!.split(",");
    const hungPvs = pvs.map((disk) => this.hungPvs.get(disk)).find((hungPvs) => hungPvs !== undefined);
    if (hungPvs === undefined) return;
    const kind = command.mutates ? "StillRunning" : "Unavailable";
    throw new StorageError(kind, `${describeCommand(command)}: no answer`, { completion: hungPvs.promise });
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }

  readMountTable(): Promise<string | undefined> {
    return Promise.resolve(this.hasMountTable ? mountTable(this) : undefined);
  }

  /** Returns all LVs with their groups. */
  allLvs(): { group: FakeGroup; lv: FakeLv }[] {
    return this.groups.flatMap((group) => group.lvs.map((lv) => ({ group, lv })));
  }

  /**
   * Returns the active LV whose device node is at the path: the node itself, or a bind mount of it. A mounted node that
   * was removed since leads to the device that has its number now.
   */
  lvAt(path: string): FakeLv | undefined {
    const active = [...this.allLvs().filter(({ lv }) => lv.active), ...mappingsOf(this)];
    const own = active.find(({ group, lv }) => devicePath(group, lv) === path && !this.host.missingDeviceNodes.has(lv));
    if (own?.lv.suspended) throw new Error(`touching ${path}, which is suspended, would hang`);
    const mount = this.mounts.findLast((mount) => mount.target === path && mount.root !== "/");
    const minor = /^\/dm-(\d+)/.exec(mount?.root ?? "")?.[1];
    return (own ?? active.find(({ lv }) => `${lv.minor}` === minor))?.lv;
  }

  /** Returns the lowest free device-mapper minor number, as the kernel does. */
  nextMinor(): number {
    const taken = new Set(
      [...this.allLvs(), ...mappingsOf(this)].filter(({ lv }) => lv.active).map(({ lv }) => lv.minor),
    );
    let minor = 0;
    while (taken.has(minor)) minor++;
    return minor;
  }

  /** Removes the device of an LV and its node. A bind mount of the node stays (proc(5), mountinfo: `//deleted`). */
  removeDevice(lv: FakeLv): void {
    for (const mount of this.mounts.filter((mount) => lv.active && mount.root === `/dm-${lv.minor}`)) {
      mount.root += "//deleted";
      mount.source = `devtmpfs[${mount.root}]`;
    }
    lv.active = false;
  }

  /** Returns the time in seconds since 1970. Each call returns a second more. */
  now(): number {
    return this.#clock++;
  }
}

/** A tool: reads its arguments, changes the machine, answers. */
export type Tool = (machine: FakeMachine, args: readonly string[]) => Output;

/** The tools besides lvm. */
export type Tools = Partial<Record<Program, Tool>>;

/** Returns the device-mapper node of an LV. */
export function devicePath(group: FakeGroup, lv: FakeLv): string {
  if (isMapping(lv)) return `/dev/mapper/${lv.name}`;
  return `/dev/mapper/${group.name.replaceAll("-", "--")}-${lv.name.replaceAll("-", "--")}`;
}

/** Reports whether the kernel refuses writes to the device of an LV: for either of its two flags. */
export function isReadOnly({ permission, setReadOnly }: FakeLv): boolean {
  return permission === "r" || setReadOnly;
}

/** Reports whether a filesystem on an LV is mounted. A bind mount of its device node is not that. */
export function isMounted({ mounts }: FakeMachine, lv: FakeLv): boolean {
  return mounts.some((mount) => mount.lv === lv && mount.root === "/");
}

/** Returns the output of a command that succeeded. */
export function ok(stdout = ""): Output {
  return { code: 0, stdout, stderr: "" };
}

/** Returns the output of a command that failed. */
export function failure(code: number, stderr: string): Output {
  return { code, stdout: "", stderr: stderr + "\n" };
}

/** Asserts that the arguments of a tool are known ones. */
export function expectArgs(args: readonly string[], pattern: RegExp): void {
  if (!pattern.test(args.join(" "))) {
    throw new Error(`the fake machine does not know these arguments: ${args.join(" ")}`);
  }
}

/** Returns a new UUID as LVM writes them. */
export function newUuid(): string {
  const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const random = crypto.getRandomValues(new Uint8Array(32));
  const text = Array.from(random, (byte) => letters[byte % letters.length]).join("");
  return text.replace(/^(.{6})(.{4})(.{4})(.{4})(.{4})(.{4})(.{6})$/, "$1-$2-$3-$4-$5-$6-$7");
}
