/**
 * A Prometheus on this machine scrapes the driver's pods, and is asked for what the dashboard and the alerts ask.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { Pod } from "../../../k8s/api/objects.ts";
import { lvmSnapshots, REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
import { lvmSnapshotFor } from "../../../k8s/api/snapshot_mapping.ts";
import { parseVolumeId, snapshotIdOf } from "../../../base/ids.ts";
import { PANEL_QUERIES, RULES, RULES_TEXT, selectorsOf, withoutVariables } from "../../monitoring/chart_files.ts";
import { queriesWithoutData } from "../../monitoring/dashboard_queries.ts";
import { freePorts } from "../../rig/free_ports.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { ensurePrometheus, Prometheus, type ScrapeTarget } from "../../rig/prometheus.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { ioLimitHelpers } from "./helpers/io_limit_helpers.ts";
import { DRIVER, QUICK } from "./helpers/objects.ts";
import { createTestGroup, removePool } from "./helpers/test_group.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** The interval of scrapes, in milliseconds: a page takes the guest tenths of a second. */
const INTERVAL_MS = 2_000;

/** The window of rates. */
const RATE_INTERVAL = "30s";

/** The time limit for all queries to have data, in milliseconds. The agent reports its groups each minute. */
const TIMEOUT_MS = 240_000;

/** The series that a cluster without RAID, caches, copies, moves and errors does not have. tests/monitoring has them over fakes. */
const NOT_HERE =
  /denolith_raid_|denolith_(?:copy|move|import)_progress|denolith_filesystem_readonly|denolith_volume_(?:lost|held|keys)|(?:result|status)=~?"error|code!~?"/;

/** The ports of /metrics in the pods, by component. */
const PORTS = { node: 9808, controller: 9809 } as const;

/** Leads ports of this machine to the pods of the driver, until it is disposed of. */
async function forwardToPods(ns: TestNamespace) {
  const { controlPlane, folder } = ns.cluster;
  const list = ["--namespace", SYSTEM_NAMESPACE, "get", "pods", "--output=json"];
  const { items } = JSON.parse(await controlPlane.kubectl(list)) as { items: Pod[] };
  const pods = items.flatMap(({ metadata: { name, labels = {} }, spec }) => {
    const port = PORTS[labels["app.kubernetes.io/component"] as keyof typeof PORTS];
    return port === undefined ? [] : [{ name, port, node: spec!.nodeName! }];
  });
  const local = freePorts(pods.length);
  const targets: ScrapeTarget[] = [];
  const processes: string[] = [];
  for (const [index, { name, port, node }] of pods.entries()) {
    const args = ["--kubeconfig", controlPlane.kubeconfig, "--namespace", SYSTEM_NAMESPACE, "port-forward"];
    processes.push(`forward-${ns.namespace}-${index}`);
    await folder.start(processes.at(-1)!, controlPlane.programs.kubectl, [
      ...args,
      `pod/${name}`,
      `${local[index]}:${port}`,
    ]);
    targets.push({
      address: `127.0.0.1:${local[index]}`,
      labels: { namespace: SYSTEM_NAMESPACE, pod: name, node },
    });
  }
  return {
    targets,
    [Symbol.asyncDispose]: async () => {
      for (const name of processes) await folder.stop(name);
    },
  };
}

