/**
 * A RAID volume that loses a disk under a running pod, and gets it back.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { TestNamespace, warn } from "./helpers/test_namespace.ts";

/** A group on disks of its own, each of which can be made to fail. */
interface FailingGroup extends AsyncDisposable {
  /** Its name. */
  readonly name: string;
  /** Has each read and write of a disk fail from now on. */
  fail(disk: number): Promise<void>;
  /** Has the disk answer again. */
  repair(disk: number): Promise<void>;
  /** Returns the first disk that has data of an LV. */
  usedDisk(): Promise<number>;
}

/** Creates a group whose disks are files of so many MiB, behind devices whose tables the test replaces. */
async function createFailingGroup(ns: TestNamespace, disks: number, mib: number): Promise<FailingGroup> {
  const name = ns.namespace;
  const pvs = Array.from({ length: disks }, (_, index) => ({
    file: `/var/tmp/${name}-${index}.img`,
    device: `${name}-disk${index}`,
    loop: "",
  }));
  // From the second MiB on. Otherwise LVM finds each PV twice, and refuses changes.
  const tableOf = (loop: string) => `0 ${mib * 2048} linear ${loop} 2048`;
  await ns.runOnNode("modprobe loop && modprobe dm-raid");
  for (const disk of pvs) {
    const size = `${mib + 1}M`;
    disk.loop = (await ns.runOnNode(`truncate -s ${size} ${disk.file} && losetup --find --show ${disk.file}`)).trim();
    await ns.runOnNode(`dmsetup create ${disk.device} --table "${tableOf(disk.loop)}"`);
  }
  await ns.runOnNode(`vgcreate -qq ${name} ${pvs.map(({ device }) => `/dev/mapper/${device}`).join(" ")}`);
  const swapTable = async (disk: number, table: string) => {
    const { device } = pvs[disk]!;
    // Does not wait for pending writes: they use the new table.
    await ns.runOnNode(
      `dmsetup suspend --noflush --nolockfs ${device} && dmsetup load ${device} --table "${table}" && ` +
        `dmsetup resume ${device}`,
    );
  };
  return {
    name,
    fail: (disk) => swapTable(disk, `0 ${mib * 2048} error`),
    repair: (disk) => swapTable(disk, tableOf(pvs[disk]!.loop)),
    usedDisk: async () => {
      const minors = pvs.map(({ device }) => `$(dmsetup info -c --noheadings -o minor ${device})`).join(" ");
      const select = `vg_name=${name} && pv_pe_alloc_count>0`;
      const used = await ns.runOnNode(`echo ${minors}; pvs --noheadings -o pv_minor,pv_name --select '${select}'`);
      const [disks, ...found] = used.trim().split("\n").map((line) => line.trim().split(/\s+/));
      // the name may be another one of the same device
      const disk = disks!.indexOf(found[0]?.[0] ?? "");
      assert(disk >= 0, `no disk of the group is used; minor numbers, and the PVs in use:\n${used}`);
      return disk;
    },
    async [Symbol.asyncDispose]() {
      const detach = pvs.map(({ device, loop, file }) => `dmsetup remove ${device}; losetup -d ${loop}; rm -f ${file}`);
      await ns.runOnNode(`vgremove -qq -f ${name}; status=$?; ${detach.join("; ")}; exit $status`).catch(warn);
    },
  };
}

Deno.test("a raid1 volume that loses a disk keeps working under its pod, reports it, and is redundant again when the disk is back", async () => {
  await using ns = await TestNamespace.open("raid");
  await using group = await createFailingGroup(ns, 3, 128);
  const parameters = { volumeGroup: group.name, erase: "none", layout: "raid1" };
  const cls = await ns.createStorageClass("raid", { parameters, volumeBindingMode: "WaitForFirstConsumer" });
  await ns.createClaim({ name: "data", class: cls });
  await ns.createPod({ name: "writer", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("writer");
  const { volume, name: lv } = await ns.lvOf("data");
  const lvs = (fields: string) => ns.runOnNode(`lvs --noheadings -o ${fields} ${group.name}/${lv}`);
  assertEquals((await lvs("segtype,stripes")).trim().split(/\s+/), ["raid1", "2"]);
  const waitForRedundant = (status: string, ...reasons: string[]) =>
    ns.waitFor("LVMVolume", volume!, (now) => {
      const condition = now?.status?.conditions?.find(({ type }) => type === "Redundant");
      return condition?.status === status && (reasons.length === 0 || reasons.includes(condition.reason));
    }, `is ${status} of Redundant`);
  await waitForRedundant("True", "InSync");

  const lost = await group.usedDisk();
  await group.fail(lost);
  // Data that is written after the loss must be there in the end.
  await ns.exec("writer", "echo after the loss > /data/file && sync");
  const degraded = await waitForRedundant("False", "Degraded", "RefreshNeeded");
  const { reason } = degraded!.status!.conditions!.find(({ type }) => type === "Redundant")!;
  await ns.waitForEvent("LVMVolume", volume!, reason);

  await ns.deleteAndWait("Pod", "writer");
  await ns.createPod({ name: "reader", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("reader"); // staged without the disk
  assertStringIncludes(await ns.exec("reader", "cat /data/file"), "after the loss");

  await group.repair(lost);
  await ns.runOnNode(
    `vgextend --restoremissing ${group.name} /dev/mapper/${ns.namespace}-disk${lost}; lvchange --refresh ${group.name}/${lv}`,
  );
  await waitForRedundant("True", "InSync");
  assertStringIncludes(await ns.exec("reader", "cat /data/file"), "after the loss");
  for (const [kind, name] of [["Pod", "reader"], ["PersistentVolumeClaim", "data"]] as const) {
    await ns.deleteAndWait(kind, name);
  }
  await ns.waitForCleanup();
});
