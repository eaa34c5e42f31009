/**
 * A node's agent, whose reports and whose volumes are seen apart, as by two watches: any of its reports may be seen together with
 * any state of the objects. Beside what they say stands what was so.
 *
 * @module
 */

import type { LvmNode, LvmVolume, LvmVolumeStatus } from "../../k8s/api/lvm_objects.ts";
import { lvmVolumeFor } from "../../k8s/api/volume_mapping.ts";
import { formatQuantity } from "../../lvm/size.ts";
import { namedRequest } from "./request.ts";

/** Bytes of an extent. */
export const EXTENT = 4n << 20n;

/** Extents of the node's only group. */
const ALL = 16;

/** One thing that happens; what cannot happen now does not. */
export interface Step {
  /** Which kind of thing. */
  readonly kind: number;
  /** To which volume. */
  readonly which: number;
  /** How many extents are asked for. */
  readonly extents: number;
}

/** A report and a state of the objects that may be seen together, and what was so. Sizes are in extents. */
export interface View {
  /** The report. */
  readonly report: LvmNode;
  /** What was free when LVM was asked for it. */
  readonly free: number;
  /** The LVs of volumes that there were then, by the volume's name. */
  readonly counted: ReadonlyMap<string, number>;
  /** The objects. */
  readonly volumes: readonly LvmVolume[];
  /** What each of them is to have, by name. */
  readonly targets: ReadonlyMap<string, number>;
}

type Report = Pick<View, "report" | "free" | "counted">;
type State = Pick<View, "volumes" | "targets">;

/** A volume that was asked for. */
interface Live {
  object: LvmVolume;
  /** What it is to have, in extents. */
  target: number;
  /** Whether a pod had it: then its LV is erased before its space is free. */
  used: boolean;
}

/** An agent, step by step. */
export class RacingAgent {
  /** The volumes for which it had no room, to be made or to grow. */
  readonly refused: string[] = [];
  readonly #live = new Map<string, Live>();
  readonly #lvs = new Map<string, number>();
  readonly #history: string[] = [];
  readonly #reports: Report[] = [];
  readonly #states: State[] = [];
  /** What LVM said last, which may not have been written yet. */
  #survey: Report;
  #erasing = 0;
  #names = 0;
  /** The oldest report and state that may still be what somebody sees. */
  #oldest = { report: 0, state: 0 };

  /** Has told of its empty group. */
  constructor() {
    this.#survey = this.#look();
    this.#reports.push(this.#survey);
    this.#save();
  }

  /** What happened so far, for messages. */
  get history(): string {
    return this.#history.join(", ");
  }

  /** All pairs of a report and a state. */
  *views(): Generator<View> {
    for (const report of this.#reports) for (const state of this.#states) yield { ...report, ...state };
  }

  /** What somebody may see now who made all that was asked for. */
  view(chance: number): View {
    const reports = this.#reports.slice(this.#oldest.report);
    const states = this.#states.slice(this.#oldest.state);
    const state = states[Math.floor(chance / reports.length) % states.length]!;
    return { ...reports[chance % reports.length]!, ...state };
  }

  /** Has something happen. What is asked for has to be admitted. */
  step({ kind, which, extents }: Step, admits: (extents: number) => boolean): void {
    const names = [...this.#live.keys()];
    const name = names[which % names.length] ?? "";
    const steps: Record<string, (live: Live) => boolean> = {
      choose: (live) => this.#choose(live),
      "make LV of": (live) => this.#make(name, live),
      "grow LV of": (live) => this.#extend(name, live),
      tell: (live) => this.#tell(name, live),
      grow: (live) => live.object.status?.lvUUID !== undefined && admits(extents) && this.#grow(live, extents),
      use: (live) => live.object.status?.lvUUID !== undefined && (live.used = true),
      delete: (live) => this.#delete(live),
      remove: (live) => this.#remove(name, live),
    };
    const general: Record<string, () => boolean> = {
      ask: () => admits(extents) && this.#ask(extents),
      survey: () => (this.#survey = this.#look()) !== undefined,
      report: () => this.#reports.at(-1) !== this.#survey && this.#reports.push(this.#survey) > 0,
      erase: () => this.#erasing > 0 && (this.#erasing = 0) === 0,
    };
    const all = [...Object.entries(general), ...Object.entries(steps)];
    const [what, happens] = all[kind % all.length]!;
    const live = this.#live.get(name);
    if (what in general) {
      if (general[what]!()) this.#history.push(what === "ask" ? `ask v${this.#names - 1} ${extents}` : what);
    } else if (live !== undefined && happens(live)) {
      this.#history.push(`${what} ${live.object.spec.requestName}${what === "grow" ? ` ${extents}` : ""}`);
    }
  }

  get #free(): number {
    return ALL - this.#erasing - [...this.#lvs.values()].reduce((sum, extents) => sum + extents, 0);
  }

  #look(): Report {
    const counted = new Map(this.#lvs);
    const volumes = [...counted].map(([name, extents]) => ({ name, size: sizeOf(extents) }));
    const group = {
      ...{ name: "data", uuid: "u", size: sizeOf(ALL), free: sizeOf(this.#free), extentSize: sizeOf(1) },
      ...{ lvCount: 0, pvCount: 1, snapshotCount: 0, missingPVs: 0, writeable: true },
      volumes,
    };
    const report = { metadata: { name: "n" }, spec: { driverName: "d" }, status: { volumeGroups: [group] } };
    return { report, free: this.#free, counted };
  }

  /** Keeps the objects as they are now among the states that may be seen. */
  #save(): true {
    const live = [...this.#live];
    this.#states.push({
      volumes: live.map(([, { object }]) => structuredClone(object)),
      targets: new Map(live.map(([name, { target }]) => [name, target])),
    });
    return true;
  }

  #ask(extents: number): true {
    // a byte less than whole extents: what is asked for is rounded up
    const request = namedRequest(`v${this.#names++}`, BigInt(extents) * EXTENT - 1n);
    const object = lvmVolumeFor(request, { driver: "d", nodeName: "n" });
    object.metadata.generation = 1;
    this.#live.set(object.metadata.name, { object, target: extents, used: false });
    return this.#asked();
  }

  #grow(live: Live, extents: number): boolean {
    const { object } = live;
    if (object.metadata.deletionTimestamp !== undefined || object.status?.error !== undefined) return false;
    live.target += extents;
    object.spec.size = formatQuantity(BigInt(live.target) * EXTENT);
    object.metadata.generation!++;
    return this.#asked();
  }

  /** Who asked knows of it. */
  #asked(): true {
    this.#save();
    this.#oldest.state = this.#states.length - 1;
    return true;
  }

