/**
 * `deno task test:monitoring`: tests the metrics, the alerts and the dashboard with Prometheus and promtool.
 *
 * @module
 */

import { RecordedRun } from "../record/record.ts";
import { ensurePrometheus } from "../rig/prometheus.ts";
import { runTestProcess } from "../rig/test_process.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

/** The files of tests. */
const SUITES = ["rules", "driver"].map((name) => new URL(`suite/${name}.ts`, import.meta.url).pathname);

/** The time for which a test may print nothing, in milliseconds. */
const SILENCE_MS = 5 * 60_000;

/** Writes what the tests print. */
function print(chunk: Uint8Array): void {
  for (let written = 0; written < chunk.length;) written += Deno.stdout.writeSync(chunk.subarray(written));
}

try {
  await ensurePrometheus(console.error);
} catch (error) {
  console.error(`error: ${(error as Error).message}`);
  Deno.exit(1);
}
const args = ["-A", "--quiet", "--no-check", ...Deno.args.filter((arg) => arg !== "--"), ...SUITES];
const run = await RecordedRun.begin();
const passed = await runTestProcess({ args, cwd: ROOT, silenceMs: SILENCE_MS, onOutput: print });
if (passed && Deno.args.length === 0) await run.pass("test:monitoring");
Deno.exit(passed ? 0 : 1);
