/**
 * Faults of real disks. `deno test` runs this in the guest, as one bundle, and alone: a disk that hangs blocks every lvm there.
 * DATA_DISKS names two empty disks.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { HostExec } from "../../lvm/exec.ts";
import { faultsContract } from "../contract/faults_suite.ts";
import { assertFails, failureStatus, Harness, mountCapability } from "../contract/helpers/host.ts";
import { run } from "../demo/command.ts";
import { eventually, retryCall } from "./helpers/retry.ts";

const [FAULTY_DISK, HEALTHY_DISK] = (Deno.env.get("DATA_DISKS") ?? "").split(" ");
if (!FAULTY_DISK || !HEALTHY_DISK) throw new Error("DATA_DISKS: must name two empty disks");

const GROUPS = ["faulty", "healthy"] as const;

/** The first sector of a wrapped disk on the real one: LVM must not find its label there, too. */
const OFFSET_SECTORS = 2048;

/** The device-mapper devices through which LVM sees the disks, and the disks. */
const DEVICES = { "faulty-disk": FAULTY_DISK, "second-disk": HEALTHY_DISK } as const;

/**
 * Loads the table of a wrapped disk, by default the faulty one: its sectors lead to the real disk, to errors, or to
 * errors on writes only.
 */
async function loadTable(
  target: "linear" | "error" | "flakey",
  name: keyof typeof DEVICES = "faulty-disk",
): Promise<void> {
  const disk = DEVICES[name];
  const sectors = Number(await run("measure the disk", "blockdev", ["--getsz", disk])) - OFFSET_SECTORS;
  const table = {
    linear: `0 ${sectors} linear ${disk} ${OFFSET_SECTORS}`,
    error: `0 ${sectors} error`,
    flakey: `0 ${sectors} flakey ${disk} ${OFFSET_SECTORS} 0 3600 1 error_writes`,
  }[target];
  const exists = (await run("list devices", "dmsetup", ["ls"])).includes(name);
  if (!exists) return void await run("make the disk", "dmsetup", ["create", name, "--table", table]);
  await run("suspend the disk", "dmsetup", ["suspend", "--noflush", "--nolockfs", name]);
  await run("load the disk", "dmsetup", ["load", name, "--table", table]);
  await run("resume the disk", "dmsetup", ["resume", name]);
}

/** Stops the faulty disk from responding. @returns a function that ends that */
async function hangFaultyDisk(): Promise<() => Promise<void>> {
  await run("suspend the disk", "dmsetup", ["suspend", "--noflush", "--nolockfs", "faulty-disk"]);
  return async () => void await run("resume the disk", "dmsetup", ["resume", "faulty-disk"]);
}

await loadTable("linear");
await loadTable("linear", "second-disk");
await run("make a group", "vgcreate", ["-qq", "--yes", GROUPS[0], "/dev/mapper/faulty-disk"]);
await run("make a group", "vgcreate", ["-qq", "--yes", GROUPS[1], "/dev/mapper/second-disk"]);

Deno.test("a disk that hangs stops its group within bounds, and no other [lvm]", async () => {
  await using harness = await Harness.start(new HostExec({ readMs: 8_000, changeMs: 100_000 }), GROUPS);
  const inFaulty = { parameters: { volumeGroup: GROUPS[0] } };
  const inHealthy = { parameters: { volumeGroup: GROUPS[1] } };
  const first = await harness.create(inFaulty);
  const second = await harness.create(inHealthy);
  const resume = await hangFaultyDisk();
  const start = performance.now();
  try {
    const third = await harness.create(inHealthy);
    const stagingTargetPath = await harness.stage(second);
    await harness.csi.node.nodeUnstageVolume({ volumeId: second, stagingTargetPath });
    await harness.csi.controller.deleteVolume({ volumeId: third });
    await assertFails("UNAVAILABLE", harness.stage(first), "does not respond");
    await assertFails("UNAVAILABLE", harness.csi.controller.deleteVolume({ volumeId: first }), "does not respond");
    assert(performance.now() - start < 90_000, "the wait has no bound");
  } finally {
    await resume();
  }
  for (const volumeId of [first, second]) await retryCall(() => harness.csi.controller.deleteVolume({ volumeId }));
  assertEquals(await harness.lvs(), []);
});

