import { assertEquals } from "@std/assert";
import { type Disk, diskIdentity, diskName, objections } from "./judgement.ts";

const GiB = 1n << 30n;

/** When a disk was attached. */
const SEEN = { attachment: "3 1201" };

/** Returns an unused disk, but for some properties. */
function disk(change: Partial<Omit<Disk, "links">> & { readonly links?: Partial<Disk["links"]> } = {}): Disk {
  const { links, ...rest } = change;
  return {
    ...{
      path: "/dev/sdb",
      number: "8:16",
      type: "disk",
      size: 100n * GiB,
      rotational: false,
      removable: false,
      readOnly: false,
    },
    ...{ transport: "sata", mountPoints: [], holders: [], ...rest },
    links: {
      ids: ["ata-DISK_1", "wwn-0x5001"],
      attachedBy: "pci-0000:00:1f.2-ata-2",
      isPath: false,
      ...SEEN,
      ...links,
    },
  };
}

const judge = (one: Disk, others: Disk[] = [], published: ReadonlyMap<string, string> = new Map()) =>
  objections(one, { disks: [one, ...others], published });

Deno.test("objections() has none against a disk that nobody uses", () => {
  assertEquals(judge(disk()), []);
  for (
    const [transport, attachedBy] of [
      ["nvme", "pci-0000:01:00.0-nvme-1"],
      ["virtio", "pci-0000:00:05.0"],
      ["virtio", "virtio-pci-0000:00:05.0"],
      ["sas", "pci-0000:03:00.0-sas-phy0-lun-0"],
      ["spi", "pci-0000:00:05.0-scsi-0:0:1:0"],
    ] as const
  ) assertEquals(judge(disk({ transport, links: { attachedBy } })), [], attachedBy);
  const ofXen = { ...withoutTransport(), path: "/dev/xvdb" };
  assertEquals(judge({ ...ofXen, links: { ...ofXen.links, attachedBy: "xen-vbd-51728" } }), []);
});

/** Disks that must never be taken, each with the words of one of the objections. */
const HOSTILE: Readonly<Record<string, readonly [disk: Disk, words: string]>> = {
  "a partition": [disk({ type: "part", path: "/dev/sdb1" }), "no disk (part)"],
  "an LV": [disk({ type: "lvm" }), "no disk (lvm)"],
  "a multipath device": [disk({ type: "mpath" }), "no disk (mpath)"],
  "an md array": [disk({ type: "raid1" }), "no disk (raid1)"],
  "a loop device": [disk({ type: "loop" }), "no disk (loop)"],
  "a CD": [disk({ type: "rom" }), "no disk (rom)"],
  "a device of unknown type": [disk({ type: "" }), "no disk (of unknown type)"],
  "an empty card reader": [disk({ size: 0n }), "smaller than 1 GiB"],
  "a read-only disk": [disk({ readOnly: true }), "read-only"],
  "a removable disk": [disk({ removable: true }), "can be removed"],
  "a USB disk": [disk({ transport: "usb", links: { attachedBy: "pci-0000:00:14.0-usb-0:1:1.0-scsi-0:0:0:0" } }), "usb"],
  "a USB disk behind SATA": [disk({ links: { attachedBy: "pci-0000:00:14.0-usbv3-0:1:1.0-scsi-0:0:0:0" } }), "usbv3"],
  "an iSCSI disk": [
    disk({ transport: "iscsi", links: { attachedBy: "ip-10.0.0.1:3260-iscsi-iqn.x:y-lun-0" } }),
    "iscsi",
  ],
  "an iSCSI disk of an offload card": [
    disk({ transport: "sas", links: { attachedBy: "pci-0000:05:00.0-iscsi-iqn.x:y-lun-0" } }),
    "not known to be a disk of this machine",
  ],
  "a Fibre Channel disk": [
    disk({ transport: "fc", links: { attachedBy: "pci-0000:05:00.0-fc-0x5006-lun-0" } }),
    "not known to be",
  ],
  "an NVMe disk over a network": [
    disk({ transport: "nvme", links: { attachedBy: "nvmf-tcp://10.0.0.1" } }),
    "not known",
  ],
  "a network block device": [disk({ path: "/dev/nbd0", links: { ids: [] } }), "no name in /dev/disk/by-id"],
  "a disk whose transport nobody knows": [withoutTransport(), "attached by ?"],
  "a disk of which udev knows nothing": [{ ...disk(), links: { ids: [], isPath: false } }, "sata, ?"],
  "a disk of which udev does not know since when it is there": [withoutAttachment(), "since when it is attached"],
  "a path of a multipath device": [disk({ links: { isPath: true } }), "path of a multipath device"],
  "a physical volume": [disk({ signature: "LVM2_member" }), "signature (LVM2_member)"],
  "a partition table without partitions": [disk({ signature: "gpt" }), "signature (gpt)"],
  "a filesystem on the whole disk": [disk({ signature: "xfs" }), "signature (xfs)"],
  "an md member": [disk({ signature: "linux_raid_member" }), "linux_raid_member"],
  "a disk with partitions": [disk({ holders: [{ path: "/dev/sdb1", type: "part" }] }), "partitions (/dev/sdb1)"],
  "a disk under dm-crypt without a header": [
    disk({ holders: [{ path: "/dev/mapper/plain", type: "crypt" }] }),
    "/dev/mapper/plain (crypt) is on it",
  ],
  "a mounted disk": [disk({ mountPoints: ["/data"] }), "mounted at /data"],
  "swap space": [disk({ mountPoints: ["[SWAP]"] }), "mounted at [SWAP]"],
  "a disk with the name of a USB adapter alone": [disk({ links: { ids: ["usb-Adapter_0-0:0"] } }), "no name"],
  "a disk whose name is no name": [disk({ links: { ids: ["ata-\n$(reboot)", "../sda", "-f"] } }), "no name"],
};

