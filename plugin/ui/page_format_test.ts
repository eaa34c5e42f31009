import { assertEquals } from "@std/assert";
import { formatBytes as serverBytes } from "../../base/size.ts";
import { formatAge as serverAge } from "../tables.ts";
import { usageInSummary } from "./volume_page.ts";
import { formatAge, formatBytes } from "./page/format.js";

Deno.test("the page formats sizes and ages as the plugin prints them", () => {
  for (
    const bytes of [
      0,
      1,
      1023,
      1024,
      1536,
      10 * 2 ** 20,
      2 ** 30 + 5,
      999 * 2 ** 30,
      64.5 * 2 ** 30,
      2 ** 40,
      3.7 * 2 ** 50,
    ]
  ) {
    assertEquals(formatBytes(bytes), serverBytes(BigInt(Math.floor(bytes))), `${bytes}`);
  }
  const now = new Date("2026-05-01T12:00:00Z");
  for (
    const seconds of [0, 1, 59, 119, 120, 125, 700, 3599, 7200, 7261, 40_000, 172_799, 172_800, 900_000, 40_000_000]
  ) {
    const time = new Date(now.getTime() - seconds * 1_000).toISOString();
    assertEquals(formatAge(time, now.getTime()), serverAge(time, now), `${seconds}`);
  }
  assertEquals(formatAge("", now.getTime()), "");
});

Deno.test("usageInSummary() finds a claim in kubelet's statistics", () => {
  const volume = (name: string, more: object) => ({ pvcRef: { namespace: "shop", name }, ...more });
  const json = JSON.stringify({
    pods: [{}, { volume: [{ name: "token", usedBytes: 1 }, volume("new", {})] }, {
      volume: [volume("db", { usedBytes: 5, capacityBytes: 10, inodesUsed: 1, inodes: 2 })],
    }],
  });
  assertEquals(usageInSummary(json, "shop/db"), { used: 5, capacity: 10, inodesUsed: 1, inodes: 2 });
  assertEquals(usageInSummary(json, "shop/new"), undefined);
  assertEquals(usageInSummary("{}", "shop/db"), undefined);
});
