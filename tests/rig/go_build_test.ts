import { assertEquals } from "@std/assert";
import { goMod } from "./go_build.ts";

Deno.test("goMod() fixes the versions of what is built and of what others name without one", () => {
  const text = goMod({ require: { "example.test/a": "1.2.3" }, replace: { "example.test/b": "0.2.3" } });
  assertEquals(text.split("\n").slice(3), [
    "require example.test/a v1.2.3",
    "replace example.test/b => example.test/b v0.2.3",
    "",
  ]);
});
