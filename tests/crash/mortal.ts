/**
 * A driver that dies: its exec, or its client of the API server, stops at a chosen moment, and nothing that it waits for ever
 * comes.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";
import { type Command, describe, type Exec, type Output } from "../../lvm/exec.ts";
import { interrupted } from "../fake/interrupted_client.ts";
import type { FakeLv, FakeMachine } from "../fake/machine.ts";

/** A moment of a command at which the driver dies. */
export interface Moment {
  /** For messages. */
  readonly name: string;
  /** What has become of the machine by then. */
  readonly effect: (machine: FakeMachine, command: Command, run: () => Promise<Output>) => Promise<unknown>;
}

/** The command had not begun. */
const BEFORE: Moment = { name: "before", effect: () => Promise.resolve() };

/** The command had ended, its answer was not read. */
const AFTER: Moment = { name: "after", effect: (_machine, _command, run) => run() };

/** The moments of a command, with those in which it was killed, too, and left half of its work. */
export function momentsOf(command: Command): Moment[] {
  if (!command.mutates) return [BEFORE]; // it leaves nothing, so dying later is the same
  return [BEFORE, ...(HALVES[key(command)] ?? []), AFTER];
}

/** A filesystem has the new UUID at one place, and the old one at another. */
const TORN: Moment = {
  name: "some blocks written",
  effect: async (machine, command, run) => {
    await run();
    machine.lvAt(command.args.at(-1)!)!.content.torn = true;
  },
};

/** What a program leaves that was killed, by program, or for lvm by subcommand. */
const HALVES: Readonly<Record<string, readonly Moment[]>> = {
  // lvm(8) commits the metadata first, then loads the kernel's tables with the devices suspended meanwhile
  lvcreate: [
    half("made, not active, not wiped", (lv) => void (lv.active = false)),
    half("made, suspended", suspend),
    // a snapshot is made as a plain LV and becomes one in a second step
    half("made, no snapshot yet", (lv) => void (lv.pool === undefined && delete lv.origin)),
    // the pool hears of it last; if it does not, it takes the snapshot when it hears of it next, in the midst of writing
    half("made, not taken by its pool yet", (lv) => void (isThinCopy(lv) && (lv.content.torn = true))),
    // a pool is made as the LV of its metadata first
    half("made, no pool yet", (lv) => void delete lv.thinPool),
  ],
  lvextend: [half("grown, suspended", suspend)],
  lvconvert: [half("split, suspended", suspend)],
  lvremove: [{
    name: "deactivated, still there",
    effect: (machine, command) => Promise.resolve(void (target(machine, command)!.active = false)),
  }],
  dd: [{
    name: "half a piece copied",
    effect: async (machine, command, run) => {
      const to = machine.lvAt(command.args.find((arg) => arg.startsWith("of="))!.slice("of=".length))!;
      await run();
      delete to.copied;
      to.content.data = new Set(["half a piece"]);
    },
  }],
  tune2fs: [TORN],
  xfs_db: [TORN],
  btrfstune: [TORN],
  mke2fs: makingHalves(),
  "mkfs.xfs": makingHalves(),
  "mkfs.btrfs": makingHalves(),
};

function half(name: string, leave: (lv: FakeLv) => void): Moment {
  return {
    name,
    effect: async (machine, command, run) => {
      const before = new Set(machine.allLvs().map(({ lv }) => lv));
      await run();
      const lv = machine.allLvs().find(({ lv }) => !before.has(lv))?.lv ?? target(machine, command);
      if (lv !== undefined) leave(lv);
    },
  };
}

function isThinCopy({ pool, origin, tags }: FakeLv): boolean {
  return pool !== undefined && origin !== undefined && [...tags].some((tag) => tag.startsWith("denolith.volume="));
}

function suspend(lv: FakeLv): void {
  lv.suspended = lv.active;
}

/** Filesystems are written in no particular order: the signature may be there or not, and the rest is not. */
function makingHalves(): Moment[] {
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

function target(machine: FakeMachine, command: Command): FakeLv | undefined {
  const path = command.args.at(-1)!;
  return machine.allLvs().find(({ group, lv }) => `${group.name}/${lv.name}` === path)?.lv;
}

function key({ program, args }: Command): string {
  return program === "lvm" ? args[0]! : program;
}

/** Where to die: at the moment of the command of the number. */
export interface Point {
  readonly index: number;
  readonly command: Command;
  readonly moment: Moment;
}

/** An exec of a driver that dies at a point, if one is given. */
export class MortalExec implements Exec {
  /** Every command that was begun. */
  readonly commands: Command[] = [];
  /** Resolves when the driver is dead, with what it died at. */
  readonly died: Promise<string>;
  readonly #machine: FakeMachine;
  #point: Point | undefined;
  readonly #die: (at: string) => void;
  #dead = false;

  constructor(machine: FakeMachine, point?: Point) {
    this.#machine = machine;
    this.#point = point;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.died = promise;
    this.#die = resolve;
  }

  async run(command: Command): Promise<Output> {
    if (this.#dead) return await NEVER;
    const index = this.commands.push(command) - 1;
    if (index !== this.#point?.index) return await this.#machine.run(command);
    this.#dead = true;
    // work in the background may come sooner or later than in the life that was recorded
    const moment = key(command) === key(this.#point.command) ? this.#point.moment : BEFORE;
    await moment.effect(this.#machine, command, () => this.#machine.run(command));
    this.#die(`command ${index} (${describe(command)}), ${moment.name}`);
    return await NEVER;
  }

  /** Ends it when the driver died of something else. */
  kill(): void {
    this.#dead = true;
  }

  /** Lets it live from now on. */
  spare(): void {
    this.#point = undefined;
  }

  settled(): Promise<void> {
    return Promise.resolve();
  }
}

/** Where to die: before the request of the number, or after it, when its answer was not read. */
export interface RequestPoint {
  readonly index: number;
  readonly request: string;
  readonly when: "before" | "after";
}

/** What stands between a driver and the API server, and lets it die at a point, if one is given. */
export class MortalRequests {
  /** Every request about volumes and snapshots that was begun. */
  readonly requests: string[] = [];
  /** Resolves when the driver is dead, with what it died at. */
  readonly died: Promise<string>;
  #point: RequestPoint | undefined;
  readonly #die: (at: string) => void;
  readonly #indices = new Map<number, number>();
  #dead = false;

  constructor(point?: RequestPoint) {
    this.#point = point;
    const { promise, resolve } = Promise.withResolvers<string>();
    this.died = promise;
    this.#die = resolve;
  }

  /** The client as the driver has it. */
  wrap(client: ApiClient): ApiClient {
    return interrupted(client, async (request, when, number) => {
      if (this.#dead) await NEVER;
      if (!/ lvm(?:volumes|snapshots)$/.test(request)) return;
      if (when === "before") this.#indices.set(number, this.requests.push(request) - 1);
      if (this.#indices.get(number) !== this.#point?.index || when !== this.#point?.when) return;
      this.kill();
      this.#die(`request ${this.#point.index} (${request}), ${when}`);
      await NEVER;
    });
  }

  /** Ends it when the driver died of something else. */
  kill(): void {
    this.#dead = true;
  }

  /** Lets it live from now on. */
  spare(): void {
    this.#point = undefined;
  }
}

const NEVER = new Promise<never>(() => {});
