/**
 * Runs fstrim(8) now and then on the volumes whose class wants it: on one at a time, and only while they are mounted.
 *
 * Which volumes those are, and which of them are in use, is seen in the reports that are read anyway; without any, nothing is
 * done. A turn takes a report, and a look at the mount table and an fstrim for each volume that is due.
 *
 * Nothing is recorded. When a volume is due follows from its id and the time ({@linkcode nextTrimTime}), so those of a machine do
 * not come together, also not after a start of the driver. One that was not in use then is due as soon as it is.
 *
 * @module
 */

import { type Command, commandError, type Exec } from "../exec.ts";
import type { VolumeId } from "../ids.ts";
import type { Lvm } from "../model/client.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { ownedVolumeId, parseVolumeTags, type VolumeTags } from "../model/tags.ts";
import { type Clock, systemClock } from "../clock.ts";
import { nextTrimTime } from "../spec/trim.ts";
import { BackgroundWorker } from "../worker.ts";

/** A volume that is to be trimmed now and then. */
export interface TrimmedVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** How often, in milliseconds. */
  readonly intervalMs: number;
}

/** Who is told of what came of it. */
export interface TrimListener {
  /** So many bytes were discarded. */
  readonly onTrimmed: (volume: TrimmedVolume, bytes: number) => void;
  /** It failed so many times in a row; it is tried again within the hour. */
  readonly onTrimFailed: (volume: TrimmedVolume, why: string, failures: number) => void;
  /** The device of the volume does not take discards; told once, until it does. */
  readonly onTrimUnsupported: (volume: TrimmedVolume) => void;
}

/** What {@linkcode Trimmer} needs. */
export interface TrimmerOptions extends TrimListener {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose volumes these are. */
  readonly driver: string;
  /** Is told what failed beside fstrim itself; it is tried again within the hour. */
  readonly onError: (error: unknown) => void;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/** What is known of a volume between its turns. */
interface TrimSchedule {
  /** The volume as it was last seen. */
  volume: TrimmedVolume;
  /** From when on it is due, in milliseconds since 1970. */
  dueAt: number;
  /** How many failed in a row. */
  failures: number;
  /** When it last went well, in seconds since 1970. */
  lastSuccess?: number;
  /** Whether it was told that its device does not take discards. */
  unsupported: boolean;
}

/** The fstrim that is under way. */
interface RunningTrim {
  readonly id: VolumeId;
  readonly controller: AbortController;
  readonly done: Promise<void>;
}

/** How long one fstrim may take, in milliseconds: it looks at all of a filesystem. */
const DEADLINE_MS = 1_800_000;

/** When it is tried again on a volume that was due in vain, in milliseconds, if its own moment is not sooner. */
const RETRY_MS = 3_600_000;

/** How long is slept at most, in milliseconds: timers do not know longer times than 24 days. */
const MAX_SLEEP_MS = 86_400_000;

/** The background work of trimming on this machine. */
export class Trimmer {
  readonly #options: TrimmerOptions;
  readonly #exec: Exec;
  readonly #clock: Clock;
  readonly #worker: BackgroundWorker;
  readonly #schedules = new Map<VolumeId, TrimSchedule>();
  readonly #paused = new Set<VolumeId>();
  #running: RunningTrim | undefined;

  /** Makes it; it does nothing before it sees a report. */
  constructor(options: TrimmerOptions) {
    this.#options = options;
    this.#exec = options.lvm.exec;
    this.#clock = options.clock ?? systemClock;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError: options.onError, clock: this.#clock });
  }

