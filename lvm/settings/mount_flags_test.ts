import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { FILESYSTEM_TYPES } from "./filesystem.ts";
import { bindMountFlags, checkMountFlags, requireMountable } from "./mount_flags.ts";

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

Deno.test("checkMountFlags() says that several flags are no entry", () => {
  const refusal = (flag: string) => assertThrows(() => checkMountFlags("xfs", [flag]), StorageError).message;
  assertEquals(refusal("noatime,nodiratime"), 'mount flag "noatime,nodiratime": each flag is an entry of its own');
  assertEquals(refusal("noatime,_netdev"), 'mount flag "noatime,_netdev": not allowed for xfs');
});

Deno.test("requireMountable() refuses flags with which the kernel mounts no new filesystem", () => {
  const rows = [
    ["ext4", "prjquota", "", "-O project"],
    ["ext4", "prjquota", "-O quota", "-O project"],
    ["ext4", "prjquota", "-O project,quota", undefined],
    ["ext4", "usrquota grpquota", "", undefined],
    ["ext4", "journal_async_commit", "", "data=writeback or data=journal"],
    ["ext4", "journal_async_commit data=writeback", "", undefined],
    ["xfs", "prjquota", "", undefined],
    ["xfs", "norecovery", "", "ro"],
    ["xfs", "norecovery ro", "", undefined],
    ["btrfs", "nologreplay", "", "ro"],
    ["ext4", "norecovery", "", undefined],
  ] as const;
  for (const [type, flags, mkfsOptions, needed] of rows) {
    const check = () => requireMountable(type, flags.split(" "), mkfsOptions.split(" "));
    if (needed === undefined) check();
    else assertEquals(assertThrows(check, StorageError, needed).kind, "InvalidArgument");
  }
});
