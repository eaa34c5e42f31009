/**
 * The volumes of pods: access modes, several pods, block devices.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";

Deno.test("a pod has its group on the files, parts of the volume, read-only ones, and the options of the class", async () => {
  await using ns = await TestNamespace.open("pods");
  const cls = await ns.createStorageClass("options", {
    parameters: { ...QUICK, mkfsOptions: "-m 0 -L tested" },
    mountOptions: ["noatime", "nosuid"],
  });
  await ns.createClaim({ name: "data", class: cls });
  await ns.createPod({
    name: "user",
    claims: [
      { name: "data", path: "/data" },
      { name: "data", path: "/part", subPath: "part" },
      { name: "data", path: "/fixed", readOnly: true },
    ],
    securityContext: { runAsUser: 1000, runAsGroup: 3000, fsGroup: 2000 },
  });
  await ns.waitForRunning("user");
  await ns.exec("user", "echo whole > /data/file && echo part > /part/file");
  assertEquals(await ns.exec("user", "stat -c %u:%g /data/file; cat /fixed/part/file"), "1000:2000\npart\n");
  assertEquals(await ns.exec("user", "touch /fixed/no 2>&1 || true"), "touch: /fixed/no: Read-only file system\n");
  const mounts = await ns.exec("user", "grep -E ' /(data|fixed) ' /proc/mounts | cut -d ' ' -f 2,4");
  // The runtime mounts a volume that is read-only only in the container with options of its own.
  assert(/^\/data rw,nosuid,.*noatime/m.test(mounts) && /^\/fixed ro,/m.test(mounts), mounts);
  const { device } = await ns.lvOf("data");
  assertEquals(await ns.runOnNode(`blkid -o value -s LABEL ${device}`), "tested\n");

  // Another pod of the node shares the volume and its data.
  await ns.createPod({ name: "second", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("second");
  await ns.exec("second", "echo second >> /data/file");
  assertEquals(await ns.exec("user", "cat /data/file"), "whole\nsecond\n");
  await ns.deleteAndWait("Pod", "user");
  assertEquals(await ns.exec("second", "cat /data/file"), "whole\nsecond\n");
});

Deno.test("a volume for one pod refuses the second, which says why and runs when the first is gone", async () => {
  await using ns = await TestNamespace.open("alone");
  const alone = await ns.createStorageClass("alone", { parameters: { ...QUICK, shared: "no" } });
  const plain = await ns.createStorageClass("plain", { parameters: QUICK });
  await ns.createClaim({ name: "alone", class: alone });
  await ns.createClaim({ name: "once", class: plain, mode: "ReadWriteOncePod" });
  const path = "/data";
  for (const name of ["alone", "once"]) await ns.createPod({ name: `${name}-1`, claims: [{ name, path }] });
  await Promise.all(["alone-1", "once-1"].map((name) => ns.waitForRunning(name)));
  for (const name of ["alone", "once"]) await ns.createPod({ name: `${name}-2`, claims: [{ name, path }] });
  await Promise.all([
    ns.waitForEvent("Pod", "alone-2", "FailedMount", /shared: no/),
    ns.waitForEvent("Pod", "once-2", "FailedScheduling", /ReadWriteOncePod/),
  ]);
  await Promise.all(["alone-1", "once-1"].map((name) => ns.deleteAndWait("Pod", name)));
  await Promise.all(["alone-2", "once-2"].map((name) => ns.waitForRunning(name)));
});

Deno.test("a new volume with a foreign signature is not formatted: the pod waits with an event that names it, until it is wiped", async () => {
  await using ns = await TestNamespace.open("foreign");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls });
  const { group, name, device } = await ns.lvOf("data");
  const read = `mount -o ro ${device} /mnt && cat /mnt/mine; umount /mnt`;
  await ns.runOnNode(
    `lvchange -ay ${group}/${name} && mke2fs -q -t ext4 ${device} && mount ${device} /mnt && echo mine > /mnt/mine; umount /mnt`,
  );
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForEvent("Pod", "user", "FailedMount", /it holds ext4/);
  assertEquals(await ns.runOnNode(read), "mine\n");
  await ns.runOnNode(
    `wipefs -q --all ${device} && dd if=/dev/zero of=${device} bs=4096 count=1 oflag=direct 2>/dev/null`,
  );
  await ns.waitForRunning("user");
  assertEquals(await ns.exec("user", "ls /data"), "lost+found\n");
});
