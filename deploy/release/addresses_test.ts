import { assertEquals } from "@std/assert";
import manifest from "../../deno.json" with { type: "json" };
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
