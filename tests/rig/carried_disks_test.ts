import { assertEquals, assertThrows } from "@std/assert";
import { carryDisks } from "./carried_disks.ts";

const FROM = ["env", "linux", "ubd0=/a/root", "ubd1=/a/payload", "ubd2=/a/data0", "ubd3=/a/data1", "vec0:tap0"];
const TO = ["env", "linux", "ubd0=/b/root", "ubd1=/b/payload", "ubd2=/b/data0", "vec0:tap0"];

Deno.test("carryDisks() gives disks to the other guest, behind its own", () => {
  const { from, to } = carryDisks(FROM, TO, ["/a/data0"]);
  assertEquals(from, FROM.filter((argument) => argument !== "ubd2=/a/data0"));
  assertEquals(to, [...TO.slice(0, 5), "ubd3=/a/data0", "vec0:tap0"]);
  assertEquals(carryDisks(from, to, ["/a/data1"]).to.slice(5), ["ubd3=/a/data0", "ubd4=/a/data1", "vec0:tap0"]);
  assertEquals(carryDisks(FROM, TO, ["/a/data0", "/a/data1"]).from, [...FROM.slice(0, 4), "vec0:tap0"]);
});

Deno.test("carryDisks() refuses disks that the guest does not have, and more than the other one takes", () => {
  assertThrows(() => carryDisks(FROM, TO, ["/b/data0"]), Error, "does not have it");
  const full = [...TO, ...Array.from({ length: 13 }, (_, index) => `ubd${index + 3}=/b/data${index + 1}`)];
  assertThrows(() => carryDisks(FROM, full, ["/a/data0"]), Error, "takes no more disks");
});
