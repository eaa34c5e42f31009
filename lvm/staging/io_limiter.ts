/**
 * Applies the IO limits of volumes to pods: in the cgroup of each pod, for the device of each volume that the pod uses.
 *
 * A limit is set when a volume is published, before the pod's containers start. If the pod's cgroup is created later,
 * the limiter waits for it. It checks limits that are set periodically. It reads from the mount table which pods use
 * which volumes, so no state is lost with a restart. On a machine without limited volumes it runs no command.
 *
 * @module
 */

import { mountsOf, readMounts } from "../host/mounts.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type LimitResult, type LimitsReason, PodCgroups } from "./cgroups.ts";
import { StorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import { describeRates, hasLimits, type IoLimits, type IoRates, ratesFor } from "../settings/io_limits.ts";
import type { Lvm } from "../client/client.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { BackgroundWorker } from "../../base/worker.ts";

/** State of a volume's limits, for all pods that use the volume. */
export interface LimitsState {
  /** True if the limits are applied. */
  readonly applied: boolean;
  /** The reason, as one word. */
  readonly reason: LimitsReason;
  /** The reason, as a sentence. */
  readonly message: string;
}

/** Settings of the IO limits on a machine. */
export interface IoLimiterSettings {
  /**
   * The mount point of a cgroup v2 hierarchy. Without it, limits are not applied, and their state names that reason.
   */
  readonly cgroupRoot?: string | undefined;
  /** Returns the limits of a volume; by default those in its tags. */
  readonly limitsOf?: (volume: Volume) => IoLimits;
  /** Returns the limits of a group, for limits that its volumes do not set; by default none. */
  readonly defaults?: (group: string) => IoLimits;
  /** Called when the state of a volume's limits changed; with `undefined` once no pod uses the volume. */
  readonly onLimitsChanged?: (id: VolumeId, state: LimitsState | undefined) => void;
  /**
   * The first delay until a missing cgroup is searched again, in milliseconds; a second by default. It doubles each
   * time, up to `refreshMs`.
   */
  readonly retryMs?: number;
  /** The time for which a cgroup may be missing before the state changes, in milliseconds; half a minute by default. */
  readonly graceMs?: number;
  /** The interval at which limits are checked, in milliseconds; a minute by default. */
  readonly refreshMs?: number;
}

/** Options of {@linkcode IoLimiter}. */
export interface IoLimiterOptions extends IoLimiterSettings {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly volumes: VolumeFinder;
  /** Called with each error. The limiter tries again later. */
  readonly onError: (error: unknown) => void;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

const RETRY_MS = 1_000;
const GRACE_MS = 30_000;
const REFRESH_MS = 60_000;

/** A limited volume that pods use. */
export interface LimitedVolume {
  /** The name of its group. */
  readonly group: string;
  /** The name of its LV. */
  readonly lv: string;
  /** True if its limits are applied. */
  readonly applied: boolean;
  /** Its limits. */
  readonly rates: IoRates;
}

/** The use of a limited volume by pods. */
interface VolumeUse {
  /** The volume, according to the last report. */
  readonly volume: Volume;
  /** The targets at which it is published. */
  readonly targets: Set<string>;
  /** The time since when a cgroup is missing, by the clock's `now()`. */
  waitingSince?: number | undefined;
  /** The limits of each pod; absent while they cannot be read. */
  rates?: IoRates;
}

/**
 * Returns the uid of the pod to which a target of kubelet belongs. A block volume is published outside the pods'
 * directories (Kubernetes, pkg/volume/csi, csi_block.go).
 *
 * @returns the uid, or `undefined` for a path that is not a target of kubelet
 */
export function podUidOf(target: string): string | undefined {
  return (FILESYSTEM_TARGET.exec(target) ?? DEVICE_TARGET.exec(target))?.[1];
}

const FILESYSTEM_TARGET = /\/pods\/([0-9A-Za-z-]{1,63})\/volumes\/kubernetes\.io~csi\/[^/]+\/mount$/;
const DEVICE_TARGET = /\/plugins\/kubernetes\.io\/csi\/volumeDevices\/publish\/[^/]+\/([0-9A-Za-z-]{1,63})$/;

/** The background worker that applies the IO limits of volumes to pods. */
export class IoLimiter {
  readonly #options: IoLimiterOptions;
  readonly #clock: Clock;
  readonly #cgroups: PodCgroups | undefined;
  readonly #worker: BackgroundWorker;
  readonly #uses = new Map<VolumeId, VolumeUse>();
  readonly #states = new Map<VolumeId, LimitsState>();
  #scanDue = false;
  #retries = 0;

  /** Creates the limiter. It does nothing before a volume is published, or {@linkcode wake}. */
  constructor(options: IoLimiterOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#worker = new BackgroundWorker({
      pass: () => this.#pass(),
      onError: (error) => {
        this.#scanDue = true;
        options.onError(error);
        this.#schedule();
      },
      clock: this.#clock,
    });
    this.#cgroups = options.cgroupRoot === undefined ? undefined : new PodCgroups(options.cgroupRoot);
  }

  /** Returns the state of a volume's limits, or `undefined` when it has none, or no pod uses it. */
  stateOf(id: VolumeId): LimitsState | undefined {
    return this.#states.get(id);
  }

  /** Returns the limited volumes that pods use. It leaves out volumes whose limits cannot be read. */
  limitedVolumes(): LimitedVolume[] {
    return [...this.#uses.values()].flatMap(({ volume: { id, group, lv }, rates }) => {
      const applied = this.#states.get(id)?.applied ?? false;
      return rates === undefined ? [] : [{ group: group.name, lv: lv.name, applied, rates }];
    });
  }

  /**
   * Applies the limits of a volume to a pod, as far as that is possible now. Problems appear in {@linkcode stateOf}.
   *
   * @param volume the volume that was published
   * @param target the path at which it was published
   */
  async onPublished(volume: Volume, target: string): Promise<void> {
    if (this.#worker.running) this.#scanDue = true; // The running pass may have read an older mount table.
    if (!this.#isLimited(volume)) return;
    const targets = this.#uses.get(volume.id)?.targets ?? new Set<string>();
    const use = { volume, targets: targets.add(target) };
    this.#uses.set(volume.id, use);
    await this.#apply(use);
    this.#retries = 0;
    this.#schedule();
  }

  /**
   * Forgets a target at which a volume was published.
   *
   * @param target the path from which the volume was unpublished
   */
  onUnpublished(id: VolumeId, target: string): void {
    if (this.#worker.running) this.#scanDue = true;
    const use = this.#uses.get(id);
    if (use === undefined || !use.targets.delete(target) || use.targets.size > 0) return;
    this.#uses.delete(id);
    this.#setState(id, undefined);
    this.#schedule();
  }

  /**
   * Finds the pods that use limited volumes, and applies the limits. Called at the start, and after limits or sizes
   * changed.
   */
  wake(): void {
    this.#scanDue = true;
    this.#retries = 0;
    this.#worker.wake();
  }

  /** Waits until no background work is running. */
  idle(): Promise<void> {
    return this.#worker.idle();
  }

  /** Stops the background work. Limits that are set stay. */
  stop(): Promise<void> {
    return this.#worker.stop();
  }

  async #pass(): Promise<void> {
    while (this.#scanDue && !this.#worker.stopped) {
      this.#scanDue = false;
      await this.#scanMounts();
    }
    for (const use of [...this.#uses.values()]) await this.#apply(use);
    if (this.#scanDue) this.#worker.wake(); // a volume was published or unpublished while limits were applied
    else this.#schedule();
  }

  async #scanMounts(): Promise<void> {
    const { lvm, volumes } = this.#options;
    const limited = volumes.list(await lvm.report()).filter((volume) => this.#isLimited(volume));
    const mounts = limited.length === 0 ? [] : await readMounts(lvm.exec);
    const uses = limited.map((volume) => {
      const targets = mountsOf(mounts, contentDevice(volume.lv)).map(({ target }) => target).filter((target) =>
        podUidOf(target) !== undefined
      );
      return { volume, targets: new Set(targets) };
    }).filter(({ targets }) => targets.size > 0);
    if (this.#scanDue) return; // A volume was published or unpublished meanwhile, so this is read again.
    const unused = [...this.#uses.keys()].filter((id) => !uses.some(({ volume }) => volume.id === id));
    for (const id of unused) {
      this.#uses.delete(id);
      this.#setState(id, undefined);
    }
    for (const use of uses) this.#uses.set(use.volume.id, use);
  }

  async #apply(use: VolumeUse): Promise<void> {
    const { volume, targets } = use;
    const { graceMs = GRACE_MS } = this.#options;
    let state: LimitsState | undefined;
    let waitingTarget: string | undefined;
    try {
      const rates = use.rates = ratesFor(this.#limits(volume), volume.size);
      for (const target of targets) {
        const result = await this.#limit(target, volume, rates);
        if (result.state === "waiting") waitingTarget ??= target;
        if (result.state !== "refused") continue;
        const { reason, message } = result;
        state ??= { applied: false, reason, message };
      }
      state ??= { applied: true, reason: "Applied", message: `each pod is held to ${describeRates(rates)}` };
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      state = { applied: false, reason: error.kind, message: error.message };
    }
    if (this.#uses.get(volume.id) !== use) return; // A newer use reports the state.
    use.waitingSince = waitingTarget === undefined ? undefined : use.waitingSince ?? this.#clock.now();
    if (state.applied && waitingTarget !== undefined) {
      if (this.#clock.now() - use.waitingSince! < graceMs) return;
      const message = `pod ${
        podUidOf(waitingTarget)
      } has no cgroup below ${this.#cgroups?.root}, where kubelet's kubepods should be`;
      state = { applied: false, reason: "NoPodCgroup", message };
    }
    this.#setState(volume.id, state);
  }

  async #limit(target: string, { lv }: Volume, rates: IoRates): Promise<LimitResult> {
    const pod = podUidOf(target);
    if (pod === undefined) {
      const message = `${target} is not a target of kubelet, so there is no pod to limit`;
      return { state: "refused", reason: "NotAPod", message };
    }
    if (this.#cgroups === undefined) {
      const message = "the mount point of cgroup v2 is not configured (--cgroup-root)";
      return { state: "refused", reason: "NoCgroupRoot", message };
    }
    // A published volume is active, so it has a device number.
    return await this.#cgroups.limit(pod, lv.deviceNumber!, rates);
  }

  #isLimited(volume: Volume): boolean {
    try {
      return hasLimits(this.#limits(volume));
    } catch (error) {
      if (error instanceof StorageError) return true; // The error is reported when the limits are applied.
      throw error;
    }
  }

  #limits(volume: Volume): IoLimits {
    const { limitsOf = ({ tags }) => tags.limits ?? {}, defaults = () => ({}) } = this.#options;
    return { ...defaults(volume.group.name), ...limitsOf(volume) };
  }

  #setState(id: VolumeId, state: LimitsState | undefined): void {
    const before = this.#states.get(id);
    if (before?.reason === state?.reason && before?.message === state?.message) return;
    if (state === undefined) this.#states.delete(id);
    else this.#states.set(id, state);
    this.#options.onLimitsChanged?.(id, state);
  }

  /**
   * Schedules the next pass: soon while a cgroup is missing, after `refreshMs` while any volume is limited, or else
   * never.
   */
  #schedule(): void {
    const { retryMs = RETRY_MS, refreshMs = REFRESH_MS } = this.#options;
    const missing = this.#scanDue || [...this.#uses.values()].some(({ waitingSince }) => waitingSince !== undefined);
    if (!missing && this.#uses.size === 0) return this.#worker.wakeAfter(undefined);
    const ms = missing ? Math.min(retryMs * 2 ** this.#retries++, refreshMs) : refreshMs;
    if (!missing) this.#retries = 0;
    this.#worker.wakeAfter(ms);
  }
}
