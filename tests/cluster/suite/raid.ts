/**
 * A RAID volume that loses a disk under a running pod, and gets it back.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { Scene, warn } from "./scene.ts";

/** A group on disks of its own, each of which can be made to fail. */
interface FailingGroup extends AsyncDisposable {
  /** Its name. */
  readonly name: string;
  /** Has each read and write of a disk fail from now on. */
  fail(disk: number): Promise<void>;
  /** Has the disk answer again. */
  mend(disk: number): Promise<void>;
}

/** Such a group: its disks are files of so many MiB, behind devices whose tables are exchanged. */
async function failingGroup(scene: Scene, disks: number, mib: number): Promise<FailingGroup> {
  const name = scene.namespace;
  const each = Array.from({ length: disks }, (_, index) => ({
    file: `/var/tmp/${name}-${index}.img`,
    device: `${name}-disk${index}`,
    loop: "",
  }));
  // from the second MiB on: else LVM sees each PV twice, and changes nothing
  const tableOf = (loop: string) => `0 ${mib * 2048} linear ${loop} 2048`;
  await scene.onNode("modprobe loop && modprobe dm-raid");
  for (const disk of each) {
    const size = `${mib + 1}M`;
    disk.loop = (await scene.onNode(`truncate -s ${size} ${disk.file} && losetup --find --show ${disk.file}`)).trim();
    await scene.onNode(`dmsetup create ${disk.device} --table "${tableOf(disk.loop)}"`);
  }
  await scene.onNode(`vgcreate -qq ${name} ${each.map(({ device }) => `/dev/mapper/${device}`).join(" ")}`);
  const exchange = async (disk: number, table: string) => {
    const { device } = each[disk]!;
    // without waiting for what is written: it fails with the new table, or goes on
    await scene.onNode(
      `dmsetup suspend --noflush --nolockfs ${device} && dmsetup load ${device} --table "${table}" && ` +
        `dmsetup resume ${device}`,
    );
  };
  return {
    name,
    fail: (disk) => exchange(disk, `0 ${mib * 2048} error`),
    mend: (disk) => exchange(disk, tableOf(each[disk]!.loop)),
    async [Symbol.asyncDispose]() {
      const detach = each.map(({ device, loop, file }) =>
        `dmsetup remove ${device}; losetup -d ${loop}; rm -f ${file}`
      );
      await scene.onNode(`vgremove -qq -f ${name}; status=$?; ${detach.join("; ")}; exit $status`).catch(warn);
    },
  };
}

Deno.test("a raid1 volume that loses a disk goes on under its pod, tells so, and is redundant again with the disk back", async () => {
  await using scene = await Scene.open("raid");
  await using group = await failingGroup(scene, 3, 128);
  const parameters = { volumeGroup: group.name, erase: "none", layout: "raid1" };
  const cls = await scene.storageClass("raid", { parameters, volumeBindingMode: "WaitForFirstConsumer" });
  await scene.claim({ name: "data", class: cls });
  await scene.pod({ name: "writer", claims: [{ name: "data", path: "/data" }] });
  await scene.running("writer");
  const { volume, name: lv } = await scene.lvOf("data");
  const lvs = (fields: string) => scene.onNode(`lvs --noheadings -o ${fields} ${group.name}/${lv}`);
  assertEquals((await lvs("segtype,stripes")).trim().split(/\s+/), ["raid1", "2"]);
  const isRedundant = (status: string, ...reasons: string[]) =>
    scene.wait("LVMVolume", volume!, (now) => {
      const condition = now?.status?.conditions?.find(({ type }) => type === "Redundant");
      return condition?.status === status && (reasons.length === 0 || reasons.includes(condition.reason));
    }, `is ${status} of Redundant`);
  await isRedundant("True", "InSync");

  const used = await scene.onNode(
    `pvs --noheadings -o pv_name,pv_pe_alloc_count --select vg_name=${group.name} | awk '$2 > 0 {print $1}'`,
  );
  const lost = Number(/disk(\d)/.exec(used.trim().split("\n")[0]!)![1]);
  await group.fail(lost);
  // what is written after the loss is what must be there in the end
  await scene.exec("writer", "echo after the loss > /data/file && sync");
  const degraded = await isRedundant("False", "Degraded", "RefreshNeeded");
  const { reason } = degraded!.status!.conditions!.find(({ type }) => type === "Redundant")!;
  await scene.event("LVMVolume", volume!, reason);

  await scene.delete("Pod", "writer");
  await scene.pod({ name: "reader", claims: [{ name: "data", path: "/data" }] });
  await scene.running("reader"); // staged without the disk
  assertStringIncludes(await scene.exec("reader", "cat /data/file"), "after the loss");

  await group.mend(lost);
  await scene.onNode(
    `vgextend --restoremissing ${group.name} /dev/mapper/${scene.namespace}-disk${lost}; lvchange --refresh ${group.name}/${lv}`,
  );
  await isRedundant("True", "InSync");
  assertStringIncludes(await scene.exec("reader", "cat /data/file"), "after the loss");
  for (const [kind, name] of [["Pod", "reader"], ["PersistentVolumeClaim", "data"]] as const) {
    await scene.delete(kind, name);
  }
  await scene.settled();
});
