/**
 * Prometheus and promtool of this machine's Debian, for the tests of metrics, alerts and dashboard.
 *
 * Debian's package is unpacked into the cache, not installed: an installed one starts a service that listens on all addresses.
 *
 * @module
 */

import { cacheKey, ensureCached } from "./cache.ts";
import { ensureTools, refreshPackageLists } from "./debian.ts";
import { freePorts } from "./free_ports.ts";
import { pollUntil } from "./poll_until.ts";
import { run } from "./process.ts";
import { TempFolder } from "./temp_folder.ts";

/** The paths of the programs. */
export interface PrometheusPrograms {
  readonly prometheus: string;
  readonly promtool: string;
}

/**
 * Fetches Prometheus on first use. That takes some seconds; the package is 50 MB.
 *
 * @throws {Error} when apt cannot fetch it: it needs a mirror, and root where it has no package lists yet
 */
export async function ensurePrometheus(log: (line: string) => void): Promise<PrometheusPrograms> {
  await ensureTools([{ program: "apt-get", packages: ["apt"] }, { program: "dpkg-deb", packages: ["dpkg"] }], log);
  const release = await Deno.readTextFile("/etc/os-release").catch(() => "");
  const name = `prometheus-${await cacheKey(`${release} ${Deno.build.arch}`)}`;
  const folder = await ensureCached(name, log, async (temp, into) => {
    log("prometheus: fetching Debian's package, once");
    const options = { cwd: temp.path, guardedBy: temp };
    const args = ["-qq", "-o", "APT::Sandbox::User=root", "download", "prometheus"];
    const download = () => run("download Prometheus", "apt-get", args, options);
    // A bare machine has no package lists yet, and old lists name packages that the mirror has no more.
    await download().catch(() => refreshPackageLists().then(download));
    for await (const { name } of Deno.readDir(temp.path)) {
      if (name.endsWith(".deb")) await run("unpack Prometheus", "dpkg-deb", ["-x", name, into], options);
    }
  });
  return { prometheus: `${folder}/usr/bin/prometheus`, promtool: `${folder}/usr/bin/promtool` };
}

/** A target that Prometheus scrapes. */
export interface ScrapeTarget {
  /** HOST:PORT. */
  readonly address: string;
  /** The labels that the PodMonitor and the discovery of pods would add. */
  readonly labels: Readonly<Record<string, string>>;
}

/** Options of {@linkcode Prometheus.start}. */
export interface PrometheusOptions {
  readonly programs: PrometheusPrograms;
  readonly targets: readonly ScrapeTarget[];
  /** The text of a file of rules. */
  readonly rules: string;
  /** The interval of scrapes and of the evaluation of rules, in milliseconds. */
  readonly intervalMs: number;
}

/** A sample of the answer to a query. */
export interface QuerySample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A series of the answer to a query over time: times in seconds since 1970, with values. */
export interface QuerySeries {
  readonly metric: Readonly<Record<string, string>>;
  readonly values: readonly (readonly [seconds: number, value: number])[];
}

/** A span of time, in seconds since 1970, and the interval of its samples, in seconds. */
export interface QueryRange {
  readonly start: number;
  readonly end: number;
  readonly step: number;
}

/** An alert that is pending or firing. */
export interface ActiveAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly state: "pending" | "firing";
}

/** A rule, as Prometheus evaluated it. */
export interface EvaluatedRule {
  readonly name: string;
  readonly health: "ok" | "err" | "unknown";
  readonly lastError?: string;
}

/** A Prometheus on 127.0.0.1. It ends when it is disposed of, or with this process. */
export class Prometheus implements AsyncDisposable {
  readonly #url: string;
  readonly #folder: TempFolder;
  readonly #process: Deno.ChildProcess;

  private constructor(url: string, folder: TempFolder, process: Deno.ChildProcess) {
    this.#url = url;
    this.#folder = folder;
    this.#process = process;
  }

