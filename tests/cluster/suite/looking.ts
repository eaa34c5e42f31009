/**
 * What there is to see of the driver: columns of kubectl, health and figures.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
import type { Pod } from "../../../k8s/api/objects.ts";
import { lvmSnapshotFor } from "../../../k8s/api/snapshot_mapping.ts";
import { parseVolumeId, snapshotIdOf } from "../../../lvm/ids.ts";
import { Scene } from "./scene.ts";
import { DRIVER, QUICK } from "./scene_objects.ts";

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

Deno.test("kubectl shows a snapshot in words, and when it overflowed; it keeps its volume until it is gone", async () => {
  await using scene = await Scene.open("look");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  const { volume, name: origin, device } = await scene.lvOf("data");
  const name = `${scene.namespace}-cut`;
  const id = snapshotIdOf(name);
  const store = { bytes: 4n << 20n };
  const object = lvmSnapshotFor({ id, name, source: parseVolumeId(volume!)!, store }, {
    driver: DRIVER,
    nodeName: scene.node.name,
  });
  const metadata = { ...object.metadata, annotations: { [REMOVE_ANNOTATION]: "true" } };
  await scene.apply({ ...object, metadata });
  await scene.wait("LVMSnapshot", id, (snapshot) => snapshot?.status?.state === "Ready", "is taken");
  const { NODE, SOURCE, GROUP, SIZE, STATE, "USED%": used, STORE, LV, REASON } = cells(
    await scene.kubectl("get", "lvmsnapshot", id, "--output=wide"),
  );
  const lv = (await scene.onNode(`lvs --noheadings -o lv_name -S 'origin=${origin}' data`)).trim();
  assertEquals(
    [NODE, SOURCE, GROUP, SIZE, STATE, STORE, LV, REASON],
    [scene.node.name, volume, "data", "16Mi", "Ready", "4Mi", lv, ""],
  );
  assertMatch(used!, /^\d$/);

  await scene.onNode(`dd if=/dev/zero of=${device} bs=1M count=12 oflag=direct`);
  const over = await scene.wait("LVMSnapshot", id, (now) => now?.status?.state === "Overflowed", "overflowed");
  assertEquals([over.status!.readyToUse, over.status!.storePercent], [false, 100]);
  await scene.event("LVMSnapshot", id, "Overflowed", /overflowed/);

  const pv = (await scene.volumeOf("data")).metadata.name;
  await scene.remove("PersistentVolumeClaim", "data");
  await scene.event("PersistentVolume", pv, "VolumeFailedDelete", /it is the origin of the snapshots v1-/);
  await scene.delete("LVMSnapshot", id);
  await scene.settled();
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
