/**
 * A model of a node's agent. Its reports and its volumes are observed separately, as by two watches: any report may be observed
 * with any state of the objects. The model also returns the true state.
 *
 * @module
 */

import type { LvmNode, LvmVolume, LvmVolumeStatus } from "../../../k8s/api/lvm_objects.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import { formatQuantity } from "../../../base/size.ts";
import { namedRequest } from "../request.ts";

/** Bytes of an extent. */
export const EXTENT = 4n << 20n;

/** Extents of the node's only group. */
const TOTAL_EXTENTS = 16;

/** One thing that happens; what cannot happen now does not. */
export interface Step {
  /** The kind of the thing. */
  readonly kind: number;
  /** The number of the volume. */
  readonly which: number;
  /** The requested number of extents. */
  readonly extents: number;
}

/** A report and a state of the objects that may be observed together, and the true state. Sizes are in extents. */
export interface ObservedState {
  /** The report. */
  readonly report: LvmNode;
  /** The free extents when LVM was asked. */
  readonly free: number;
  /** The extents of the volumes' LVs at that time, by the volume's name. */
  readonly counted: ReadonlyMap<string, number>;
  /** The objects. */
  readonly volumes: readonly LvmVolume[];
  /** The target size of each volume, by name. */
  readonly targets: ReadonlyMap<string, number>;
}

type Report = Pick<ObservedState, "report" | "free" | "counted">;
type State = Pick<ObservedState, "volumes" | "targets">;

/** A requested volume. */
interface RequestedVolume {
  object: LvmVolume;
  /** The target size, in extents. */
  target: number;
  /** True if a pod had it. Then its LV is erased before its space is free. */
  wasPublished: boolean;
}

/** An agent, step by step. */
export class AgentModel {
  /** The volumes for which it had no space, to be created or to be expanded. */
  readonly refused: string[] = [];
  readonly #volumes = new Map<string, RequestedVolume>();
  readonly #lvs = new Map<string, number>();
  readonly #history: string[] = [];
  readonly #reports: Report[] = [];
  readonly #states: State[] = [];
  /** The latest report of LVM, which may not have been written yet. */
  #lastReport: Report;
  #erasingExtents = 0;
  #nextId = 0;
  /** The oldest report and state that an observer may still see. */
  #oldestVisible = { report: 0, state: 0 };

  /** Reports its empty group. */
  constructor() {
    this.#lastReport = this.#readReport();
    this.#reports.push(this.#lastReport);
    this.#saveState();
  }

  /** The events so far, for messages. */
  get history(): string {
    return this.#history.join(", ");
  }

  /** Yields all pairs of a report and a state. */
  *views(): Generator<ObservedState> {
    for (const report of this.#reports) for (const state of this.#states) yield { ...report, ...state };
  }

  /** Returns a state that the sender of all requests may observe now. */
  view(pick: number): ObservedState {
    const reports = this.#reports.slice(this.#oldestVisible.report);
    const states = this.#states.slice(this.#oldestVisible.state);
    const state = states[Math.floor(pick / reports.length) % states.length]!;
    return { ...reports[pick % reports.length]!, ...state };
  }

  /** Runs a step. Requests have to be admitted. */
  step({ kind, which, extents }: Step, admits: (extents: number) => boolean): void {
    const names = [...this.#volumes.keys()];
    const name = names[which % names.length] ?? "";
    const steps: Record<string, (requested: RequestedVolume) => boolean> = {
      choose: (requested) => this.#chooseGroup(requested),
      "make LV of": (requested) => this.#createLv(name, requested),
      "grow LV of": (requested) => this.#extendLv(name, requested),
      tell: (requested) => this.#writeStatus(name, requested),
      grow: (requested) =>
        requested.object.status?.lvUUID !== undefined && admits(extents) && this.#requestExpansion(requested, extents),
      use: (requested) => requested.object.status?.lvUUID !== undefined && (requested.wasPublished = true),
      delete: (requested) => this.#delete(requested),
      remove: (requested) => this.#remove(name, requested),
    };
    const general: Record<string, () => boolean> = {
      ask: () => admits(extents) && this.#requestVolume(extents),
      survey: () => (this.#lastReport = this.#readReport()) !== undefined,
      report: () => this.#reports.at(-1) !== this.#lastReport && this.#reports.push(this.#lastReport) > 0,
      erase: () => this.#erasingExtents > 0 && (this.#erasingExtents = 0) === 0,
    };
    const all = [...Object.entries(general), ...Object.entries(steps)];
    const [what, happens] = all[kind % all.length]!;
    const requested = this.#volumes.get(name);
    if (what in general) {
      if (general[what]!()) this.#history.push(what === "ask" ? `ask v${this.#nextId - 1} ${extents}` : what);
    } else if (requested !== undefined && happens(requested)) {
      this.#history.push(`${what} ${requested.object.spec.requestName}${what === "grow" ? ` ${extents}` : ""}`);
    }
  }

  get #free(): number {
    return TOTAL_EXTENTS - this.#erasingExtents - [...this.#lvs.values()].reduce((sum, extents) => sum + extents, 0);
  }

  #readReport(): Report {
    const counted = new Map(this.#lvs);
    const volumes = [...counted].map(([name, extents]) => ({ name, size: sizeOf(extents) }));
    const group = {
      ...{ name: "data", uuid: "u", size: sizeOf(TOTAL_EXTENTS), free: sizeOf(this.#free), extentSize: sizeOf(1) },
      ...{ lvCount: 0, pvCount: 1, snapshotCount: 0, missingPVCount: 0, writeable: true },
      volumes,
    };
    const report = { metadata: { name: "n" }, spec: { driverName: "d" }, status: { volumeGroups: [group] } };
    return { report, free: this.#free, counted };
  }

  /** Adds the present state of the objects to the states that may be observed. */
  #saveState(): true {
    const requested = [...this.#volumes];
    this.#states.push({
      volumes: requested.map(([, { object }]) => structuredClone(object)),
      targets: new Map(requested.map(([name, { target }]) => [name, target])),
    });
    return true;
  }

  #requestVolume(extents: number): true {
    // a byte less than whole extents, since requests are rounded up
    const request = namedRequest(`v${this.#nextId++}`, BigInt(extents) * EXTENT - 1n);
    const object = lvmVolumeFor(request, { driver: "d", nodeName: "n" });
    object.metadata.generation = 1;
    this.#volumes.set(object.metadata.name, { object, target: extents, wasPublished: false });
    return this.#markRequested();
  }

  #requestExpansion(requested: RequestedVolume, extents: number): boolean {
    const { object } = requested;
    if (object.metadata.deletionTimestamp !== undefined || object.status?.error !== undefined) return false;
    requested.target += extents;
    object.spec.size = formatQuantity(BigInt(requested.target) * EXTENT);
    object.metadata.generation!++;
    return this.#markRequested();
  }

  /** Notes that the requester knows of it. */
  #markRequested(): true {
    this.#saveState();
    this.#oldestVisible.state = this.#states.length - 1;
    return true;
  }

