/**
 * Finds commands and calls that change the same LV at the same time.
 *
 * Among calls, one counts as changing an LV from its first such command to its end: the locks of the driver must exclude
 * the other calls as long. Among commands, also those of work in the background, only running ones count: a copy runs for
 * the call that waits for it. LVM runs its own commands one after the other, but nobody does that for the programs on a
 * device.
 *
 * @module
 */

import { type Command, describeCommand } from "../../lvm/exec.ts";
import { SNAPSHOT, SOURCE, USED, VOLUME } from "../../lvm/model/tags.ts";
import { devicePath, type FakeMachine } from "../fake/machine/machine.ts";

/** The names of LVs that a command changes, and of those that must not change meanwhile. */
export interface Targets {
  readonly changes: readonly string[];
  readonly reads: readonly string[];
}

/** An LV in use by a command, and then by the call of the command until the call ends. */
interface Use {
  readonly mode: keyof Targets;
  /** The calls that have not ended; `undefined` for work in the background. A command may remove LVs for several calls. */
  readonly calls: Set<string> | undefined;
  /** The command. */
  readonly by: string;
  readonly isLvm: boolean;
  isRunning: boolean;
}

/** The LVs in use by the commands and calls of a driver. */
export class Overlaps {
  readonly #machine: FakeMachine;
  readonly #uses = new Map<string, Use[]>();

  /** Creates a record of a new driver, which uses nothing yet. */
  constructor(machine: FakeMachine) {
    this.#machine = machine;
  }

  /**
   * Records that a command starts.
   *
   * @param calls the calls that it works for; none for work in the background
   * @returns records that the command has ended
   * @throws {Error} when another one changes what it changes or reads, or reads what it changes
   */
  start(command: Command, calls: readonly string[]): () => void {
    if (!command.mutates) return () => {};
    const { changes, reads } = targetsOf(this.#machine, command);
    // LVM reads no data in the background: it freezes a filesystem while it takes a snapshot, and leaves a device that is
    // active as it is when a driver that starts activates it.
    const isLvm = command.program === "lvm";
    const isBackground = calls.length === 0;
    const targets = { changes, reads: isBackground && isLvm ? [] : reads };
    const by = `${isBackground ? "in the background" : calls.join(" and ")}: ${describeCommand(command)}`;
    const started = (["changes", "reads"] as const).flatMap((mode) =>
      targets[mode].map((lv) =>
        this.#add(lv, { mode, calls: isBackground ? undefined : new Set(calls), by, isLvm, isRunning: true })
      )
    );
    return () => {
      for (const use of started) use.isRunning = false;
      // A call that reads may let others change what it has read: a snapshot keeps it.
      this.#remove((use) => started.includes(use) && (isBackground || use.mode === "reads"));
    };
  }

  /** Records that a call has ended. */
  end(call: string): void {
    this.#remove((use) => use.calls !== undefined && (use.calls.delete(call), use.calls.size === 0));
  }

  #add(lv: string, use: Use): Use {
    const uses = this.#uses.get(lv) ?? [];
    for (const other of uses) {
      if (other.mode === "reads" && use.mode === "reads") continue;
      const areCalls = other.calls !== undefined && use.calls !== undefined;
      if (areCalls ? !other.calls.isDisjointFrom(use.calls) : !other.isRunning) continue;
      if (!areCalls && other.isLvm && use.isLvm) continue;
      throw new Error(`${lv}: ${use.by}, while it is in use by ${other.by}`);
    }
    this.#uses.set(lv, [...uses, use]);
    return use;
  }

  #remove(isRemoved: (use: Use) => boolean): void {
    for (const [lv, uses] of this.#uses) {
      const left = uses.filter((use) => !isRemoved(use));
      if (left.length === 0) this.#uses.delete(lv);
      else if (left.length < uses.length) this.#uses.set(lv, left);
    }
  }
}

/**
 * Returns the LVs of a command. Paths of devices and mounts are resolved to their LVs.
 *
 * @throws {Error} for a command whose LVs are not known: one that changes something must name them
 */
export function targetsOf(machine: FakeMachine, { program, args }: Command): Targets {
  const lvs = (...paths: readonly (string | undefined)[]) =>
    paths.map((path) => path && lvNameAt(machine, path)).filter((name) =>
      name !== undefined && name !== ""
    ) as string[];
  switch (program) {
    case "lvm":
      return lvmTargets(machine, args);
    case "dd": {
      const value = (name: string) => args.find((arg) => arg.startsWith(`${name}=`))?.slice(name.length + 1);
      return { changes: lvs(value("of")), reads: lvs(value("if")) };
    }
    case "mount": // a bind mount, or a mount of a device, is a use of its source
      return { changes: args.includes("-t") ? lvs(args.at(-2)) : lvs(args.at(-2), args.at(-1)), reads: [] };
    case "dmsetup":
      return { changes: lvs(`/dev/mapper/${args.at(-1)}`), reads: [] };
    case "btrfs":
      // a sync, before a snapshot, changes nothing
      return args[1] === "sync" ? { changes: [], reads: lvs(args.at(-1)) } : { changes: lvs(args.at(-1)), reads: [] };
    case "sync": // a flush, of physical volumes or of an LV, changes nothing
      return { changes: [], reads: [] };
    default:
      return { changes: lvs(args.at(-1)), reads: [] };
  }
}

function lvmTargets(machine: FakeMachine, [subcommand, ...args]: readonly string[]): Targets {
  const values = (option: string) => args.flatMap((arg, index) => args[index - 1] === option ? [arg] : []);
  const named = args.filter((arg) => /^[\w.+-]+\/[\w.+-]+$/.test(arg)).map((path) => path.split("/")[1]!);
  if (subcommand === "vgchange") {
    const uuids = [...values("--addtag"), ...values("--deltag")].filter((tag) => tag.startsWith(USED))
      .map((tag) => tag.split(":").at(-1));
    return {
      changes: machine.allLvs().filter(({ lv }) => uuids.includes(lv.uuid)).map(({ lv }) => lv.name),
      reads: [],
    };
  }
  // A driver that starts resumes devices by a refresh. It cannot wait for calls, which may wait for these devices.
  if (subcommand === "lvchange" && args.includes("--refresh")) return { changes: [], reads: [] };
  // An activation changes nothing on an LV that became active meanwhile: a driver that starts looks at what a pool lacks.
  if (subcommand === "lvchange" && args[0] === "--activate" && args[1] === "y") return { changes: [], reads: named };
  // More COW space changes nothing on the device of a snapshot.
  const isCow = machine.allLvs().some(({ lv }) => named.includes(lv.name) && lv.origin !== undefined && !lv.pool);
  if (subcommand === "lvextend" && isCow) return { changes: [], reads: named };
  if (subcommand !== "lvcreate") return { changes: named, reads: [] };
  const sources = values("--addtag").filter((tag) => tag.startsWith(SOURCE)).flatMap((tag) => {
    const id = tag.split(":").at(-1)!;
    return machine.allLvs().filter(({ lv: { tags } }) => tags.has(VOLUME + id) || tags.has(SNAPSHOT + id));
  });
  return { changes: values("--name"), reads: [...named, ...sources.map(({ lv }) => lv.name)] };
}

/** Returns the name of the LV whose device or mount is at a path. */
function lvNameAt(machine: FakeMachine, path: string): string | undefined {
  const device = machine.allLvs().find(({ group, lv }) => devicePath(group, lv) === path)?.lv;
  return (device ?? machine.mounts.findLast(({ target }) => target === path)?.lv)?.name;
}
