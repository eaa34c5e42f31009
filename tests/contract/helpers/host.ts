/**
 * The machine that a contract test runs on: the fake one, or this host with real LVM. The tests speak to the driver
 * through its socket, as an orchestrator does, and to the machine through the exec seam, as an administrator does.
 *
 * @module
 */

import type { Message, MessageInitShape } from "@bufbuild/protobuf";
import { status } from "@grpc/grpc-js";
import { assert, assertEquals } from "@std/assert";
import {
  type CreateVolumeRequestSchema,
  VolumeCapability_AccessMode_Mode as Mode,
  type VolumeCapabilitySchema,
} from "../../../csi/proto/csi_pb.ts";
import { connect, type FullCsiClient } from "./csi_client.ts";
import { parseGroupList, type StandaloneDriver, startStandalone } from "../../../mod.ts";
import { type Command, describeCommand, type Exec, type Output, type Program } from "../../../lvm/exec.ts";
import { Lvm } from "../../../lvm/client/client.ts";
import type { GroupMatcher } from "../../../lvm/model/groups.ts";
import type { LogicalVolume, VolumeGroup } from "../../../lvm/model/report.ts";

/** A request for a volume, or the parts of it that matter. */
export type CreateRequest = Exclude<MessageInitShape<typeof CreateVolumeRequestSchema>, Message>;

/** The machine under a test. */
export interface Host {
  /** For names of tests. */
  readonly name: string;
  /** Two volume groups that only this test uses. The second has more space than the first. */
  readonly groups: readonly [string, string];
  /** Prepares the machine. @returns a function that undoes it */
  setUp(): Promise<HostMachine & AsyncDisposable>;
  /** Makes a hierarchy of cgroup v2 appear at a path that is not there. */
  cgroups(root: string): Promise<HostCgroups>;
  /** Starts a driver over the machine; a standalone one, when absent. */
  readonly serve?: Serve;
  /** Reports whether a test is skipped because it takes long there. Without it, no test is skipped. */
  readonly skips?: (name: string) => boolean;
  /** Draws the tests that run, where others are left to `task test:crashes`. Without it, all run. */
  readonly isDrawn?: (name: string) => boolean;
}

/** A machine that is prepared for a test. */
export interface HostMachine {
  /** Runs commands on it. */
  readonly exec: Exec;
  /** Takes LVM's lock of a group, as another program does. @returns the lock, to be disposed of */
  lockGroup(group: string, mode: "shared" | "exclusive"): Promise<Disposable>;
  /** Opens a device for reading, as a process does. @returns what closes it */
  openDevice(path: string): Promise<Disposable>;
  /**
   * Makes the last LV of a thin pool pending, as a power cut during its creation does: LVM has it, its pool does not, and
   * the LVs of its group are inactive.
   *
   * @param path the LV, with its group
   */
  makePending(path: string): Promise<void>;
  /**
   * Keeps the message about the last LV of a thin pool in LVM's metadata, as a power cut right after the pool has made the
   * LV does. The LVs of its group are inactive.
   */
  keepMessage(path: string): Promise<unknown>;
  /**
   * Interrupts the last transaction of a thin pool, as a power cut does after the pool has made its last LV, and before it
   * has got the number of the transaction. The LVs of its group are inactive.
   *
   * @param path the LV, with its group
   */
  interruptTransaction(path: string): Promise<void>;
  /** Copies the mount namespace, with all mounts, as a container may have it. @returns what ends the copy */
  copyMountNamespace(): Promise<AsyncDisposable>;
  /**
   * Takes the first disk of a group away, which no active LV uses, and brings it back when it is disposed of. Only a
   * machine with several disks in a group has it.
   */
  detachPv?(group: string): Promise<AsyncDisposable>;
}

/** A hierarchy of cgroups, for pods without a kubelet. */
export interface HostCgroups extends AsyncDisposable {
  /** Makes the cgroup of a pod, and answers the path of its io.max. */
  addPod(uid: string): Promise<string>;
}

/** Starts a driver over a machine, whose socket and mount root are in the folder. */
export type Serve = (exec: Exec, groups: Host["groups"], folder: string) => Promise<StandaloneDriver>;

/** Options that only a standalone driver has. */
interface ServeOptions {
  readonly groups?: GroupMatcher;
  readonly socket?: string;
  readonly driver?: string;
  readonly cgroupRoot?: string;
}

/** An exec that records the commands that it ran. */
export class RecordingExec implements Exec {
  readonly #exec: Exec;
  /** Every command so far. */
  readonly commands: Command[] = [];
  /** Deadlines of programs in milliseconds, instead of those that the driver gives. */
  readonly deadlinesMs: Map<Program, number> = new Map();

  constructor(exec: Exec) {
    this.#exec = exec;
  }