  #chooseGroup({ object }: RequestedVolume): boolean {
    if (object.status !== undefined) return false;
    object.status = { state: "Pending", volumeGroup: "data" };
    return this.#saveState();
  }

  /** Creates the LV of a volume, also while it is being deleted: the node may not have observed the deletion yet. */
  #createLv(name: string, requested: RequestedVolume): boolean {
    if (requested.object.status?.state !== "Pending" || this.#lvs.has(name)) return false;
    if (requested.target > this.#free) {
      return this.#fail(name, requested, { ...requested.object.status, state: "Failed" });
    }
    this.#lvs.set(name, requested.target);
    return true;
  }

  #extendLv(name: string, requested: RequestedVolume): boolean {
    const { object: { status }, target } = requested;
    const currentExtents = this.#lvs.get(name) ?? target;
    if (status?.lvUUID === undefined || status.error !== undefined || currentExtents >= target) return false;
    if (status.size !== sizeOf(currentExtents)) {
      status.size = sizeOf(currentExtents); // it crashed before it reported the size, and reports it before it continues
      return this.#saveState();
    }
    if (target - currentExtents > this.#free) return this.#fail(name, requested, status);
    this.#lvs.set(name, target);
    return true;
  }

  #fail(name: string, requested: RequestedVolume, status: LvmVolumeStatus): true {
    this.refused.push(name);
    const error = { code: "NoSpace", message: "full" } as const;
    requested.object.status = { ...status, observedGeneration: this.#observed(requested), error };
    requested.target = this.#lvs.get(name) ?? 0;
    return this.#saveState();
  }

  /** Says that the LV is there, once it is as large as it is to be. */
  #writeStatus(name: string, requested: RequestedVolume): boolean {
    const { object } = requested;
    if (this.#lvs.get(name) !== requested.target || object.status?.error !== undefined) return false;
    const where = { volumeGroup: "data", lvUUID: name, size: sizeOf(requested.target) };
    object.status = { state: "Ready", observedGeneration: this.#observed(requested), ...where };
    return this.#saveState();
  }

  #observed({ object: { metadata: { generation = 0, deletionTimestamp } } }: RequestedVolume): number {
    return deletionTimestamp === undefined ? generation : generation - 1;
  }

  #delete({ object: { metadata } }: RequestedVolume): boolean {
    if (metadata.deletionTimestamp !== undefined) return false;
    metadata.deletionTimestamp = "now";
    metadata.generation!++;
    return this.#saveState();
  }

  /**
   * Removes the LV and the object. The LV of a published volume is erased first. Reports and objects do not show that, so a report
   * that has the LV must have been observed before.
   */
  #remove(name: string, requested: RequestedVolume): boolean {
    if (requested.object.metadata.deletionTimestamp === undefined) return false;
    const currentExtents = this.#lvs.get(name) ?? 0;
    if (requested.wasPublished && currentExtents > 0) {
      if (this.#reports.at(-1)!.counted.get(name) !== currentExtents) return false;
      this.#oldestVisible.report = this.#reports.length - 1;
      this.#erasingExtents += currentExtents;
    }
    this.#lvs.delete(name);
    this.#volumes.delete(name);
    return this.#saveState();
  }
}

function sizeOf(extents: number): string {
  return formatQuantity(BigInt(extents) * EXTENT);
}
