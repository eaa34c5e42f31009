/**
 * Logical volumes without objects, and objects without logical volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { volumeIdOf, volumeLvName } from "../../../base/ids.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { DRIVER, QUICK } from "./helpers/objects.ts";

/** Creates a logical volume of the driver without an object. It is removed at the end, if it still exists. */
async function createOrphan(ns: TestNamespace) {
  const id = volumeIdOf(`${ns.namespace}-orphan`);
  const path = `data/${volumeLvName(id)}`;
  const tags = [`denolith=${DRIVER}`, `denolith.volume=${id}`, "denolith.fs=wanted:ext4", "denolith.erase=none"];
  const args = tags.map((tag) => `--addtag ${tag}`).join(" ");
  await ns.runOnNode(`lvcreate -qq -y -L 16M -n ${volumeLvName(id)} ${args} data`);
  return {
    id,
    path,
    uuid: (await ns.runOnNode(`lvs --noheadings -o lv_uuid ${path}`)).trim(),
    [Symbol.asyncDispose]: async () => {
      await ns.runOnNode(`! lvs ${path} 2>/dev/null >/dev/null || lvremove -qq -f ${path}`);
    },
  };
}

Deno.test("an orphan is reported and kept, and is removed when an administrator names it and it is not open", async () => {
  await using ns = await TestNamespace.open("orphan");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "known", class: cls });
  await ns.waitForBound("known");
  await using lv = await createOrphan(ns);
  const folder = `/run/${ns.namespace}`;
  await ns.runOnNode(`mke2fs -q /dev/${lv.path} && mkdir ${folder} && mount /dev/${lv.path} ${folder}`);

  const node = ns.node.name;
  const orphans = await ns.waitFor("LVMNode", node, (object) => {
    const condition = object?.status?.conditions?.find(({ type }) => type === "Orphans");
    return condition?.status === "True" && condition.message.includes(`${lv.path} (16 MiB), UUID ${lv.uuid}`);
  }, "reports the orphan");
  assert(orphans.status?.volumeGroups?.length, "and of everything else");
  const found = await ns.waitForEvent("LVMNode", node, "OrphanFound", new RegExp(lv.path));
  const inPod = ["--namespace", SYSTEM_NAMESPACE, "exec", "daemonset/denolith-node", "--", "/usr/bin/denolith"];
  const status = await ns.cluster.controlPlane.kubectl([...inPod, "status", "--node-name", node]);
  const [, command] = /: (kubectl annotate .*)$/.exec(found.message!) ?? [];
  const [, reported] = status.split("\nOrphans\n");
  assert(
    command !== undefined && reported?.includes(lv.path) && reported.includes(command),
    `${found.message}\n${status}`,
  );

  await ns.cluster.controlPlane.kubectl(command.split(" ").slice(1));
  await ns.waitForEvent("LVMNode", node, "OrphanRemovalFailed", new RegExp(`${lv.path} .*is in use`));
  await ns.runOnNode(`umount ${folder} && rmdir ${folder}`);
  await ns.waitForEvent("LVMNode", node, "OrphanRemoved", new RegExp(lv.path));
  assertEquals((await ns.runOnNode(`lvs --noheadings -o lv_uuid data`)).includes(lv.uuid), false);
  await ns.waitFor("LVMNode", node, (object) => {
    const condition = object?.status?.conditions?.find(({ type }) => type === "Orphans");
    return condition !== undefined && !condition.message.includes(lv.path);
  }, "no longer reports it");
  assertEquals((await ns.lvs()).length, 1, "the known one is there");
});

Deno.test("a volume whose logical volume is gone is Lost, and can still be deleted", async () => {
  await using ns = await TestNamespace.open("lost");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls });
  const { group, name, volume } = await ns.lvOf("data");
  await ns.runOnNode(`lvremove -qq -f ${group}/${name}`);
  await ns.waitFor("LVMVolume", volume!, (object) => object?.status?.state === "Lost", "is Lost");
  await ns.waitForEvent("LVMVolume", volume!, "Lost", /Nothing is created or formatted in its place/);
  assertEquals(await ns.lvs(), []);
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
});
