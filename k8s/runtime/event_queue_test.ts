import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { EventCorrelator } from "./event_correlator.ts";
import { EventQueue } from "./event_queue.ts";

const CLAIM = { kind: "PersistentVolumeClaim", metadata: { name: "data", namespace: "shop", uid: "u" } };

Deno.test("EventQueue: an event that is repeated waits for its interval each time, and is due once after it", async () => {
  const clock = new FakeClock();
  let dues = 0;
  const queue = new EventQueue({ clock, repeatIntervalMs: 10_000, onDue: () => dues++, onDropped: () => {} });
  const correlator = new EventCorrelator(clock);
  const record = () => {
    const event = correlator.count(CLAIM, "Normal", "Waiting", "no space");
    queue.add(event);
    return event;
  };
  const event = record();
  for (let round = 1; round <= 3; round++) {
    assertEquals(queue.take(), event);
    event.triedAt = clock.now();
    for (let n = 0; n < 2; n++) record();
    assertEquals([queue.take(), dues], [undefined, round - 1]);
    await clock.advance(10_000);
    assertEquals(dues, round);
  }
});
