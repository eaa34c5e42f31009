/**
 * The capacity that is published for a node, and its effect on scheduling.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { PublishedCapacity } from "./helpers/published_capacity.ts";
import { addPv, createTestGroup } from "./helpers/test_group.ts";
import { createClaimsAtOnce, creationFailures, waitForBound } from "./helpers/concurrent_claims.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

Deno.test("the published capacity of a class follows its volumes, and is deleted with the class", async () => {
  await using ns = await TestNamespace.open("offers");
  await using published = await PublishedCapacity.open(ns);
  await using group = await createTestGroup(ns, 300);
  const node = ns.node.name;
  const cls = await ns.createStorageClass("own", { parameters: { volumeGroup: group.name } });
  const other = await ns.createStorageClass("other", { parameters: { volumeGroup: "no-such-group" } });
  await published.waitFor(group.mib, node, cls);
  await published.waitFor(0, node, other);
  const { metadata, capacity } = published.current(node, cls)!;
  assertEquals([capacity, metadata.ownerReferences?.map(({ kind, name }) => `${kind} ${name}`)], [
    `${group.mib}Mi`,
    [`LVMNode ${node}`],
  ]);
  const listed = await ns.cluster.controlPlane.kubectl([
    "--namespace",
    SYSTEM_NAMESPACE,
    "get",
    "csistoragecapacities",
  ]);
  assertStringIncludes(listed, metadata.name);

  await ns.createClaim({ name: "data", class: cls, size: "48Mi" });
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await published.waitFor(group.mib - 48, node, cls);
  await ns.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "64Mi" } } } });
  await published.waitFor(group.mib - 64, node, cls);

  await ns.kubectl("--namespace", SYSTEM_NAMESPACE, "delete", "csistoragecapacity", metadata.name);
  await ns.cluster.controlPlane.kubectl([
    ...[
      "--namespace",
      SYSTEM_NAMESPACE,
      "wait",
      "--for=create",
      `csistoragecapacity/${metadata.name}`,
      "--timeout=60s",
    ],
  ]);
  await published.waitFor(group.mib - 64, node, cls);

  await ns.deleteAndWait("Pod", "user");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await published.waitFor(group.mib, node, cls); // once its data is erased
  await ns.requestDeletion("StorageClass", cls);
  await published.waitFor(undefined, node, cls);
  await ns.waitForCleanup();
});

Deno.test("a pod that does not fit on any node has an event that says so, and runs when a group is extended", async () => {
  await using ns = await TestNamespace.open("pending");
  await using published = await PublishedCapacity.open(ns);
  await using group = await createTestGroup(ns, 100);
  const cls = await ns.createStorageClass("own", { parameters: { volumeGroup: group.name, erase: "none" } });
  await published.waitFor(group.mib, ns.node.name, cls);
  await ns.createClaim({ name: "large", class: cls, size: `${group.mib + 60}Mi`, volumeMode: "Block" });
  await ns.createPod({ name: "user", claims: [{ name: "large", devicePath: "/raw" }] });
  await ns.waitForEvent("Pod", "user", "FailedScheduling", /did not have enough free storage/);
  assertEquals(await ns.lvs(), []);

  await using _disk = await addPv(ns, group.name, 100);
  await ns.waitForRunning("user");
  assertEquals((await ns.events("PersistentVolumeClaim", "large")).filter(({ type }) => type === "Warning"), []);
  // Nothing may be left on the disk that is taken away again.
  await ns.deleteAndWait("Pod", "user");
  await ns.deleteAndWait("PersistentVolumeClaim", "large");
  await ns.waitForCleanup();
  await published.waitFor(group.mib + 96, ns.node.name, cls);
});

Deno.test("four claims at once in a group with space for three: no volume is created that does not fit, and the fourth gets the space of the first", async () => {
  await using ns = await TestNamespace.open("rush");
  await using published = await PublishedCapacity.open(ns);
  await using group = await createTestGroup(ns, 200);
  const parameters = { volumeGroup: group.name, erase: "none" };
  const cls = await ns.createStorageClass("own", { parameters, volumeBindingMode: "Immediate" });
  await published.waitFor(group.mib, ns.node.name, cls);
  const names = ["one", "two", "three", "four"];
  const size = Math.floor(group.mib / 3.5 / 4) * 4;
  await createClaimsAtOnce(ns, names, { class: cls, size: `${size}Mi`, volumeMode: "Block" });
  const bound = await waitForBound(ns, names, 3);
  const [last] = names.filter((name) => !bound.includes(name));
  await ns.waitForEvent("PersistentVolumeClaim", last!, "ProvisioningFailed", /not enough free space in/);
  await published.waitFor(group.mib - 3 * size, ns.node.name, cls);
  assertEquals([await creationFailures(ns, names), (await ns.lvs()).length], [[], 3]);

  await ns.deleteAndWait("PersistentVolumeClaim", bound[0]!);
  await ns.waitForBound(last!);
  assert(!(await waitForBound(ns, names, 3)).includes(bound[0]!));
  for (const name of names.filter((name) => name !== bound[0])) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await ns.waitForCleanup();
  await published.waitFor(group.mib, ns.node.name, cls);
});
