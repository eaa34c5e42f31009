import { reset } from "@logtape/logtape";
import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { lvmVolumes, type LvmVolumeSpec } from "../k8s/api/lvm_objects.ts";
import { ApiError } from "../k8s/client/client.ts";
import { customResourceDefinitions, SCHEMA_ANNOTATION } from "../k8s/client/definitions.ts";
import { FakeClock } from "../tests/fake/clock.ts";
import { FakeApiServer } from "../tests/fake/cluster/api_server.ts";
import { waitUntil } from "../tests/fake/cluster/control_plane.ts";
import { kubeconfigOf } from "../tests/fake/cluster/kubeconfig.ts";
import { collectPrinted, httpGet, SubcommandFolder } from "../tests/fake/subcommand.ts";
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
  assertEquals(response.status, 503);
  assertMatch(await response.text(), /^the API server has not answered yet.*\nlvmnodes not listed yet\n$/);
  await Deno.remove(kubeconfig);
});

Deno.test("startClusterProcess() is not ready while definitions are too old, and its client requests no volumes", async () => {
  await using api = FakeApiServer.start({ resources: [customResourceDefinitions, lvmVolumes] });
  const name = "lvmvolumes.lvm.denolith.dev";
  api.put(customResourceDefinitions, { metadata: { name } });
  await using folder = await SubcommandFolder.create(api.url);
  await using printed = collectPrinted();
  await startLogging("info", "text");
  const flags = { kubeconfig: folder.kubeconfig, "http-address": "127.0.0.1:0", "disable-process-metrics": "true" };
  const clock = new FakeClock();
  {
    await using cluster = await startClusterProcess(flags, "controller", () => [], clock);
    const { client, definitions } = cluster;
    const volume = { metadata: { name: "v" }, spec: {} as LvmVolumeSpec };
    await assertRejects(() => client.create(lvmVolumes, volume), ApiError, name);
    await assertRejects(() => client.patch(lvmVolumes, { name: "v" }, { merge: { spec: {} } }), ApiError, name);
    assertMatch(await httpGet(printed, "/readyz"), new RegExp(`too old.*: ${name} .0.;`));
    const annotations = { [SCHEMA_ANNOTATION]: "99" };
    api.collection(customResourceDefinitions).patch({ metadata: { annotations } }, { name, namespace: undefined });
    await clock.advance(10_000);
    await waitUntil(() => definitions.outdated === undefined, "the end of the problem");
    assertEquals(await httpGet(printed, "/readyz"), "ok\n");
    await client.create(lvmVolumes, volume);
  }
  assertEquals(api.requests.at(-1)?.query.toString(), "fieldValidation=Strict");
  const told = printed.log.filter((line) => line.includes("too old"));
  assertEquals(told.map((line) => line.includes(name)), [true, false]);
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