  #choose({ object }: Live): boolean {
    if (object.status !== undefined) return false;
    object.status = { state: "Pending", volumeGroup: "data" };
    return this.#save();
  }

  /** Also when it is being deleted: whoever makes it may not have seen that yet. */
  #make(name: string, live: Live): boolean {
    if (live.object.status?.state !== "Pending" || this.#lvs.has(name)) return false;
    if (live.target > this.#free) return this.#refuse(name, live, { ...live.object.status, state: "Failed" });
    this.#lvs.set(name, live.target);
    return true;
  }

  #extend(name: string, live: Live): boolean {
    const { object: { status }, target } = live;
    const has = this.#lvs.get(name) ?? target;
    if (status?.lvUUID === undefined || status.error !== undefined || has >= target) return false;
    if (status.size !== sizeOf(has)) {
      status.size = sizeOf(has); // it died before it could tell, and tells before it goes on
      return this.#save();
    }
    if (target - has > this.#free) return this.#refuse(name, live, status);
    this.#lvs.set(name, target);
    return true;
  }

  #refuse(name: string, live: Live, status: LvmVolumeStatus): true {
    this.refused.push(name);
    const error = { code: "NoSpace", message: "full" } as const;
    live.object.status = { ...status, observedGeneration: this.#observed(live), error };
    live.target = this.#lvs.get(name) ?? 0;
    return this.#save();
  }

  /** Says that the LV is there, once it is as large as it is to be. */
  #tell(name: string, live: Live): boolean {
    const { object } = live;
    if (this.#lvs.get(name) !== live.target || object.status?.error !== undefined) return false;
    const where = { volumeGroup: "data", lvUUID: name, size: sizeOf(live.target) };
    object.status = { state: "Ready", observedGeneration: this.#observed(live), ...where };
    return this.#save();
  }

  #observed({ object: { metadata: { generation = 0, deletionTimestamp } } }: Live): number {
    return deletionTimestamp === undefined ? generation : generation - 1;
  }

  #delete({ object: { metadata } }: Live): boolean {
    if (metadata.deletionTimestamp !== undefined) return false;
    metadata.deletionTimestamp = "now";
    metadata.generation!++;
    return this.#save();
  }

  /**
   * Removes the LV, and lets the object go. What was used is only to be erased; where reports and objects tell so little of it, a
   * report that has it must have been seen before.
   */
  #remove(name: string, live: Live): boolean {
    if (live.object.metadata.deletionTimestamp === undefined) return false;
    const has = this.#lvs.get(name) ?? 0;
    if (live.used && has > 0) {
      if (this.#reports.at(-1)!.counted.get(name) !== has) return false;
      this.#oldest.report = this.#reports.length - 1;
      this.#erasing += has;
    }
    this.#lvs.delete(name);
    this.#live.delete(name);
    return this.#save();
  }
}

function sizeOf(extents: number): string {
  return formatQuantity(BigInt(extents) * EXTENT);
}
