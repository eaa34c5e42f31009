/**
 * Simulates crashes of a driver: its exec, or its client of the API server, stops at a chosen moment and answers no more.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";
import { type Command, describeCommand, type Exec, type Output } from "../../lvm/exec.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
import type { FakeLv, FakeMachine } from "../fake/machine/machine.ts";

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
  // these change nothing, so a later crash has the same effect
  if (!command.mutates || command.program === "sync") return [BEFORE_COMMAND];
  const partialEffects = isBindWithFlags(command) ? [BOUND_WITHOUT_FLAGS] : PARTIAL_EFFECTS[programKey(command)] ?? [];
  return [BEFORE_COMMAND, ...partialEffects, AFTER_COMMAND];
}

/** mount(8) binds by one mount(2), and sets the flags by another one. */
const BOUND_WITHOUT_FLAGS: CrashMoment = {
  name: "bound, its flags not set",
  effect: async (machine, command) => {
    const { code, stderr } = await machine.run({ ...command, args: ["-o", "bind", ...command.args.slice(-2)] });
    if (code !== 0) throw new Error(`${describeCommand(command)}, without its flags: ${stderr}`);
  },
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

/** Neither copy of a LUKS header can be read any more. */
const HEADER_DAMAGED: CrashMoment = {
  name: "header damaged",
  effect: (machine, command) => {
    const path = command.args.find((arg) => arg.startsWith("/"))!;
    return Promise.resolve(void (machine.lvAt(path)!.content.signatures = []));
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
    // An LV has its cache last.
    partialLvChange("made, its cache not joined", (lv, machine) => {
      const group = machine.allLvs().find((each) => each.lv === lv)!.group;
      if (lv.cache !== undefined) group.lvs.push(lv.cache);
      delete lv.cache;
      delete lv.segment;
    }),
    // It loads the tables of the new devices before any is in use, and the one of the origin when that is suspended.
    partialLvChange("made, no snapshot yet, tables loaded", (lv, machine) => {
      if (lv.pool !== undefined || lv.origin === undefined) return;
      const origin = machine.allLvs().find((each) => each.lv.name === lv.origin!.name)!.lv;
      if (origin.active) Object.assign(origin, { suspended: true, killedTable: "beside" });
      lv.killedTable = "only";
      delete lv.origin;
    }),
    // The pool makes a thin LV last. After a crash before that, the next change of the pool makes up for it.
    partialLvChange("made, not by its pool yet", (lv) => void (lv.pool !== undefined && setPending(lv))),
    // After that, LVM forgets the message to the pool.
    partialLvChange("made, the message to its pool kept", (lv, machine) => keepMessage(machine, lv, "followed")),
    // The pool gets the number of the transaction after it has made the LV.
    partialLvChange(
      "made, the transaction of its pool incomplete",
      (lv, machine) => lv.origin && keepMessage(machine, lv, "half-followed"),
    ),
    // LVM creates the LV of a pool's metadata first.
    partialLvChange("made, no pool yet", (lv) => void delete lv.thinPool),
    // A pool is a pool in LVM's metadata before the LVs that it consists of are deactivated.
    partialLvChange("made, its parts active", (lv) => {
      if (lv.thinPool !== undefined) Object.assign(lv, { active: false }).thinPool!.activeParts = ["tmeta", "tdata"];
    }),
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
      if (command.args.some((arg) => arg.includes("-hdr--"))) return void (to.content.luks!.passphrases = []);
      delete to.copied;
      to.content.data = new Set(["half a chunk"]);
    },
  }],
  luksFormat: [
    {
      name: "some blocks written",
      effect: (machine, command) =>
        Promise.resolve(void (machine.lvAt(command.args.at(-1)!)!.content.zeroHead = false)),
    },
    {
      name: "header written, no key slot yet",
      effect: async (machine, command, run) => {
        await run();
        machine.lvAt(command.args.at(-1)!)!.content.luks!.passphrases = [];
      },
    },
  ],
  luksAddKey: [HEADER_DAMAGED],
  luksKillSlot: [HEADER_DAMAGED],
  resize: [{
    name: "suspended",
    effect: (machine, command) => {
      const device = machine.lvAt(`/dev/mapper/${command.args.at(-1)}`);
      if (device !== undefined) device.suspended = true;
      return Promise.resolve();
    },
  }],
  tune2fs: [PARTIAL_UUID_CHANGE],
  xfs_db: [PARTIAL_UUID_CHANGE],
  btrfstune: [PARTIAL_UUID_CHANGE],
  mke2fs: partialMkfs(),
  "mkfs.xfs": partialMkfs(),
  "mkfs.btrfs": partialMkfs(),
};

function partialLvChange(name: string, apply: (lv: FakeLv, machine: FakeMachine) => void): CrashMoment {
  return {
    name,
    effect: async (machine, command, run) => {
      const before = new Set(machine.allLvs().map(({ lv }) => lv));
      await run();
      const lv = machine.allLvs().find(({ lv }) => !before.has(lv))?.lv ?? targetLv(machine, command);
      if (lv !== undefined) apply(lv, machine);
    },
  };
}

function keepMessage(machine: FakeMachine, { pool }: FakeLv, state: "followed" | "half-followed"): void {
  const thinPool = machine.allLvs().find(({ lv }) => lv.name === pool)?.lv.thinPool;
  if (thinPool !== undefined) thinPool.oldMessage = state;
}

function setPending(lv: FakeLv): void {
  lv.active = false;
  lv.pending = true;
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
  return program === "lvm" || program === "cryptsetup" ? args[0]! : program;
}

