/**
 * Signatures of other filesystems and members of arrays where libblkid of util-linux 2.38 looks for them, outside of the
 * superblock of ext4. Programs write them into files of a filesystem, as images of disks, and over free blocks.
 *
 * @module
 */

/** A signature. */
export interface ForeignSignature {
  /** The type, as wipefs(8) prints it. */
  readonly type: string;
  /** Where it is in bytes: from the start of the device, or, if negative, from its end. */
  readonly offset: number;
  /** Its bytes. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

const text = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0));

const row = (type: string, offset: number, bytes: string): ForeignSignature => ({ type, offset, bytes: text(bytes) });

/** The UUID in the LUKS header. */
const UUID = "12345678-1234-4234-8234-123456789012";

/** The signatures. */
export const FOREIGN_SIGNATURES: readonly ForeignSignature[] = [
  row("crypto_LUKS", 0, `LUKS\xba\xbe\0\x02${"\0".repeat(160)}${UUID}`),
  row("squashfs", 0, `hsqs${"\0".repeat(24)}\x04\0\0\0`),
  row("romfs", 0, "-rom1fs-"),
  row("cramfs", 0, "\x45\x3d\xcd\x28"),
  row("ceph_bluestore", 0, "bluestore block device"),
  row("vdo", 0, "dmvdo001"),
  row("zonefs", 0, "SFOZ"),
  row("DM_snapshot_cow", 0, "SnAp"),
  row("ReFS", 0, "\0\0\0ReFS\0"),
  row("exfat", 3, "EXFAT   "),
  row("dos", 510, "\x55\xaa"),
  row("hpt37x_raid_member", 4640, "\xf0\x16\x78\x5a"),
  row("ocfs2", 8192, "OCFSV2"),
  row("crypto_LUKS", 16 << 10, "SKUL\xba\xbe\0\x02"),
  row("iso9660", 32 << 10, "\x01CD001\x01"),
  row("btrfs", 65600, "_BHRfS_M"),
  row("VMFS_volume_member", 1 << 20, "\x0d\xd0\x01\xc0"),
  row("VMFS", 2 << 20, "\x5e\xf1\xab\x2f"),
  row("crypto_LUKS", 4 << 20, "SKUL\xba\xbe\0\x02"),
  row("promise_fasttrack_raid_member", -63 * 512, "Promise Technology, Inc."),
  row("hpt45x_raid_member", -11 * 512, "\xf3\x16\x78\x5a"),
  row("drbd", -4036, "\x83\x74\x02\x6b"),
  row("isw_raid_member", -1024, "Intel Raid ISM Cfg Sig. 1.0.00"),
  row("ddf_raid_member", -512, `\xde\x11\xde\x11${"\0".repeat(92)}`),
  row("lsi_mega_raid_member", -512, "$XIDE$"),
];
