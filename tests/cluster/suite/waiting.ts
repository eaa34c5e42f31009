/**
 * What a claim does while there is no room.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { moreDisk } from "./own_group.ts";
import { Scene } from "./scene.ts";

Deno.test("a claim that no group has room for waits and says why, and is bound when the group grows", async () => {
  await using scene = await Scene.open("room");
  const free = Number(await scene.onNode("vgs --noheadings --units m --nosuffix -o vg_free small"));
  const parameters = { volumeGroup: "small", erase: "none" };
  const cls = await scene.storageClass("small", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "large", class: cls, size: `${free + 100}Mi`, volumeMode: "Block" });
  await scene.event("PersistentVolumeClaim", "large", "ProvisioningFailed", /no room in .*small \(.* free\)/);
  await scene.wait("PersistentVolumeClaim", "large", (claim) => claim?.status?.phase === "Pending", "waits");

  await using _disk = await moreDisk(scene, "small", 200);
  await scene.bound("large");
  assertEquals((await scene.lvOf("large")).size, (free + 100) * 2 ** 20);
  // Nothing may be left on the disk that is taken away again.
  await scene.delete("PersistentVolumeClaim", "large");
  await scene.settled();
  await scene.onNode("for i in $(seq 60); do lvs small | grep -q . || exit 0; sleep 1; done; lvs small; exit 1");
});
