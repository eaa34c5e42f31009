/**
 * `deno task docs:dashboard`: draws the dashboard's panels for the documents, in docs/pictures. Prometheus scrapes a driver
 * over the fake machine for a minute, in which volumes are created, a thin pool and a snapshot fill up, and a RAID volume is
 * synchronized. Each panel shows the answers to its own queries.
 *
 * @module
 */

import { pollUntil } from "../../rig/poll_until.ts";
import { run } from "../../rig/process.ts";
import { ensurePrometheus, Prometheus, type QueryRange } from "../../rig/prometheus.ts";
import { PANEL_QUERIES, RULES_TEXT, withoutVariables } from "../chart_files.ts";
import { queriesWithoutData } from "../dashboard_queries.ts";
import { type DriverHarness, startDriver } from "../driver_harness.ts";
import { drawRow, type Series } from "./drawing.ts";
import { dashboardRows, type Panel, pictureOf, seriesName } from "./panels.ts";

const FOLDER = new URL("../../../docs/pictures/", import.meta.url);

/** The time that the pictures show, and the interval of their points, in seconds. */
const [SECONDS, STEP_SECONDS] = [60, 1];

/** The interval of scrapes, in milliseconds. */
const INTERVAL_MS = 200;

/** The window of rates. */
const RATE_INTERVAL = "5s";

/** The volumes that an administrator creates meanwhile: in which second, and their sizes in MiB. */
const NEW_VOLUMES: ReadonlyMap<number, number> = new Map([[8, 512], [20, 1024], [33, 256], [47, 768]]);

/** Brings a driver into the state of a second of the pictures. */
async function play(driver: DriverHarness, second: number): Promise<void> {
  const done = second / SECONDS;
  Object.assign(driver.pool(), { dataPercent: 35 + 55 * done, metadataPercent: 12 + 20 * done });
  for (const { lv } of driver.machine.allLvs()) {
    if (lv.raid !== undefined) Object.assign(lv.raid, { action: "recover", syncPercent: Math.min(100, 160 * done) });
    if (lv.name.startsWith("snap-")) lv.cowPercent = 60 * done ** 2;
  }
  const size = NEW_VOLUMES.get(second);
  if (size !== undefined) {
    const args = ["lvcreate", "--yes", "--name", `other-${second}`, "--size", `${size << 20}b`, "data"];
    const { code, stderr } = await driver.machine.run({ program: "lvm", args, mutates: true });
    if (code !== 0) throw new Error(`lvcreate: ${stderr}`);
  }
  await driver.report();
  await driver.call();
}

/** Returns the series of a panel. Those whose value is not a number, such as rates without calls, are left out. */
async function readSeries(prometheus: Prometheus, { targets }: Panel, range: QueryRange): Promise<Series[]> {
  const answers = await Promise.all(targets.map(async ({ expr, legendFormat }) => {
    const found = await prometheus.queryRange(withoutVariables(expr, RATE_INTERVAL), range);
    return found.map(({ metric, values }) => ({
      name: seriesName(legendFormat, metric),
      points: values.filter(([, value]) => Number.isFinite(value))
        .map(([time, value]) => [Math.round(time - range.start), value] as const),
    }));
  }));
  return answers.flat().filter(({ points }) => points.length > 0);
}

async function main(): Promise<void> {
  const programs = await ensurePrometheus(console.error);
  await using driver = await startDriver();
  const options = { programs, targets: driver.targets, rules: RULES_TEXT, intervalMs: INTERVAL_MS };
  await using prometheus = await Prometheus.start(options);
  const queries = PANEL_QUERIES.map(({ expr }) => withoutVariables(expr, RATE_INTERVAL));
  const hasAllData = async () => {
    await play(driver, 0);
    return (await queriesWithoutData(prometheus, queries)).length === 0;
  };
  await pollUntil(hasAllData, { action: "get data for each query", timeoutMs: 60_000, intervalMs: 500 });
  const start = Date.now() / 1000;
  for (let second = 0; second <= SECONDS; second++) {
    await play(driver, second);
    await new Promise((resolve) => setTimeout(resolve, (start + second + 1) * 1000 - Date.now()));
  }
  const range = { start, end: start + SECONDS, step: STEP_SECONDS };
  for (const row of dashboardRows()) {
    const read = row.panels.map(async (panel) => [panel, await readSeries(prometheus, panel, range)] as const);
    const series = new Map(await Promise.all(read));
    const picture = new URL(pictureOf(row), FOLDER);
    await Deno.writeTextFile(picture, drawRow(row, { seconds: SECONDS, seriesOf: (panel) => series.get(panel)! }));
    await run(`format ${picture.pathname}`, Deno.execPath(), ["fmt", "--quiet", picture.pathname]);
  }
}

if (import.meta.main) await main();
