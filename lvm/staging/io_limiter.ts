/**
 * Holds the IO of pods to the limits of their volumes: each pod by its cgroup, for the device of each volume that it has.
 *
 * A limit is set before a pod's containers start, when the volume is published to it. Where the pod's cgroup comes later it
 * is waited for, and what is set is looked at again from time to time. Which pods have which volumes is read from the mount
 * table, so a start over costs nothing; a machine without limited volumes costs no command.
 *
 * @module
 */

import { type Clock, systemClock } from "../clock.ts";
import { type LimitResult, type LimitsReason, PodCgroups } from "./cgroups.ts";
import { StorageError } from "../error.ts";
import type { VolumeId } from "../ids.ts";
import { describeRates, hasLimits, type IoLimits, type IoRates, ratesFor } from "../spec/io_limits.ts";
import type { Lvm } from "../model/client.ts";
import { deviceMounts, filesystemMounts, readMounts } from "../host/mounts.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { BackgroundWorker } from "../worker.ts";

/** Whether the limits of a volume hold for the pods that have it. */
export interface LimitsState {
  /** Whether they do. */
  readonly applied: boolean;
  /** Why, in one word. */
  readonly reason: LimitsReason;
  /** Why, in a sentence. */
  readonly message: string;
}

/** How limits are applied on a machine. */
export interface IoLimiterSettings {
  /** Where a cgroup v2 hierarchy is mounted; without one nothing can be limited, and that is told. */
  readonly cgroupRoot?: string | undefined;
  /** What is said of a volume's limits; by default what its tags say. */
  readonly limitsOf?: (volume: Volume) => IoLimits;
  /** What holds for volumes of a group where nothing is said of them; nothing by default. */
  readonly defaults?: (group: string) => IoLimits;
  /** Is told what has become of a volume's limits; `undefined` when no pod has it any more. */
  readonly onChange?: (id: VolumeId, state: LimitsState | undefined) => void;
  /** When a cgroup that is not there is looked for again, in milliseconds: first after a second, later less often. */
  readonly retryMs?: number;
  /** How long a cgroup may be missing before that is told, in milliseconds; half a minute by default. */
  readonly graceMs?: number;
  /** How often what is set is looked at, in milliseconds; a minute by default. */
  readonly refreshMs?: number;
}

/** What {@linkcode IoLimiter} needs. */
export interface IoLimiterOptions extends IoLimiterSettings {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly volumes: VolumeFinder;
  /** Called with what failed; it is tried again later. */
  readonly onError: (error: unknown) => void;
  /** The clock; the machine's by default. */
  readonly clock?: Clock;
}

const RETRY_MS = 1_000;
const GRACE_MS = 30_000;
const REFRESH_MS = 60_000;

/** A limited volume that pods have. */
export interface LimitedVolume {
  /** Its group. */
  readonly group: string;
  /** The name of its LV. */
  readonly lv: string;
  /** Whether its limits hold. */
  readonly applied: boolean;
  /** Its limits. */
  readonly rates: IoRates;
}

/** A limited volume in use. */
interface VolumeUse {
  /** The volume, as it was last seen. */
  readonly volume: Volume;
  /** Where it is published. */
  readonly targets: Set<string>;
  /** Since when a cgroup is waited for, by this process's clock. */
  waitingSince?: number | undefined;
  /** What its pods are held to; not known while what is said of it cannot be read. */
  rates?: IoRates;
}

/**
 * The uid of the pod that a target of kubelet's belongs to; `undefined` for other paths. A block volume is published beside
 * the pods' folders (Kubernetes, pkg/volume/csi, csi_block.go).
 */
export function podUidOf(target: string): string | undefined {
  return (FILESYSTEM_TARGET.exec(target) ?? DEVICE_TARGET.exec(target))?.[1];
}

const FILESYSTEM_TARGET = /\/pods\/([0-9A-Za-z-]{1,63})\/volumes\/kubernetes\.io~csi\/[^/]+\/mount$/;
const DEVICE_TARGET = /\/plugins\/kubernetes\.io\/csi\/volumeDevices\/publish\/[^/]+\/([0-9A-Za-z-]{1,63})$/;

