import { assertEquals } from "@std/assert";
import { stub } from "@std/testing/mock";
import type { Lvm } from "../lvm/model/client.ts";
import { lvmReadiness } from "./standalone.ts";

Deno.test("lvmReadiness() asks LVM once a minute while it answers, and each time while it does not", async () => {
  let [now, reports, answers] = [1_000, 0, false];
  using _ = stub(performance, "now", () => now);
  const report = () => (reports++, answers ? Promise.resolve([]) : Promise.reject(new Error("no answer")));
  const isReady = lvmReadiness({ report } as unknown as Lvm);
  assertEquals([await isReady(), await isReady(), reports], [false, false, 2]);
  answers = true;
  assertEquals([await isReady(), reports], [true, 3]);
  [now, answers] = [now + 59_999, false];
  assertEquals([await isReady(), reports], [true, 3]);
  now += 1;
  assertEquals([await isReady(), reports], [false, 4]);
});
