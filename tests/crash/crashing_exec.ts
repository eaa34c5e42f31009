/**
 * Simulates crashes of a driver: its exec, or its client of the API server, stops at a chosen moment and answers no more.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";
import { type Command, describeCommand, type Exec, type Output } from "../../lvm/exec.ts";
import { interceptClient } from "../fake/intercepted_client.ts";
import type { FakeLv, FakeMachine } from "../fake/machine.ts";

/** A moment of a command at which the driver crashes. */
export interface CrashMoment {
  /** For messages. */
  readonly name: string;
  /** The state of the machine at that moment. */
  readonly effect: (machine: FakeMachine, command: Command, run: () => Promise<Output>) => Promise<unknown>;
}

/** The crash came before the command started. */
const BEFORE_COMMAND: CrashMoment = { name: "before", effect: () => Promise.resolve() };

/** The crash came after the command ended, before its output was read. */
const AFTER_COMMAND: CrashMoment = { name: "after", effect: (_machine, _command, run) => run() };

/** Returns the moments of a command, among them those at which it is killed as well and leaves half of its work. */
export function crashMomentsOf(command: Command): CrashMoment[] {
  if (!command.mutates) return [BEFORE_COMMAND]; // it changes nothing, so a later crash has the same effect
  const partialEffects = isBindWithFlags(command) ? [BOUND_WITHOUT_FLAGS] : PARTIAL_EFFECTS[programKey(command)] ?? [];
  return [BEFORE_COMMAND, ...partialEffects, AFTER_COMMAND];
}

/** mount(8) binds by one mount(2), and sets the flags by another one. */
const BOUND_WITHOUT_FLAGS: CrashMoment = {
  name: "bound, its flags not set",
  effect: (machine, command) => machine.run({ ...command, args: ["-o", "bind", ...command.args.slice(-2)] }),
};

function isBindWithFlags({ program, args }: Command): boolean {
  return program === "mount" && args[1]!.startsWith("bind,");
}

/** A filesystem has the new UUID at one place, and the old one at another. */
const PARTIAL_UUID_CHANGE: CrashMoment = {
  name: "some blocks written",
  effect: async (machine, command, run) => {
    await run();
    machine.lvAt(command.args.at(-1)!)!.content.isInconsistent = true;
  },
};

/** The partial effects of a program that is killed, by program, or for lvm by subcommand. */
const PARTIAL_EFFECTS: Readonly<Record<string, readonly CrashMoment[]>> = {
  // lvm(8) commits the metadata first, then loads the kernel's tables with the devices suspended meanwhile
  lvcreate: [
    partialLvChange("made, not active, not wiped", (lv) => void (lv.active = false)),
    partialLvChange("made, suspended", suspend),
    // LVM creates a plain LV first, and makes it a snapshot in a second step.
    partialLvChange("made, no snapshot yet", (lv) => void (lv.pool === undefined && delete lv.origin)),
    // The pool's table is loaded last. After a crash before that, the next load takes the snapshot, while data is written.
    partialLvChange(
      "made, not taken by its pool yet",
      (lv) => void (isThinCopy(lv) && (lv.content.isInconsistent = true)),
    ),
    // LVM creates the LV of a pool's metadata first.
    partialLvChange("made, no pool yet", (lv) => void delete lv.thinPool),
  ],
  lvextend: [partialLvChange("grown, suspended", suspend)],
  lvconvert: [partialLvChange("split, suspended", suspend)],
  lvremove: [{
    name: "deactivated, still there",
    effect: (machine, command) => Promise.resolve(void (targetLv(machine, command)!.active = false)),
  }],
  dd: [{
    name: "half a chunk copied",
    effect: async (machine, command, run) => {
      const to = machine.lvAt(command.args.find((arg) => arg.startsWith("of="))!.slice("of=".length))!;
      await run();
      delete to.copied;
      to.content.data = new Set(["half a chunk"]);
    },
  }],
  tune2fs: [PARTIAL_UUID_CHANGE],
  xfs_db: [PARTIAL_UUID_CHANGE],
  btrfstune: [PARTIAL_UUID_CHANGE],
  mke2fs: partialMkfs(),
  "mkfs.xfs": partialMkfs(),
  "mkfs.btrfs": partialMkfs(),
};

function partialLvChange(name: string, apply: (lv: FakeLv) => void): CrashMoment {
  return {
    name,
    effect: async (machine, command, run) => {
      const before = new Set(machine.allLvs().map(({ lv }) => lv));
      await run();
      const lv = machine.allLvs().find(({ lv }) => !before.has(lv))?.lv ?? targetLv(machine, command);
      if (lv !== undefined) apply(lv);
    },
  };
}

