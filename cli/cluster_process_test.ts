import { reset } from "@logtape/logtape";
import { assertEquals, assertMatch } from "@std/assert";
import { kubeconfigOf } from "../tests/fake/cluster/kubeconfig.ts";
import { startClusterProcess } from "./cluster_process.ts";
import { startLogging } from "./logging.ts";

/** Returns the lines that are logged as text while something runs. */
async function linesLoggedBy(work: () => Promise<void>): Promise<string[]> {
  const lines: string[] = [];
  const original = console.error;
  console.error = (line: string) => void lines.push(line);
  try {
    await startLogging("info", "text");
    await work();
  } finally {
    console.error = original;
    await reset();
  }
  return lines;
}

Deno.test("startClusterProcess() serves HTTP, logs where, and is not ready while the API server has not answered", async () => {
  const kubeconfig = await Deno.makeTempFile();
  await Deno.writeTextFile(kubeconfig, kubeconfigOf({ server: "http://127.0.0.1:1" }));
  const flags = { kubeconfig, "http-address": "127.0.0.1:0", "disable-process-metrics": "true" };
  const processes: AsyncDisposable[] = [];
  const [line, ...more] = await linesLoggedBy(async () => {
    processes.push(await startClusterProcess(flags, "test", () => ["lvmnodes not listed yet"]));
  });
  assertEquals([more, processes.length], [[], 1]);
  await using _ = processes[0]!;
  assertMatch(line!, /^\S+Z info http serving HTTP host="127\.0\.0\.1" port=\d+$/);
  const response = await fetch(`http://127.0.0.1:${/\d+$/.exec(line!)![0]}/readyz`);
  assertEquals([response.status, await response.text()], [
    503,
    "the API server has not answered yet\nlvmnodes not listed yet\n",
  ]);
  await Deno.remove(kubeconfig);
});

Deno.test("startClusterProcess() serves no HTTP without an address", async () => {
  const kubeconfig = await Deno.makeTempFile();
  await Deno.writeTextFile(kubeconfig, kubeconfigOf({ server: "http://127.0.0.1:1" }));
  const flags = { kubeconfig, "http-address": "off", "disable-process-metrics": "true" };
  const lines = await linesLoggedBy(async () => {
    await using _ = await startClusterProcess(flags, "test", () => []);
  });
  assertEquals(lines, []);
  await Deno.remove(kubeconfig);
});
