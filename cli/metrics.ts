/**
 * The figures of a process, in the format of Prometheus.
 *
 * @module
 */

import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { CompletedCall } from "../csi/service.ts";
import type { ReconcileResult } from "../k8s/runtime/controller.ts";
import type { LimitedVolume } from "../lvm/staging/io_limiter.ts";
import { isRaid, redundancyOf } from "../lvm/model/redundancy.ts";
import type { LogicalVolume } from "../lvm/model/report.ts";
import type { ReadOnlyFilesystem } from "../lvm/health/read_only_filesystems.ts";
import type { SurveyedGroup } from "../lvm/model/survey.ts";
import { allocatedVirtual, availableVirtual, isDamaged, poolsOf } from "../lvm/pools/pool.ts";
import type { TrimmedVolume } from "../lvm/staging/trimmer.ts";
import { defined } from "../lvm/defined.ts";

/** Seconds: calls that only ask take a few milliseconds, a command of LVM tenths of a second. */
const DURATION_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** Counts what came of fstrim. */
export interface TrimCounters {
  /** It had so many bytes discarded. */
  readonly succeeded: (bytes: number) => void;
  /** It failed. */
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

/** What is counted and measured. */
export class Metrics {
  readonly #registry = new Registry();
  readonly #calls: Histogram<"method" | "code">;
  readonly #reconciles: Histogram<"controller" | "result">;
  readonly #requests: Counter<"verb" | "resource" | "code">;
  readonly #queueDepths: Gauge<"controller">;

