/**
 * The metrics of a process, in the text format of Prometheus. Of prom-client, the driver imports parts: the package as a whole
 * also loads Node's HTTP client, cluster and OpenTelemetry, which take several megabytes.
 *
 * @module
 */

import type * as whole from "prom-client";
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";
import type { CompletedCall } from "../../csi/service.ts";
import type { UnfinishedHandover } from "./handover_progress.ts";
import type { ReconcileResult } from "../../k8s/runtime/controller.ts";
import type { LimitedVolume } from "../../lvm/staging/io_limiter.ts";
import type { ReadOnlyFilesystem } from "../../lvm/health/read_only_filesystems.ts";
import type { TrimmedVolume } from "../../lvm/staging/trimmer.ts";
import { defined } from "../../base/defined.ts";
import {
  type ClaimOf,
  type LastSurvey,
  lvmGauges,
  type NamedVolume,
  poolGauges,
  type ReadAtScrape,
  VOLUME_LABELS,
  volumeLabels,
} from "./lvm_metrics.ts";
import manifest from "../../deno.json" with { type: "json" };

type Counter = whole.Counter;
const Counter: typeof whole.Counter = counter;

type Gauge = whole.Gauge;
const Gauge: typeof whole.Gauge = gauge;

type Histogram = whole.Histogram;
const Histogram: typeof whole.Histogram = histogram;

const Registry: typeof whole.Registry = registry;

/** Buckets in seconds: calls that only read take some milliseconds, an LVM command tenths of a second. */
const DURATION_BUCKETS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

/** Counters of fstrim. */
export interface TrimCounters {
  /** Counts the bytes that a successful fstrim discarded. */
  readonly succeeded: (bytes: number) => void;
  /** Counts a failed fstrim. */
  readonly failed: () => void;
}

/** The volumes of a node that need attention, by what is wrong with them. */
export interface VolumeProblems {
  /** Those whose LVs are missing. */
  readonly lost: () => readonly NamedVolume[];
  /** Those that nobody has been able to use for minutes. */
  readonly held: () => readonly NamedVolume[];
  /** Those without the keys that their Secrets request, with the reason. */
  readonly keysOutdated: () => readonly (NamedVolume & { readonly reason: string })[];
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
  readonly #calls: Histogram;
  readonly #reconciles: Histogram;
  readonly #requests: Counter;
  readonly #queueDepths: Gauge;
  readonly #droppedEvents: Counter;

