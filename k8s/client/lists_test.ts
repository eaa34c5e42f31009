import { assertEquals } from "@std/assert";
import { collectPages } from "./lists.ts";

Deno.test("collectPages() takes a page of any length: a server may ignore the limit", async () => {
  const page = Array.from({ length: 300_000 }, (_, index) => index);
  async function* pages() {
    yield { items: page, resourceVersion: "1" };
    yield { items: [], resourceVersion: "2" }; // a page may also be empty, and not the last one
    yield { items: [1], resourceVersion: "3" };
  }
  const { items, resourceVersion } = await collectPages(pages());
  assertEquals([items.length, resourceVersion], [300_001, "3"]);
});
