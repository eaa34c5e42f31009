/**
 * Runs fstrim(8) periodically on the volumes whose class requests it: on one at a time, and only while they are
 * mounted.
 *
 * The trimmer observes the reports that are read anyway to find these volumes and those in use. Without such volumes it
 * does nothing. A pass reads a report, and for each volume that is due it reads the mount table and runs fstrim.
 *
 * Nothing is recorded. The time when a volume is due is computed from its id and the current time ({@linkcode
 * nextTrimTime}). So the volumes of a machine are due at different times, also after a start of the driver. A volume
 * that is not in use when it is due is trimmed as soon as it is in use.
 *
 * @module
 */

import { ignoreStorageError, messageOf } from "../../base/error.ts";
import { type LogicalVolume, lvsOf, type VolumeGroup } from "../model/report.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { type Command, commandError, type Exec } from "../exec.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Lvm } from "../client/client.ts";
import { filesystemMounts, readMounts } from "../host/mounts.ts";
import { cowSnapshotsOn } from "../pools/pool.ts";
import { ownedVolumeId, parseVolumeTags } from "../model/tags.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { nextTrimTime } from "../settings/trim.ts";
import { BackgroundWorker } from "../../base/worker.ts";

/** A volume that is trimmed periodically. */
export interface TrimmedVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its LV. */
  readonly lv: LogicalVolume;
  /** The group that the LV is in. */
  readonly group: VolumeGroup;
  /** The interval in milliseconds. */
  readonly intervalMs: number;
}

/** Listener to the results of fstrim. */
export interface TrimListener {
  /** Called after fstrim discarded a number of bytes. */
  readonly onTrimmed: (volume: TrimmedVolume, bytes: number) => void;
  /** Called after fstrim failed, with the number of failures in a row. The trimmer tries again within the hour. */
  readonly onTrimFailed: (volume: TrimmedVolume, why: string, failures: number) => void;
  /** Called when the device of the volume does not support discards. Called once until fstrim succeeds. */
  readonly onTrimUnsupported: (volume: TrimmedVolume) => void;
}

/** Options of {@linkcode Trimmer}. */
export interface TrimmerOptions extends TrimListener {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** The driver's name: whose volumes these are. */
  readonly driver: string;
  /** Called with each error other than those of fstrim. The trimmer tries again within the hour. */
  readonly onError: (error: unknown) => void;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

/** The state of a volume between its trims. */
interface TrimSchedule {
  /** The volume, according to the last report. */
  volume: TrimmedVolume;
  /** The time from which on it is due, in milliseconds since 1970. */
  dueAt: number;
  /** The number of failures in a row. */
  failures: number;
  /** The time of the last success, in seconds since 1970. */
  lastSuccess?: number;
  /** True if the listener was called because its device does not support discards. */
  unsupported: boolean;
}

/** The fstrim that is running. */
interface RunningTrim {
  readonly id: VolumeId;
  readonly controller: AbortController;
  readonly done: Promise<void>;
}

/** The deadline of fstrim in milliseconds. It searches the whole filesystem. */
const DEADLINE_MS = 1_800_000;

/** The longest delay until a volume is due again after a trim that did not succeed, in milliseconds. */
const RETRY_MS = 3_600_000;

/** The longest delay of the timer in milliseconds. Timers support at most 24 days. */
const MAX_SLEEP_MS = 86_400_000;

/** The background worker that trims the volumes of one driver on this machine. */
export class Trimmer {
  readonly #options: TrimmerOptions;
  readonly #exec: Exec;
  readonly #clock: Clock;
  readonly #worker: BackgroundWorker;
  readonly #schedules = new Map<VolumeId, TrimSchedule>();
  readonly #paused = new Set<VolumeId>();
  #running: RunningTrim | undefined;

  /** Creates the trimmer. It does nothing before it observes a report. */
  constructor(options: TrimmerOptions) {
    this.#options = options;
    this.#exec = options.lvm.exec;
    this.#clock = options.clock ?? systemClock;
    this.#worker = new BackgroundWorker({ pass: () => this.#pass(), onError: options.onError, clock: this.#clock });
  }

  /** Observes a report, which shows the volumes to trim and those in use. */
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

  /**
   * Returns the times at which volumes were last trimmed by this process.
   *
   * @returns the volumes, each with its time in seconds since 1970
   */
  lastSuccesses(): { volume: TrimmedVolume; at: number }[] {
    return [...this.#schedules.values()].flatMap(({ volume, lastSuccess: at }) =>
      at === undefined ? [] : [{ volume, at }]
    );
  }

  /**
   * Pauses the trimming of a volume, and ends a running fstrim of it. Called before the volume is unmounted, because
   * fstrim has its mount open. The volume is trimmed when it is in use again.
   *
   * @returns a resource that ends the pause when it is disposed of
   */
  async pause(id: VolumeId): Promise<Disposable> {
    this.#paused.add(id);
    if (this.#running?.id === id) {
      this.#running.controller.abort();
      await this.#running.done;
    }
    return { [Symbol.dispose]: () => void this.#paused.delete(id) };
  }

  /** Waits until no background work is running. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work, and ends a running fstrim. The next fstrim trims what is left. */
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
    // A trim that succeeds sets the time again.
    for (const schedule of due) schedule.dueAt = Math.min(this.#nextDue(schedule.volume), this.#now + RETRY_MS);
    try {
      await this.#options.lvm.report(); // The report updates the schedules through observe().
      for (const schedule of due) await this.#trim(schedule);
    } catch (error) {
      this.#options.onError(error);
    }
  }

  /** Trims a volume, unless it cannot be trimmed any more. The trim can be paused. */
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
    // Read while pause() can end the trim: a former mount point may be a directory of another filesystem.
    const mount = filesystemMounts(await readMounts(this.#exec), contentDevice(volume.lv)).find(({ readOnly }) =>
      !readOnly
    );
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
      this.#options.onTrimFailed(volume, messageOf(error), schedule.failures);
    }
  }
}

/**
 * Reports whether a volume can be trimmed now. The origin of COW snapshots cannot: device-mapper's snapshot-origin
 * accepts no discards. Any access to a suspended device would hang.
 */
function isTrimmable({ volume: { lv, group } }: TrimSchedule): boolean {
  const hasCowSnapshots = cowSnapshotsOn({ lv, group }).length > 0;
  return group.responsive && lv.open && !lv.suspended && !hasCowSnapshots;
}

/** Returns the driver's volumes that are trimmed periodically. */
function trimmedVolumes(groups: readonly VolumeGroup[], driver: string): TrimmedVolume[] {
  return lvsOf(groups).filter(({ lv }) => ownedVolumeId(driver, lv.tags) !== undefined).flatMap(({ group, lv }) => {
    // the inventory reports tags that cannot be read
    const tags = ignoreStorageError(() => parseVolumeTags(driver, lv.tags));
    if (tags?.trim?.intervalMs === undefined || tags.copied !== undefined) return []; // A copy is not in use yet.
    return [{ id: tags.id, lv, group, intervalMs: tags.trim.intervalMs }];
  });
}

/**
 * Runs fstrim on a mounted filesystem.
 *
 * The command counts as one that changes nothing, so it is killed at its deadline: blocks that are not discarded stay
 * as they are.
 *
 * @returns the discarded bytes, or `undefined` when the device does not support discards
 * @throws {StorageError} `CommandFailed`; `Unavailable` after the deadline or when the signal is aborted.
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
