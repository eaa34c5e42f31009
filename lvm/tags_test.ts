import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "./error.ts";
import { snapshotIdOf, volumeIdOf } from "./ids.ts";
import {
  type ContentRecord,
  parseSnapshotTags,
  parseVolumeTags,
  snapshotTags,
  usedLvUuids,
  usedTag,
  volumeTags,
} from "./tags.ts";

const id = volumeIdOf("a");
const uuid = "11111111-2222-3333-4444-555555555555";

const CONTENTS: ContentRecord[] = [
  { state: "raw" },
  { state: "wanted", type: "ext4" },
  { state: "formatting", type: "xfs", uuid },
  { state: "formatted", type: "btrfs", uuid },
];

Deno.test("volume tags come back as they were, whatever the mkfs options, and LVM takes them", () => {
  const options = fc.array(
    fc.string({ unit: "binary", minLength: 1 }).filter((text) => !text.includes(" ") && text.isWellFormed()),
  );
  fc.assert(fc.property(fc.constantFrom(...CONTENTS), options, fc.boolean(), (content, mkfsOptions, shared) => {
    const tags = volumeTags("lvm.denolith.dev", { id, content, mkfsOptions, shared });
    for (const tag of tags) assertMatch(tag, /^[A-Za-z0-9_+.\-/=!:&#]+$/);
    assertEquals(parseVolumeTags("lvm.denolith.dev", tags), { id, content, mkfsOptions, shared });
  }));
});

Deno.test("tags of another driver, of nobody, or of a snapshot are no volume of ours", () => {
  const tags = volumeTags("other.driver", { id, content: { state: "raw" }, mkfsOptions: [], shared: true });
  assertEquals(parseVolumeTags("lvm.denolith.dev", tags), undefined);
  assertEquals(parseVolumeTags("lvm.denolith.dev", []), undefined);
  const snapshot = { id: snapshotIdOf("s"), source: id };
  assertEquals(parseVolumeTags("d", snapshotTags("d", snapshot)), undefined);
  assertEquals(parseSnapshotTags("d", snapshotTags("d", snapshot)), snapshot);
});

Deno.test("a volume of ours whose tags cannot be read is ForeignData", () => {
  for (
    const content of ["", "denolith.fs=formatted:ntfs:1", "denolith.fs=formatted:ext4", "denolith.fs=molten:ext4:1"]
  ) {
    const tags = ["denolith=d", `denolith.volume=${id}`, content];
    assertEquals(assertThrows(() => parseVolumeTags("d", tags), StorageError).kind, "ForeignData");
  }
});

Deno.test("usedLvUuids() answers what usedTag() recorded, for this volume of this driver only", () => {
  const tags = ["x", usedTag("d", id, "uuid-1"), usedTag("d", volumeIdOf("b"), "uuid-2"), usedTag("e", id, "uuid-3")];
  assertEquals(usedLvUuids("d", id, tags), ["uuid-1"]);
  assertEquals(usedLvUuids("d", volumeIdOf("c"), tags), []);
});
