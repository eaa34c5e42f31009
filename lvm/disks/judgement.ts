/**
 * Judges which disks of a machine nobody uses, so that they could become physical volumes. It decides by what is known, and
 * what is not known counts against a disk. The devices are described as lsblk(8) and udev do.
 *
 * @module
 */

import { sha256Hex } from "../../base/sha256.ts";

/** What a judgement depends on beside the disk. */
export interface Surroundings {
  /** All disks of the machine. */
  readonly disks: readonly Disk[];
  /** The numbers of devices that pods have as block volumes, with the path that says so. */
  readonly published: ReadonlyMap<string, string>;
}

/** The smallest disk that is worth it, in bytes. */
const MIN_BYTES = 1n << 30n;

/** The transports of disks of this machine. Others are shared with other machines, or come and go. */
const LOCAL_TRANSPORTS = ["sata", "ata", "sas", "spi", "nvme", "virtio"];

/** Disks of a virtual machine for which lsblk(8) knows no transport: those of Xen, of IBM Z and of user-mode Linux. */
const LOCAL_NAME = /^\/dev\/(?:xvd|dasd|ubd)[a-z]+$/;

/** How a disk of this machine is attached (ID_PATH): by a bus of it. */
const LOCAL_PATH = /^(?:pci|platform|acpi|virtio|vmbus|xen|ccw)-/;

/** What an ID_PATH has of a disk that is not of this machine alone: a network, Fibre Channel, or USB. */
const REMOTE_PATH = /(?:^|-)(?:ip|iscsi|fc|fcoe|usb|usbv\d|nvmf|nbd|rbd|drbd)-/;

/** Names of udev that do not name the disk itself. */
const FOREIGN_ID = /^(?:dm-|md-|lvm-pv-uuid-|usb-)/;

/** A name that can be written into a command or an object as it is. */
const PLAIN_ID = /^[A-Za-z0-9][A-Za-z0-9:._+=@-]{0,252}$/;

/**
 * Returns the name of a disk in /dev/disk/by-id: the first in the order of the alphabet that says what it is, or else a
 * number that is the same wherever the disk is attached.
 */
export function diskName({ links: { ids } }: Pick<Disk, "links">): string | undefined {
  const names = ids.filter((id) => PLAIN_ID.test(id) && !FOREIGN_ID.test(id)).toSorted();
  return names.find((name) => !/^(?:wwn-|nvme-eui\.|nvme-nvme\.)/.test(name)) ?? names[0];
}

/**
 * Returns what tells a disk from another one that has the name later, or the same one attached again: udev and the kernel number
 * each attachment. The names that LVM, dm-crypt and so on add do not count, since they come with a use of the disk.
 *
 * @returns `undefined` when udev does not say when it was attached
 */
export function diskIdentity({ size, links: { ids, attachedBy, attachment } }: Disk): string | undefined {
  if (attachment === undefined) return undefined;
  const names = ids.filter((id) => !FOREIGN_ID.test(id)).toSorted();
  return sha256Hex(JSON.stringify([`${size}`, names, attachedBy ?? "", attachment])).slice(0, 32);
}

/** Returns the checks that a disk fails as a physical volume, each as a clause; none if nobody uses it. */
export function objections(disk: Disk, { disks, published }: Surroundings): string[] {
  const { path, type, size, links, transport, signature, mountPoints, holders } = disk;
  const others = disks.filter((other) => other.path !== path);
  const shared = links.ids.find((id) => others.some((other) => other.links.ids.includes(id)));
  const partitions = holders.filter((holder) => holder.type === "part");
  const users = holders.filter((holder) => holder.type !== "part");
  const attachedBy = links.attachedBy ?? "";
  const isLocal = LOCAL_PATH.test(attachedBy) && !REMOTE_PATH.test(attachedBy) &&
    (transport === undefined ? LOCAL_NAME.test(path) : LOCAL_TRANSPORTS.includes(transport));
  const found: [boolean, string][] = [
    [type !== "disk", `it is no disk (${type || "of unknown type"})`],
    [size < MIN_BYTES, "it is smaller than 1 GiB"],
    [disk.readOnly, "it is read-only"],
    [disk.removable, "it can be removed while the machine runs"],
    [links.isPath, "it is a path of a multipath device"],
    [shared !== undefined, `another device has the name ${shared}, too, as the paths of one disk have`],
    [!isLocal, `it is not known to be a disk of this machine (attached by ${transport ?? "?"}, ${attachedBy || "?"})`],
    [signature !== undefined, `it has a signature (${signature})`],
    [partitions.length > 0, `it has partitions (${partitions.map(({ path }) => path).join(", ")})`],
    [users.length > 0, `${users.map(({ path, type }) => `${path} (${type})`).join(", ")} is on it`],
    [mountPoints.length > 0, `it is mounted at ${mountPoints.join(", ")}`],
    [published.has(disk.number), `it is a block volume of a pod (${published.get(disk.number)})`],
    [diskName(disk) === undefined, "it has no name in /dev/disk/by-id"],
    [diskIdentity(disk) === undefined, "udev does not say since when it is attached"],
  ];
  return found.flatMap(([isFound, clause]) => isFound ? [clause] : []);
}

/** A block device; sizes in bytes. What nobody knows of it is absent. */
export interface BlockDevice {
  /** The path of its node, such as `/dev/sdb`. */
  readonly path: string;
  /** Its device number, such as `8:16`. */
  readonly number: string;
  /** The type that lsblk(8) reports: `disk`, `part`, `lvm`, `crypt`, `mpath`, `raid1`, `loop`, `rom` and so on. */
  readonly type: string;
  /** Its size. */
  readonly size: bigint;
  /** True if it is a disk that turns; absent where the kernel does not say. */
  readonly rotational?: boolean;
  /** True if its medium can be removed, or the device itself while the machine runs. */
  readonly removable: boolean;
  /** True if it accepts no writes. */
  readonly readOnly: boolean;
  /** How it is attached: `sata`, `nvme`, `iscsi`, `usb` and so on. */
  readonly transport?: string;
  /** The signature or partition table that is on it. */
  readonly signature?: string;
  /** Where lsblk(8) says that it is mounted; `[SWAP]` for swap space. */
  readonly mountPoints: readonly string[];
  /** What is on it: partitions, and devices that hold it. */
  readonly holders: readonly Pick<BlockDevice, "path" | "type">[];
}

/** What udev knows of a disk. */
export interface DiskLinks {
  /** Its names in /dev/disk/by-id. */
  readonly ids: readonly string[];
  /** The path over which it is attached (ID_PATH), such as `pci-0000:00:1f.2-ata-1`. */
  readonly attachedBy?: string;
  /** True if a multipath device has it, or is to have it. */
  readonly isPath: boolean;
  /** When it was attached: the kernel's number of it (DISKSEQ), and when udev first saw it (USEC_INITIALIZED). */
  readonly attachment?: string;
}

/** A disk with what udev knows of it. */
export interface Disk extends BlockDevice {
  readonly links: DiskLinks;
}