function withoutTransport(): Disk {
  const { transport: _, ...rest } = disk();
  return rest;
}

function withoutAttachment(): Disk {
  const { links: { attachment: _, ...links }, ...rest } = disk();
  return { ...rest, links };
}

for (const [name, [one, words]] of Object.entries(HOSTILE)) {
  Deno.test(`objections() refuses ${name}`, () => {
    const found = judge(one);
    assertEquals(found.some((clause) => clause.includes(words)), true, found.join("; "));
  });
}

Deno.test("objections() refuses both paths of a disk that no multipath device has yet", () => {
  const [first, second] = [disk(), disk({ path: "/dev/sdc", links: { ids: ["scsi-other", "wwn-0x5001"] } })];
  const words = "another device has the name wwn-0x5001, too, as the paths of one disk have";
  assertEquals([judge(first, [second]), judge(second, [first])], [[words], [words]]);
});

Deno.test("objections() refuses a disk whose device is published to a pod", () => {
  assertEquals(judge(disk(), [], new Map([["8:16", "/x/pvc-1"]])), ["it is a block volume of a pod (/x/pvc-1)"]);
  assertEquals(judge(disk(), [], new Map([["8:32", "/x/pvc-1"]])), []);
});

Deno.test("diskName() prefers a name that says what the disk is, and is the same in each order", () => {
  const named = (...ids: string[]) => diskName(disk({ links: { ids } }));
  assertEquals(named("wwn-0x1", "scsi-3600", "ata-DISK"), "ata-DISK");
  assertEquals(named("nvme-eui.0025", "nvme-Samsung_1"), "nvme-Samsung_1");
  assertEquals(named("wwn-0x2", "nvme-eui.0025"), "nvme-eui.0025");
  assertEquals(named("lvm-pv-uuid-x", "dm-name-y"), undefined);
});

Deno.test("diskIdentity() tells a disk from another one behind its name, and does not change with the use of a disk", () => {
  const known = diskIdentity(disk());
  assertEquals(known?.length, 32);
  const used = disk({ signature: "LVM2_member", links: { ids: ["wwn-0x5001", "lvm-pv-uuid-x", "ata-DISK_1"] } });
  assertEquals(diskIdentity({ ...used, path: "/dev/sdx", number: "8:99" }), known);
  const others: NonNullable<Parameters<typeof disk>[0]>[] = [
    { size: 101n * GiB },
    { links: { ids: ["ata-DISK_1", "wwn-0x5002"] } },
    { links: { ids: ["ata-DISK_1"] } },
    { links: { attachedBy: "pci-0000:00:1f.2-ata-3" } },
    { links: { attachment: "4 1201" } },
    { links: { attachment: "3 1202" } },
  ];
  for (const [index, other] of others.entries()) assertEquals(diskIdentity(disk(other)) === known, false, `${index}`);
});
