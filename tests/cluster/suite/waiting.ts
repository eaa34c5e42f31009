/**
 * What a claim does while there is no room.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { moreDisk, ownGroup } from "./own_group.ts";
import { Scene } from "./scene.ts";

Deno.test("a claim that no group has room for waits and says why, and is bound when the group grows", async () => {
  await using scene = await Scene.open("room");
  await using group = await ownGroup(scene, 100); // others may take what is free in one that is there for all
  const size = group.mib + 100;
  const parameters = { volumeGroup: group.name, erase: "none" };
  const cls = await scene.storageClass("own", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "large", class: cls, size: `${size}Mi`, volumeMode: "Block" });
  await scene.event("PersistentVolumeClaim", "large", "ProvisioningFailed", /no room in .* free\)/);
  await scene.wait("PersistentVolumeClaim", "large", (claim) => claim?.status?.phase === "Pending", "waits");

  await using _disk = await moreDisk(scene, group.name, 200);
  await scene.bound("large");
  assertEquals((await scene.lvOf("large")).size, size * 2 ** 20);
  // Nothing may be left on the disk that is taken away again.
  await scene.delete("PersistentVolumeClaim", "large");
  await scene.settled();
  await scene.onNode(
    `for i in $(seq 60); do lvs ${group.name} | grep -q . || exit 0; sleep 1; done; lvs ${group.name}; exit 1`,
  );
});
