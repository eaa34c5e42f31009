import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { createdExtType, type ExtType } from "./ext_features.ts";
import { parseMkfsOptions } from "./filesystem.ts";

const NO_EXT4 = "-O ^64bit,^extent,^huge_file,^flex_bg,^metadata_csum,^dir_nlink,^extra_isize";

/** Types and options, and the type that wipefs(8) reported: captured from e2fsprogs 1.47.0 and util-linux 2.38. */
const CREATED: readonly (readonly [ExtType, string, ExtType])[] = [
  ["ext2", "", "ext2"],
  ["ext2", "-j", "ext3"],
  ["ext2", "-J size=4", "ext3"],
  ["ext2", "-j -O ^has_journal", "ext3"],
  ["ext2", "-O has_journal", "ext3"],
  ["ext2", "-O has_journal -O dir_index", "ext3"],
  ["ext2", "-O dir_index -O has_journal", "ext3"],
  ["ext2", "-O ^has_journal,has_journal", "ext3"],
  ["ext2", "-O fast_commit", "ext2"],
  ["ext2", "-O sparse_super2", "ext2"],
  ["ext2", "-O extent,^extent", "ext2"],
  ["ext2", "-T ext3", "ext3"],
  ["ext2", "-T small,ext4", "ext4"],
  ["ext2", "-T news", "ext2"],
  ["ext2", "-O extent -T ext3", "ext4"],
  ["ext2", "-L ext4 -m 1", "ext2"],
  ["ext3", "", "ext3"],
  ["ext3", "-O extent", "ext4"],
  ["ext3", "-O quota", "ext4"],
  ["ext3", "-O orphan_file", "ext3"],
  ["ext3", "-O ^has_journal", "ext2"],
  ["ext3", "-O ^has_journal -j", "ext3"],
  ["ext3", "-T ext4", "ext4"],
  ["ext4", "", "ext4"],
  ["ext4", "-O ^has_journal", "ext4"],
  ["ext4", "-T ext2", "ext4"],
  ["ext4", NO_EXT4, "ext3"],
  ["ext4", `${NO_EXT4},^has_journal`, "ext2"],
  ["ext4", `${NO_EXT4},^has_journal -j`, "ext3"],
  ["ext4", `${NO_EXT4},quota`, "ext4"],
  ["ext4", NO_EXT4.replace(",^extra_isize", ""), "ext4"],
  ...["casefold", "dir_nlink", "ea_inode", "encrypt", "extent", "extra_isize", "flex_bg", "huge_file", "inline_data"]
    .map((feature) => ["ext3", `-O ${feature}`, "ext4"] as const),
  ...["large_dir", "metadata_csum", "project", "quota", "uninit_bg", "verity"]
    .map((feature) => ["ext2", `-O ${feature}`, "ext4"] as const),
];

Deno.test("createdExtType() returns the type that libblkid reports of what mke2fs creates", () => {
  for (const [type, text, created] of CREATED) {
    assertEquals(createdExtType(type, text.split(" ")), created, `${type} ${text}`);
  }
});

Deno.test("parseMkfsOptions() refuses options that create another filesystem, and names it", () => {
  for (const [type, text, created] of CREATED) {
    if (type === created) parseMkfsOptions(type, text);
    else {
      const error = assertThrows(() => parseMkfsOptions(type, text), StorageError, `create ${created}`);
      assertEquals(error.kind, "InvalidArgument", `${type} ${text}`);
    }
  }
});