/** Compares the metrics of the only physical volume and of the thin LVs of a group with what LVM reports. */
async function compareWithLvm(ns: TestNamespace, prometheus: Prometheus, group: string): Promise<void> {
  const options = "--noheadings --binary --units b --nosuffix --separator ,";
  const cells = async (command: string) => (await ns.runOnNode(command)).trim().split(",");
  const valueOf = async (metric: string, labels = "") =>
    (await prometheus.query(`denolith_${metric}{group="${group}"${labels}}`)).map(({ value }) => String(value)).join();
  const pvFields = "dev_size,pv_size,pv_used,pv_mda_size,pv_mda_free,pv_allocatable";
  const pvMetrics = ["device_size_bytes", "size_bytes", "used_bytes", "metadata_size_bytes", "metadata_free_bytes"];
  const pool = `${group}/${group}_thinpool`;
  const compare = async () => {
    const expected = {
      pv: await cells(`pvs ${options} -o ${pvFields} -S vg_name=${group}`),
      whenFull: await cells(`lvs ${options} -o lv_when_full,lv_metadata_size ${pool}`),
      thin: Number((await cells(`lvs ${options} -o data_percent -S 'segtype=thin' ${group}`))[0]) / 100,
    };
    const actual = {
      pv: await Promise.all([...pvMetrics, "allocatable"].map((name) => valueOf(`physical_volume_${name}`))),
      whenFull: [
        await valueOf("thin_pool_queues_when_full") === "1" ? "queue" : "error",
        await valueOf("thin_pool_metadata_size_bytes"),
      ],
      thin: Number(await valueOf("thin_volume_used_ratio")),
    };
    return { expected, actual };
  };
  const wait = { action: "compare with LVM", timeoutMs: 90_000, intervalMs: INTERVAL_MS };
  await pollUntil(async () => {
    const { expected, actual } = await compare();
    return JSON.stringify(expected) === JSON.stringify(actual);
  }, wait).catch(() => {});
  const { expected, actual } = await compare();
  assertEquals(actual, expected);
}

Deno.test("Prometheus scrapes the pods: the queries of the dashboard return data, and the rules are evaluated", async () => {
  await using ns = await TestNamespace.open("metrics");
  await using group = await createTestGroup(ns, 200);
  const thin = { volumeGroup: group.name, thinProvision: "yes", thinPoolSize: "64Mi" };
  const thinClass = await ns.createStorageClass("thin", { parameters: thin, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "thin", class: thinClass });
  const parameters = { ...QUICK, writeBps: "8Mi", readIops: "500" };
  await ns.createClaim({ name: "data", class: await ns.createStorageClass("limited", { parameters }) });
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await ns.waitForBound("thin");
  await ioLimitHelpers(ns).waitForLimits("data", /writeBps 8Mi/);
  const source = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  const name = `${ns.namespace}-cut`;
  const request = { id: snapshotIdOf(name), name, source: parseVolumeId(source)!, cowSize: { bytes: 4n << 20n } };
  await ns.applyAs(lvmSnapshots, lvmSnapshotFor(request, { driver: DRIVER, nodeName: ns.node.name }));
  await ns.waitFor("LVMSnapshot", request.id, (snapshot) => snapshot?.status?.state === "Ready", "is taken");

  {
    await using pods = await forwardToPods(ns);
    assert(pods.targets.length >= 2, "there are an agent and a controller");
    const programs = await ensurePrometheus(console.error);
    const options = { programs, targets: pods.targets, rules: RULES_TEXT, intervalMs: INTERVAL_MS };
    await using prometheus = await Prometheus.start(options);
    const queries = [
      ...PANEL_QUERIES.map(({ expr }) => withoutVariables(expr, RATE_INTERVAL)),
      ...RULES.flatMap(({ expr }) => selectorsOf(expr)),
    ];
    const missing = async () => {
      // a driver at rest reconciles nothing, and a quantile of no reconciles is not a number
      const annotations = { "example.com/touched": crypto.randomUUID() };
      await ns.patch("LVMVolume", source, { metadata: { annotations } });
      // an expression that Prometheus cannot evaluate throws, also where no data is expected
      return (await queriesWithoutData(prometheus, queries)).filter((query) => !NOT_HERE.test(query));
    };
    const wait = { action: "get data for each query", timeoutMs: TIMEOUT_MS, intervalMs: INTERVAL_MS };
    await pollUntil(async () => (await missing()).length === 0, wait).catch(() => {});
    assertEquals([...(await prometheus.targetErrors()).values()].filter((error) => error !== ""), []);
    assertEquals(await missing(), []);
    await compareWithLvm(ns, prometheus, group.name);
    const rules = await prometheus.rules();
    assertEquals(rules.length, RULES.length);
    assertEquals(rules.filter(({ health }) => health !== "ok").map(({ name, lastError }) => [name, lastError]), []);
  }

  await ns.patch("LVMSnapshot", request.id, { metadata: { annotations: { [REMOVE_ANNOTATION]: "true" } } });
  await ns.deleteAndWait("LVMSnapshot", request.id);
  await ns.deleteAndWait("Pod", "user");
  for (const claim of ["data", "thin"]) await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.waitForCleanup();
  await removePool(ns, group.name);
});
