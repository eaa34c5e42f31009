import { assertEquals, assertThrows } from "@std/assert";
import { EAGER_BUILTINS, withLazyBuiltins } from "./bundle.ts";

/** What the bundler makes of a package that is CommonJS, and of an import of the whole of a module. */
const BUNDLE = `import { createRequire as __deno_internal_createRequire } from "node:module";
var __require = __deno_internal_createRequire(import.meta.url);

import util from "node:util";
export const separator = () => __require("node:path").sep;
export const inspected = () => util.inspect({ a: 1 });
`;

Deno.test("withLazyBuiltins() loads modules of Node.js when they are used, and not with the bundle", async () => {
  const lazy = withLazyBuiltins(BUNDLE);
  assertEquals(lazy.match(/^import/m), null);
  const module = await import(`data:text/javascript,${encodeURIComponent(lazy)}`);
  assertEquals([module.separator(), module.inspected()], ["/", "{ a: 1 }"]);
});

Deno.test("withLazyBuiltins() refuses a module of Node.js that each start would load", () => {
  for (
    const statement of [`import { join } from "node:path";`, `import "node:fs";`, `import * as n from "node:net";`]
  ) {
    assertThrows(() => withLazyBuiltins(`${statement}\n`), Error, "would be loaded at each start");
  }
  const allowed = EAGER_BUILTINS.map((name) => `import { x } from "node:${name}";\n`).join("");
  assertEquals(withLazyBuiltins(allowed), allowed);
});