Deno.test("a disk that cannot be read is not treated as empty: nothing is formatted [lvm]", async () => {
  await using harness = await Harness.start(new HostExec(), GROUPS);
  const volumeId = await harness.create({ parameters: { volumeGroup: GROUPS[0] } });
  await loadTable("error");
  try {
    const commands = await harness.exec.recordCommands(() =>
      harness.stage(volumeId).then(() => assert(false), () => {})
    );
    assertEquals(commands.filter((command) => /^(?:mk|wipefs --all|mount)/.test(command)), []);
  } finally {
    await loadTable("linear");
  }
  const stagingTargetPath = await harness.stage(volumeId);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await harness.csi.controller.deleteVolume({ volumeId });
  assertEquals(await harness.lvs(), []);
});

Deno.test("a group whose metadata LVM cannot read is not taken for gone [lvm]", async () => {
  await using harness = await Harness.start(new HostExec(), GROUPS);
  const inFaulty = { name: "in-faulty", parameters: { volumeGroup: GROUPS[0] } };
  const volumeId = await harness.create(inFaulty);
  const disk = "/dev/mapper/faulty-disk";
  const copy = await Deno.makeTempFile();
  // the texts between the header of the metadata area and its end (lvm(8), pvcreate(8))
  const texts = ["bs=512", "count=2039", "status=none", "conv=notrunc,fsync"];
  await run("save the metadata", "dd", [`if=${disk}`, `of=${copy}`, "skip=9", ...texts]);
  await run("damage the metadata", "dd", ["if=/dev/zero", `of=${disk}`, "seek=9", ...texts]);
  try {
    const unreadable = "volume group faulty cannot be read: LVM: PV /dev/mapper/faulty-disk is marked in use";
    await assertFails("UNAVAILABLE", harness.csi.controller.deleteVolume({ volumeId }), unreadable);
    await assertFails("UNAVAILABLE", harness.create(inFaulty), unreadable);
    await harness.create({ parameters: { volumeGroup: GROUPS[1] } });
  } finally {
    await run("restore the metadata", "dd", [`if=${copy}`, `of=${disk}`, "seek=9", ...texts]);
    await Deno.remove(copy);
  }
  assertEquals(await harness.create(inFaulty), volumeId);
  for (const { volumeId } of (await harness.csi.controller.listVolumes({})).entries.map(({ volume }) => volume!)) {
    await harness.csi.controller.deleteVolume({ volumeId });
  }
  assertEquals(await harness.lvs(), []);
});

Deno.test("a disk that refuses writes fails the call, and when it takes them again the call succeeds [lvm]", async () => {
  await using harness = await Harness.start(new HostExec(), GROUPS);
  const volumeId = await harness.create({ parameters: { volumeGroup: GROUPS[0] } });
  await loadTable("flakey");
  try {
    const { code } = await failureStatus(harness.stage(volumeId));
    assert(code !== "OK");
  } finally {
    await loadTable("linear");
  }
  const stagingTargetPath = await harness.stage(volumeId);
  await Deno.writeTextFile(`${stagingTargetPath}/file`, "data");
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await harness.csi.controller.deleteVolume({ volumeId });
  assertEquals(await harness.lvs(), []);
});

