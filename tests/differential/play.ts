/**
 * Differential play: the same random commands on the fake machine and on another one, whose states are compared after each.
 * What differs is a mistake of the fake, or of the test.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { type Command, describeCommand, type Exec, type Output } from "../../lvm/exec.ts";
import { readMounts } from "../../lvm/host/mounts.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { classifyRefusal } from "../../lvm/client/refusals.ts";
import type { LogicalVolume, VolumeGroup } from "../../lvm/model/report.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import type { FakeHost } from "../fake/machine/machine_host.ts";
import { type Action, commandOf, deviceOf, GROUP, type Harness } from "./actions.ts";

/** The machine that the fake is compared with. */
export interface OtherMachine {
  readonly exec: Exec;
  /** By what the fake's host differs from its usual one, to be like this machine. */
  readonly host: Partial<FakeHost>;
  /** Makes the group {@linkcode GROUP} on its disks, or empties it, and unmounts what is mounted in the folder. */
  reset(): Promise<void>;
  /** The time for which its state may differ, in milliseconds: udev opens devices after a change. */
  readonly settleMs: number;
  /** A little more than a second where filesystems compare the times of their checks and mounts, in milliseconds; or 0. */
  readonly tickMs: number;
}

/** The targets of mounts, in a folder of their own. */
export interface Targets {
  readonly folders: readonly string[];
  readonly file: string;
}

/** What plays did. */
export interface Counts {
  /** The commands that ran on both machines, and those of them that succeeded. */
  commands: number;
  succeeded: number;
  /** Why the fake refuses to run a command: states that the driver never makes. */
  readonly refused: Map<string, number>;
}

/** What a play needs. */
interface Stage {
  readonly fake: FakeMachine;
  readonly other: OtherMachine;
  readonly targets: Targets;
  /** The time of the last command that a filesystem may have recorded, in milliseconds. */
  tick: number;
  /** Whether a program has written to a device. */
  hasWritten: boolean;
  /** The other machine's UUIDs of LVs, by name. */
  uuids: ReadonlyMap<string, string>;
}

/**
 * Runs actions on a new fake machine and on another one.
 *
 * @throws {Error} when they differ; the message has the commands up to there
 */
export async function play(
  actions: readonly Action[],
  other: OtherMachine,
  targets: Targets,
  counts: Counts,
): Promise<void> {
  await other.reset();
  const stage: Stage = { fake: await likeOther(other), other, targets, tick: 0, hasWritten: false, uuids: new Map() };
  const log: string[] = [];
  try {
    for (const action of actions) {
      const command = await act(stage, action, counts, log);
      if (command !== undefined && MAY_CHANGE_STATE.includes(command.program)) await compareStates(stage, log.at(-1)!);
      else if (command !== undefined && WRITES_DATA.includes(command.program)) await readOther(stage);
    }
    await compareContents(stage);
  } catch (error) {
    throw new Error(`${(error as Error).message}\nafter:\n  ${log.join("\n  ")}`, { cause: error });
  }
}

/** Returns a fake machine with the host of the other one, and a group of the same size. */
async function likeOther({ exec, host }: OtherMachine): Promise<FakeMachine> {
  const fake = new FakeMachine();
  Object.assign(fake.host, host);
  const { size, extentSize, pvs } = await reportOf(exec);
  fake.addGroup(GROUP, size, extentSize, pvs.length);
  return fake;
}

/** The programs after which the reports may show something else. */
const MAY_CHANGE_STATE: readonly Command["program"][] = ["lvm", "mount", "umount", "blockdev"];

/** The other programs that may make the COW space of a snapshot overflow. */
const WRITES_DATA: readonly Command["program"][] = [
  ...["mke2fs", "mkfs.xfs", "mkfs.btrfs", "e2fsck", "resize2fs", "tune2fs", "blkdiscard"] as const,
  ...["xfs_growfs", "btrfs", "fstrim", "wipefs"] as const,
];

