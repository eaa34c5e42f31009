import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { IdleLimit } from "./dial.ts";

Deno.test("a limit is over when one thing takes too long, not when several do together", async () => {
  const clock = new FakeClock();
  let calls = 0;
  const limit = new IdleLimit(1000, clock, () => calls++);
  for (let step = 0; step < 5; step++) {
    limit.begin();
    await clock.advance(900);
    limit.end();
    await clock.advance(50);
  }
  assertEquals([calls, limit.isOver], [0, false]);
  await clock.advance(10_000);
  assertEquals(calls, 0, "nothing is waited for");
  limit.begin();
  await clock.advance(999);
  assertEquals(calls, 0);
  await clock.advance(1);
  assertEquals([calls, limit.isOver], [1, true]);
});

Deno.test("a limit that is closed calls nobody, and leaves no timer", async () => {
  const clock = new FakeClock();
  let calls = 0;
  const limit = new IdleLimit(1000, clock, () => calls++);
  limit.begin();
  limit.close();
  await clock.advance(5000);
  assertEquals([calls, limit.isOver], [0, false]);
});