for (const type of ["ext4", "xfs"] as const) {
  Deno.test(`a volume whose disk fails in use is unmounted, and has its data when the disk is back: ${type} [lvm]`, async () => {
    await using harness = await Harness.start(new HostExec(), GROUPS);
    const { controller, node } = harness.csi;
    const capability = mountCapability(type, type === "ext4" ? ["errors=remount-ro"] : []);
    const volumeId = await harness.create({
      ...{ parameters: { volumeGroup: GROUPS[0] }, capacityRange: { requiredBytes: 320n << 20n } },
      volumeCapabilities: [capability],
    });
    const stagingTargetPath = await harness.stage(volumeId, capability);
    const targetPath = await harness.publish(volumeId, "pod", { volumeCapability: capability });
    await Deno.writeTextFile(`${targetPath}/file`, "data");
    await run("write the data", "sync", ["--file-system", targetPath]);
    try {
      await loadTable("error");
      const options = ["if=/dev/zero", `of=${targetPath}/more`, "bs=1M", "count=8", "conv=fsync"];
      await assertRejects(() => run("write more", "dd", options));
      await assertRejects(() => run("write it", "sync", ["--file-system", targetPath]));
      await node.nodeUnpublishVolume({ volumeId, targetPath });
      await loadTable("linear");
      const { volumeHealth } = await node.nodeGetVolumeHealth({ volumeId });
      const reasons = volumeHealth!.healthStatuses.map(({ reason }) => reason);
      if (type === "xfs") assertEquals(reasons, ["FilesystemReadOnly"]);
      await loadTable("error");
      await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    } finally {
      await loadTable("linear");
    }
    await harness.stage(volumeId, capability);
    assertEquals(await Deno.readTextFile(`${stagingTargetPath}/file`), "data");
    await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await controller.deleteVolume({ volumeId });
    assertEquals(await harness.lvs(), []);
  });
}

for (const type of ["ext4", "xfs", "btrfs"] as const) {
  Deno.test(`a volume that is full grows in use: ${type} [lvm]`, async () => {
    await using harness = await Harness.start(new HostExec(), GROUPS);
    const { controller, node } = harness.csi;
    const [volumeCapability, parameters] = [mountCapability(type), { volumeGroup: GROUPS[1] }];
    const request = { parameters, capacityRange: { requiredBytes: 320n << 20n } };
    const volumeId = await harness.create({ ...request, volumeCapabilities: [volumeCapability] });
    const stagingTargetPath = await harness.stage(volumeId, volumeCapability);
    const fill = async (name: string, blockBytes: number) => {
      const options = ["if=/dev/zero", `of=${stagingTargetPath}/${name}`, `bs=${blockBytes}`, "conv=fsync"];
      await assertRejects(() => run("fill it", "dd", options), Error, "No space left on device");
    };
    await fill("large", 1 << 20);
    await fill("small", 512);
    const capacityRange = { requiredBytes: 400n << 20n };
    await controller.controllerExpandVolume({ volumeId, capacityRange });
    await node.nodeExpandVolume({ volumeId, volumePath: stagingTargetPath, capacityRange, volumeCapability });
    await Deno.writeFile(`${stagingTargetPath}/more`, new Uint8Array(32 << 20));
    await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await retryCall(() => controller.deleteVolume({ volumeId }));
    await harness.waitUntilIdle();
    assertEquals(await harness.lvs(), []);
  });
}

Deno.test("a volume that the host activated grows and is staged, though its node is lost when it is extended [lvm]", async () => {
  const lvmConfig = "activation/udev_sync=0 activation/udev_rules=0"; // as in a container
  await using harness = await Harness.start(new HostExec({ lvmConfig }), GROUPS);
  const { controller, node } = harness.csi;
  const volumeId = await harness.create({ parameters: { volumeGroup: GROUPS[1] } });
  const { path, devicePath, size } = await harness.singleLv();
  const activateAsHost = async () => {
    await harness.runAsAdmin("lvm", "lvchange", "-an", path);
    await run("activate the LV", "lvchange", ["-ay", path]);
    await run("wait for udev", "udevadm", ["settle"]);
    assert((await Deno.lstat(devicePath)).isSymlink, "the node is not udev's");
  };
  const extend = async (bytes: bigint) => {
    const capacityRange = { requiredBytes: bytes };
    await controller.controllerExpandVolume({ volumeId, capacityRange });
    await run("wait for udev", "udevadm", ["settle"]);
    // Mostly udev removed it. Where udev was quicker than LVM, LVM made another.
    await run("lose the node", "rm", ["-f", devicePath]);
    return capacityRange;
  };

  await activateAsHost();
  const stagingTargetPath = await harness.stage(volumeId);
  const capacityRange = await extend(2n * size);
  await node.nodeExpandVolume({ volumeId, volumePath: stagingTargetPath, capacityRange });
  await node.nodeUnstageVolume({ volumeId, stagingTargetPath });

  await activateAsHost();
  await extend(3n * size);
  await harness.stage(volumeId);
  await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await controller.deleteVolume({ volumeId });
  assertEquals(await harness.lvs(), []);
});

