import { assertEquals } from "@std/assert";
import { FILESYSTEM_TYPES, maximumSectorBytes, SUPERBLOCK_BYTES } from "./filesystem.ts";

/** Returns the start of a device with bytes at offsets. */
function head(...pieces: readonly (readonly [offset: number, bytes: readonly number[]])[]): Uint8Array {
  const bytes = new Uint8Array(SUPERBLOCK_BYTES);
  for (const [offset, piece] of pieces) bytes.set(piece, offset);
  return bytes;
}

const EXT_MAGIC = [1080, [0x53, 0xef]] as const;
const XFS_MAGIC = [0, [0x58, 0x46, 0x53, 0x42]] as const;
const BTRFS_MAGIC = [65600, [..."_BHRfS_M"].map((letter) => letter.charCodeAt(0))] as const;

Deno.test("maximumSectorBytes() reads the block size of ext and the sector size of xfs and btrfs", () => {
  for (const type of ["ext2", "ext3", "ext4"] as const) {
    for (const [log, bytes] of [[0, 1024], [1, 2048], [2, 4096]] as const) {
      assertEquals(maximumSectorBytes(type, head(EXT_MAGIC, [1048, [log, 0, 0, 0]])), bytes);
    }
  }
  assertEquals(maximumSectorBytes("xfs", head(XFS_MAGIC, [102, [0x02, 0x00]])), 512);
  assertEquals(maximumSectorBytes("xfs", head(XFS_MAGIC, [102, [0x10, 0x00]])), 4096);
  assertEquals(maximumSectorBytes("btrfs", head(BTRFS_MAGIC, [65680, [0x00, 0x10, 0, 0]])), 4096);
});

Deno.test("maximumSectorBytes() knows nothing of a device without the filesystem", () => {
  for (const type of FILESYSTEM_TYPES) {
    assertEquals(maximumSectorBytes(type, head()), undefined);
    assertEquals(maximumSectorBytes(type, new Uint8Array(10)), undefined);
  }
});
