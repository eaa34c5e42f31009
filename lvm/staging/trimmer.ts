/**
 * Runs fstrim(8) now and then on the volumes whose class wants it: on one at a time, and only while they are mounted.
 *
 * Which volumes those are, and which of them are in use, is seen in the reports that are read anyway; without any, nothing is
 * done. A turn takes a report, and a look at the mount table and an fstrim for each volume that is due.
 *
 * Nothing is recorded. When a volume is due follows from its id and the time ({@linkcode nextTrim}), so those of a machine do
 * not come together, also not after a start of the driver. One that was not in use then is due as soon as it is.
 *
 * @module
 */

import { type Command, type Exec, failure } from "../exec.ts";
import type { VolumeId } from "../ids.ts";
import type { Lvm } from "../model/client.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { ownedVolumeId, parseVolumeTags, type VolumeTags } from "../model/tags.ts";
import { systemTimer, type Timer } from "../clock.ts";
import { nextTrim } from "../spec/trim.ts";

/** A volume that is to be trimmed now and then. */
export interface Trimmed {
  /** Its id. */
  readonly id: VolumeId;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** How often, in milliseconds. */
  readonly everyMs: number;
}

/** Who is told of what came of it. */
export interface TrimListener {
  /** So many bytes were discarded. */
  readonly onTrimmed: (volume: Trimmed, bytes: number) => void;
  /** It failed so many times in a row; it is tried again within the hour. */
  readonly onTrimFailed: (volume: Trimmed, why: string, failures: number) => void;
  /** The device of the volume does not take discards; told once, until it does. */
  readonly onTrimUnsupported: (volume: Trimmed) => void;
}

/** What {@linkcode Trimmer} needs. */
export interface TrimmerOptions extends TrimListener {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose volumes these are. */
  readonly driver: string;
  /** Is told what failed beside fstrim itself; it is tried again within the hour. */
  readonly onError: (error: unknown) => void;
  /** Time. */
  readonly timer?: Timer;
}

/** What is known of a volume between its turns. */
interface Turn {
  /** The volume as it was last seen. */
  volume: Trimmed;
  /** From when on it is due, in milliseconds since 1970. */
  at: number;
  /** How many failed in a row. */
  failures: number;
  /** When it last went well, in seconds since 1970. */
  lastSuccess?: number;
  /** Whether it was told that its device does not take discards. */
  unsupported: boolean;
}

/** The fstrim that is under way. */
interface Running {
  readonly id: VolumeId;
  readonly ending: AbortController;
  readonly ended: Promise<void>;
}

/** How long one fstrim may take, in milliseconds: it looks at all of a filesystem. */
const DEADLINE_MS = 1_800_000;

/** When it is tried again on a volume that was due in vain, in milliseconds, if its own moment is not sooner. */
const RETRY_MS = 3_600_000;

/** How long is slept at most, in milliseconds: timers do not know longer times than 24 days. */
const LONGEST_SLEEP_MS = 86_400_000;

/** The background work of trimming on this machine. */
export class Trimmer {
  readonly #options: TrimmerOptions;
  readonly #exec: Exec;
  readonly #timer: Timer;
  readonly #turns = new Map<VolumeId, Turn>();
  readonly #paused = new Set<VolumeId>();
  #running: Running | undefined;
  #pass: Promise<void> | undefined;
  #cancel = () => {};
  #stopped = false;

  /** Makes it; it does nothing before it sees a report. */
  constructor(options: TrimmerOptions) {
    this.#options = options;
    this.#exec = options.lvm.exec;
    this.#timer = options.timer ?? systemTimer;
  }

