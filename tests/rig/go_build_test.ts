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

Deno.test("goMod() gives an older program the language and the defaults of its time", () => {
  const text = goMod({ require: {}, replace: {}, language: "1.23.0" });
  assertEquals(text.split("\n").slice(0, 3), ["module rig", "go 1.23.0", "godebug default=go1.23"]);
});
