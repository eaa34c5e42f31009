import { assert, assertEquals } from "@std/assert";
import { isSameContent, sortKeys } from "./content.ts";

Deno.test("isSameContent() compares fields in any order, and lists in theirs", () => {
  const a = { b: [{ d: 1, c: null }], a: "x" };
  assert(isSameContent(a, { a: "x", b: [{ c: null, d: 1 }] }));
  assert(isSameContent(a, { ...a, e: undefined }));
  assert(!isSameContent(a, { ...a, a: "y" }));
  assert(!isSameContent([1, 2], [2, 1]));
  assert(!isSameContent(undefined, {}));
});

Deno.test("sortKeys() sorts the fields of all objects", () => {
  assertEquals(JSON.stringify(sortKeys({ b: [{ d: 1, c: 2 }], a: null })), '{"a":null,"b":[{"c":2,"d":1}]}');
});