  run(command: Command): Promise<Output> {
    this.commands.push(command);
    const deadlineMs = this.deadlinesMs.get(command.program);
    return this.#exec.run(deadlineMs === undefined ? command : { ...command, deadlineMs });
  }

  idle(): Promise<void> {
    return this.#exec.idle();
  }

  async readMountTable(): Promise<string | undefined> {
    return await this.#exec.readMountTable?.();
  }

  /** Records the commands that `body` runs. @returns the commands, as a person would write them */
  async recordCommands(body: () => Promise<unknown>): Promise<string[]> {
    const before = this.commands.length;
    await body();
    return this.commands.slice(before).map(describeCommand);
  }
}

/** A driver on a machine, and a client of it. */
export class Harness implements AsyncDisposable {
  /** The client. */
  readonly csi: FullCsiClient;
  /** Records the commands of the driver and of the test. */
  readonly exec: RecordingExec;
  /** A folder of the test's own. */
  readonly folder: string;
  /** The volume groups. */
  readonly groups: readonly [string, string];
  /** The driver's name. */
  readonly driverName: string;
  readonly #driver: StandaloneDriver;
  #stopped = false;

  private constructor(
    parts: { driver: StandaloneDriver; exec: RecordingExec; folder: string; groups: Host["groups"] },
  ) {
    this.#driver = parts.driver;
    this.exec = parts.exec;
    this.folder = parts.folder;
    this.groups = parts.groups;
    this.driverName = driverNameFor(parts.groups);
    this.csi = connect(parts.driver.socketPath);
  }

  /** Starts a driver over the machine. */
  static async start(exec: Exec, groups: Host["groups"], serve: Serve = Harness.serve): Promise<Harness> {
    const recordingExec = new RecordingExec(exec);
    const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: `denolith-${groups[0]}-` }));
    return new Harness({
      driver: await serve(recordingExec, groups, folder),
      exec: recordingExec,
      folder,
      groups,
    });
  }

  /** Starts a driver alone, whose socket and mount root are in the folder. */
  static serve(
    exec: Exec,
    groups: Host["groups"],
    folder: string,
    { socket = "csi.sock", driver = driverNameFor(groups), ...rest }: ServeOptions = {},
  ): Promise<StandaloneDriver> {
    return startStandalone({
      socketPath: `${folder}/${socket}`,
      driver,
      version: "0",
      nodeId: "node-1",
      groups: parseGroupList(groups.join(",")),
      mountRoots: [folder],
      exec,
      isFirstProcess: true,
      ...rest,
    });
  }

  /** Runs a program as an administrator would, and makes sure that it succeeds. */
  async runAsAdmin(program: Program, ...args: string[]): Promise<string> {
    const output = await this.exec.run({ program, args, mutates: true });
    assertEquals(output.code, 0, `${program} ${args.join(" ")}: ${output.stderr}`);
    // udev opens a device for a moment when a program that wrote to it has closed it. The volume is in use until then.
    if (program === "dd") await this.runAsAdmin("udevadm", "settle");
    return output.stdout;
  }

  /** Returns all groups of the test as LVM reports them, when the driver does nothing to them in the background. */
  async report(): Promise<VolumeGroup[]> {
    await this.waitUntilIdle();
    return (await new Lvm(this.exec).report()).filter((group) => this.groups.includes(group.name));
  }

  /** Returns all LVs of the test's groups. */
  async lvs(): Promise<LogicalVolume[]> {
    return (await this.report()).flatMap((group) => group.lvs);
  }

  /** Returns the only LV, and its path for lvm's commands. */
  async singleLv(): Promise<LogicalVolume & { path: string }> {
    const found = (await this.report()).flatMap((group) =>
      group.lvs.map((lv) => ({ ...lv, path: `${group.name}/${lv.name}` }))
    );
    assertEquals(found.length, 1, `expected one LV, found ${found.map((lv) => lv.path).join(", ")}`);
    return found[0]!;
  }

  /** Resolves when the driver does nothing in the background. */
  waitUntilIdle(): Promise<void> {
    return this.#driver.idle();
  }

  /** Creates a volume and answers its id. */
  async create(request: CreateRequest = {}): Promise<string> {
    const { volume } = await this.csi.controller.createVolume({ ...volumeRequest(), ...request });
    assert(volume !== undefined);
    return volume.volumeId;
  }

  /** Stages a volume and answers where. */
  async stage(
    volumeId: string,
    volumeCapability: Capability = mountCapability(),
    more: { secrets?: Record<string, string>; volumeContext?: Record<string, string> } = {},
  ): Promise<string> {
    const stagingTargetPath = `${this.folder}/staging`;
    await Deno.mkdir(stagingTargetPath, { recursive: true });
    await this.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability, ...more });
    return stagingTargetPath;
  }

  /** Publishes a staged volume and answers where. */
  async publish(
    volumeId: string,
    name = "pod",
    options: { volumeCapability?: Capability; readonly?: boolean; secrets?: Record<string, string> } = {},
  ): Promise<string> {
    const targetPath = `${this.folder}/${name}`;
    await this.csi.node.nodePublishVolume({
      volumeId,
      stagingTargetPath: `${this.folder}/staging`,
      targetPath,
      volumeCapability: options.volumeCapability ?? mountCapability(),
      readonly: options.readonly ?? false,
      secrets: options.secrets ?? {},
    });
    return targetPath;
  }

  /** Stops the driver and starts another over the same machine. */
  async restart(): Promise<Harness> {
    await this[Symbol.asyncDispose]();
    return await Harness.start(this.exec, this.groups);
  }

  /** Stops the driver. */
  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#stopped = true;
    this.csi[Symbol.dispose]();
    await this.#driver.stop(10_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await Deno.remove(this.folder, { recursive: true }).catch(() => {}); // a mount still there keeps its folder
  }
}