/** The module that makes a disk in memory, of which chosen sectors cannot be read. */
const MEMORY_DISK = "scsi_debug";

const hasMemoryDisk = (await new Deno.Command("modprobe", { args: ["--dry-run", MEMORY_DISK] }).output()).success;

Deno.test({
  name: `a pool whose metadata cannot be read gets no volumes, and removes none; with the module ${MEMORY_DISK} [lvm]`,
  ignore: !hasMemoryDisk,
}, async () => {
  await run("load modules", "modprobe", ["--all", "sd_mod", "dm-thin-pool"]);
  await run("make a disk", "modprobe", [MEMORY_DISK, "dev_size_mb=256"]);
  await run("wait for udev", "udevadm", ["settle"]);
  const disk = (await run("find the disk", "lsblk", ["--noheadings", "--paths", "--scsi", "--output", "NAME"])).trim();
  await run("make a group", "vgcreate", ["-qq", "--yes", "decaying", disk]);
  await using harness = await Harness.start(new HostExec(), ["decaying", GROUPS[1]]);
  const request = { parameters: { volumeGroup: "decaying", thinProvision: "yes" } };
  const [volumeId, other] = [await harness.create(request), await harness.create(request)];
  const volumes = async (harness: Harness) => (await harness.lvs()).filter(({ pool }) => pool !== undefined);
  const pool = async () => (await harness.lvs()).find(({ thinPool }) => thinPool !== undefined)!;
  assertEquals((await pool()).thinPool?.needsCheck, false);

  const [, length, , , start] =
    (await run("find the metadata", "dmsetup", ["table", "decaying-decaying_thinpool_tmeta"]))
      .split(" ").map(Number);
  const write = (path: string, value: number) => Deno.writeTextFile(path, `${value}`);
  const setFaulty = (isFaulty: boolean) => write(`/sys/bus/pseudo/drivers/${MEMORY_DISK}/opts`, isFaulty ? 2 : 0);
  // all but the first block, which the pool reads again with each change
  await write(`/sys/module/${MEMORY_DISK}/parameters/medium_error_start`, start! + 8);
  await write(`/sys/module/${MEMORY_DISK}/parameters/medium_error_count`, length! - 8);
  await setFaulty(true);
  try {
    await write("/sys/module/dm_bufio/parameters/retain_bytes", 0);
    await eventually(async () => {
      await write("/proc/sys/vm/drop_caches", 3);
      assert((await pool()).thinPool?.needsCheck, "LVM's report does not show it");
    });
    const { code, details } = await failureStatus(harness.create(request));
    assertEquals(code, "RESOURCE_EXHAUSTED", details);
    await harness.csi.controller.deleteVolume({ volumeId });
    assertEquals((await volumes(harness)).length, 2);
  } finally {
    await setFaulty(false);
  }
  await harness.csi.controller.deleteVolume({ volumeId: other });
  await using next = await harness.restart();
  assertEquals(await volumes(next), []);
  await run("remove the group", "vgremove", ["-qq", "--yes", "decaying"]);
});

faultsContract({
  name: "lvm",
  groups: GROUPS,
  exec: () => new HostExec({ readMs: 8_000, changeMs: 100_000 }),
  hangFirstDisk: hangFaultyDisk,
  loseSecondDisk: async () => {
    await loadTable("error", "second-disk");
    return () => loadTable("linear", "second-disk");
  },
});
