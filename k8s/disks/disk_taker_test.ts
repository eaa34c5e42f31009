import { assertEquals, assertMatch } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { DiskNode } from "../../tests/fake/cluster/disk_node.ts";

const MiB = 1n << 20n;

/** Starts a node with a spare disk that was reported. */
async function startNode() {
  const s = new DiskNode();
  const disk = s.addDisk("b");
  const run = s.agent();
  await run();
  return { s, disk, run };
}

Deno.test("reconcile() takes nothing that is not accepted", async () => {
  const { s, disk, run } = await startNode();
  await run();
  assertEquals([s.layout, disk.writes, s.node.status?.acceptedDisks], [[], 0, undefined]);
});

Deno.test("reconcile() makes a physical volume of an accepted disk, and a volume group of it", async () => {
  const { s, disk, run } = await startNode();
  s.accept("ata-SPARE_b");
  await run();
  assertEquals(s.layout, ["data: /dev/sdb"]);
  const [group] = s.machine.groups;
  assertEquals(s.outcome("ata-SPARE_b"), {
    ...{ name: "ata-SPARE_b", volumeGroup: "data", state: "Taken" },
    ...{ physicalVolumeUUID: group!.pvs[0]!.uuid, volumeGroupUUID: group!.uuid },
  });
  assertEquals(
    s.events.at(-1),
    "Normal DiskTaken disk ata-SPARE_b (/dev/sdb) is a physical volume of volume group data",
  );
  const { writes } = disk;
  await run();
  await run();
  assertEquals([disk.writes, s.condition("DisksRefused")?.status, s.condition("DisksLost")?.status], [
    ...[writes, "False", "False"],
  ]);
});

Deno.test("reconcile() adds disks to a volume group, two that were accepted for a new one, too", async () => {
  const { s, run } = await startNode();
  s.addDisk("c");
  await run();
  s.accept("ata-SPARE_b");
  s.accept("ata-SPARE_c");
  await run();
  assertEquals(s.layout, ["data: /dev/sdb /dev/sdc"]);
  s.addDisk("d");
  await run();
  s.accept("ata-SPARE_d");
  await run();
  assertEquals(s.layout, ["data: /dev/sdb /dev/sdc /dev/sdd"]);
  assertEquals(s.machine.groups[0]!.size, 3n * ((10n << 30n) - 4n * MiB));
});

Deno.test("reconcile() writes nothing to a disk that got a filesystem after it was accepted, and says so once", async () => {
  const { s, disk, run } = await startNode();
  s.accept("ata-SPARE_b");
  disk.signatures.push("ext4");
  await run();
  await run();
  assertEquals([s.layout, disk.writes, s.outcome("ata-SPARE_b")?.state], [[], 0, "Refused"]);
  const refused = s.events.filter((event) => event.includes("DiskRefused"));
  assertEquals(refused.length, 1);
  assertMatch(
    refused[0]!,
    /disk ata-SPARE_b was accepted for volume group data, and is not taken: it has a signature \(ext4\)/,
  );
  const condition = s.condition("DisksRefused");
  assertEquals([condition?.status, condition?.message], ["True", "ata-SPARE_b: it has a signature (ext4)"]);
  disk.signatures.pop();
  await run();
  assertEquals(s.layout, ["data: /dev/sdb"], "the cause is gone");
});

Deno.test("reconcile() writes nothing when the disk gets a filesystem, or a holder, after it was recorded", async () => {
  for (const change of [{ signatures: ["ext4"] }, { isOpen: true }]) {
    const s = new DiskNode();
    const disk = s.addDisk("b");
    const run = s.agent((what, when) => {
      // after the last look, right before pvcreate
      if (what === "lvm pvcreate" && when === "before") Object.assign(disk, change);
    });
    await run();
    s.accept("ata-SPARE_b");
    await run();
    assertEquals([s.layout, disk.writes], [[], 0]);
    assertMatch(s.events.at(-1)!, /Warning DiskRefused .*pvcreate.*exit 5: .*(?:signature|exclusively)/);
  }
});

Deno.test("reconcile() refuses another disk behind the name, and the same one that was attached again", async () => {
  for (const change of [{ size: 11n << 30n }, { ids: ["ata-SPARE_b", "wwn-0x2"] }, { attached: 7 }]) {
    const { s, disk, run } = await startNode();
    s.accept("ata-SPARE_b");
    Object.assign(disk, change);
    await run();
    assertEquals([s.layout, disk.writes], [[], 0]);
    assertMatch(s.outcome("ata-SPARE_b")!.message!, /^it is not as it was accepted/);
  }
});

Deno.test("reconcile() refuses a disk that a pod has, or that may be an attached volume", async () => {
  const { s, disk, run } = await startNode();
  s.accept("ata-SPARE_b");
  const path = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/uid";
  s.machine.host.podDevices.set(path, "/dev/sdb");
  await run();
  assertEquals(s.outcome("ata-SPARE_b")!.message, `it is a block volume of a pod (${path})`);
  s.machine.host.podDevices.clear();
  s.attachments.push({ metadata: { name: "va" }, spec: { nodeName: "n1", attacher: "a", source: {} } });
  await run();
  assertMatch(s.outcome("ata-SPARE_b")!.message!, /VolumeAttachment va/);
  assertEquals([s.layout, disk.writes], [[], 0]);
});

