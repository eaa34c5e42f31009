/**
 * What is wrong with a volume under its pod, and shows in its LVMVolume.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

Deno.test("a filesystem that the kernel made read-only is told of, and takes writes again under the next pod", async () => {
  await using scene = await Scene.open("health");
  const parameters = { ...QUICK, "csi.storage.k8s.io/fstype": "btrfs" };
  const cls = await scene.storageClass("stops", { parameters });
  await scene.claim({ name: "data", class: cls, size: "320Mi" });
  await scene.pod({ name: "first", claims: [{ name: "data", path: "/data" }] });
  await scene.running("first");
  await scene.exec("first", "echo before > /data/file && sync");
  const { volume } = await scene.lvOf("data");
  const healthy = (status: string, reason: string) =>
    scene.wait("LVMVolume", volume!, (now) => {
      const condition = now?.status?.conditions?.find(({ type }) => type === "Healthy");
      return condition?.status === status && condition.reason === reason;
    }, `is ${status} of Healthy, ${reason}`);
  const { devicePath } = (await healthy("True", "DisksThere"))!.status!;

  const table = (await scene.onNode(`dmsetup table ${devicePath}`)).trim();
  const exchange = (table: string) =>
    scene.onNode(
      `dmsetup suspend --noflush --nolockfs ${devicePath} && dmsetup load ${devicePath} --table "${table}" && ` +
        `dmsetup resume ${devicePath}`,
    );
  await exchange(`0 ${320 * 2048} error`);
  assertStringIncludes(await scene.exec("first", "{ echo lost > /data/lost && sync; } 2>&1; echo written"), "written");
  await healthy("False", "FilesystemReadOnly");
  await exchange(table);
  await scene.event("LVMVolume", volume!, "FilesystemReadOnly");
  assertStringIncludes(await scene.exec("first", "echo after > /data/file 2>&1 || echo refused"), "refused");

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
