/**
 * Problems of a volume in use, and how they appear in its LVMVolume.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";

Deno.test("a filesystem that the kernel made read-only is reported, and accepts writes again under the next pod", async () => {
  await using ns = await TestNamespace.open("health");
  const parameters = { ...QUICK, "csi.storage.k8s.io/fstype": "btrfs" };
  const cls = await ns.createStorageClass("stops", { parameters });
  await ns.createClaim({ name: "data", class: cls, size: "320Mi" });
  await ns.createPod({ name: "first", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("first");
  await ns.exec("first", "echo before > /data/file && sync");
  const { volume } = await ns.lvOf("data");
  const waitForHealthy = (status: string, reason: string) =>
    ns.waitFor("LVMVolume", volume!, (now) => {
      const condition = now?.status?.conditions?.find(({ type }) => type === "Healthy");
      return condition?.status === status && condition.reason === reason;
    }, `is ${status} of Healthy, ${reason}`);
  const { devicePath } = (await waitForHealthy("True", "PhysicalVolumesPresent"))!.status!;

  const table = (await ns.runOnNode(`dmsetup table ${devicePath}`)).trim();
  const swapTable = (table: string) =>
    ns.runOnNode(
      `dmsetup suspend --noflush --nolockfs ${devicePath} && dmsetup load ${devicePath} --table "${table}" && ` +
        `dmsetup resume ${devicePath}`,
    );
  await swapTable(`0 ${320 * 2048} error`);
  assertStringIncludes(await ns.exec("first", "{ echo lost > /data/lost && sync; } 2>&1; echo written"), "written");
  await waitForHealthy("False", "FilesystemReadOnly");
  await swapTable(table);
  await ns.waitForEvent("LVMVolume", volume!, "FilesystemReadOnly");
  assertStringIncludes(await ns.exec("first", "echo after > /data/file 2>&1 || echo refused"), "refused");

  await ns.deleteAndWait("Pod", "first");
  await waitForHealthy("True", "PhysicalVolumesPresent");
  await ns.createPod({ name: "next", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("next");
  assertEquals((await ns.exec("next", "cat /data/file && echo after > /data/file && sync")).trim(), "before");
  for (const [kind, name] of [["Pod", "next"], ["PersistentVolumeClaim", "data"]] as const) {
    await ns.deleteAndWait(kind, name);
  }
  await ns.waitForCleanup();
});
