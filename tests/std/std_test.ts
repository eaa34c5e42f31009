import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { describe, it } from "@std/testing/bdd";
import { assertSpyCallArgs, assertSpyCalls, spy, stub } from "@std/testing/mock";
import { assertSnapshot } from "@std/testing/snapshot";
import { FakeTime } from "@std/testing/time";

Deno.test("spy() records arguments, results and errors", () => {
  const half = spy((value: number) => {
    if (value % 2 !== 0) throw new RangeError(`${value} is odd`);
    return value / 2;
  });
  assertEquals(half(4), 2);
  assertThrows(() => half(3), RangeError);
  assertSpyCalls(half, 2);
  assertSpyCallArgs(half, 1, [3]);
  assertEquals([half.calls[0]?.returned, half.calls[1]?.error?.message], [2, "3 is odd"]);
  assertThrows(() => assertSpyCalls(half, 1));
});

Deno.test("stub() replaces a method until it is disposed of", () => {
  const machine = { name: () => "real" };
  {
    using name = stub(machine, "name", () => "stub");
    assertEquals(machine.name(), "stub");
    assertSpyCalls(name, 1);
  }
  assertEquals(machine.name(), "real");
});

Deno.test("FakeTime moves Date and timers when the test says so, and puts the real ones back", async () => {
  const real = setTimeout;
  {
    using time = new FakeTime("2026-01-01T00:00:00Z");
    const seen: string[] = [];
    setTimeout(() => seen.push(`once ${new Date().toISOString()}`), 1_500);
    const interval = setInterval(() => seen.push(`every ${Date.now() - Date.UTC(2026, 0)}`), 1_000);
    time.tick(999);
    assertEquals(seen, []);
    await time.tickAsync(1_001);
    clearInterval(interval);
    time.tick(5_000);
    assertEquals(seen, ["every 1000", "once 2026-01-01T00:00:01.500Z", "every 2000"]);
  }
  assertEquals(setTimeout, real);
});

Deno.test("assertSnapshot() compares texts with those of the file, and says how to write them", async (t) => {
  await assertSnapshot(t, "one line with `code`, \\ and ${this}", { serializer: String });
  await assertSnapshot(t, { b: 1, a: ["two\nlines"] });
  await t.step("in a step", async (t) => {
    await assertSnapshot(t, "several\n\nlines\n", { serializer: String });
  });
  if (Deno.args.includes("--update")) return;
  const other = await assertRejects(() => assertSnapshot(t, "unknown", { serializer: String }), Error);
  assertEquals(other.message.includes("there is none; run the test with --update"), true, other.message);
});

describe("a group of @std/testing/bdd", () => {
  it("runs its tests", () => assertEquals(1 + 1, 2));
});