  /** Nothing is known yet. With `process`, also what the process itself takes. */
  constructor({ process = true } = {}) {
    const registers = [this.#registry];
    this.#calls = new Histogram({
      name: "denolith_csi_operation_duration_seconds",
      help: "CSI calls answered, by gRPC status code",
      labelNames: ["method", "code"],
      buckets: DURATION_BUCKETS,
      registers,
    });
    this.#reconciles = new Histogram({
      name: "denolith_reconcile_duration_seconds",
      help: "Turns of the loops, by their result",
      labelNames: ["controller", "result"],
      buckets: DURATION_BUCKETS,
      registers,
    });
    this.#requests = new Counter({
      name: "denolith_api_requests_total",
      help: "Requests to the API server, by HTTP status; 0 without an answer",
      labelNames: ["verb", "resource", "code"],
      registers,
    });
    this.#queueDepths = this.#gauge("denolith_workqueue_depth", "Keys that wait for a worker", ["controller"]);
    if (process) this.#registerProcess();
  }

  /** A CSI call was answered. */
  readonly onCallCompleted = ({ method, code, durationMs }: CompletedCall): void => {
    this.#calls.observe({ method, code: String(code) }, durationMs / 1000);
  };

  /** A loop had a turn. */
  readonly onReconciled = ({ controller, ms, error }: ReconcileResult): void => {
    this.#reconciles.observe({ controller, result: error === undefined ? "success" : "error" }, ms / 1000);
  };

  /** The API server answered a request. */
  readonly onRequest = (verb: string, resource: string, status: number): void => {
    this.#requests.inc({ verb, resource, code: String(status) });
  };

  /** The number of keys that wait for a worker of a loop changed. */
  readonly onDepth = (controller: string, depth: number): void => {
    this.#queueDepths.set({ controller }, depth);
  };

  /** What LVM has, as it was last seen, asked for when the figures are. */
  registerGroups(lastSurvey: () => readonly SurveyedGroup[]): void {
    const perGroup: [string, string, (group: SurveyedGroup) => number][] = [
      ["size_bytes", "Size of the volume group", ({ size }) => Number(size)],
      ["free_bytes", "Space of the volume group that no logical volume has", ({ free }) => Number(free)],
      ["metadata_free_bytes", "What is free in its fullest metadata area", ({ metadataFree }) => Number(metadataFree)],
      ["physical_volumes", "Disks of the volume group", ({ pvs }) => pvs.length],
      ["missing_physical_volumes", "Disks of the volume group that are missing", ({ missingPvs }) => missingPvs],
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
      "How full the store of a copy-on-write snapshot is; full, it is lost",
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
      "Whether the store of a copy-on-write snapshot overflowed, so that its content is gone",
      ["group", "lv"],
      () => {
        overflowed.reset();
        for (const { group, lv } of lvs()) {
          if (lv.snapshotPercent !== undefined) overflowed.set({ group, lv: lv.name }, lv.invalidSnapshot ? 1 : 0);
        }
      },
    );
    this.#registerRedundancy(lastSurvey);
  }

  #registerRedundancy(lastSurvey: () => readonly SurveyedGroup[]): void {
    const gauges: [string, string, (lv: LogicalVolume, group: SurveyedGroup) => number | undefined][] = [
      [
        "redundant",
        "Whether the RAID volume would survive the loss of a disk",
        (lv, group) => redundancyOf(lv, group)?.redundant ? 1 : 0,
      ],
      ["sync_ratio", "How much of the RAID volume is in sync", ({ raid }) => ratio(raid?.syncPercent)],
      ["mismatches", "Sectors that differ, as the last check found", ({ raid }) => raid?.mismatches],
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

  /** Counts stores of snapshots that were grown before they overflowed; the answer is called for each. */
  registerCowExtensions(): () => void {
    const extensions = new Counter({
      name: "denolith_snapshot_extensions_total",
      help: "Stores of copy-on-write snapshots that were grown before they overflowed",
      registers: [this.#registry],
    });
    return () => extensions.inc();
  }

  /** How full thin pools are, and what they may still promise, as LVM said last, asked for when the figures are. */
  registerPools(lastSurvey: () => readonly SurveyedGroup[], overcommit: bigint): void {
    const gauges: [string, string, (group: SurveyedGroup, pool: LogicalVolume) => number | undefined][] = [
      ["size_bytes", "Size of the thin pool", (_, { size }) => Number(size)],
      ["data_used_ratio", "How full the data of the thin pool is", (_, { thinPool }) => ratio(thinPool?.dataPercent)],
      [
        "metadata_used_ratio",
        "How full the metadata of the thin pool is",
        (_, { thinPool }) => ratio(thinPool?.metadataPercent),
      ],
      [
        "virtual_allocated_bytes",
        "Sizes of the volumes and snapshots in the thin pool",
        (group, pool) => Number(allocatedVirtual(group, pool)),
      ],
      [
        "virtual_available_bytes",
        "What the thin pool may still promise",
        (group, pool) => Number(availableVirtual(group, pool, overcommit)),
      ],
      ["damaged", "Whether the metadata of the thin pool has to be checked", (_, pool) => isDamaged(pool) ? 1 : 0],
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

  /** When volumes were last trimmed, asked for when the figures are; the answer is told of each fstrim that ended. */
  registerTrimming(lastSuccesses: () => readonly { volume: TrimmedVolume; at: number }[]): TrimCounters {
    const last = this.#gauge(
      "denolith_trim_last_success_timestamp_seconds",
      "When fstrim last went well for the volume",
      ["group", "lv"],
      () => {
        last.reset();
        for (const { volume: { group, lv }, at } of lastSuccesses()) last.set({ group: group.name, lv: lv.name }, at);
      },
    );
    const registers = [this.#registry];
    const bytes = new Counter({
      name: "denolith_trimmed_bytes_total",
      help: "Bytes that fstrim had discarded",
      registers,
    });
    const failures = new Counter({ name: "denolith_trim_failures_total", help: "How often fstrim failed", registers });
    return { succeeded: (count) => bytes.inc(count), failed: () => failures.inc() };
  }

  /** Where the LVs and the objects of the node do not fit together, asked for when the figures are. */
  registerInconsistencies(counts: { readonly orphans: () => number; readonly lost: () => number }): void {
    const gauges = [
      ["denolith_orphan_logical_volumes", "Logical volumes of the driver without an object", counts.orphans],
      ["denolith_lost_volumes", "Volumes whose logical volume is gone", counts.lost],
    ] as const;
    for (const [name, help, count] of gauges) {
      const gauge: Gauge = this.#gauge(name, help, [], () => void gauge.set(count()));
    }
  }

  /** How far the volumes are that are being filled from a source, asked for when the figures are. */
  registerCopies(copiesUnderWay: () => Iterable<readonly [volume: string, done: number]>): void {
    const done = this.#gauge(
      "denolith_copy_progress_ratio",
      "How much is there of a volume that is made from a snapshot or from another volume",
      ["volume"],
      () => {
        done.reset();
        for (const [volume, ratio] of copiesUnderWay()) done.set({ volume }, ratio);
      },
    );
  }

  /** The limits of volumes that pods have, asked for when the figures are. */
  registerLimits(inUse: () => readonly LimitedVolume[]): void {
    const limits = this.#gauge(
      "denolith_io_limit",
      "Limit of a volume that pods have: operations or bytes a second",
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
      "Volumes that pods have and whose limits cannot be applied",
      [],
      () => void unapplied.set(inUse().filter(({ applied }) => !applied).length),
    );
  }

  /** Filesystems that the kernel has stopped writing to, asked for when the figures are. */
  registerReadOnlyFilesystems(readOnlyFilesystems: () => readonly ReadOnlyFilesystem[]): void {
    const readOnly = this.#gauge(
      "denolith_filesystem_readonly",
      "1 for a volume in use whose filesystem takes no writes any more, as after an error of its disk",
      ["group", "lv"],
      () => {
        readOnly.reset();
        for (const { group, lv } of readOnlyFilesystems()) readOnly.set({ group: group.name, lv: lv.name }, 1);
      },
    );
  }

  /** All figures as text. */
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
    const memory = this.#gauge("process_resident_memory_bytes", "Memory of the process", [], () => {
      memory.set(Deno.memoryUsage().rss);
    });
    this.#gauge("process_start_time_seconds", "When the process started", []).set(
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