/** Runs the command of an action on both machines. @returns the command; none if it has no meaning in this state */
async function act(stage: Stage, action: Action, counts: Counts, log: string[]): Promise<Command | undefined> {
  const { fake, other } = stage;
  const { lvs } = await reportOf(fake);
  const onFake = commandOf(harnessOf(stage, new Map(lvs.map(({ name, uuid }) => [name, uuid]))), action);
  const onOther = commandOf(harnessOf(stage, stage.uuids), action);
  if (onFake === undefined || onOther === undefined) return undefined;
  const expected = await tryOnFake(fake, onFake, counts);
  if (expected === undefined) return undefined;
  if (["mount", "e2fsck", "mke2fs"].includes(onFake.program)) await nextTick(stage);
  const actual = await other.exec.run(onOther);
  stage.hasWritten ||= WRITES_DATA.includes(onOther.program);
  counts.commands++;
  if (actual.code === 0) counts.succeeded++;
  const line = `${describeCommand(onOther)} -> ${actual.code} ${actual.stderr.trim().split("\n")[0] ?? ""}`;
  log.push(line);
  assertEquals(outcome(onFake, expected), outcome(onOther, actual), `${line}\n  the fake: ${expected.stderr.trim()}`);
  return onOther;
}

/** Runs a command on the fake, unless it refuses that. */
async function tryOnFake(fake: FakeMachine, command: Command, { refused }: Counts): Promise<Output | undefined> {
  try {
    requireSpace(fake, command);
    const { code } = await fake.fork(undefined)[0].run(command);
    if (code === 0 && command.program === "mount") requireNoPeers(fake, command.args.at(-1)!);
  } catch (error) {
    const reason = (error as Error).message.replaceAll(/\S*\/\S+/g, "…");
    if (/does not know|has no|not mean/.test(reason)) throw error;
    refused.set(reason, (refused.get(reason) ?? 0) + 1);
    return undefined;
  }
  return await fake.run(command);
}

/** Requires that a new filesystem fits in its thin pool: the fake does not know how much the programs of one write. */
function requireSpace(fake: FakeMachine, { program, args }: Command): void {
  const lvs = fake.groups[0]!.lvs;
  const pool = /^mk/.test(program) && lvs.find(({ name }) => name === fake.lvAt(args.at(-1)!)?.pool);
  if (!pool) return;
  const allocated = lvs.filter((lv) => lv.pool === pool.name).reduce((sum, { size }) => sum + size, 0n);
  if (allocated > 2n * pool.size) {
    throw new Error("making a filesystem in a pool that is much smaller than what it allocates");
  }
}

/** Requires that nothing of what is mounted at a target is mounted elsewhere: a shared mount's peers get what is mounted on it. */
function requireNoPeers({ mounts }: FakeMachine, target: string): void {
  const top = mounts.findLast((mount) => mount.target === target);
  if (top === undefined || !mounts.some((mount) => mount !== top && mount.lv === top.lv)) return;
  throw new Error(`mounting on ${target}, which has peers`);
}

/** Waits until a filesystem's time differs from that of the last check: their clock counts seconds. */
async function nextTick(stage: Stage): Promise<void> {
  const waitMs = stage.tick + stage.other.tickMs - Date.now();
  if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
  stage.tick = Date.now();
}

function harnessOf({ fake, targets: { folders, file } }: Stage, uuids: ReadonlyMap<string, string>): Harness {
  const known = fake.groups[0]!.lvs;
  return {
    lvs: known.map(({ name }) => name).sort(),
    pools: known.filter(({ thinPool }) => thinPool !== undefined).map(({ name }) => name).sort(),
    thin: known.filter(({ pool }) => pool !== undefined).map(({ name }) => name).sort(),
    formatted: known.flatMap(({ name, content }) => content.signatures.slice(0, 1).map(({ type }) => ({ name, type })))
      .sort((a, b) => a.name < b.name ? -1 : 1),
    mounted: [...folders, file].filter((path) => fake.mounts.some(({ target }) => target === path)),
    folders,
    file,
    uuidOf: (name) => uuids.get(name) ?? "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA",
  };
}

/** Returns what of a command's output must not differ: whether it succeeded, why LVM refused, what a tool printed. */
function outcome({ program, args }: Command, output: Output): Record<string, unknown> {
  const ended = output.code === 0 ? "success" : program === "lvm" ? classifyRefusal(output) : "failure";
  if (program === "wipefs" && args.includes("--json") && output.code === 0) {
    return { ended, types: signatureTypes(output.stdout) };
  }
  return { ended };
}

