/**
 * What the scheduler is told of a node's room, and what that is good for.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { SYSTEM } from "./driver_pods.ts";
import { Offers } from "./offers.ts";
import { moreDisk, ownGroup } from "./own_group.ts";
import { boundOf, claimAtOnce, refusals } from "./rush.ts";
import { Scene } from "./scene.ts";

Deno.test("what is offered of a class follows its volumes, and goes with the class", async () => {
  await using scene = await Scene.open("offers");
  await using offers = await Offers.open(scene);
  await using group = await ownGroup(scene, 300);
  const node = scene.node.name;
  const cls = await scene.storageClass("own", { parameters: { volumeGroup: group.name } });
  const other = await scene.storageClass("other", { parameters: { volumeGroup: "no-such-group" } });
  await offers.are(group.mib, node, cls);
  await offers.are(0, node, other);
  const { metadata, capacity } = offers.now(node, cls)!;
  assertEquals([capacity, metadata.ownerReferences?.map(({ kind, name }) => `${kind} ${name}`)], [
    `${group.mib}Mi`,
    [`LVMNode ${node}`],
  ]);
  const listed = await scene.cluster.controlPlane.kubectl(["--namespace", SYSTEM, "get", "csistoragecapacities"]);
  assertStringIncludes(listed, metadata.name);

  await scene.claim({ name: "data", class: cls, size: "48Mi" });
  await scene.pod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await scene.running("user");
  await offers.are(group.mib - 48, node, cls);
  await scene.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "64Mi" } } } });
  await offers.are(group.mib - 64, node, cls);

  await scene.kubectl("--namespace", SYSTEM, "delete", "csistoragecapacity", metadata.name);
  await scene.cluster.controlPlane.kubectl([
    ...["--namespace", SYSTEM, "wait", "--for=create", `csistoragecapacity/${metadata.name}`, "--timeout=60s"],
  ]);
  await offers.are(group.mib - 64, node, cls);

  await scene.delete("Pod", "user");
  await scene.delete("PersistentVolumeClaim", "data");
  await offers.are(group.mib, node, cls); // once its data is erased
  await scene.remove("StorageClass", cls);
  await offers.are(undefined, node, cls);
  await scene.settled();
});

Deno.test("a pod that no node has room for says so, and runs when a group grows", async () => {
  await using scene = await Scene.open("pending");
  await using offers = await Offers.open(scene);
  await using group = await ownGroup(scene, 100);
  const cls = await scene.storageClass("own", { parameters: { volumeGroup: group.name, erase: "none" } });
  await offers.are(group.mib, scene.node.name, cls);
  await scene.claim({ name: "large", class: cls, size: `${group.mib + 60}Mi`, volumeMode: "Block" });
  await scene.pod({ name: "user", claims: [{ name: "large", devicePath: "/raw" }] });
  await scene.event("Pod", "user", "FailedScheduling", /did not have enough free storage/);
  assertEquals(await scene.lvs(), []);

  await using _disk = await moreDisk(scene, group.name, 100);
  await scene.running("user");
  assertEquals((await scene.events("PersistentVolumeClaim", "large")).filter(({ type }) => type === "Warning"), []);
  // Nothing may be left on the disk that is taken away again.
  await scene.delete("Pod", "user");
  await scene.delete("PersistentVolumeClaim", "large");
  await scene.settled();
  await offers.are(group.mib + 96, scene.node.name, cls);
});

Deno.test("four claims at once in a group with room for three: none is made that does not fit, and the fourth has the first's room", async () => {
  await using scene = await Scene.open("rush");
  await using offers = await Offers.open(scene);
  await using group = await ownGroup(scene, 200);
  const parameters = { volumeGroup: group.name, erase: "none" };
  const cls = await scene.storageClass("own", { parameters, volumeBindingMode: "Immediate" });
  await offers.are(group.mib, scene.node.name, cls);
  const names = ["one", "two", "three", "four"];
  const size = Math.floor(group.mib / 3.5 / 4) * 4;
  await claimAtOnce(scene, names, { class: cls, size: `${size}Mi`, volumeMode: "Block" });
  const bound = await boundOf(scene, names, 3);
  const [last] = names.filter((name) => !bound.includes(name));
  await scene.event("PersistentVolumeClaim", last!, "ProvisioningFailed", /no room in/);
  await offers.are(group.mib - 3 * size, scene.node.name, cls);
  assertEquals([await refusals(scene, names), (await scene.lvs()).length], [[], 3]);

  await scene.delete("PersistentVolumeClaim", bound[0]!);
  await scene.bound(last!);
  assert(!(await boundOf(scene, names, 3)).includes(bound[0]!));
  for (const name of names.filter((name) => name !== bound[0])) await scene.delete("PersistentVolumeClaim", name);
  await scene.settled();
  await offers.are(group.mib, scene.node.name, cls);
});