  /**
   * Creates the metrics that every process has.
   *
   * @param options.process whether to include the metrics of the process itself, `process_*`
   */
  constructor({ process = true } = {}) {
    const calls = "Duration of CSI calls, by method and gRPC status code";
    this.#calls = this.#durations("denolith_csi_operation_duration_seconds", calls, ["method", "code"]);
    const reconciles = "Duration of reconciles, by controller and result";
    this.#reconciles = this.#durations("denolith_reconcile_duration_seconds", reconciles, ["controller", "result"]);
    const requests = "Requests to the API server, by HTTP status; 0 without a response";
    this.#requests = this.#counter("denolith_api_requests_total", requests, ["verb", "resource", "code"]);
    const keys = "Keys that wait for a worker of the controller";
    this.#queueDepths = this.#gauge("denolith_workqueue_depth", keys, ["controller"]);
    const dropped = "Kubernetes events that were not written, because too many were recorded";
    this.#droppedEvents = this.#counter("denolith_events_dropped_total", dropped);
    const { version } = manifest;
    this.#gauge("denolith_build_info", "1, with the version of the driver", ["version"]).set({ version }, 1);
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

  /**
   * Registers the metrics of volume groups, and of what is in them.
   *
   * @param lastSurvey called on each scrape
   * @param driver the name of the driver whose volumes and snapshots are named
   * @param claimOf called on each scrape
   */
  registerGroups(lastSurvey: LastSurvey, driver: string, claimOf: ClaimOf = () => undefined): void {
    for (const gauge of lvmGauges(lastSurvey, driver, claimOf)) this.#readAtScrape(gauge);
  }

  /** Registers the extensions of the COW space of snapshots. @returns a function that counts an extension */
  registerCowExtensions(): () => void {
    const help = "Extensions of the COW space of snapshots";
    const extensions = this.#counter("denolith_snapshot_extensions_total", help);
    return () => extensions.inc();
  }

  /**
   * Registers the metrics of thin pools.
   *
   * @param lastSurvey called on each scrape
   * @param overcommit virtual size that a pool without a tag may allocate, in percent of its size
   */
  registerPools(lastSurvey: LastSurvey, overcommit: bigint): void {
    for (const gauge of poolGauges(lastSurvey, overcommit)) this.#readAtScrape(gauge);
  }

  /** Registers the metrics of fstrim. @param lastSuccesses called on each scrape @returns the counters of fstrim */
  registerTrimming(lastSuccesses: () => readonly { volume: TrimmedVolume; at: number }[]): TrimCounters {
    this.#readAtScrape({
      name: "denolith_trim_last_success_timestamp_seconds",
      help: "Time of the last successful fstrim of the volume",
      labels: ["group", "lv"],
      samples: () =>
        lastSuccesses().map(({ volume: { group, lv }, at }) => ({
          labels: { group: group.name, lv: lv.name },
          value: at,
        })),
    });
    const bytes = this.#counter("denolith_trimmed_bytes_total", "Bytes that fstrim discarded");
    const failures = this.#counter("denolith_trim_failures_total", "Failed runs of fstrim");
    return { succeeded: (count) => bytes.inc(count), failed: () => failures.inc() };
  }

  /** Registers the bytes of transfers. @returns called after bytes passed */
  registerTransfers(): (direction: "sent" | "received", bytes: number) => void {
    const help = "Bytes of volumes sent to agents of other nodes, or received from them, without zeros";
    const bytes = this.#counter("denolith_transfer_bytes_total", help, ["direction"]);
    for (const direction of ["sent", "received"]) bytes.inc({ direction }, 0); // series that alerts can use
    return (direction, count) => bytes.inc({ direction }, count);
  }

  /** Registers the number of LVs of the node without an object. @param count called on each scrape */
  registerOrphans(count: () => number): void {
    this.#readAtScrape({
      name: "denolith_orphan_logical_volumes",
      help: "Logical volumes of the driver without an LVMVolume or LVMSnapshot",
      labels: [],
      samples: () => [{ labels: {}, value: count() }],
    });
  }

  /** Registers the volumes of the node that need attention. @param volumes called on each scrape */
  registerProblems(volumes: VolumeProblems): void {
    const gauges = [
      ["denolith_volume_lost", "1 for each LVMVolume whose logical volume is missing", volumes.lost],
      [
        "denolith_volume_held",
        "1 for each LVMVolume that a move has kept from being used for five minutes",
        volumes.held,
      ],
    ] as const;
    for (const [name, help, named] of gauges) {
      this.#readAtScrape({
        ...{ name, help, labels: VOLUME_LABELS },
        samples: () => named().map((volume) => ({ labels: volumeLabels(volume), value: 1 })),
      });
    }
    this.#readAtScrape({
      name: "denolith_volume_keys_outdated",
      help: "1 for each LVMVolume without the keys that its Secret requests, with the reason",
      labels: [...VOLUME_LABELS, "reason"],
      samples: () =>
        volumes.keysOutdated().map((volume) => ({
          labels: { ...volumeLabels(volume), reason: volume.reason },
          value: 1,
        })),
    });
  }

  /** Registers the progress of copies. @param copiesUnderWay called on each scrape; progress from 0 to 1 */
  registerCopies(copiesUnderWay: () => readonly (NamedVolume & { readonly done: number })[]): void {
    this.#readAtScrape({
      name: "denolith_copy_progress_ratio",
      help: "Progress of copying the volume from a snapshot or from another volume",
      labels: VOLUME_LABELS,
      samples: () => copiesUnderWay().map((copy) => ({ labels: volumeLabels(copy), value: copy.done })),
    });
  }

  /** Registers the groups of controllers that this process may lead. @returns called when one of them begins or ends to lead */
  registerLeaders(controllers: readonly string[]): (controller: string, isLeading: boolean) => void {
    const help = "1 while this process leads the group of controllers, else 0";
    const leaders = this.#gauge("denolith_leader", help, ["controller"]);
    const onChange = (controller: string, isLeading: boolean) => leaders.set({ controller }, isLeading ? 1 : 0);
    for (const controller of controllers) onChange(controller, false);
    return onChange;
  }

  /** Registers the agents of the cluster. @param agents called on each scrape */
  registerAgents(agents: () => readonly { readonly node: string; readonly isSilent: boolean }[]): void {
    this.#readAtScrape({
      name: "denolith_agent_silent",
      help: "1 for an LVMNode whose agent has given no sign of life for five minutes, else 0",
      labels: ["lvmnode"],
      samples: () => agents().map(({ node, isSilent }) => ({ labels: { lvmnode: node }, value: isSilent ? 1 : 0 })),
    });
  }

  /** Registers the moves and imports that are not finished. @param kinds called on each scrape */
  registerHandovers(kinds: Readonly<Record<"move" | "import", () => readonly UnfinishedHandover[]>>): void {
    for (const [kind, unfinished] of Object.entries(kinds)) {
      this.#readAtScrape({
        name: `denolith_${kind}_progress_timestamp_seconds`,
        help: `Time at which the ${kind} that is not finished last got further, as this process has seen it`,
        labels: [...VOLUME_LABELS, "state"],
        samples: () =>
          unfinished().map((one) => ({ labels: { ...volumeLabels(one), state: one.state }, value: one.progressedAt })),
      });
    }
  }

  /** Registers the IO limits of volumes in use. @param inUse called on each scrape */
  registerLimits(inUse: () => readonly LimitedVolume[]): void {
    const units = [
      ["operations_per_second", "operations", { readIops: "read", writeIops: "write" }],
      ["bytes_per_second", "bytes", { readBps: "read", writeBps: "write" }],
    ] as const;
    for (const [unit, what, directions] of units) {
      this.#readAtScrape({
        name: `denolith_io_limit_${unit}`,
        help: `Limit of each pod that uses the volume, in ${what} per second`,
        labels: ["group", "lv", "direction"],
        samples: () =>
          inUse().flatMap(({ group, lv, rates }) =>
            Object.entries(directions).flatMap(([limit, direction]) => {
              const rate = rates[limit as keyof typeof rates];
              return rate === undefined || rate === "max"
                ? []
                : [{ labels: { group, lv, direction }, value: Number(rate) }];
            })
          ),
      });
    }
    this.#readAtScrape({
      name: "denolith_io_limits_applied",
      help: "1 if the IO limits of the volume in use are applied, else 0",
      labels: ["group", "lv"],
      samples: () => inUse().map(({ group, lv, applied }) => ({ labels: { group, lv }, value: applied ? 1 : 0 })),
    });
  }

  /** Registers the filesystems that the kernel made read-only. @param readOnlyFilesystems called on each scrape */
  registerReadOnlyFilesystems(readOnlyFilesystems: () => readonly ReadOnlyFilesystem[]): void {
    this.#readAtScrape({
      name: "denolith_filesystem_readonly",
      help: "1 for a volume in use whose filesystem the kernel made read-only after an error",
      labels: ["group", "lv"],
      samples: () =>
        readOnlyFilesystems().map(({ group, lv }) => ({ labels: { group: group.name, lv: lv.name }, value: 1 })),
    });
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
    this.#readAtScrape({
      name: "process_resident_memory_bytes",
      help: "Resident memory of the process",
      labels: [],
      samples: () => [{ labels: {}, value: Deno.memoryUsage().rss }],
    });
    const startedAt = Math.floor(performance.timeOrigin / 1000);
    this.#gauge("process_start_time_seconds", "Start time of the process", []).set(startedAt);
  }

  #readAtScrape({ name, help, labels, samples }: ReadAtScrape): void {
    const gauge = this.#gauge(name, help, [...labels], () => {
      gauge.reset();
      for (const { labels, value } of samples()) gauge.set(labels, value);
    });
  }

  #counter(name: string, help: string, labelNames: string[] = []): Counter {
    return new Counter({ name, help, labelNames, registers: [this.#registry] });
  }

  #durations(name: string, help: string, labelNames: string[]): Histogram {
    return new Histogram({ name, help, labelNames, buckets: DURATION_BUCKETS, registers: [this.#registry] });
  }

  #gauge(name: string, help: string, labelNames: string[], collect?: () => void): Gauge {
    return new Gauge({ name, help, labelNames, registers: [this.#registry], ...defined({ collect }) });
  }
}
