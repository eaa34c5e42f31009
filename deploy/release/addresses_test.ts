import { assertEquals, assertThrows } from "@std/assert";
import manifest from "../../deno.json" with { type: "json" };
import { UsageError } from "../tool.ts";
import { parseAddresses } from "./addresses.ts";

Deno.test("parseAddresses() takes files and documents where GitHub has them, unless it is told where", () => {
  const home = "https://git.example/team/denolith";
  assertEquals(parseAddresses({}), {});
  assertEquals(parseAddresses({ registry: "registry.example:5000/team" }), { registry: "registry.example:5000/team" });
  assertEquals(parseAddresses({ home }), {
    home,
    downloads: `${home}/releases/download/v${manifest.version}`,
    docsUrl: `${home}/blob/v${manifest.version}/docs`,
  });
  const others = { downloads: "http://127.0.0.1:80", "docs-url": "https://docs.example" };
  assertEquals(parseAddresses({ home, ...others }), {
    ...{ home, downloads: others.downloads, docsUrl: others["docs-url"] },
  });
});

Deno.test.each(["$(id)", "`id`", "a;id", "$&", "{{fail}}", "a?b", "a#b", "a/"])(
  "parseAddresses() refuses what a shell, a template or a file's name behind it would change: %s",
  (end: string) => {
    for (const flag of ["home", "downloads", "docs-url"]) {
      assertThrows(() => parseAddresses({ [flag]: `https://git.example/${end}` }), UsageError, `--${flag}`);
    }
  },
);