function isThinCopy({ pool, origin, tags }: FakeLv): boolean {
  return pool !== undefined && origin !== undefined && [...tags].some((tag) => tag.startsWith("denolith.volume="));
}

function suspend(lv: FakeLv): void {
  lv.suspended = lv.active;
}

/**
 * Returns the partial effects of a mkfs. It writes in no particular order: the signature may exist or not, and the rest
 * does not.
 */
function partialMkfs(): CrashMoment[] {
  return [
    {
      name: "some blocks written",
      effect: (machine, command) =>
        Promise.resolve(void (machine.lvAt(command.args.at(-1)!)!.content.zeroHead = false)),
    },
    {
      name: "signature written, not the rest",
      effect: async (machine, command, run) => {
        await run();
        machine.lvAt(command.args.at(-1)!)!.content.filesystemBytes = 0n;
      },
    },
  ];
}

function targetLv(machine: FakeMachine, command: Command): FakeLv | undefined {
  const path = command.args.at(-1)!;
  return machine.allLvs().find(({ group, lv }) => `${group.name}/${lv.name}` === path)?.lv;
}

function programKey({ program, args }: Command): string {
  return program === "lvm" ? args[0]! : program;
}

/** A crash: the number of the command, and the moment. */
export interface CrashPoint {
  readonly index: number;
  readonly command: Command;
  readonly moment: CrashMoment;
}

/** An exec of a driver that crashes at a point, if one is given. */
export class CrashingExec implements Exec {
  /** Every command that was started. */
  readonly commands: Command[] = [];
  /** Resolves when the driver crashed, with a description of the crash point. */
  readonly crashed: Promise<string>;
  readonly #machine: FakeMachine;
  #point: CrashPoint | undefined;
  readonly #onCrash: (at: string) => void;
  #isCrashed = false;

  constructor(machine: FakeMachine, point?: CrashPoint) {
    this.#machine = machine;
    this.#point = point;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.crashed = promise;
    this.#onCrash = resolve;
  }

  async run(command: Command): Promise<Output> {
    if (this.#isCrashed) return await PENDING_FOREVER;
    const index = this.commands.push(command) - 1;
    if (index !== this.#point?.index) return await this.#machine.run(command);
    this.#isCrashed = true;
    // Background work may run earlier or later than in the recorded run.
    const moment = programKey(command) === programKey(this.#point.command) ? this.#point.moment : BEFORE_COMMAND;
    await moment.effect(this.#machine, command, () => this.#machine.run(command));
    this.#onCrash(`command ${index} (${describeCommand(command)}), ${moment.name}`);
    return await PENDING_FOREVER;
  }

  /** Stops all commands when the driver crashed elsewhere. */
  kill(): void {
    this.#isCrashed = true;
  }

  /** Removes the crash point. */
  disarm(): void {
    this.#point = undefined;
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }
}

/** A crash before the request with this number, or after it and before its response is read. */
export interface RequestCrashPoint {
  readonly index: number;
  readonly request: string;
  readonly when: "before" | "after";
}

/** A client between a driver and the API server, by which the driver crashes at a point, if one is given. */
export class CrashingClient {
  /** Every request about volumes and snapshots that was started. */
  readonly requests: string[] = [];
  /** Resolves when the driver crashed, with a description of the crash point. */
  readonly crashed: Promise<string>;
  #point: RequestCrashPoint | undefined;
  readonly #onCrash: (at: string) => void;
  readonly #indices = new Map<number, number>();
  #isCrashed = false;

  constructor(point?: RequestCrashPoint) {
    this.#point = point;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.crashed = promise;
    this.#onCrash = resolve;
  }

  /** Wraps the client for the driver. */
  wrap(client: ApiClient): ApiClient {
    return interceptClient(client, async (request, when, number) => {
      if (this.#isCrashed) await PENDING_FOREVER;
      if (!/ lvm(?:volumes|snapshots)$/.test(request)) return;
      if (when === "before") this.#indices.set(number, this.requests.push(request) - 1);
      if (this.#indices.get(number) !== this.#point?.index || when !== this.#point?.when) return;
      this.kill();
      this.#onCrash(`request ${this.#point.index} (${request}), ${when}`);
      await PENDING_FOREVER;
    });
  }

  /** Stops all commands when the driver crashed elsewhere. */
  kill(): void {
    this.#isCrashed = true;
  }

  /** Removes the crash point. */
  disarm(): void {
    this.#point = undefined;
  }
}

const PENDING_FOREVER = new Promise<never>(() => {});
