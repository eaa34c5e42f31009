/**
 * A real Prometheus scrapes both processes of the driver: each query of the dashboard returns data, each rule is evaluated,
 * and alerts fire and clear.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { ensurePrometheus, Prometheus } from "../../rig/prometheus.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { run } from "../../rig/process.ts";
import { PANEL_QUERIES, RULES, RULES_TEXT, selectorsOf, withoutVariables } from "../chart_files.ts";
import { type DriverHarness, startDriver } from "../driver_harness.ts";
import { queriesWithoutData } from "../dashboard_queries.ts";

const programs = await ensurePrometheus(console.error);

/** The interval of scrapes, in milliseconds. */
const INTERVAL_MS = 200;

/** The window of rates, which Grafana would choose. */
const RATE_INTERVAL = "3s";

/** The time limit of each step, in milliseconds. */
const TIMEOUT_MS = 60_000;

/** Starts a Prometheus that scrapes a driver, and makes calls to the driver all the time. */
async function scrape(driver: DriverHarness) {
  const options = { programs, targets: driver.targets, rules: RULES_TEXT, intervalMs: INTERVAL_MS };
  const prometheus = await Prometheus.start(options);
  let ended = false;
  const calling = (async () => {
    while (!ended) {
      await driver.call();
      await new Promise((resolve) => setTimeout(resolve, INTERVAL_MS));
    }
  })();
  return {
    prometheus,
    [Symbol.asyncDispose]: async () => {
      ended = true;
      await calling;
      await prometheus[Symbol.asyncDispose]();
    },
  };
}

Deno.test("promtool has no complaint about the metrics of both processes", async () => {
  await using driver = await startDriver();
  await driver.call();
  for (const { address, labels: { pod } } of driver.targets) {
    const file = await Deno.makeTempFile({ prefix: "denolith-metrics-" });
    try {
      const page = await (await fetch(`http://${address}/metrics`)).text();
      assert(page.includes("denolith_build_info{"), page);
      await Deno.writeTextFile(file, page);
      const args = ["-c", 'exec "$0" check metrics <"$1" 2>&1', programs.promtool, file];
      assertEquals(await run(`check the metrics of ${pod}`, "/bin/sh", args), "");
    } finally {
      await Deno.remove(file);
    }
  }
});

Deno.test("every query of the dashboard returns data, every rule is evaluated, and alerts fire and clear", async () => {
  await using driver = await startDriver();
  await using scraping = await scrape(driver);
  const { prometheus } = scraping;
  const queries = [
    ...PANEL_QUERIES.map(({ expr }) => withoutVariables(expr, RATE_INTERVAL)),
    ...RULES.flatMap(({ expr }) => selectorsOf(expr)),
  ];
  assert(queries.length > 50, "the test sees the queries");
  await pollUntil(async () => (await queriesWithoutData(prometheus, queries)).length === 0, {
    ...{ action: "get data for each query", timeoutMs: TIMEOUT_MS },
  }).catch(async (error) => assertEquals(await queriesWithoutData(prometheus, queries), [], error.message));
  assertEquals([...(await prometheus.targetErrors()).values()], ["", ""]);

  const isEvaluated = async () => (await prometheus.rules()).every(({ health }) => health !== "unknown");
  await pollUntil(isEvaluated, { action: "evaluate the rules", timeoutMs: TIMEOUT_MS });
  const evaluated = await prometheus.rules();
  assertEquals(evaluated.map(({ name }) => name).sort(), RULES.map(({ alert }) => alert).sort());
  assertEquals(evaluated.filter(({ health }) => health !== "ok").map(({ name, lastError }) => [name, lastError]), []);

  // the others fire after minutes: the tests of rules let that time pass
  const immediate = RULES.filter((rule) => rule.for === undefined).map(({ alert }) => alert);
  const firing = async () => {
    const alerts = (await prometheus.alerts()).filter(({ state }) => state === "firing");
    return alerts.map(({ labels }) => labels.alertname!).filter((name) => immediate.includes(name)).sort().join();
  };
  const waitForFiring = async (names: readonly string[]) => {
    const options = { action: "see the alerts", timeoutMs: TIMEOUT_MS };
    await pollUntil(async () => await firing() === names.join(), options).catch(() => {});
    assertEquals(await firing(), names.join());
  };
  await waitForFiring(["DenolithFilesystemReadOnly", "DenolithThinPoolFull"]);
  const [alert] = (await prometheus.alerts()).filter(({ labels }) => labels.alertname === "DenolithThinPoolFull");
  assertEquals(
    alert!.annotations.summary?.replace(/data\/\S+/, "data/POOL"),
    "Thin pool data/POOL on node n1 is 96% full",
  );

  driver.pool().dataPercent = 50;
  delete driver.readOnlyMount.remountedReadOnly;
  await driver.report();
  await waitForFiring([]);
});

Deno.test("a scrape runs no command, however many there are", async () => {
  await using driver = await startDriver({ withFailures: false });
  let before = -1;
  const isIdle = () => {
    const wasIdle = before === driver.commands();
    before = driver.commands();
    return Promise.resolve(wasIdle);
  };
  await pollUntil(isIdle, { action: "wait until the agent runs no command", timeoutMs: TIMEOUT_MS, intervalMs: 500 });
  const [agent] = driver.targets;
  for (let count = 0; count < 10; count++) {
    const page = await (await fetch(`http://${agent!.address}/metrics`)).text();
    assert(page.includes("denolith_logical_volume_info{"), page);
  }
  assertEquals(driver.commands(), before);
});
