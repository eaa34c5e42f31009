import { assert, assertEquals } from "@std/assert";
import jsr from "../../deno.jsr.json" with { type: "json" };
import npm from "../../deno.json" with { type: "json" };

Deno.test("deno.json and deno.jsr.json name the same specifiers, and differ only in those of @std", () => {
  assertEquals(Object.keys(jsr.imports), Object.keys(npm.imports));
  for (const [specifier, target] of Object.entries<string>(npm.imports)) {
    const other: string = jsr.imports[specifier as keyof typeof jsr.imports];
    const [, name, path = ""] = /^(@std\/[^/]+)(\/.+)?$/.exec(specifier) ?? [];
    if (name === undefined) assertEquals(other, target, specifier);
    else assert(other === `jsr:${name}@^1${path}`, `${specifier}: ${other}`);
  }
});
