import { assertEquals } from "@std/assert";
import { FakeMachine, ok } from "../../tests/fake/machine/machine.ts";
import type { DeviceNode } from "../model/device_tree.ts";
import {
  HOST_PATTERN,
  HOST_UDEV_FILE,
  HOST_UDEV_RULES,
  namesOfOthers,
  passesFilter,
  readStackedDevices,
  stackedFilter,
} from "./stacked_devices.ts";

function device(name: string, type: string, ...children: DeviceNode[]): DeviceNode {
  return { name, kernelName: name.replace("/dev/mapper/", "/dev/dm-"), type, mountPoints: [], children };
}

/** Devices of all kinds; those that LVM may read have a name that begins with `my`. */
const TREE = [
  device(
    "/dev/sda",
    "disk",
    device("/dev/sda1", "part", device("/dev/mapper/my-luks", "crypt", device("/dev/mapper/vg-root", "lvm"))),
    device("/dev/md0", "raid1", device("/dev/mapper/my-mpath", "mpath")),
  ),
  device(
    "/dev/sdb",
    "disk",
    device(
      "/dev/mapper/vg-lv",
      "lvm",
      device("/dev/mapper/a+b {x}", "crypt", device("/dev/mapper/part", "part")),
      device("/dev/md127", "raid1"),
      device("/dev/mapper/denolith.luks2-vol--1", "crypt", device("/dev/mapper/deep", "dm")),
      device("/dev/mapper/vg-snapshot", "lvm", device("/dev/bcache0", "disk")),
    ),
  ),
  device("/dev/sdc", "disk", device("/dev/md9", "raid1"), device("/dev/bcache1", "disk")),
  device(
    "/dev/sdd",
    "disk",
    device("/dev/mapper/vg-part", "lvm", device("/dev/md9", "raid1"), device("/dev/bcache1", "disk")),
  ),
  device("/dev/sr0", "rom"),
  device("/dev/loop0", "loop", device("/dev/loop0p1", "part"), device("/dev/mapper/my-on-file", "crypt")),
  device("/dev/loop1", "loop", device("/dev/loop1p1", "part"), device("/dev/mapper/over-loop", "crypt")),
];

Deno.test("stackedFilter() rejects whatever is over a logical volume, by both of its names, and nothing else", () => {
  const filter = stackedFilter({ fileLoops: ["/dev/loop0"], tree: TREE });
  const names = (device: DeviceNode): string[] => [device.name, device.kernelName, ...device.children.flatMap(names)];
  const rejected = new Set(TREE.flatMap(names).filter((name) => !passesFilter(filter, name)));
  assertEquals([...rejected].sort(), [
    "/dev/bcache0",
    "/dev/bcache1", // the cache of a disk on a logical volume
    "/dev/dm-a+b {x}",
    "/dev/dm-deep",
    "/dev/dm-denolith.luks2-vol--1",
    "/dev/dm-over-loop",
    "/dev/dm-part",
    "/dev/loop1",
    "/dev/loop1p1",
    "/dev/mapper/a+b {x}",
    "/dev/mapper/deep",
    "/dev/mapper/denolith.luks2-vol--1",
    "/dev/mapper/over-loop",
    "/dev/mapper/part",
    "/dev/md127",
    "/dev/md9", // an array of a disk and a logical volume
  ]);
  assertEquals(passesFilter(filter, "/dev/md1277"), true);
  assertEquals(passesFilter(filter, "/dev/loop01"), false, "a loop device that came after the report");
  assertEquals(passesFilter(filter, "/dev/mapper/denolith.luks2-vol--2"), false, "a mapping that came after it");
});

Deno.test("namesOfOthers() returns the names of the disks and mappings that LVM may read", () => {
  assertEquals(namesOfOthers({ fileLoops: ["/dev/loop0"], tree: TREE }).map(([name]) => name), [
    ...["/dev/sda", "/dev/sda1", "/dev/mapper/my-luks", "/dev/md0", "/dev/mapper/my-mpath", "/dev/sdb", "/dev/sdc"],
    ...["/dev/sdd", "/dev/loop0p1", "/dev/mapper/my-on-file"],
  ]);
});

Deno.test("stackedFilter() is one pattern without characters that settings of LVM quote, where no file is a disk", () => {
  assertEquals(stackedFilter({ fileLoops: [], tree: [] }), ["r|^/dev/(loop|mapper/denolith.luks2-)|"]);
  assertEquals(
    stackedFilter({ fileLoops: [], tree: TREE.slice(1, 2) }).map((pattern) => /^[\w|^$()/.-]+$/.test(pattern)),
    [true],
  );
});

/** Loop devices, as losetup(8) lists them, with the path and the filesystem of what they are made of. */
const LOOPS: Readonly<
  Record<string, readonly [path: string, filesystem: string, isReadOnly: boolean, isDisk: boolean]>
> = {
  "of a file": ["/var/tmp/disk.img", "254:0", false, true],
  "of a file on btrfs": ["/home/me/dev/disk.img", "0:34", false, true],
  "of a snap": ["/var/lib/snapd/snaps/core_1.snap", "254:0", true, false],
  "of a device": ["/dev/dm-3", "0:5", false, false],
  "of a device in a container": ["/host/dev/dm-3", "0:5", false, false],
  "of kubelet": ["/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/1", "0:5", false, false],
  "of kubelet, of a node that a driver made": [
    "/x/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev/1",
    "254:0",
    false,
    false,
  ],
  "of a mount of a device that is gone": ["/", "0:5", false, false],
  "of a mount that is gone": ["/", "254:0", false, false],
  "of a file that was removed": ["/var/tmp/disk.img (deleted)", "254:0", false, false],
};

for (const [name, [path, filesystem, ro, isDisk]] of Object.entries(LOOPS)) {
  Deno.test(`readStackedDevices() ${isDisk ? "lets LVM read" : "rejects"} a loop device ${name}`, async () => {
    const machine = new FakeMachine();
    const loop = { name: "/dev/loop7", "back-file": path, "back-maj:min": `     ${filesystem}  `, ro };
    machine.fault = ({ program }) => program === "losetup" ? ok(JSON.stringify({ loopdevices: [loop] })) : undefined;
    const filter = stackedFilter(await readStackedDevices(machine));
    assertEquals(["/dev/loop7", "/dev/loop7p1", "/dev/loop77"].map((path) => passesFilter(filter, path)), [
      isDisk,
      isDisk,
      false,
    ]);
  });
}

Deno.test("readStackedDevices() rejects all loop devices where they, or the devices, cannot be listed", async () => {
  for (const program of ["losetup", "lsblk"] as const) {
    const machine = new FakeMachine();
    machine.host.missing.add(program);
    assertEquals(stackedFilter(await readStackedDevices(machine)), ["r|^/dev/(loop|mapper/denolith.luks2-)|"], program);
  }
});

Deno.test("the guide to the installation has the filter and the rules of udev for the host", async () => {
  const guide = await Deno.readTextFile(new URL("../../docs/guides/install.md", import.meta.url));
  const missing = [HOST_PATTERN, HOST_UDEV_FILE, ...HOST_UDEV_RULES].filter((text) => !guide.includes(text));
  assertEquals(missing, []);
});
