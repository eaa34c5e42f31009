/**
 * A claim that stays pending because no node has enough free space.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { addPv, createTestGroup } from "./helpers/test_group.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

Deno.test("a claim that fits into no group waits with an event that says why, and is bound when the group is extended", async () => {
  await using ns = await TestNamespace.open("no-space");
  await using group = await createTestGroup(ns, 100); // other tests may use the free space of a shared group
  const size = group.mib + 100;
  const parameters = { volumeGroup: group.name, erase: "none" };
  const cls = await ns.createStorageClass("own", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "large", class: cls, size: `${size}Mi`, volumeMode: "Block" });
  await ns.waitForEvent("PersistentVolumeClaim", "large", "ProvisioningFailed", /not enough free space in .* free\)/);
  await ns.waitFor("PersistentVolumeClaim", "large", (claim) => claim?.status?.phase === "Pending", "waits");

  await using _disk = await addPv(ns, group.name, 200);
  await ns.waitForBound("large");
  assertEquals((await ns.lvOf("large")).size, size * 2 ** 20);
  // Nothing may be left on the disk that is taken away again.
  await ns.deleteAndWait("PersistentVolumeClaim", "large");
  await ns.waitForCleanup();
  await ns.runOnNode(
    `for i in $(seq 60); do lvs ${group.name} | grep -q . || exit 0; sleep 1; done; lvs ${group.name}; exit 1`,
  );
});
