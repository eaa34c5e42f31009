import { assertEquals } from "@std/assert";
import { volumeIdOf } from "../ids.ts";
import { headerBackupOf, headerBackupTag, headerBackupTags } from "./header_tags.ts";

const ID = volumeIdOf("one");

Deno.test("the tag of a backup has the key slots, and the salt of the volume key", () => {
  const texts = { "0:0:0248ab34": [[0], [0]], "0.31:0.2.31:0248ab34": [[0, 31], [0, 2, 31]] };
  for (const [text, [previous = [], all = []]] of Object.entries(texts)) {
    const tags = { id: ID, keys: { previous, all, salt: "0248ab34" } };
    assertEquals(headerBackupTag(tags), `denolith.header=${ID}:${text}`);
    assertEquals(headerBackupOf("d", headerBackupTags("d", tags)), tags);
  }
});

Deno.test("an LV with a tag that the driver does not write is no backup", () => {
  const lists = ["", ":", ":00", ":0:", ":0:0:0", ":0..1:0", ":.1:0", ":0.1.:0", ":100:0", ":-1:0", ":0:x"];
  for (const text of [...lists.map((list) => `${list}:0248ab34`), ":0:0", ":0:0:", ":0:0:0248AB34", ":0:0:0248ab3"]) {
    assertEquals(headerBackupOf("d", ["denolith=d", `denolith.header=${ID}${text}`]), undefined, text);
  }
  assertEquals(headerBackupOf("other", ["denolith=d", `denolith.header=${ID}:0:0:0248ab34`]), undefined);
});
