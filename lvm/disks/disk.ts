/**
 * The block devices of a machine, as lsblk(8) and udev describe them.
 *
 * @module
 */

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
