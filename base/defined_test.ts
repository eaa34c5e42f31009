import { assertEquals } from "@std/assert";
import { defined } from "./defined.ts";

interface Fields {
  readonly name: string;
  readonly size?: bigint;
}

Deno.test("defined() leaves out what is undefined, and nothing else", () => {
  const size = undefined as bigint | undefined;
  const fields: Fields = defined({ name: "data", size });
  assertEquals(Object.keys(fields), ["name"]);
  const kept = { empty: "", zero: 0, none: null, no: false, list: [] };
  assertEquals(defined({ ...kept, absent: undefined }), kept);
});

Deno.test("defined() takes its fields in a spread, too", () => {
  const size = 4n as bigint | undefined;
  const fields: Fields = { name: "data", ...defined({ size }) };
  assertEquals(fields, { name: "data", size: 4n });
});