/** Holds the IO of pods to the limits of their volumes. */
export class IoLimiter {
  readonly #options: IoLimiterOptions;
  readonly #clock: Clock;
  readonly #cgroups: PodCgroups | undefined;
  readonly #worker: BackgroundWorker;
  readonly #uses = new Map<VolumeId, VolumeUse>();
  readonly #states = new Map<VolumeId, LimitsState>();
  #scanDue = false;
  #retries = 0;

  /** Makes it; nothing is done until something is published, or {@linkcode wake}. */
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

  /** What has become of a volume's limits; `undefined` when it has none, or no pod has it. */
  stateOf(id: VolumeId): LimitsState | undefined {
    return this.#states.get(id);
  }

  /** The limited volumes that pods have, whether their limits hold, and what they are; without those that cannot be read. */
  limitedVolumes(): LimitedVolume[] {
    return [...this.#uses.values()].flatMap(({ volume: { id, group, lv }, rates }) => {
      const applied = this.#states.get(id)?.applied ?? false;
      return rates === undefined ? [] : [{ group: group.name, lv: lv.name, applied, rates }];
    });
  }

  /** Limits a pod to which a volume was published, as far as that can be done now. It does not fail. */
  async onPublished(volume: Volume, target: string): Promise<void> {
    if (this.#worker.running) this.#scanDue = true; // what is being read may be from before
    if (!this.#isLimited(volume)) return;
    const targets = this.#uses.get(volume.id)?.targets ?? new Set<string>();
    const use = { volume, targets: targets.add(target) };
    this.#uses.set(volume.id, use);
    await this.#apply(use);
    this.#retries = 0;
    this.#schedule();
  }

  /** Forgets a pod from which a volume was taken. */
  onUnpublished(id: VolumeId, target: string): void {
    if (this.#worker.running) this.#scanDue = true;
    const use = this.#uses.get(id);
    if (use === undefined || !use.targets.delete(target) || use.targets.size > 0) return;
    this.#uses.delete(id);
    this.#setState(id, undefined);
    this.#schedule();
  }

  /** Looks who has limited volumes, and limits them; to be called at the start, and when limits or sizes changed. */
  wake(): void {
    this.#scanDue = true;
    this.#retries = 0;
    this.#worker.wake();
  }

  /** Waits until nothing is being done. */
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
      const ours = [...filesystemMounts(mounts, volume.lv), ...deviceMounts(mounts, volume.lv)];
      const targets = ours.map(({ target }) => target).filter((target) => podUidOf(target) !== undefined);
      return { volume, targets: new Set(targets) };
    }).filter(({ targets }) => targets.size > 0);
    if (this.#scanDue) return; // something came between: it is read anew
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
    if (this.#uses.get(volume.id) !== use) return; // it is another one's to tell by now
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
      const message = `${target} is not a target of kubelet's, so there is no pod to limit`;
      return { state: "refused", reason: "NotAPod", message };
    }
    if (this.#cgroups === undefined) {
      const message = "the driver was not told where cgroup v2 is mounted (--cgroup-root)";
      return { state: "refused", reason: "NoCgroupRoot", message };
    }
    // published, so it is active
    return await this.#cgroups.limit(pod, lv.deviceNumber!, rates);
  }

  #isLimited(volume: Volume): boolean {
    try {
      return hasLimits(this.#limits(volume));
    } catch (error) {
      if (error instanceof StorageError) return true; // what cannot be read is told when it is applied
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
    this.#options.onChange?.(id, state);
  }

  /** Sees to the next pass: soon while something is missing, in a while as long as something is limited. */
  #schedule(): void {
    const { retryMs = RETRY_MS, refreshMs = REFRESH_MS } = this.#options;
    const missing = this.#scanDue || [...this.#uses.values()].some(({ waitingSince }) => waitingSince !== undefined);
    if (!missing && this.#uses.size === 0) return this.#worker.wakeAfter(undefined);
    const ms = missing ? Math.min(retryMs * 2 ** this.#retries++, refreshMs) : refreshMs;
    if (!missing) this.#retries = 0;
    this.#worker.wakeAfter(ms);
  }
}
