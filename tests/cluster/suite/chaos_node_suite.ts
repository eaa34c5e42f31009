import { assertEquals } from "@std/assert";
import type { Pod } from "../../../k8s/api/objects.ts";
import { ClaimTracker } from "./helpers/claim_tracker.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

const LVMLOCAL = "/etc/lvm/lvmlocal.conf";

/** The setting of today's hosts: LVs are activated only by their users. */
const NO_ACTIVATION = "global { event_activation = 0 }";

Deno.test("kubelet can be restarted: pods keep running, and new pods get their volumes", async () => {
  await using ns = await TestNamespace.open("kubelet");
  await using tracker = await ClaimTracker.open(ns);
  const className = await ns.createStorageClass("lazy");
  await ns.createClaim({ name: "old", class: className });
  await ns.createPod({ name: "old", claims: [{ name: "old", path: "/data" }] });
  const before = containerOf(await ns.waitForRunning("old"));
  await ns.exec("old", "echo kept > /data/file");

  await ns.node.restartKubelet();
  await ns.node.ready();
  await ns.createClaim({ name: "new", class: className });
  await ns.createPod({ name: "new", claims: [{ name: "new", path: "/data" }] });
  await ns.waitForRunning("new");
  assertEquals(await ns.exec("new", "echo new > /data/file && cat /data/file"), "new\n");
  assertEquals(containerOf(await ns.waitForRunning("old")), before);
  assertEquals(await ns.exec("old", "cat /data/file"), "kept\n");
  await tracker.waitForConsistency();
});

Deno.test("a node that lost its power, and activates no LVs by itself, has its pods back with their data", async () => {
  await using ns = await TestNamespace.open("power");
  await using tracker = await ClaimTracker.open(ns);
  const className = await ns.createStorageClass("lazy");
  await ns.createClaim({ name: "data", class: className });
  await ns.createPod({ name: "owner", claims: [{ name: "data", path: "/data" }] });
  const before = containerOf(await ns.waitForRunning("owner"));
  await ns.exec("owner", "echo kept > /data/file && sync");
  const { group, name } = await ns.lvOf("data");
  await ns.runOnNode(`cp -n ${LVMLOCAL} ${LVMLOCAL}.before; echo '${NO_ACTIVATION}' >> ${LVMLOCAL}; sync`);
  try {
    await ns.node.powerCycle();
    assertEquals((await ns.runOnNode(`lvs --noheadings -o lv_active ${group}/${name}`)).trim(), "");
    const isAnother = (pod: Pod | undefined) => ![undefined, before].includes(pod && containerOf(pod));
    await ns.waitFor("Pod", "owner", isAnother, "runs again");
    assertEquals(await ns.exec("owner", "cat /data/file"), "kept\n");
    await tracker.waitForConsistency();
  } finally {
    await ns.runOnNode(`mv ${LVMLOCAL}.before ${LVMLOCAL}`);
  }
});

/** Returns the id of the running container of a pod; undefined while none runs. */
function containerOf({ status }: Pod): string | undefined {
  const [container] = status?.containerStatuses ?? [];
  return container?.state?.running === undefined || !container.ready ? undefined : container.containerID;
}
