/**
 * What hostile tenants write, byte by byte.
 *
 * @module
 */

/** A text that clears a terminal, changes its colours, and turns what follows. */
export const SPOOFED = "\x1b[2J\x1b[31mroot\x9b0m\x07\r\nERROR";

/** Returns a superblock of md(4) of version 1.1 or 1.2, whose name breaks terminals. */
export function mdMember(offset: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(512);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0xa92b4efc, true);
  view.setUint32(4, 1, true);
  bytes.set(new TextEncoder().encode("0123456789abcdef"), 16);
  bytes.set(new TextEncoder().encode(SPOOFED).subarray(0, 32), 32);
  view.setUint32(72, 1, true); // level
  view.setBigUint64(80, 32_768n, true); // size in sectors
  view.setUint32(92, 2, true); // disks
  view.setBigUint64(128, 2_048n, true); // start of the data
  view.setBigUint64(136, 32_768n, true);
  view.setBigUint64(144, BigInt(offset / 512), true);
  return bytes;
}

/** Returns the last sector of a member of a DDF array, whose GUID, a text, breaks terminals. */
export function ddfTail(): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(512);
  bytes.set([0xde, 0x11, 0xde, 0x11]);
  bytes.set(new TextEncoder().encode(SPOOFED).subarray(0, 24), 8);
  return bytes;
}

const SUPERBLOCK = 65_536;

/**
 * Returns the head of a device with a btrfs as one of several devices with a higher generation: the kernel keeps those in
 * mind that are of several devices, and before Linux 6.7 it mounts the one with the highest generation.
 */
export function btrfsMember(head: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const bytes = head.slice();
  const superblock = bytes.subarray(SUPERBLOCK, SUPERBLOCK + 4096);
  const view = new DataView(bytes.buffer, SUPERBLOCK, 4096);
  view.setBigUint64(0x48, view.getBigUint64(0x48, true) + 1_000n, true);
  view.setBigUint64(0x88, 2n, true);
  view.setUint32(0, crc32c(superblock.subarray(32)), true);
  return bytes;
}

/** Returns the checksum of btrfs: CRC-32C (RFC 3720). */
function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? 0x82f63b78 ^ (crc >>> 1) : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}
