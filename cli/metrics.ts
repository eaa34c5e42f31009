/**
 * The metrics of a process, in the text format of Prometheus.
 *
 * @module
 */

import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { CompletedCall } from "../csi/service.ts";
import type { ReconcileResult } from "../k8s/runtime/controller.ts";
import type { LimitedVolume } from "../lvm/staging/io_limiter.ts";
import { isRaid, redundancyOf } from "../lvm/model/redundancy.ts";
import type { LogicalVolume, PhysicalVolume } from "../lvm/model/report.ts";
import type { ReadOnlyFilesystem } from "../lvm/health/read_only_filesystems.ts";
import type { SurveyedGroup } from "../lvm/model/survey.ts";
import { allocatedVirtual, availableVirtual, isDamaged, poolsOf } from "../lvm/pools/pool.ts";
import type { TrimmedVolume } from "../lvm/staging/trimmer.ts";
import { defined } from "../lvm/defined.ts";

/** Buckets in seconds: calls that only read take some milliseconds, an LVM command tenths of a second. */
const DURATION_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** Counters of fstrim. */
export interface TrimCounters {
  /** Counts the bytes that a successful fstrim discarded. */
  readonly succeeded: (bytes: number) => void;
  /** Counts a failed fstrim. */
  readonly failed: () => void;
}

/** A metric, as it is registered. */
export interface MetricDescription {
  readonly name: string;
  /** Its type in the format of Prometheus, such as `gauge`. */
  readonly type: string;
  readonly labels: readonly string[];
  readonly help: string;
}

