/**
 * The lives of volumes, from the claim to the end, as a user sees them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { Scene } from "./scene.ts";

/** The smallest sizes that a type of filesystem takes. */
const SIZES = { ext4: "16Mi", xfs: "300Mi", btrfs: "128Mi" } as const;

for (const [fsType, size] of Object.entries(SIZES)) {
  Deno.test(`a ${fsType} claim is bound, keeps what pods write, and leaves nothing when it is deleted`, async () => {
    await using scene = await Scene.open(fsType);
    const cls = await scene.storageClass("plain", { parameters: { volumeGroup: "data", fsType } });
    await scene.claim({ name: "data", class: cls, size });
    await scene.pod({ name: "first", claims: [{ name: "data", path: "/data" }] });
    await scene.running("first");
    await scene.exec("first", "dd if=/dev/urandom of=/data/file bs=64k count=16 2>/dev/null; sync");
    const written = await scene.exec("first", "md5sum < /data/file; grep ' /data ' /proc/mounts | cut -d' ' -f3");
    assert(written.endsWith(` -\n${fsType}\n`) || written.includes(fsType), written);
    await scene.delete("Pod", "first");
    await scene.pod({ name: "second", claims: [{ name: "data", path: "/data" }] });
    await scene.running("second");
    const read = await scene.exec("second", "md5sum < /data/file; grep ' /data ' /proc/mounts | cut -d' ' -f3");
    assertEquals(read, written);
    assertEquals((await scene.lvs()).length, 1);
    await scene.delete("Pod", "second");
    await scene.delete("PersistentVolumeClaim", "data");
    await scene.settled();
  });
}
