import { assertEquals } from "@std/assert";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { contentOf, isCreated } from "./stored_volume.ts";

const volume = (spec: object, status?: LvmVolume["status"]) =>
  ({ metadata: { name: "v" }, spec, ...(status && { status }) }) as unknown as LvmVolume;

Deno.test("contentOf() returns the filesystem, and raw for a block device or one that nobody formats", () => {
  assertEquals(contentOf(volume({ fsType: "xfs" })), "xfs");
  assertEquals(contentOf(volume({ volumeMode: "Filesystem", fsType: "ext4" })), "ext4");
  assertEquals(contentOf(volume({ volumeMode: "Block", fsType: "ext4" })), "raw");
  assertEquals(contentOf(volume({})), "raw");
});

Deno.test("isCreated() returns true once the LV and its size are known", () => {
  assertEquals(isCreated(volume({}, { lvUUID: "u", size: "1Gi" })), true);
  for (const status of [undefined, {}, { lvUUID: "u" }, { size: "1Gi" }]) {
    assertEquals(isCreated(volume({}, status)), false);
  }
});
