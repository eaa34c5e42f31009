import { assertEquals, assertMatch } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { EventCorrelator, remember } from "./event_correlator.ts";

const CLAIM = { kind: "PersistentVolumeClaim", metadata: { name: "data", namespace: "shop", uid: "u" } };

Deno.test("EventCorrelator combines messages for as long as they come within ten minutes of each other", async () => {
  const clock = new FakeClock();
  const correlator = new EventCorrelator(clock);
  const isCombined = (message: string) =>
    correlator.count(CLAIM, "Warning", "Failed", message).message.startsWith("(combined from similar events): ");
  for (let n = 0; n < 10; n++) assertEquals(isCombined(`failure ${n}`), false);
  for (let n = 10; n < 13; n++) {
    await clock.advance(540_000);
    assertEquals(isCombined(`failure ${n}`), true, `after ${(n - 9) * 9} minutes`);
  }
  assertEquals(isCombined("failure 3"), false, "a message that has an event of its own");
  await clock.advance(600_001);
  assertEquals(isCombined("failure 13"), false);
});

Deno.test("EventCorrelator names events as the API requires, also for long names with hyphens and dots", () => {
  const correlator = new EventCorrelator(new FakeClock());
  for (const end of ["-b", ".b", "-.-b", "bb"]) {
    const name = `${"a".repeat(230 - end.length + 1)}${end}`;
    const event = correlator.count({ kind: "Pod", metadata: { name, uid: end } }, "Normal", "Made", "made");
    assertMatch(event.name, /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/);
  }
});

Deno.test("remember() forgets the value that was stored first when there are more than 4,096", () => {
  const values = new Map<string, number>();
  for (let n = 0; n < 4_096; n++) remember(values, `${n}`, n);
  assertEquals([values.size, values.has("0")], [4_096, true]);
  remember(values, "0", 0);
  remember(values, "new", -1);
  assertEquals([values.size, values.has("0"), values.has("1"), values.has("2")], [4_096, true, false, true]);
});

Deno.test("EventCorrelator cuts a long message, and keeps the reason at its end", () => {
  const { message } = new EventCorrelator(new FakeClock()).count(
    CLAIM,
    "Warning",
    "Failed",
    `${"a".repeat(2_000)} [Lost]`,
  );
  assertEquals([message.length, message.slice(-9)], [1_024, "a… [Lost]"]);
});

Deno.test("EventCorrelator replaces the control characters of a message", () => {
  const { message } = new EventCorrelator(new FakeClock()).count(
    CLAIM,
    "Warning",
    "Failed",
    "source \x1b[2J\u009b\u202ea\nb",
  );
  assertEquals(message, "source \ufffd[2J\ufffd\ufffda\ufffdb");
});