  /** Looks at a report: which volumes there are, and which of them are in use. */
  see(groups: readonly VolumeGroup[]): void {
    const volumes = new Map(trimmedVolumes(groups, this.#options.driver).map((volume) => [volume.id, volume]));
    for (const id of [...this.#turns.keys()]) if (!volumes.has(id)) this.#turns.delete(id);
    for (const [id, volume] of volumes) {
      const turn = this.#turns.get(id);
      if (turn !== undefined) turn.volume = volume;
      else this.#turns.set(id, { volume, at: this.#momentOf(volume), failures: 0, unsupported: false });
    }
    if (this.#pass === undefined) this.#arm();
  }

  /** When each volume was last trimmed, in seconds since 1970, of those that were. */
  lastSuccesses(): { volume: Trimmed; at: number }[] {
    return [...this.#turns.values()].flatMap(({ volume, lastSuccess: at }) => at === undefined ? [] : [{ volume, at }]);
  }

  /**
   * Leaves a volume alone until the answer is disposed of, and ends what is being done to it: it is to be unmounted, and
   * fstrim has its mount open. The volume is trimmed when it is in use again.
   */
  async pause(id: VolumeId): Promise<Disposable> {
    this.#paused.add(id);
    if (this.#running?.id === id) {
      this.#running.ending.abort();
      await this.#running.ended;
    }
    return { [Symbol.dispose]: () => void this.#paused.delete(id) };
  }

  /** Resolves when nothing is being done. */
  async settled(): Promise<void> {
    while (this.#pass !== undefined) await this.#pass;
  }

  /** Ends, and with it the fstrim that is under way: the next one does what it left. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#cancel();
    this.#running?.ending.abort();
    await this.#pass;
  }

  get #now(): number {
    return this.#timer.date().getTime();
  }

  #momentOf({ id, everyMs }: Trimmed): number {
    return nextTrim(id, everyMs, this.#now);
  }

  #arm(): void {
    this.#cancel();
    const ready = [...this.#turns.values()].filter(isReady);
    if (ready.length === 0 || this.#stopped) return;
    const sleepMs = Math.min(...ready.map(({ at }) => at)) - this.#now;
    this.#cancel = this.#timer.after(Math.min(LONGEST_SLEEP_MS, Math.max(0, sleepMs)), () => {
      this.#pass ??= this.#trimDue().finally(() => {
        this.#pass = undefined;
        this.#arm();
      });
    });
  }

  async #trimDue(): Promise<void> {
    const due = [...this.#turns.values()].filter((turn) => isReady(turn) && turn.at <= this.#now);
    if (due.length === 0) return;
    for (const turn of due) turn.at = Math.min(this.#momentOf(turn.volume), this.#now + RETRY_MS); // if it is in vain
    try {
      await this.#options.lvm.report(); // the volumes as they are now come back by see()
      for (const turn of due) await this.#trim(turn);
    } catch (error) {
      this.#options.onError(error);
    }
  }

  /** Trims a volume, if that can still be done, as one that can be paused. */
  async #trim(turn: Turn): Promise<void> {
    const { id } = turn.volume;
    if (this.#stopped || this.#paused.has(id) || this.#turns.get(id) !== turn || !isReady(turn)) return;
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const ending = new AbortController();
    this.#running = { id, ending, ended };
    try {
      await this.#attempt(turn, ending.signal);
    } finally {
      this.#running = undefined;
      end();
    }
  }

  async #attempt(turn: Turn, signal: AbortSignal): Promise<void> {
    const { volume } = turn;
    // read while it can be paused: what was its mount before may be a plain directory by now, of another filesystem
    const mount = filesystemMounts(await readMounts(this.#exec), volume.lv).find(({ readOnly }) => !readOnly);
    if (mount === undefined || signal.aborted) return;
    try {
      const bytes = await fstrim(this.#exec, mount.target, signal);
      turn.at = this.#momentOf(volume);
      if (bytes !== undefined) {
        Object.assign(turn, { failures: 0, unsupported: false, lastSuccess: this.#now / 1000 });
        return this.#options.onTrimmed(volume, bytes);
      }
      if (!turn.unsupported) this.#options.onTrimUnsupported(volume);
      turn.unsupported = true;
    } catch (error) {
      if (signal.aborted) return;
      turn.failures++;
      this.#options.onTrimFailed(volume, error instanceof Error ? error.message : String(error), turn.failures);
    }
  }
}

/**
 * Whether a volume can be trimmed now. Under copy-on-write snapshots it cannot: the kernel takes no discards for a device
 * that is the origin of some (device-mapper's snapshot-origin), until they are gone. A suspended one would hang who asks it.
 */
function isReady({ volume: { lv, group } }: Turn): boolean {
  const hasStores = group.lvs.some(({ origin, pool }) => origin === lv.name && pool === undefined);
  return group.answers && lv.open && !lv.suspended && !hasStores;
}

/** The driver's volumes that are to be trimmed now and then. */
function trimmedVolumes(groups: readonly VolumeGroup[], driver: string): Trimmed[] {
  return groups.flatMap((group) =>
    group.lvs.flatMap((lv) => {
      const tags = ownedVolumeId(driver, lv.tags) === undefined ? undefined : tagsOf(driver, lv);
      if (tags?.trim?.everyMs === undefined || tags.copied !== undefined) return []; // nobody has one that is being filled
      return [{ id: tags.id, lv, group, everyMs: tags.trim.everyMs }];
    })
  );
}

function tagsOf(driver: string, lv: LogicalVolume): VolumeTags | undefined {
  try {
    return parseVolumeTags(driver, lv.tags);
  } catch {
    return undefined; // tags that cannot be read: others tell of it
  }
}

/**
 * Has a mounted filesystem discard what it has freed; answers how many bytes, or `undefined` where its device does not take
 * that.
 *
 * To the seam it is like reading, and it is killed at its deadline: what is not discarded stays as it is.
 *
 * @throws {StorageError} `CommandFailed`, or `Unavailable` when it takes too long or is ended.
 */
async function fstrim(exec: Exec, target: string, signal: AbortSignal): Promise<number | undefined> {
  const command: Command = {
    program: "fstrim",
    args: ["--verbose", target],
    mutates: false,
    deadlineMs: DEADLINE_MS,
    signal,
  };
  const output = await exec.run(command);
  if (output.code !== 0 && /the discard operation is not supported/.test(output.stderr)) return undefined;
  const bytes = /\((\d+) bytes\) trimmed/.exec(output.stdout)?.[1];
  if (output.code !== 0 || bytes === undefined) throw failure(command, output);
  return Number(bytes);
}
