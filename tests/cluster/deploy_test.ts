import { assertEquals } from "@std/assert";
import { nodesFor } from "./deploy.ts";

Deno.test("the only node of a cluster has as many volume groups as it was asked for, of which `data` is the first", () => {
  const names = (groups?: number) =>
    nodesFor(groups === undefined ? {} : { groups }).map(({ volumeGroups }) => volumeGroups.map(({ name }) => name));
  assertEquals(names(), [["data", "small"]]);
  assertEquals(names(1), [["data"]]);
  assertEquals(names(3), [["data", "small", "small2"]]);
});
