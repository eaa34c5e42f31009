import { assertEquals } from "@std/assert";
import { classifyRefusal } from "./lvm.ts";

/** What LVM 2.03.16 said, word for word, with LC_ALL=C. */
const CAPTURED = [
  ["NoSpace", '  Volume group "vg1" has insufficient free space (2504 extents): 5120 required.'],
  ["NoSpace", "  Insufficient free space: 7655 extents needed, but only 2534 available"],
  ["AlreadyExists", '  Logical Volume "vol-1" already exists in volume group "vg1"'],
  ["InUse", "  Logical volume vg1/vol-1 contains a filesystem in use."],
  ["InUse", "  Snapshot origin volumes can be resized only while inactive: try lvchange -an."],
  [
    "FailedPrecondition",
    "  Command on LV vg/snap-1 does not accept LV type linear.\n  Command not permitted on LV vg/snap-1.",
  ],
  ["NotFound", '  Failed to find logical volume "vg1/nope"'],
  ["NotFound", '  Volume group "nope" not found\n  Cannot process volume group nope'],
  ["CommandFailed", "  Cannot archive volume group metadata for vg1 to read-only filesystem."],
  ["CommandFailed", ""],
] as const;

Deno.test("classifyRefusal() tells LVM's refusals apart", () => {
  for (const [kind, stderr] of CAPTURED) assertEquals(classifyRefusal({ code: 5, stdout: "", stderr }), kind, stderr);
});
