/**
 * What pods ask of their volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

Deno.test("a pod has its group on the files, parts of the volume, read-only ones, and the options of the class", async () => {
  await using scene = await Scene.open("pods");
  const cls = await scene.storageClass("options", {
    parameters: { ...QUICK, mkfsOptions: "-m 0 -L tested" },
    mountOptions: ["noatime", "nosuid"],
  });
  await scene.claim({ name: "data", class: cls });
  await scene.pod({
    name: "user",
    claims: [
      { name: "data", path: "/data" },
      { name: "data", path: "/part", subPath: "part" },
      { name: "data", path: "/fixed", readOnly: true },
    ],
    securityContext: { runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000 },
  });
  await scene.running("user");
  await scene.exec("user", "echo whole > /data/file && echo part > /part/file");
  assertEquals(await scene.exec("user", "stat -c %u:%g /data/file; cat /fixed/part/file"), "1000:2000\npart\n");
  assertEquals(await scene.exec("user", "touch /fixed/no 2>&1 || true"), "touch: /fixed/no: Read-only file system\n");
  const mounts = await scene.exec("user", "grep -E ' /(data|fixed) ' /proc/mounts | cut -d ' ' -f 2,4");
  // Of what is read-only in the container alone, the runtime makes a mount with options of its own.
  assert(/^\/data rw,nosuid,.*noatime/m.test(mounts) && /^\/fixed ro,/m.test(mounts), mounts);
  const { device } = await scene.lvOf("data");
  assertEquals(await scene.onNode(`blkid -o value -s LABEL ${device}`), "tested\n");

  // Another pod of the node shares the volume, with what is on it.
  await scene.pod({ name: "second", claims: [{ name: "data", path: "/data" }] });
  await scene.running("second");
  await scene.exec("second", "echo second >> /data/file");
  assertEquals(await scene.exec("user", "cat /data/file"), "whole\nsecond\n");
  await scene.delete("Pod", "user");
  assertEquals(await scene.exec("second", "cat /data/file"), "whole\nsecond\n");
});

Deno.test("a volume for one pod refuses the second, which says why and runs when the first is gone", async () => {
  await using scene = await Scene.open("alone");
  const alone = await scene.storageClass("alone", { parameters: { ...QUICK, shared: "no" } });
  const plain = await scene.storageClass("plain", { parameters: QUICK });
  await scene.claim({ name: "alone", class: alone });
  await scene.claim({ name: "once", class: plain, mode: "ReadWriteOncePod" });
  const path = "/data";
  for (const name of ["alone", "once"]) await scene.pod({ name: `${name}-1`, claims: [{ name, path }] });
  await Promise.all(["alone-1", "once-1"].map((name) => scene.running(name)));
  for (const name of ["alone", "once"]) await scene.pod({ name: `${name}-2`, claims: [{ name, path }] });
  await Promise.all([
    scene.event("Pod", "alone-2", "FailedMount", /shared: no/),
    scene.event("Pod", "once-2", "FailedScheduling", /ReadWriteOncePod/),
  ]);
  await Promise.all(["alone-1", "once-1"].map((name) => scene.delete("Pod", name)));
  await Promise.all(["alone-2", "once-2"].map((name) => scene.running(name)));
});

Deno.test("what is found on a new volume is not formatted: the pod waits and says what it is, until it is taken away", async () => {
  await using scene = await Scene.open("foreign");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  const { group, name, device } = await scene.lvOf("data");
  const read = `mount -o ro ${device} /mnt && cat /mnt/mine; umount /mnt`;
  await scene.onNode(
    `lvchange -ay ${group}/${name} && mke2fs -q -t ext4 ${device} && mount ${device} /mnt && echo mine > /mnt/mine; umount /mnt`,
  );
  await scene.pod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await scene.event("Pod", "user", "FailedMount", /it holds ext4/);
  assertEquals(await scene.onNode(read), "mine\n");
  await scene.onNode(
    `wipefs -q --all ${device} && dd if=/dev/zero of=${device} bs=4096 count=1 oflag=direct 2>/dev/null`,
  );
  await scene.running("user");
  assertEquals(await scene.exec("user", "ls /data"), "lost+found\n");
});
