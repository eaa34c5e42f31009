import { assertEquals } from "@std/assert";
import { volumeIdOf } from "../ids.ts";
import { headerBackupOf, headerBackupTag, headerBackupTags } from "./header_tags.ts";

const ID = volumeIdOf("one");

Deno.test("the tag of a backup has the key slots, and one of an early version has a single one", () => {
  const texts = { "0:0": [[0], [0]], "0.31:0.2.31": [[0, 31], [0, 2, 31]], "12": [[12], undefined] } as const;
  for (const [text, [previous, all]] of Object.entries(texts)) {
    const tags = { id: ID, slots: { previous: [...previous], ...(all !== undefined && { all: [...all] }) } };
    assertEquals(headerBackupTag(tags), `denolith.header=${ID}:${text}`);
    assertEquals(headerBackupOf("d", headerBackupTags("d", tags)), tags);
  }
});

Deno.test("an LV with a tag that the driver does not write is no backup", () => {
  for (const text of ["", ":", ":00", ":0:", ":0:0:0", ":0..1", ":.1", ":0.1.", ":100", ":-1", ":x"]) {
    assertEquals(headerBackupOf("d", ["denolith=d", `denolith.header=${ID}${text}`]), undefined, text);
  }
  assertEquals(headerBackupOf("other", ["denolith=d", `denolith.header=${ID}:0`]), undefined);
});
