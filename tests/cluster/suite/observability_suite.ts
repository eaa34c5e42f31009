/**
 * The driver's output for administrators: columns of kubectl, health and metrics.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmSnapshots, REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
import type { Pod } from "../../../k8s/api/objects.ts";
import { lvmSnapshotFor } from "../../../k8s/api/snapshot_mapping.ts";
import { parseVolumeId, snapshotIdOf } from "../../../base/ids.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { DRIVER, QUICK } from "./helpers/objects.ts";

/** Returns the cells of kubectl's table, by the name of the column. */
function parseTable(table: string): Record<string, string> {
  const [head = "", row = ""] = table.split("\n");
  const columns = [...head.matchAll(/\S+(\s|$)+/g)].map(({ 0: title, index }) => [title.trim(), index] as const);
  return Object.fromEntries(columns.map(([title, start], i) => [title, row.slice(start, columns[i + 1]?.[1]).trim()]));
}

Deno.test("kubectl shows volumes and nodes; both processes are healthy and have metrics", async () => {
  await using ns = await TestNamespace.open("look");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls });
  const lv = await ns.lvOf("data");
  await ns.waitFor("LVMVolume", lv.volume!, (volume) => volume?.status?.state === "Ready", "is ready");
  const volume = parseTable(await ns.kubectl("get", "lvmvolume", lv.volume!, "--output=wide"));
  const { NODE, GROUP, SIZE, STATE, FILESYSTEM, CLAIM, REQUESTED, LV, REASON } = volume;
  assertEquals(
    [NODE, GROUP, SIZE, STATE, FILESYSTEM, CLAIM, REQUESTED, LV, REASON],
    [ns.node.name, "data", "16Mi", "Ready", "ext4", `${ns.namespace}/data`, "16Mi", lv.name, ""],
  );
  const node = parseTable(await ns.kubectl("get", "lvmnode", ns.node.name));
  assert(Number(node["GROUPS"]) >= 2 && /^\d+(Mi|Gi)$/.test(node["SIZE"]!), JSON.stringify(node));

  const agent = await scrape(ns, "node", 9808);
  const size = (await ns.runOnNode("vgs --noheadings --units b --nosuffix -o vg_size data")).trim();
  assertMatch(agent.metrics, new RegExp(`^denolith_volume_group_size_bytes\\{group="data"\\} ${size}$`, "m"));
  assertMatch(
    agent.metrics,
    /^denolith_reconcile_duration_seconds_count\{controller="lvmvolume",result="success"\} [1-9]/m,
  );
  assertMatch(agent.metrics, /^denolith_csi_operation_duration_seconds_count\{method="NodeGetInfo",code="0"\} [1-9]/m);
  const controller = await scrape(ns, "controller", 9809);
  assertMatch(
    controller.metrics,
    /^denolith_csi_operation_duration_seconds_count\{method="CreateVolume",code="0"\} [1-9]/m,
  );
  assertMatch(
    controller.metrics,
    /^denolith_reconcile_duration_seconds_count\{controller="provisioner",result="success"\} [1-9]/m,
  );
  for (const { live, ready } of [agent, controller]) assertEquals([live, ready], ["ok\n", "ok\n"]);
});

Deno.test("kubectl shows a snapshot in words, and when it overflowed; it keeps its volume until it is gone", async () => {
  await using ns = await TestNamespace.open("look");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls });
  const { volume, name: origin, device } = await ns.lvOf("data");
  const name = `${ns.namespace}-cut`;
  const id = snapshotIdOf(name);
  const cowSize = { bytes: 4n << 20n };
  const object = lvmSnapshotFor({ id, name, source: parseVolumeId(volume!)!, cowSize }, {
    driver: DRIVER,
    nodeName: ns.node.name,
  });
  const metadata = { ...object.metadata, annotations: { [REMOVE_ANNOTATION]: "true" } };
  await ns.applyAs(lvmSnapshots, { ...object, metadata });
  await ns.waitFor("LVMSnapshot", id, (snapshot) => snapshot?.status?.state === "Ready", "is taken");
  const { NODE, SOURCE, GROUP, SIZE, STATE, "USED%": used, COW, LV, REASON } = parseTable(
    await ns.kubectl("get", "lvmsnapshot", id, "--output=wide"),
  );
  const lv = (await ns.runOnNode(`lvs --noheadings -o lv_name -S 'origin=${origin}' data`)).trim();
  assertEquals(
    [NODE, SOURCE, GROUP, SIZE, STATE, COW, LV, REASON],
    [ns.node.name, volume, "data", "16Mi", "Ready", "4Mi", lv, ""],
  );
  assertMatch(used!, /^\d$/);

  await ns.runOnNode(`dd if=/dev/zero of=${device} bs=1M count=12 oflag=direct`);
  const over = await ns.waitFor("LVMSnapshot", id, (now) => now?.status?.state === "Overflowed", "overflowed");
  assertEquals([over.status!.readyToUse, over.status!.cowPercent], [false, 100]);
  await ns.waitForEvent("LVMSnapshot", id, "Overflowed", /overflowed/);

  const pv = (await ns.volumeOf("data")).metadata.name;
  await ns.requestDeletion("PersistentVolumeClaim", "data");
  await ns.waitForEvent("PersistentVolume", pv, "VolumeFailedDelete", /it is the origin of the snapshots v1-/);
  await ns.deleteAndWait("LVMSnapshot", id);
  await ns.waitForCleanup();
});

/** Reads a path of the driver's HTTP server, from the node. */
async function scrape(ns: TestNamespace, component: string, port: number) {
  const selector = `--selector=app.kubernetes.io/component=${component}`;
  const found = await ns.cluster.controlPlane.kubectl([
    "-n",
    "denolith-system",
    "get",
    "pods",
    selector,
    "-o",
    "json",
  ]);
  const [pod] = (JSON.parse(found) as { items: Pod[] }).items;
  const at = `http://${pod!.status!.podIP}:${port}`;
  const get = (path: string) => ns.runOnNode(`busybox wget -q -O - ${at}/${path}`);
  return { live: await get("livez"), ready: await get("readyz"), metrics: await get("metrics") };
}
