/**
 * Volumes on a node without lvm2 and with a read-only `/etc`: the driver brings what it needs, and the chart's values say
 * where it may write. It has a cluster of its own.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { BARE_DIRECTORIES } from "../bare_host.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { QUICK } from "./helpers/objects.ts";
import { requestSize, waitForSize } from "./helpers/resizing.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

Deno.test("on a host without lvm2 and with a read-only /etc, volumes are created, cloned, grown and deleted", async () => {
  await using ns = await TestNamespace.open("bare");
  const isBare =
    "for f in lvm lvs dmsetup dmeventd; do ! command -v $f || exit 1; done; ! [ -e /etc/lvm ] && ! touch /etc/x";
  await ns.runOnNode(isBare);

  const thick = await ns.createStorageClass("thick", { parameters: QUICK });
  const thin = await ns.createStorageClass("thin", {
    parameters: { ...QUICK, thinProvision: "yes", thinPoolSize: "1Gi" },
  });
  for (const [name, cls] of [["thick", thick], ["thin", thin]] as const) await ns.createClaim({ name, class: cls });
  await ns.createClaim({ name: "raw", class: thick, volumeMode: "Block" });
  const claims = [{ name: "thick", path: "/thick" }, { name: "thin", path: "/thin" }, {
    name: "raw",
    devicePath: "/raw",
  }];
  await ns.createPod({ name: "first", claims });
  await ns.waitForRunning("first");
  await ns.exec(
    "first",
    "for f in /thick/f /thin/f; do echo data > $f; done; echo data | dd of=/raw conv=notrunc; sync",
  );
  await requestSize(ns, "thick", "32Mi");
  await waitForSize(ns, "thick", "32Mi");

  await ns.createClaim({
    name: "clone",
    class: thick,
    size: "32Mi",
    from: { kind: "PersistentVolumeClaim", name: "thick" },
  });
  await ns.createPod({ name: "second", claims: [{ name: "clone", path: "/clone" }] });
  await ns.waitForRunning("second");
  assertEquals(await ns.exec("second", "cat /clone/f"), "data\n");
  assertEquals(await ns.exec("first", "cat /thick/f /thin/f; head -c 5 /raw"), "data\n".repeat(3));

  const archives = await ns.runOnNode(`ls ${BARE_DIRECTORIES.archiveDir}/archive`);
  assertMatch(archives, /^data_\d+-\d+\.vg$/m);

  const names = ["clone", "thick", "thin", "raw"];
  const ids = (await Promise.all(names.map((name) => ns.volumeOf(name)))).map(({ spec }) => spec!.csi!.volumeHandle);
  for (const name of ["first", "second"]) await ns.deleteAndWait("Pod", name);
  for (const name of names) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await Promise.all(ids.map((id) => ns.waitForDeletion("LVMVolume", id)));
  const lvs = ["lvm", "lvs", "--config", 'devices/types=["ubd", 16]', "--noheadings", "-o", "lv_tags", "data"];
  const agent = ["--namespace", SYSTEM_NAMESPACE, "exec", "daemonset/denolith-node", "--"];
  const tags = await ns.cluster.controlPlane.kubectl([...agent, ...lvs]);
  assert(!tags.includes("denolith.volume="), tags);
});