  /** Starts one, and waits until it answers. @throws {Error} when it does not start */
  static async start({ programs, targets, rules, intervalMs }: PrometheusOptions): Promise<Prometheus> {
    const folder = await TempFolder.create("/tmp", "denolith-prometheus-");
    const interval = `${intervalMs}ms`;
    const config = {
      global: { scrape_interval: interval, scrape_timeout: interval, evaluation_interval: interval },
      rule_files: [folder.file("rules.yaml")],
      scrape_configs: [{
        job_name: "denolith",
        static_configs: targets.map(({ address, labels }) => ({ targets: [address], labels })),
      }],
    };
    await Deno.writeTextFile(folder.file("rules.yaml"), rules);
    await Deno.writeTextFile(folder.file("prometheus.yaml"), JSON.stringify(config));
    const [port] = freePorts(1);
    const process = new Deno.Command(programs.prometheus, {
      args: [
        `--config.file=${folder.file("prometheus.yaml")}`,
        `--storage.tsdb.path=${folder.file("tsdb")}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn();
    await folder.guard(process.pid);
    const started = new Prometheus(`http://127.0.0.1:${port}`, folder, process);
    try {
      let exited = false;
      process.status.then(() => exited = true);
      await pollUntil(() => started.#isReady(), {
        ...{ action: "start Prometheus", timeoutMs: 60_000 },
        failFast: () => exited ? Promise.reject(new Error("start Prometheus: it ended")) : Promise.resolve(),
      });
      return started;
    } catch (error) {
      await started[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #isReady(): Promise<boolean> {
    const response = await fetch(`${this.#url}/-/ready`).catch(() => undefined);
    await response?.body?.cancel();
    return response?.ok ?? false;
  }

  /** Evaluates an expression now. @throws {Error} with its error when Prometheus cannot evaluate it */
  async query(expression: string): Promise<QuerySample[]> {
    const { result } = await this.#get<{ result: { metric: Record<string, string>; value: [number, string] }[] }>(
      `query?query=${encodeURIComponent(expression)}`,
    );
    return result.map(({ metric, value: [, text] }) => ({ metric, value: Number(text.replace("Inf", "Infinity")) }));
  }

  /** Evaluates an expression over a span of time. @throws {Error} with its error when Prometheus cannot evaluate it */
  async queryRange(expression: string, { start, end, step }: QueryRange): Promise<QuerySeries[]> {
    type Result = { metric: Record<string, string>; values: [number, string][] };
    const { result } = await this.#get<{ result: Result[] }>(
      `query_range?query=${encodeURIComponent(expression)}&start=${start}&end=${end}&step=${step}`,
    );
    return result.map(({ metric, values }) => ({
      metric,
      values: values.map(([time, text]) => [time, Number(text)] as const),
    }));
  }

  /** Returns the alerts that are pending or firing. */
  async alerts(): Promise<ActiveAlert[]> {
    return (await this.#get<{ alerts: ActiveAlert[] }>("alerts")).alerts;
  }

  /** Returns all rules. */
  async rules(): Promise<EvaluatedRule[]> {
    return (await this.#get<{ groups: { rules: EvaluatedRule[] }[] }>("rules")).groups.flatMap(({ rules }) => rules);
  }

  /** Returns the health of each target, by its address: an empty text, or why it could not be scraped last. */
  async targetErrors(): Promise<Map<string, string>> {
    type Target = { scrapeUrl: string; health: string; lastError: string };
    const { activeTargets } = await this.#get<{ activeTargets: Target[] }>("targets?state=active");
    return new Map(
      activeTargets.map(({ scrapeUrl, health, lastError }) => [
        new URL(scrapeUrl).host,
        health === "up" ? "" : lastError || health,
      ]),
    );
  }

  async #get<Data>(path: string): Promise<Data> {
    const response = await fetch(`${this.#url}/api/v1/${path}`);
    const answer = await response.json() as { status: string; error?: string; data: Data };
    if (answer.status !== "success") throw new Error(`ask Prometheus for ${path}: ${answer.error}`);
    return answer.data;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#process.kill("SIGTERM");
    await this.#process.status;
    await this.#folder.guard(undefined);
    await this.#folder[Symbol.asyncDispose]();
  }
}