  /** Looks at a report: which volumes there are, and which of them are in use. */
  observe(groups: readonly VolumeGroup[]): void {
    const volumes = new Map(trimmedVolumes(groups, this.#options.driver).map((volume) => [volume.id, volume]));
    for (const id of [...this.#schedules.keys()]) if (!volumes.has(id)) this.#schedules.delete(id);
    for (const [id, volume] of volumes) {
      const schedule = this.#schedules.get(id);
      if (schedule !== undefined) schedule.volume = volume;
      else this.#schedules.set(id, { volume, dueAt: this.#nextDue(volume), failures: 0, unsupported: false });
    }
    if (!this.#worker.running) this.#armTimer();
  }

  /** When each volume was last trimmed, in seconds since 1970, of those that were. */
  lastSuccesses(): { volume: TrimmedVolume; at: number }[] {
    return [...this.#schedules.values()].flatMap(({ volume, lastSuccess: at }) =>
      at === undefined ? [] : [{ volume, at }]
    );
  }

  /**
   * Leaves a volume alone until the answer is disposed of, and ends what is being done to it: it is to be unmounted, and
   * fstrim has its mount open. The volume is trimmed when it is in use again.
   */
  async pause(id: VolumeId): Promise<Disposable> {
    this.#paused.add(id);
    if (this.#running?.id === id) {
      this.#running.controller.abort();
      await this.#running.done;
    }
    return { [Symbol.dispose]: () => void this.#paused.delete(id) };
  }

  /** Waits until nothing is being done. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work, and the fstrim that is running: the next one does what it left. */
  async stop(): Promise<void> {
    const stopped = this.#worker.stop();
    this.#running?.controller.abort();
    await stopped;
  }

  get #now(): number {
    return this.#clock.date().getTime();
  }

  #nextDue({ id, intervalMs }: TrimmedVolume): number {
    return nextTrimTime(id, intervalMs, this.#now);
  }

  #armTimer(): void {
    const ready = [...this.#schedules.values()].filter(isTrimmable);
    const sleepMs = Math.min(...ready.map(({ dueAt }) => dueAt)) - this.#now;
    this.#worker.wakeAfter(ready.length === 0 ? undefined : Math.min(MAX_SLEEP_MS, Math.max(0, sleepMs)));
  }

  async #pass(): Promise<void> {
    await this.#trimDue();
    this.#armTimer();
  }

  async #trimDue(): Promise<void> {
    const due = [...this.#schedules.values()].filter((schedule) =>
      isTrimmable(schedule) && schedule.dueAt <= this.#now
    );
    if (due.length === 0) return;
    for (const schedule of due) schedule.dueAt = Math.min(this.#nextDue(schedule.volume), this.#now + RETRY_MS); // if it is in vain
    try {
      await this.#options.lvm.report(); // the volumes as they are now come back by see()
      for (const schedule of due) await this.#trim(schedule);
    } catch (error) {
      this.#options.onError(error);
    }
  }

  /** Trims a volume, if that can still be done, as one that can be paused. */
  async #trim(schedule: TrimSchedule): Promise<void> {
    const { id } = schedule.volume;
    if (
      this.#worker.stopped || this.#paused.has(id) || this.#schedules.get(id) !== schedule || !isTrimmable(schedule)
    ) return;
    const { promise: done, resolve: finish } = Promise.withResolvers<void>();
    const controller = new AbortController();
    this.#running = { id, controller, done };
    try {
      await this.#attempt(schedule, controller.signal);
    } finally {
      this.#running = undefined;
      finish();
    }
  }

  async #attempt(schedule: TrimSchedule, signal: AbortSignal): Promise<void> {
    const { volume } = schedule;
    // read while it can be paused: what was its mount before may be a plain directory by now, of another filesystem
    const mount = filesystemMounts(await readMounts(this.#exec), volume.lv).find(({ readOnly }) => !readOnly);
    if (mount === undefined || signal.aborted) return;
    try {
      const bytes = await fstrim(this.#exec, mount.target, signal);
      schedule.dueAt = this.#nextDue(volume);
      if (bytes !== undefined) {
        Object.assign(schedule, { failures: 0, unsupported: false, lastSuccess: this.#now / 1000 });
        return this.#options.onTrimmed(volume, bytes);
      }
      if (!schedule.unsupported) this.#options.onTrimUnsupported(volume);
      schedule.unsupported = true;
    } catch (error) {
      if (signal.aborted) return;
      schedule.failures++;
      this.#options.onTrimFailed(volume, error instanceof Error ? error.message : String(error), schedule.failures);
    }
  }
}

/**
 * Whether a volume can be trimmed now. Under copy-on-write snapshots it cannot: the kernel takes no discards for a device
 * that is the origin of some (device-mapper's snapshot-origin), until they are gone. A suspended one would hang who asks it.
 */
function isTrimmable({ volume: { lv, group } }: TrimSchedule): boolean {
  const hasCowSnapshots = group.lvs.some(({ origin, pool }) => origin === lv.name && pool === undefined);
  return group.responsive && lv.open && !lv.suspended && !hasCowSnapshots;
}

/** The driver's volumes that are to be trimmed now and then. */
function trimmedVolumes(groups: readonly VolumeGroup[], driver: string): TrimmedVolume[] {
  return groups.flatMap((group) =>
    group.lvs.flatMap((lv) => {
      const tags = ownedVolumeId(driver, lv.tags) === undefined ? undefined : tagsOf(driver, lv);
      if (tags?.trim?.intervalMs === undefined || tags.copied !== undefined) return []; // nobody has one that is being filled
      return [{ id: tags.id, lv, group, intervalMs: tags.trim.intervalMs }];
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
  if (output.code !== 0 || bytes === undefined) throw commandError(command, output);
  return Number(bytes);
}
