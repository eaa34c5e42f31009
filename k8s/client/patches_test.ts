import { assertEquals } from "@std/assert";
import { mergePatch } from "../../tests/fake/cluster/api_store.ts";
import { mergePatchTo } from "./patches.ts";

Deno.test.each([
  [undefined, { a: 1 }],
  [{ a: 1 }, {}],
  [{ a: 1, b: { c: 2, d: { e: 3 } } }, { b: { d: {} }, f: [4] }],
  [{ a: [1, 2], b: { c: 3 } }, { a: [1], b: "c" }],
  [{ a: { b: 1 } }, { a: undefined }],
])("mergePatchTo() turns %j into %j", (before, after) => {
  const [sent, wanted] = [mergePatchTo(before, after), after].map((value) => JSON.parse(JSON.stringify(value)));
  assertEquals(mergePatch(before, sent), wanted);
});
