/**
 * What is wrong with a volume under its pod, and shows in its LVMVolume.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { Scene } from "./scene.ts";

Deno.test("a filesystem that the kernel made read-only is told of, and takes writes again under the next pod", async () => {
  await using scene = await Scene.open("health");
  const cls = await scene.storageClass("stops", { mountOptions: ["errors=remount-ro"] });
  await scene.claim({ name: "data", class: cls });
  await scene.pod({ name: "first", claims: [{ name: "data", path: "/data" }] });
  await scene.running("first");
  await scene.exec("first", "echo before > /data/file && sync");
  const { volume } = await scene.lvOf("data");
  const healthy = (status: string, reason: string) =>
    scene.wait("LVMVolume", volume!, (now) => {
      const condition = now?.status?.conditions?.find(({ type }) => type === "Healthy");
      return condition?.status === status && condition.reason === reason;
    }, `is ${status} of Healthy, ${reason}`);
  await healthy("True", "DisksThere");

  // what ext4 does when it finds an error (the kernel's Documentation/ABI/testing/sysfs-fs-ext4, trigger_fs_error)
  const device = (await scene.exec("first", "grep ' /data ' /proc/mounts")).split(" ")[0]!;
  const { devicePath } = (await healthy("True", "DisksThere"))!.status!;
  assertEquals(device, devicePath);
  await scene.onNode(`echo test > /sys/fs/ext4/$(basename $(readlink -f ${devicePath}))/trigger_fs_error`);
  await healthy("False", "FilesystemReadOnly");
  await scene.event("LVMVolume", volume!, "FilesystemReadOnly");
  assertStringIncludes(
    await scene.exec("first", "echo after > /data/file 2>&1 || echo refused"),
    "refused",
  );

  await scene.delete("Pod", "first");
  await healthy("True", "DisksThere");
  await scene.pod({ name: "next", claims: [{ name: "data", path: "/data" }] });
  await scene.running("next");
  assertEquals((await scene.exec("next", "cat /data/file && echo after > /data/file && sync")).trim(), "before");
  for (const [kind, name] of [["Pod", "next"], ["PersistentVolumeClaim", "data"]] as const) {
    await scene.delete(kind, name);
  }
  await scene.settled();
});
