import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../error.ts";
import { FILESYSTEM_TYPES } from "./filesystem.ts";
import { bindMountFlags, checkMountFlags } from "./mount_flags.ts";

Deno.test("checkMountFlags() allows each filesystem's flags, and those of all when the type is not known", () => {
  checkMountFlags("ext4", ["noatime", "data=ordered", "errors=remount-ro"]);
  checkMountFlags("xfs", ["nouuid", "logbsize=256k"]);
  checkMountFlags("btrfs", ["compress=zstd:3", "discard=async"]);
  checkMountFlags(undefined, ["nouuid", "compress=zstd"]);
  for (const type of FILESYSTEM_TYPES) {
    checkMountFlags(type, [
      'context="system_u:object_r:container_file_t:s0:c1,c3"',
      "context=system_u:object_r:tmp_t:s0",
    ]);
  }
  for (const type of [...FILESYSTEM_TYPES, undefined]) {
    for (
      const flag of [
        "bind",
        "remount",
        "loop",
        "errors=panic",
        "a,b",
        "ro,suid",
        "",
        "noatime\n",
        "x-mount.mkdir",
        "user",
        'context="u:r:t:s0:c1',
        "context=u:r:t:s0:c1,c3",
        'context="u:r:t:s0",suid',
        'context="u:r:t:s0:c1" ro',
        "context=/etc/passwd",
        'fscontext="u:r:t:s0"',
      ]
    ) {
      assertThrows(() => checkMountFlags(type, [flag]), StorageError, "mount flag");
    }
  }
  assertThrows(() => checkMountFlags("ext4", ["nouuid"]), StorageError, "mount flag");
});

Deno.test("bindMountFlags() keeps the options of a mount", () => {
  assertEquals(bindMountFlags(["noatime", "data=ordered", "nosuid", "discard", "ro"]), ["noatime", "nosuid", "ro"]);
});