/**
 * Returns the name of the driver that owns the groups. Two drivers with one name would remove each other's deleted
 * volumes.
 */
function driverNameFor([smallGroup]: Host["groups"]): string {
  return `${smallGroup.split("-")[0]}.denolith.dev`;
}

let nextVolume = 0;

/** Returns a request for a small ext4 volume with a unique name. */
export function volumeRequest(): {
  name: string;
  capacityRange: { requiredBytes: bigint };
  volumeCapabilities: Capability[];
} {
  return {
    name: `volume ${++nextVolume}`,
    capacityRange: { requiredBytes: 32n << 20n },
    volumeCapabilities: [mountCapability()],
  };
}

/** A capability as a request carries it. */
export type Capability = Exclude<MessageInitShape<typeof VolumeCapabilitySchema>, Message>;

/** Returns the capability of a filesystem, by default for several pods of a node. */
export function mountCapability(
  fsType = "",
  mountFlags: string[] = [],
  mode = Mode.SINGLE_NODE_MULTI_WRITER,
): Capability {
  return { accessMode: { mode }, accessType: { case: "mount", value: { fsType, mountFlags } } };
}

/** Returns the capability of a block device, by default for several pods of a node. */
export function blockCapability(mode = Mode.SINGLE_NODE_MULTI_WRITER): Capability {
  return { accessMode: { mode }, accessType: { case: "block", value: {} } };
}

/** Returns the status with which a call fails. */
export async function failureStatus(call: Promise<unknown>): Promise<{ code: string; details: string }> {
  try {
    await call;
  } catch (error) {
    const { code, details } = error as { code?: number; details?: string };
    if (code === undefined) throw error;
    return { code: status[code] ?? `${code}`, details: details ?? "" };
  }
  return { code: "OK", details: "" };
}

/** Makes sure that a call fails with the code, and says something. */
export async function assertFails(code: keyof typeof status, call: Promise<unknown>, includes = ""): Promise<void> {
  const failure = await failureStatus(call);
  assertEquals(failure.code, code, failure.details);
  assert(failure.details.includes(includes), `${failure.details} does not include ${includes}`);
}

/** Registers a test of the contract on a machine. */
export function contractTest(
  host: Host,
  name: string,
  body: (harness: Harness, machine: HostMachine) => Promise<void>,
): void {
  if (host.isDrawn?.(name) === false) return;
  const ignore = host.skips?.(name) ?? false;
  Deno.test(`${name} [${host.name}]`, { ignore }, async () => {
    await using machine = await host.setUp();
    await using harness = await Harness.start(machine.exec, host.groups, host.serve);
    await body(harness, machine);
    // The machine is emptied for the next test in any case. What is left after a success is a mistake of driver or test.
    await harness.waitUntilIdle();
    const readLeftovers = async () => {
      const groups = (await new Lvm(machine.exec).report()).filter(({ name }) => host.groups.includes(name));
      return groups.flatMap(({ lvs, tags }) => [...lvs.map(({ name }) => name), ...tags]);
    };
    if ((await readLeftovers()).length === 0) return;
    // A driver that the test stopped may have left work, which is for the next one.
    await using next = await harness.restart();
    await next.waitUntilIdle();
    assertEquals(await readLeftovers(), [], "left in the groups");
  });
}

/** Returns the size of a published volume, as its filesystem or its device has it, in bytes. */
export async function totalBytes(harness: Harness, volumeId: string, volumePath: string): Promise<bigint> {
  return (await harness.csi.node.nodeGetVolumeStats({ volumeId, volumePath })).usage[0]!.total;
}