/** A crash: the command, by its description and how many commands with this description came before, and the moment. */
export interface CrashPoint {
  readonly command: string;
  readonly occurrence: number;
  readonly moment: CrashMoment;
}

/** A command that was started, and the crashes that are possible in it. */
export interface StartedCommand {
  readonly command: string;
  readonly occurrence: number;
  readonly moments: readonly CrashMoment[];
}

/** Returns the points at which crashes are possible in commands. */
export function crashPoints(commands: readonly StartedCommand[]): CrashPoint[] {
  return commands.flatMap(({ moments, ...command }) => moments.map((moment) => ({ ...command, moment })));
}

/** Returns a description of a command that is the same each time that a scenario is run. */
function describeWithoutUuids(command: Command): string {
  return describeCommand(command).replaceAll(LVM_UUID, "UUID").replaceAll(UUID, "UUID");
}

/**
 * An exec of a driver that crashes at a point. Without one, it finds out at which points crashes are possible. A driver
 * that does not come to its point does not crash: {@linkcode CrashingExec.hasCrashed} tells.
 */
export class CrashingExec implements Exec {
  /** Every command that was started. */
  readonly commands: StartedCommand[] = [];
  /** Resolves when the driver crashed, with a description of the crash point. */
  readonly crashed: Promise<string>;
  /** True if the driver crashed at its point. */
  hasCrashed = false;
  readonly #machine: FakeMachine;
  #point: CrashPoint | undefined;
  readonly #isRecording: boolean;
  readonly #onCrash: (at: string) => void;
  readonly #occurrences = new Map<string, number>();
  #isKilled = false;

  constructor(machine: FakeMachine, point?: CrashPoint) {
    this.#machine = machine;
    this.#point = point;
    this.#isRecording = point === undefined;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.crashed = promise;
    this.#onCrash = resolve;
  }

  async run(command: Command): Promise<Output> {
    if (this.#isKilled) return await PENDING_FOREVER;
    const description = describeWithoutUuids(command);
    const occurrence = this.#occurrences.get(description) ?? 0;
    this.#occurrences.set(description, occurrence + 1);
    if (this.#isRecording) {
      const moments = await distinctMoments(this.#machine, command);
      this.commands.push({ command: description, occurrence, moments });
    }
    const isPoint = description === this.#point?.command && occurrence === this.#point.occurrence;
    if (!isPoint) return await this.#machine.run(command);
    this.#isKilled = true;
    await this.#point!.moment.effect(this.#machine, command, () => this.#machine.run(command));
    this.hasCrashed = true;
    this.#onCrash(`command ${occurrence} of this kind (${describeCommand(command)}), ${this.#point!.moment.name}`);
    return await PENDING_FOREVER;
  }

  /** Stops all commands when the driver crashed elsewhere. */
  kill(): void {
    this.#isKilled = true;
  }

  /** Removes the crash point. */
  disarm(): void {
    this.#point = undefined;
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }
}

/**
 * Returns the moments of a command that leave different states: a moment during the command that leaves what one before
 * or after it leaves is none.
 */
async function distinctMoments(machine: FakeMachine, command: Command): Promise<CrashMoment[]> {
  const [before, ...later] = crashMomentsOf(command);
  const moments = new Map<string, CrashMoment>();
  for (const moment of [before!, ...later.reverse()]) {
    const [copy] = machine.fork(undefined);
    await moment.effect(copy, command, () => copy.run(command));
    const state = describeMachine(copy);
    if (!moments.has(state)) moments.set(state, moment);
  }
  return [...moments.values()];
}

/**
 * Returns a text that is the same for machines in the same state. The UUIDs that LVM gives are random, so each of them is
 * replaced by a number.
 *
 * @param more further state, which is part of the text
 */
export function describeMachine({ groups, mounts, busyTargets }: FakeMachine, more: readonly unknown[] = []): string {
  const text = JSON.stringify([groups, mounts, busyTargets, ...more], (_, value) => {
    if (typeof value === "bigint") return `${value}n`;
    return value instanceof Set || value instanceof Map ? [...value] : value;
  });
  const numbers = new Map<string, number>();
  return text.replaceAll(LVM_UUID, (uuid) => {
    if (!numbers.has(uuid)) numbers.set(uuid, numbers.size);
    return `UUID ${numbers.get(uuid)}`;
  });
}

/** A UUID of a filesystem. */
const UUID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/g;

/** A UUID of LVM. */
const LVM_UUID = /\b\w{6}(?:-\w{4}){5}-\w{6}\b/g;

/** A request, and how many requests with the same verb and resource came before. */
export interface StartedRequest {
  readonly request: string;
  readonly occurrence: number;
}

/** A crash before a request, or after it and before its response is read. */
export interface RequestCrashPoint extends StartedRequest {
  readonly when: "before" | "after";
}

/** A client between a driver and the API server, by which the driver crashes at a point, if one is given. */
export class CrashingClient {
  /** Every request about volumes and snapshots that was started. */
  readonly requests: StartedRequest[] = [];
  /** Resolves when the driver crashed, with a description of the crash point. */
  readonly crashed: Promise<string>;
  #point: RequestCrashPoint | undefined;
  readonly #onCrash: (at: string) => void;
  readonly #started = new Map<number, StartedRequest>();
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
      if (when === "before") {
        const occurrence = this.requests.filter((other) => other.request === request).length;
        this.#started.set(number, { request, occurrence });
        this.requests.push({ request, occurrence });
      }
      const occurrence = this.#started.get(number)?.occurrence;
      const point = this.#point;
      if (point === undefined || when !== point.when) return;
      if (request !== point.request || occurrence !== point.occurrence) return;
      this.kill();
      this.#onCrash(`request ${occurrence} of this kind (${request}), ${when}`);
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