function signatureTypes(stdout: string): string[] {
  if (stdout.trim() === "") return [];
  const { signatures } = JSON.parse(stdout) as { signatures: { type: string }[] };
  return signatures.map(({ type }) => type).sort();
}

async function reportOf(exec: Exec): Promise<VolumeGroup> {
  return (await new Lvm(exec).report()).find(({ name }) => name === GROUP)!;
}

/**
 * Reads the other machine's report. Its snapshots that overflowed do so on the fake, too, which does not know how much
 * the programs of a filesystem write.
 */
async function readOther(stage: Stage): Promise<VolumeGroup> {
  const report = await reportOf(stage.other.exec);
  stage.uuids = new Map(report.lvs.map(({ name, uuid }) => [name, uuid]));
  for (const { name } of report.lvs.filter(({ invalidSnapshot }) => invalidSnapshot)) {
    const snapshot = stage.fake.groups[0]!.lvs.find((lv) => lv.name === name);
    if (stage.hasWritten && snapshot?.origin !== undefined) snapshot.invalid = true;
  }
  return report;
}

/** Compares what LVM and the mount table report. */
async function compareStates(stage: Stage, last: string): Promise<void> {
  const { fake, other, targets } = stage;
  for (const start = Date.now();;) {
    const report = await readOther(stage);
    const expected = await stateOf(await reportOf(fake), fake, targets);
    try {
      const actual = await stateOf(report, other.exec, targets);
      return assertEquals(expected, actual, `the fake's state (-) is not the other's (+) after ${last}`);
    } catch (error) {
      if (Date.now() - start > other.settleMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

async function stateOf({ free, tags, lvs }: VolumeGroup, exec: Exec, { folders, file }: Targets): Promise<unknown> {
  const mounts = (await readMounts(exec)).filter(({ target }) => [...folders, file].includes(target));
  return {
    free,
    tags: tags.toSorted(),
    lvs: lvs.map((lv) => [lv.name, lvState(lv)] as const).sort(([a], [b]) => a < b ? -1 : 1),
    mounts: mounts.map(({ target, fsType, readOnly, filesystemWritable }) =>
      `${target} ${fsType} ${readOnly ? "ro" : "rw"}${filesystemWritable ? "" : " of a read-only filesystem"}`
    ).sort(),
  };
}

function lvState(lv: LogicalVolume): unknown {
  const { size, tags, active, suspended, open, layout, segment, origin, originSize, invalidSnapshot, pool } = lv;
  return {
    ...{ size, tags: tags.toSorted(), active, suspended, open, layout: layout.toSorted(), origin, originSize },
    ...{ segment, invalidSnapshot, pool, metadataSize: lv.thinPool?.metadataSize, zeroes: lv.thinPool?.zeroes },
    health: lv.health,
  };
}

/** Compares the signatures and the flags of all active devices, and their first bytes. */
async function compareContents({ fake, other }: Stage): Promise<void> {
  for (const { name, active, thinPool } of fake.groups[0]!.lvs) {
    if (!active || thinPool !== undefined) continue;
    const path = deviceOf(name);
    assertEquals(await contentOf(fake, path), await contentOf(other.exec, path), `the content of ${path}`);
  }
}

async function contentOf(exec: Exec, path: string): Promise<unknown> {
  const read = (program: Command["program"], ...args: string[]) => exec.run({ program, args, mutates: false });
  const lsblk = await read("lsblk", "--json", "--bytes", "--nodeps", "--output", "NAME,MAJ:MIN,SIZE,RO", path);
  const [device] = (JSON.parse(lsblk.stdout) as { blockdevices: { size: number; ro: boolean }[] }).blockdevices;
  return {
    size: Number(device!.size),
    readOnly: device!.ro,
    types: signatureTypes((await read("wipefs", "--no-act", "--json", path)).stdout),
    isHeadZero: (await read("cmp", "--bytes=4096", "/dev/zero", path)).code === 0,
  };
}
