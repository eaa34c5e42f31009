import { assertEquals, assertThrows } from "@std/assert";
import manifest from "../deno.json" with { type: "json" };
import { launchConfig } from "./launch.ts";

Deno.test("launchConfig() has the permission set and the unstable features of deno.json", () => {
  const config = JSON.parse(launchConfig({ moduleIsFile: false }));
  assertEquals(config.permissions, manifest.permissions);
  assertEquals(config.unstable, manifest.unstable);
});

Deno.test("launchConfig() has Deno use no lock file, no modules folder and no workspace around it", () => {
  const { lock, nodeModulesDir, workspace } = JSON.parse(launchConfig({ moduleIsFile: true }));
  assertEquals({ lock, nodeModulesDir, workspace }, { lock: false, nodeModulesDir: "none", workspace: [] });
});

Deno.test("launchConfig() permits reading the worker's module if it is a file, and nothing beside it", () => {
  const readOf = (read: boolean | string[] | { allow: string[]; deny: string[] } | undefined) => {
    const denolith = { run: ["/bin/x"], ...(read === undefined ? {} : { read }) };
    const { permissions } = JSON.parse(launchConfig({ moduleIsFile: true }, { permissions: { denolith } }));
    assertEquals(permissions.denolith.run, ["/bin/x"]);
    return permissions.denolith.read;
  };
  assertEquals(readOf(true), true);
  for (const nothing of [undefined, false, []]) assertEquals(readOf(nothing), ["./worker.js"]);
  assertEquals(readOf(["/run"]), ["/run", "./worker.js"]);
  assertEquals(readOf({ allow: ["/run"], deny: ["/run/x"] }), { allow: ["/run", "./worker.js"], deny: ["/run/x"] });
});

Deno.test("launchConfig() is not made without the set", () => {
  const without = { permissions: {} };
  assertThrows(() => launchConfig({ moduleIsFile: true }, without), Error, "deno.json has no permissions.denolith");
});
