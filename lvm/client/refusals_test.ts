import { assertEquals } from "@std/assert";
import { classifyRefusal } from "./refusals.ts";

/** Exact messages of LVM 2.03.16 with LC_ALL=C. Those about locked LVs, refused groups and stripes are from its source. */
const CAPTURED = [
  ["NoSpace", '  Volume group "vg1" has insufficient free space (2504 extents): 5120 required.'],
  ["NoSpace", "  Insufficient free space: 7655 extents needed, but only 2534 available"],
  ["NoSpace", "  Couldn't allocate areas array."], // no physical volume is allocatable
  ["NoSpace", "  Number of stripes (3) must not exceed number of physical volumes (2)"],
  ["AlreadyExists", '  Logical Volume "vol-1" already exists in volume group "vg1"'],
  [
    "Busy",
    '  device-mapper: message ioctl on  (254:2) failed: File exists\n  Failed to process message "create_snap 2 1".\n' +
    "  Failed to suspend vg1/pool with queued messages.",
  ],
  ["InUse", "  Logical volume vg1/vol-1 contains a filesystem in use."],
  ["InUse", "  Logical volume vg1/vol-1 in use."],
  ["InUse", "  Logical volume vg1/vol-1 is used by another device."],
  ["InUse", "  Snapshot origin volumes can be resized only while inactive: try lvchange -an."],
  [
    "FailedPrecondition",
    "  Command on LV vg/snap-1 does not accept LV type linear.\n  Command not permitted on LV vg/snap-1.",
  ],
  [
    "FailedPrecondition",
    "  WARNING: Command on LV vg/a does not accept LV type linear.\n  Command not permitted on LV vg/a.",
  ],
  [
    "FailedPrecondition",
    "  Refusing activation of partial LV vg1/vol-1.  Use '--activationmode partial' to override.",
  ],
  ["FailedPrecondition", "  Refusing refresh of partial LV vg1/vol-1. Use '--activationmode partial' to override."],
  [
    "NoSpace",
    "  VG vg1 30 metadata on /dev/vdc (545495 bytes) exceeds maximum metadata size (521472 bytes)\n" +
    "  WARNING: Failed to write an MDA of VG vg1.\n  Failed to write VG vg1.",
  ],
  ["NoSpace", "  Maximum number of logical volumes (4) reached in volume group vg1"],
  ["NotFound", '  Failed to find logical volume "vg1/nope"'],
  ["NotFound", "  Logical volume nope not found in volume group vg1."],
  ["NotFound", "  Snapshot origin LV nope not found in Volume group vg1."],
  ["NotFound", '  Volume group "nope" not found\n  Cannot process volume group nope'],
  ["FailedPrecondition", "  Volume group vg1 is exported\n  Cannot process volume group vg1"],
  ["FailedPrecondition", "  Volume group vg1 is read-only\n  Cannot process volume group vg1"],
  [
    "FailedPrecondition",
    "  Multiple VGs found with the same name: skipping vg1\n  Use --select vg_uuid=<uuid> in place of the VG name.",
  ],
  // seen with a second device of the same disk, another host's group, one with a new type of LVs, and one for lvmlockd
  [
    "FailedPrecondition",
    "  WARNING: Not using device /dev/loop5 for PV 0s1kLt-tSso-7bcE-4qoc-DBym-IkGN-oim15x.\n" +
    "  WARNING: PV 0s1kLt-tSso-7bcE-4qoc-DBym-IkGN-oim15x prefers device /dev/loop1 because device name matches previous.\n" +
    "  Cannot update volume group two with duplicate PV devices.",
  ],
  ["FailedPrecondition", "  Cannot access VG two with system ID other with unknown local system ID."],
  [
    "FailedPrecondition",
    "  WARNING: Unrecognised segment type weird\n  Cannot change VG two with unknown segments in it!\n" +
    "  Cannot process volume group two",
  ],
  ["FailedPrecondition", "  Cannot access VG two with lock type sanlock that requires lvmlockd."],
  ["FailedPrecondition", "  Cannot access VG two due to failed lock."],
  ["FailedPrecondition", "  Cannot activate LVs in VG two while PVs appear on duplicate devices."],
  ["FailedPrecondition", "  Cannot update volume group two while physical volumes are missing."],
  ["FailedPrecondition", "  Check of pool vg1/pool failed (status:64). Manual repair required!"],
  ["FailedPrecondition", "  Can't resize locked logical volume vg1/vol-1."],
  ["FailedPrecondition", "  Can't remove locked logical volume vg1/vol-1."],
  ["FailedPrecondition", "  Snapshots of locked devices are not supported."],
  ["FailedPrecondition", "  Can't resize reshaping LV vg1/vol-1."],
  [
    "FailedPrecondition",
    "  Command on LV vg1/vol-1 is invalid on LV with properties: lv_is_locked.\n  Command not permitted on LV vg1/vol-1.",
  ],
  ["CommandFailed", "  Cannot archive volume group metadata for vg1 to read-only filesystem."],
  ["CommandFailed", ""],
] as const;

Deno.test("classifyRefusal() distinguishes LVM's refusals", () => {
  for (const [kind, stderr] of CAPTURED) assertEquals(classifyRefusal({ code: 5, stdout: "", stderr }), kind, stderr);
});

Deno.test("classifyRefusal() takes nothing for a refusal that a killed command has printed", () => {
  const stderr = "  Volume group has insufficient free space";
  for (const [code, kind] of [[128, "NoSpace"], [129, "CommandFailed"], [137, "CommandFailed"]] as const) {
    assertEquals(classifyRefusal({ code, stdout: "", stderr }), kind);
  }
});
