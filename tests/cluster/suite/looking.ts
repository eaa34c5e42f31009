/**
 * What there is to see of the driver: columns of kubectl, health and figures.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import type { Pod } from "../../../k8s/objects.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

/** The cells of kubectl's table, by the name of the column. */
function cells(table: string): Record<string, string> {
  const [head = "", row = ""] = table.split("\n");
  const columns = [...head.matchAll(/\S+(\s|$)+/g)].map(({ 0: title, index }) => [title.trim(), index] as const);
  return Object.fromEntries(columns.map(([title, start], i) => [title, row.slice(start, columns[i + 1]?.[1]).trim()]));
}

Deno.test("kubectl shows volumes and nodes in words; both processes are well and have figures", async () => {
  await using scene = await Scene.open("look");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  const lv = await scene.lvOf("data");
  await scene.wait("LVMVolume", lv.volume!, (volume) => volume?.status?.state === "Ready", "is ready");
  const volume = cells(await scene.kubectl("get", "lvmvolume", lv.volume!, "--output=wide"));
  const { NODE, GROUP, SIZE, STATE, FILESYSTEM, CLAIM, WANTED, LV, REASON } = volume;
  assertEquals(
    [NODE, GROUP, SIZE, STATE, FILESYSTEM, CLAIM, WANTED, LV, REASON],
    [scene.node.name, "data", "16Mi", "Ready", "ext4", `${scene.namespace}/data`, "16Mi", lv.name, ""],
  );
  const node = cells(await scene.kubectl("get", "lvmnode", scene.node.name));
  assert(Number(node["GROUPS"]) >= 2 && /^\d+(Mi|Gi)$/.test(node["SIZE"]!), JSON.stringify(node));

  const agent = await ask(scene, "node", 9808);
  const size = (await scene.onNode("vgs --noheadings --units b --nosuffix -o vg_size data")).trim();
  assertMatch(agent.figures, new RegExp(`^denolith_volume_group_size_bytes\\{group="data"\\} ${size}$`, "m"));
  assertMatch(agent.figures, /^denolith_reconcile_seconds_count\{loop="lvmvolume",result="success"\} [1-9]/m);
  assertMatch(agent.figures, /^denolith_csi_call_seconds_count\{method="NodeGetInfo",code="0"\} [1-9]/m);
  const controller = await ask(scene, "controller", 9809);
  assertMatch(controller.figures, /^denolith_csi_call_seconds_count\{method="CreateVolume",code="0"\} [1-9]/m);
  assertMatch(controller.figures, /^denolith_reconcile_seconds_count\{loop="provisioner",result="success"\} [1-9]/m);
  for (const { live, ready } of [agent, controller]) assertEquals([live, ready], ["ok\n", "ok\n"]);
});

/** What a process of the driver says over HTTP, asked from the node. */
async function ask(scene: Scene, component: string, port: number) {
  const selector = `--selector=app.kubernetes.io/component=${component}`;
  const found = await scene.cluster.controlPlane.kubectl([
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
  const get = (path: string) => scene.onNode(`busybox wget -q -O - ${at}/${path}`);
  return { live: await get("livez"), ready: await get("readyz"), figures: await get("metrics") };
}
