import { assert, assertEquals, assertNotEquals } from "@std/assert";
import fc from "fast-check";
import { parseSnapshotId, parseVolumeId, snapshotIdOf, snapshotLvName, volumeIdOf, volumeLvName } from "./ids.ts";

/** lvm(8), "VALID NAMES": allowed characters, and what LVM keeps for itself. */
const LV_NAME =
  /^(?!-)(?!snapshot|pvmove)(?!.*_(?:cdata|cmeta|corig|iorig|mimage|mlog|pmspare|rimage|rmeta|tdata|tmeta|vdata|vorigin|wcorig))[A-Za-z0-9+_.-]{1,127}$/;

Deno.test("ids are the same for ever", () => {
  // an issued volume handle must mean the same volume in every later version
  assertEquals(volumeIdOf("pvc-1"), "v1-f2868e1aa7cab669517cd9f5ab1b7957");
  assertEquals(snapshotIdOf("pvc-1"), "v1-f2868e1aa7cab669517cd9f5ab1b7957");
});

Deno.test("any name makes an id that parses, and an LV name that LVM accepts", () => {
  fc.assert(fc.property(fc.string({ unit: "binary" }), (name) => {
    const id = volumeIdOf(name);
    assertEquals(parseVolumeId(id), id);
    assert(LV_NAME.test(volumeLvName(id)) && LV_NAME.test(snapshotLvName(snapshotIdOf(name))));
  }));
  assertNotEquals(volumeIdOf("a"), volumeIdOf("b"));
});

Deno.test("nothing else parses", () => {
  fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => {
    assertEquals([parseVolumeId(text), parseSnapshotId(text)], [undefined, undefined]);
  }));
});
