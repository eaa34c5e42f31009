import { assertEquals } from "@std/assert";
import { describeFree, parseSpareSpace, spaceForVolumes, unreadableSpareTags } from "./spare_space.ts";

const MiB = 1n << 20n;

/** Returns the free and the spare space in MiB of a group of 1000 MiB with 600 MiB free. */
function divide(...tags: string[]) {
  const { free, spare } = spaceForVolumes({ tags, size: 1000n * MiB, extentSize: 4n * MiB }, 600n * MiB);
  return [free / MiB, spare === undefined ? undefined : spare / MiB];
}

Deno.test("spaceForVolumes() keeps the spare space of the tag, in whole extents", () => {
  assertEquals(divide(), [600n, undefined]);
  assertEquals(divide("other", "denolith.spare.not=1Gi"), [600n, undefined]);
  assertEquals(divide("denolith.spare=100Mi"), [500n, 100n]);
  assertEquals(divide("denolith.spare=1"), [596n, 4n]);
  assertEquals(divide("denolith.spare=10percent"), [500n, 100n]);
  assertEquals(divide("denolith.spare=600Mi"), [0n, 600n]);
  assertEquals(divide("denolith.spare=2Gi"), [0n, 600n]);
  assertEquals(divide("denolith.spare=100Mi", "denolith.spare=20percent"), [400n, 200n]);
});

Deno.test("spaceForVolumes() keeps all of a group whose tag cannot be read", () => {
  for (
    const value of ["", "0", "10GB", "10 Gi", "-1", "0percent", "101percent", "5%", "percent", "1e3", "9".repeat(99)]
  ) {
    assertEquals(divide(`denolith.spare=${value}`), [0n, 600n], value);
    assertEquals(unreadableSpareTags(["denolith.spare=1Gi", `denolith.spare=${value}`]), [`denolith.spare=${value}`]);
  }
});

Deno.test("parseSpareSpace() parses quantities and percentages of the group", () => {
  assertEquals(parseSpareSpace("1.5Gi"), { bytes: 1536n * MiB });
  assertEquals(parseSpareSpace("100percent"), { percent: 100n });
});

Deno.test("describeFree() mentions spare space only where there is some", () => {
  assertEquals(describeFree({ free: 5n * MiB }), "5 MiB free");
  assertEquals(describeFree({ free: 5n * MiB, spare: 0n }), "5 MiB free");
  assertEquals(describeFree({ free: 0n, spare: 8n * MiB }), "0 B free and 8 MiB of spare space");
});
