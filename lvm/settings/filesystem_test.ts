import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { FILESYSTEM_TYPES, parseMkfsOptions, resizeCommand } from "./filesystem.ts";

Deno.test("parseMkfsOptions() returns allowed options unchanged", () => {
  const good = [
    ["ext4", "-b 4096 -m 0.5 -E stride=16,stripe_width=32,nodiscard -O ^metadata_csum,64bit -L data", 10],
    ["ext2", "-i 8192   -T news", 4],
    ["xfs", "-d agcount=4,su=64k,sw=2 -i size=512 -m reflink=0,bigtime=1 -K", 7],
    ["btrfs", "-n 16k --metadata dup --csum sha256 -O ^extref", 8],
    ["ext4", "", 0],
  ] as const;
  for (const [type, text, words] of good) assertEquals(parseMkfsOptions(type, text).length, words, text);
});

Deno.test("parseMkfsOptions() refuses everything else", () => {
  const bad = [
    ["ext4", "-F"],
    ["ext4", "/dev/sda"],
    ["ext4", "-b"],
    ["ext4", "-b 512"],
    ["ext4", "-E offset=1"],
    ["ext4", "-E test_fs"],
    ["ext4", "-J device=/dev/sdb"],
    ["ext4", "-d /etc"],
    ["ext4", "-U 0"],
    ["ext4", "-O journal_dev"],
    ["ext4", "-L -x"],
    ["ext4", "constructor x"],
    ["xfs", "-d file,name=/tmp/x"],
    ["xfs", "-l logdev=/dev/sdb"],
    ["xfs", "-p /etc/passwd"],
    ["xfs", "-m uuid=1"],
    ["xfs", "-f"],
    ["btrfs", "-r /etc"],
    ["btrfs", "-d raid1"],
    ["btrfs", "-U 1"],
    ["btrfs", "-O list-all"],
    ["btrfs", "--features extref,list-all"],
  ] as const;
  for (const [type, text] of bad) {
    assertEquals(
      assertThrows(() => parseMkfsOptions(type, text), StorageError, "mkfs option").kind,
      "InvalidArgument",
      text,
    );
  }
});

Deno.test("resizeCommand() refuses a filesystem that it does not know", () => {
  const mounted = { device: "/dev/x", path: "/mnt" };
  assertEquals(FILESYSTEM_TYPES.map((type) => resizeCommand(type, mounted).program), [
    "resize2fs",
    "resize2fs",
    "resize2fs",
    "xfs_growfs",
    "btrfs",
  ]);
  assertEquals(assertThrows(() => resizeCommand("ntfs", mounted), StorageError, "ntfs").kind, "FailedPrecondition");
});
