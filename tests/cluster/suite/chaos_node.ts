import { assertEquals } from "@std/assert";
import type { Pod } from "../../../k8s/api/objects.ts";
import { Ledger } from "./ledger.ts";
import { Scene } from "./scene.ts";

const LVMLOCAL = "/etc/lvm/lvmlocal.conf";

/** What hosts of today are set to: nothing activates LVs but who needs them. */
const NO_ACTIVATION = "global { event_activation = 0 }";

Deno.test("kubelet can be restarted: pods go on, and new ones get their volumes", async () => {
  await using scene = await Scene.open("kubelet");
  await using ledger = await Ledger.open(scene);
  const className = await scene.storageClass("lazy");
  await scene.claim({ name: "old", class: className });
  await scene.pod({ name: "old", claims: [{ name: "old", path: "/data" }] });
  const before = containerOf(await scene.running("old"));
  await scene.exec("old", "echo kept > /data/file");

  await scene.node.restartKubelet();
  await scene.node.ready();
  await scene.claim({ name: "new", class: className });
  await scene.pod({ name: "new", claims: [{ name: "new", path: "/data" }] });
  await scene.running("new");
  assertEquals(await scene.exec("new", "echo new > /data/file && cat /data/file"), "new\n");
  assertEquals(containerOf(await scene.running("old")), before);
  assertEquals(await scene.exec("old", "cat /data/file"), "kept\n");
  await ledger.balanced();
});

Deno.test("a node that lost its power, and activates no LVs by itself, has its pods back with their data", async () => {
  await using scene = await Scene.open("power");
  await using ledger = await Ledger.open(scene);
  const className = await scene.storageClass("lazy");
  await scene.claim({ name: "data", class: className });
  await scene.pod({ name: "owner", claims: [{ name: "data", path: "/data" }] });
  const before = containerOf(await scene.running("owner"));
  await scene.exec("owner", "echo kept > /data/file && sync");
  const { group, name } = await scene.lvOf("data");
  await scene.onNode(`cp -n ${LVMLOCAL} ${LVMLOCAL}.before; echo '${NO_ACTIVATION}' >> ${LVMLOCAL}; sync`);
  try {
    await scene.node.powerCycle();
    assertEquals((await scene.onNode(`lvs --noheadings -o lv_active ${group}/${name}`)).trim(), "");
    const isAnother = (pod: Pod | undefined) => ![undefined, before].includes(pod && containerOf(pod));
    await scene.wait("Pod", "owner", isAnother, "runs again");
    assertEquals(await scene.exec("owner", "cat /data/file"), "kept\n");
    await ledger.balanced();
  } finally {
    await scene.onNode(`mv ${LVMLOCAL}.before ${LVMLOCAL}`);
  }
});

/** The container of a pod that runs; undefined while it does not. */
function containerOf({ status }: Pod): string | undefined {
  const [container] = status?.containerStatuses ?? [];
  return container?.state?.running === undefined || !container.ready ? undefined : container.containerID;
}