Deno.test("reconcile() undoes what it began when the acceptance is withdrawn", async () => {
  const { s, disk, run } = await startNode();
  s.accept("ata-SPARE_b");
  s.machine.fault = ({ args: [subcommand] }) =>
    subcommand === "vgcreate" ? { code: 5, stdout: "", stderr: "  no" } : undefined;
  await run();
  assertEquals([s.layout, s.outcome("ata-SPARE_b")?.state], [["unassigned: /dev/sdb"], "Taking"]);
  s.node.spec.acceptedDisks = [];
  await run();
  assertEquals([s.layout, s.node.status?.acceptedDisks], [[], []]);
  assertEquals(disk.signatures, []);
});

Deno.test("reconcile() reports a taken disk that is lost, and that it is back", async () => {
  const { s, run } = await startNode();
  s.accept("ata-SPARE_b");
  await run();
  const [disk] = s.machine.host.disks.splice(0, 1);
  s.machine.groups[0]!.missingPvs = 1;
  await run();
  await run();
  assertEquals(s.outcome("ata-SPARE_b")?.state, "Lost");
  assertEquals(s.condition("DisksLost")?.message, "ata-SPARE_b, a physical volume of volume group data");
  assertEquals(s.events.filter((event) => event.includes("DiskLost")).length, 1);
  s.machine.host.disks.push(disk!);
  s.machine.groups[0]!.missingPvs = 0;
  await run();
  await run();
  assertEquals([s.outcome("ata-SPARE_b")?.state, s.condition("DisksLost")?.status], ["Taken", "False"]);
});

Deno.test("reconcile() does not take back a disk that an administrator took out of its group", async () => {
  const { s, disk, run } = await startNode();
  s.accept("ata-SPARE_b");
  await run();
  s.machine.groups.length = 0;
  const { writes } = disk;
  await run();
  assertEquals([s.layout, disk.writes, s.outcome("ata-SPARE_b")?.state], [[], writes, "Taken"]);
  s.node.spec.acceptedDisks = [];
  await run();
  s.accept("ata-SPARE_b");
  await run();
  assertEquals(s.layout, ["data: /dev/sdb"], "withdrawn, and accepted again");
});

Deno.test("reconcile() does not create a group a second time that volumes have", async () => {
  const { s, run } = await startNode();
  s.volumes.push({
    metadata: { name: "v" },
    spec: { driverName: "d" },
    status: { volumeGroup: "data", volumeGroupUUID: "vg-lost" },
  } as never);
  s.accept("ata-SPARE_b");
  await run();
  assertEquals(s.layout, []);
  assertMatch(s.outcome("ata-SPARE_b")!.message!, /volume group data \(vg-lost\) is not there/);
});

Deno.test("reconcile() leaves a disk that LVM refuses to the next report, and asks for none before its time", async () => {
  for (const refused of ["pvcreate", "vgcreate"]) {
    const { s, run } = await startNode();
    s.accept("ata-SPARE_b");
    let tries = 0;
    s.machine.fault = ({ args: [subcommand] }) => {
      if (subcommand !== refused) return undefined;
      tries++;
      return { code: 5, stdout: "", stderr: "  no" };
    };
    await run();
    await run(); // the report that shows the refusal in the condition
    const { requeued } = s;
    await run();
    await run();
    assertEquals([s.requeued - requeued, tries], [0, 4], refused);
    assertMatch(s.condition("DisksRefused")!.message, new RegExp(refused));
  }
});

Deno.test("reconcile() asks for a report when a command that outlasted its deadline has ended", async () => {
  const { s, run } = await startNode();
  s.accept("ata-SPARE_b");
  const late = Promise.withResolvers<void>();
  s.machine.fault = ({ args: [subcommand] }) => {
    if (subcommand !== "pvcreate") return undefined;
    throw new StorageError("StillRunning", "running pvcreate: it still runs", { completion: late.promise });
  };
  await run();
  await run();
  const { requeued } = s;
  await run();
  assertEquals([s.requeued - requeued, s.outcome("ata-SPARE_b")?.message], [0, "running pvcreate: it still runs"]);
  s.machine.fault = undefined;
  late.reject(new Error("it failed in the end"));
  await new Promise((settled) => setTimeout(settled));
  assertEquals(s.requeued - requeued, 1);
  await run();
  assertEquals(s.layout, ["data: /dev/sdb"]);
});

Deno.test("reconcile() lists the VolumeAttachments of the cluster only for a disk that would be taken", async () => {
  const s = new DiskNode();
  const disk = s.addDisk("b", { signatures: ["ext4"] });
  let lists = 0;
  const run = s.agent((what, when) => {
    if (what === "list" && when === "before") lists++;
  });
  await run();
  s.accept("ata-SPARE_b");
  await run();
  await run();
  assertEquals([s.outcome("ata-SPARE_b")?.state, lists], ["Refused", 0]);
  disk.signatures.pop();
  await run();
  assertEquals([s.layout, lists], [["data: /dev/sdb"], 2], "before it is recorded, and before pvcreate");
  s.machine.host.disks.splice(0, 1);
  s.machine.groups[0]!.missingPvs = 1;
  await run();
  await run();
  assertEquals([s.outcome("ata-SPARE_b")?.state, lists], ["Lost", 2]);
});