/** The metrics of a process. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #calls: Histogram<"method" | "code">;
  readonly #reconciles: Histogram<"controller" | "result">;
  readonly #requests: Counter<"verb" | "resource" | "code">;
  readonly #queueDepths: Gauge<"controller">;
  readonly #droppedEvents: Counter;

  /**
   * Creates the metrics that every process has.
   *
   * @param options.process whether to include the metrics of the process itself, `process_*`
   */
  constructor({ process = true } = {}) {
    const registers = [this.#registry];
    this.#calls = new Histogram({
      name: "denolith_csi_operation_duration_seconds",
      help: "Duration of CSI calls, by method and gRPC status code",
      labelNames: ["method", "code"],
      buckets: DURATION_BUCKETS,
      registers,
    });
    this.#reconciles = new Histogram({
      name: "denolith_reconcile_duration_seconds",
      help: "Duration of reconciles, by controller and result",
      labelNames: ["controller", "result"],
      buckets: DURATION_BUCKETS,
      registers,
    });
    this.#requests = new Counter({
      name: "denolith_api_requests_total",
      help: "Requests to the API server, by HTTP status; 0 without a response",
      labelNames: ["verb", "resource", "code"],
      registers,
    });
    this.#queueDepths = this.#gauge("denolith_workqueue_depth", "Keys that wait for a worker of the controller", [
      "controller",
    ]);
    this.#droppedEvents = new Counter({
      name: "denolith_events_dropped_total",
      help: "Kubernetes events that were not written, because too many were recorded",
      registers,
    });
    if (process) this.#registerProcess();
  }

  /** Called after a CSI call was answered. */
  readonly onCallCompleted = ({ method, code, durationMs }: CompletedCall): void => {
    this.#calls.observe({ method, code: String(code) }, durationMs / 1000);
  };

  /** Called after a controller reconciled a key. */
  readonly onReconciled = ({ controller, ms, error }: ReconcileResult): void => {
    this.#reconciles.observe({ controller, result: error === undefined ? "success" : "error" }, ms / 1000);
  };

  /** Called after the API server answered a request. @param status the HTTP status, 0 without a response */
  readonly onRequest = (verb: string, resource: string, status: number): void => {
    this.#requests.inc({ verb, resource, code: String(status) });
  };

  /** Called for each Kubernetes event that is not written, because it would exceed a limit. */
  readonly onEventDropped = (): void => {
    this.#droppedEvents.inc();
  };

  /** Called after the number of keys that wait for a worker of a controller changed. */
  readonly onDepth = (controller: string, depth: number): void => {
    this.#queueDepths.set({ controller }, depth);
  };

  /** Registers the metrics of volume groups. @param lastSurvey called on each scrape */
  registerGroups(lastSurvey: () => readonly SurveyedGroup[]): void {
    const perGroup: [string, string, (group: SurveyedGroup) => number][] = [
      ["size_bytes", "Size of the volume group", ({ size }) => Number(size)],
      ["free_bytes", "Space of the volume group that LVM would allocate", ({ free }) => Number(free)],
      [
        "metadata_free_bytes",
        "Free space in the fullest metadata area of the volume group",
        ({ metadataFree }) => Number(metadataFree),
      ],
      ["physical_volumes", "Physical volumes of the volume group", ({ pvs }) => pvs.length],
      ["missing_physical_volumes", "Missing physical volumes of the volume group", ({ missingPvs }) => missingPvs],
      ["logical_volumes", "Logical volumes of the volume group", ({ lvs }) => lvs.length],
    ];
    for (const [name, help, value] of perGroup) {
      const gauge = this.#gauge(`denolith_volume_group_${name}`, help, ["group"], () => {
        gauge.reset();
        for (const group of lastSurvey()) gauge.set({ group: group.name }, value(group));
      });
    }
    const lvs = () => lastSurvey().flatMap((group) => group.lvs.map((lv) => ({ group: group.name, lv })));
    const size = this.#gauge(
      "denolith_logical_volume_size_bytes",
      "Size of the logical volume",
      ["group", "lv"],
      () => {
        size.reset();
        for (const { group, lv } of lvs()) size.set({ group, lv: lv.name }, Number(lv.size));
      },
    );
    const cowUsed = this.#gauge(
      "denolith_snapshot_cow_used_ratio",
      "Used share of the COW space of the snapshot; at 1 the snapshot is lost",
      ["group", "lv"],
      () => {
        cowUsed.reset();
        for (const { group, lv } of lvs()) {
          if (lv.snapshotPercent !== undefined) cowUsed.set({ group, lv: lv.name }, lv.snapshotPercent / 100);
        }
      },
    );
    const overflowed = this.#gauge(
      "denolith_snapshot_overflowed",
      "1 if the COW space of the snapshot overflowed, so that its content is lost, else 0",
      ["group", "lv"],
      () => {
        overflowed.reset();
        for (const { group, lv } of lvs()) {
          if (lv.snapshotPercent !== undefined) overflowed.set({ group, lv: lv.name }, lv.invalidSnapshot ? 1 : 0);
        }
      },
    );
    this.#registerPvs(lastSurvey);
    this.#registerRedundancy(lastSurvey);
  }

  #registerPvs(lastSurvey: () => readonly SurveyedGroup[]): void {
    const gauges: [string, string, (pv: PhysicalVolume) => number][] = [
      ["size_bytes", "Space of the extents of the physical volume, used and free", ({ size }) => Number(size)],
      [
        "free_bytes",
        "Space of the physical volume that LVM can allocate; 0 while it is missing or not allocatable",
        ({ free }) => Number(free),
      ],
      ["missing", "1 while LVM cannot find the physical volume, else 0", ({ missing }) => missing ? 1 : 0],
    ];
    for (const [name, help, value] of gauges) {
      const gauge = this.#gauge(`denolith_physical_volume_${name}`, help, ["group", "device", "uuid"], () => {
        gauge.reset();
        for (const { name: group, pvs } of lastSurvey()) {
          for (const pv of pvs) gauge.set({ group, device: pv.path, uuid: pv.uuid }, value(pv));
        }
      });
    }
  }

  #registerRedundancy(lastSurvey: () => readonly SurveyedGroup[]): void {
    const gauges: [string, string, (lv: LogicalVolume, group: SurveyedGroup) => number | undefined][] = [
      [
        "redundant",
        "1 while the RAID volume survives the loss of a disk, else 0",
        (lv, group) => redundancyOf(lv, group)?.redundant ? 1 : 0,
      ],
      ["sync_ratio", "Synchronized share of the RAID volume", ({ raid }) => ratio(raid?.syncPercent)],
      ["mismatches", "Sectors that differ, as found by the last check", ({ raid }) => raid?.mismatches],
    ];
    for (const [name, help, value] of gauges) {
      const gauge = this.#gauge(`denolith_raid_${name}`, help, ["group", "lv"], () => {
        gauge.reset();
        for (const group of lastSurvey()) {
          for (const lv of group.lvs.filter(isRaid)) {
            const sample = value(lv, group);
            if (sample !== undefined) gauge.set({ group: group.name, lv: lv.name }, sample);
          }
        }
      });
    }
  }

  /** Registers the extensions of the COW space of snapshots. @returns a function that counts an extension */
  registerCowExtensions(): () => void {
    const extensions = new Counter({
      name: "denolith_snapshot_extensions_total",
      help: "Extensions of the COW space of snapshots",
      registers: [this.#registry],
    });
    return () => extensions.inc();
  }

  /**
   * Registers the metrics of thin pools.
   *
   * @param lastSurvey called on each scrape
   * @param overcommit virtual size that a pool without a tag may allocate, in percent of its size
   */
  registerPools(lastSurvey: () => readonly SurveyedGroup[], overcommit: bigint): void {
    const gauges: [string, string, (group: SurveyedGroup, pool: LogicalVolume) => number | undefined][] = [
      ["size_bytes", "Size of the thin pool", (_, { size }) => Number(size)],
      ["data_used_ratio", "Used share of the data of the thin pool", (_, { thinPool }) => ratio(thinPool?.dataPercent)],
      [
        "metadata_used_ratio",
        "Used share of the metadata of the thin pool",
        (_, { thinPool }) => ratio(thinPool?.metadataPercent),
      ],
      [
        "virtual_allocated_bytes",
        "Sum of the virtual sizes of the volumes and snapshots in the thin pool",
        (group, pool) => Number(allocatedVirtual(group, pool)),
      ],
      [
        "virtual_available_bytes",
        "Virtual size that the thin pool can still allocate",
        (group, pool) => Number(availableVirtual(group, pool, overcommit)),
      ],
      [
        "damaged",
        "1 if the metadata of the thin pool has to be checked or repaired, else 0",
        (_, pool) => isDamaged(pool) ? 1 : 0,
      ],
    ];
    for (const [name, help, value] of gauges) {
      const gauge: Gauge<"group" | "pool"> = this.#gauge(`denolith_thin_pool_${name}`, help, ["group", "pool"], () => {
        gauge.reset();
        for (const group of lastSurvey()) {
          for (const pool of poolsOf(group)) {
            const sample = value(group, pool);
            if (sample !== undefined) gauge.set({ group: group.name, pool: pool.name }, sample);
          }
        }
      });
    }
  }

  /** Registers the metrics of fstrim. @param lastSuccesses called on each scrape @returns the counters of fstrim */
  registerTrimming(lastSuccesses: () => readonly { volume: TrimmedVolume; at: number }[]): TrimCounters {
    const last = this.#gauge(
      "denolith_trim_last_success_timestamp_seconds",
      "Time of the last successful fstrim of the volume",
      ["group", "lv"],
      () => {
        last.reset();
        for (const { volume: { group, lv }, at } of lastSuccesses()) last.set({ group: group.name, lv: lv.name }, at);
      },
    );
    const registers = [this.#registry];
    const bytes = new Counter({
      name: "denolith_trimmed_bytes_total",
      help: "Bytes that fstrim discarded",
      registers,
    });
    const failures = new Counter({ name: "denolith_trim_failures_total", help: "Failed runs of fstrim", registers });
    return { succeeded: (count) => bytes.inc(count), failed: () => failures.inc() };
  }

  /** Registers the differences between the LVs and the objects of the node. @param counts called on each scrape */
  registerInconsistencies(counts: { readonly orphans: () => number; readonly lost: () => number }): void {
    const gauges = [
      [
        "denolith_orphan_logical_volumes",
        "Logical volumes of the driver without an LVMVolume or LVMSnapshot",
        counts.orphans,
      ],
      ["denolith_lost_volumes", "LVMVolumes whose logical volume is missing", counts.lost],
    ] as const;
    for (const [name, help, count] of gauges) {
      const gauge: Gauge = this.#gauge(name, help, [], () => void gauge.set(count()));
    }
  }

  /** Registers the progress of copies. @param copiesUnderWay called on each scrape; progress from 0 to 1 */
  registerCopies(copiesUnderWay: () => Iterable<readonly [volume: string, done: number]>): void {
    const done = this.#gauge(
      "denolith_copy_progress_ratio",
      "Progress of copying the volume from a snapshot or from another volume",
      ["volume"],
      () => {
        done.reset();
        for (const [volume, ratio] of copiesUnderWay()) done.set({ volume }, ratio);
      },
    );
  }

  /** Registers the IO limits of volumes in use. @param inUse called on each scrape */
  registerLimits(inUse: () => readonly LimitedVolume[]): void {
    const limits = this.#gauge(
      "denolith_io_limit",
      "IO limit of each pod that uses the volume, in operations or bytes per second",
      ["group", "lv", "limit"],
      () => {
        limits.reset();
        for (const { group, lv, rates } of inUse()) {
          for (const [limit, rate] of Object.entries(rates)) {
            if (rate !== "max") limits.set({ group, lv, limit }, Number(rate));
          }
        }
      },
    );
    const unapplied: Gauge = this.#gauge(
      "denolith_io_limits_unapplied_volumes",
      "Volumes in use whose IO limits cannot be applied",
      [],
      () => void unapplied.set(inUse().filter(({ applied }) => !applied).length),
    );
  }

  /** Registers the filesystems that the kernel made read-only. @param readOnlyFilesystems called on each scrape */
  registerReadOnlyFilesystems(readOnlyFilesystems: () => readonly ReadOnlyFilesystem[]): void {
    const readOnly = this.#gauge(
      "denolith_filesystem_readonly",
      "1 for a volume in use whose filesystem the kernel made read-only after an error",
      ["group", "lv"],
      () => {
        readOnly.reset();
        for (const { group, lv } of readOnlyFilesystems()) readOnly.set({ group: group.name, lv: lv.name }, 1);
      },
    );
  }

  /** Returns all metrics as text. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }

  /** Returns the descriptions of the metrics that are registered. */
  describe(): MetricDescription[] {
    return this.#registry.getMetricsAsArray().map((metric) => {
      const { name, help, labelNames } = metric as unknown as { name: string; help: string; labelNames: string[] };
      const type = metric instanceof Histogram ? "histogram" : metric instanceof Counter ? "counter" : "gauge";
      return { name, type, help, labels: labelNames };
    });
  }

  #registerProcess(): void {
    const memory = this.#gauge("process_resident_memory_bytes", "Resident memory of the process", [], () => {
      memory.set(Deno.memoryUsage().rss);
    });
    this.#gauge("process_start_time_seconds", "Start time of the process", []).set(
      Math.floor(performance.timeOrigin / 1000),
    );
  }

  #gauge<L extends string>(name: string, help: string, labelNames: L[], collect?: () => void): Gauge<L> {
    return new Gauge({ name, help, labelNames, registers: [this.#registry], ...defined({ collect }) });
  }
}

function ratio(percent: number | undefined): number | undefined {
  return percent === undefined ? undefined : percent / 100;
}
