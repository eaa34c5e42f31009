/**
 * Logical volumes without objects, and objects without logical volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { volumeIdOf, volumeLvName } from "../../../lvm/ids.ts";
import { SYSTEM } from "./driver_pods.ts";
import { Scene } from "./scene.ts";
import { DRIVER, QUICK } from "./scene_objects.ts";

/** A logical volume of the driver that no object stands for; removed at the end, if it is still there. */
async function orphan(scene: Scene) {
  const id = volumeIdOf(`${scene.namespace}-orphan`);
  const path = `data/${volumeLvName(id)}`;
  const tags = [`denolith=${DRIVER}`, `denolith.volume=${id}`, "denolith.fs=wanted:ext4", "denolith.erase=none"];
  const args = tags.map((tag) => `--addtag ${tag}`).join(" ");
  await scene.onNode(`lvcreate -qq -y -L 16M -n ${volumeLvName(id)} ${args} data`);
  return {
    id,
    path,
    uuid: (await scene.onNode(`lvs --noheadings -o lv_uuid ${path}`)).trim(),
    [Symbol.asyncDispose]: async () => {
      await scene.onNode(`! lvs ${path} 2>/dev/null >/dev/null || lvremove -qq -f ${path}`);
    },
  };
}

Deno.test("an orphan is told of and kept, and goes when somebody names it and nothing has it open", async () => {
  await using scene = await Scene.open("orphan");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "known", class: cls });
  await scene.bound("known");
  await using lv = await orphan(scene);
  const folder = `/run/${scene.namespace}`;
  await scene.onNode(`mke2fs -q /dev/${lv.path} && mkdir ${folder} && mount /dev/${lv.path} ${folder}`);

  const node = scene.node.name;
  const orphans = await scene.wait("LVMNode", node, (object) => {
    const condition = object?.status?.conditions?.find(({ type }) => type === "Orphans");
    return condition?.status === "True" && condition.message.includes(`${lv.path} (16 MiB), UUID ${lv.uuid}`);
  }, "tells of the orphan");
  assert(orphans.status?.volumeGroups?.length, "and of everything else");
  const found = await scene.event("LVMNode", node, "OrphanFound", new RegExp(lv.path));
  const inPod = ["--namespace", SYSTEM, "exec", "daemonset/denolith-node", "--", "/usr/bin/denolith"];
  const status = await scene.cluster.controlPlane.kubectl([...inPod, "status", "--node-name", node]);
  const [, command] = /: (kubectl annotate .*)$/.exec(found.message!) ?? [];
  const [, told] = status.split("\nUnknown to the cluster\n");
  assert(command !== undefined && told?.includes(lv.path) && told.includes(command), `${found.message}\n${status}`);

  await scene.cluster.controlPlane.kubectl(command.split(" ").slice(1));
  await scene.event("LVMNode", node, "OrphanKept", new RegExp(`${lv.path} .*is in use`));
  await scene.onNode(`umount ${folder} && rmdir ${folder}`);
  await scene.event("LVMNode", node, "OrphanRemoved", new RegExp(lv.path));
  assertEquals((await scene.onNode(`lvs --noheadings -o lv_uuid data`)).includes(lv.uuid), false);
  await scene.wait("LVMNode", node, (object) => {
    const condition = object?.status?.conditions?.find(({ type }) => type === "Orphans");
    return condition !== undefined && !condition.message.includes(lv.path);
  }, "no longer tells of it");
  assertEquals((await scene.lvs()).length, 1, "the known one is there");
});

Deno.test("a volume whose logical volume is gone is Lost, and can still be deleted", async () => {
  await using scene = await Scene.open("lost");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  const { group, name, volume } = await scene.lvOf("data");
  await scene.onNode(`lvremove -qq -f ${group}/${name}`);
  await scene.wait("LVMVolume", volume!, (object) => object?.status?.state === "Lost", "is Lost");
  await scene.event("LVMVolume", volume!, "Lost", /Nothing is made or formatted in its place/);
  assertEquals(await scene.lvs(), []);
  await scene.delete("PersistentVolumeClaim", "data");
  await scene.settled();
});
