import { assertEquals } from "@std/assert";
import { volumeIdOf } from "../../base/ids.ts";
import { type BackedUpKeys, headerBackupOf, headerBackupTag, headerBackupTags } from "./header_tags.ts";

const ID = volumeIdOf("one");

Deno.test("the tag of a backup has the key slots, and the salt of the volume key", () => {
  const [salt, added] = ["0248ab34", [4, "00000004"]] as const;
  const cases: [text: string, keys: BackedUpKeys][] = [
    ["0:0=0000000a:0248ab34", { previous: [0], all: new Map([[0, "0000000a"]]), salt }],
    ["0.31:0=0000000a.2=0000000b.31=0000000c:0248ab34:4=00000004", {
      ...{ previous: [0, 31], all: new Map([[0, "0000000a"], [2, "0000000b"], [31, "0000000c"]]), salt, added },
    }],
  ];
  for (const [text, keys] of cases) {
    const tags = { id: ID, keys };
    assertEquals(headerBackupTag(tags), `denolith.header=${ID}:${text}`);
    assertEquals(headerBackupOf("d", headerBackupTags("d", tags)), tags);
  }
});

Deno.test("an LV with a tag that the driver does not write is no backup", () => {
  const slot = "0=0000000a";
  const right = [":0", `:${slot}`, ":0248ab34", `:1=0000000b`];
  const wrong = [
    ...[["", ":", ":00", ":0.", ":.0", ":100", ":-1", ":x", `:${slot}`], ["", ":", ":0", ":0=", ":0=A", `:${slot}.`]],
    ...[["", ":", ":0", ":0248AB34", ":0248ab3", ":0248ab345"], [
      ":",
      ":1",
      ":1=",
      ":00=0000000b",
      ":1=0000000b.2=0000000c",
    ]],
  ];
  const texts = wrong.flatMap((parts, index) => parts.map((part) => right.with(index, part).join("")));
  for (const text of [...texts, ":0:0", `${right.join("")}:`]) {
    assertEquals(headerBackupOf("d", ["denolith=d", `denolith.header=${ID}${text}`]), undefined, text);
  }
  const tags = ["denolith=d", `denolith.header=${ID}${right.join("")}`];
  assertEquals([headerBackupOf("d", tags)?.id, headerBackupOf("other", tags)], [ID, undefined]);
});
