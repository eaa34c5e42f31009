import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { nextTurn } from "../../base/clock.ts";
import { pollUntil } from "../../tests/rig/poll_until.ts";
import { Transport } from "./transport.ts";

function transport(url = "http://127.0.0.1:1") {
  const clock = new FakeClock();
  const reconnects: string[] = [];
  const options = { userAgent: "denolith/test", clock, onReconnect: (reason: string) => void reconnects.push(reason) };
  return { transport: new Transport({ url }, options), clock, reconnects };
}

Deno.test("Transport looks after the connection until the last of its watches ends", () => {
  const { transport: connection, clock } = transport();
  const [first, second] = [connection.registerWatch(), connection.registerWatch()];
  assertEquals(clock.pendingTimers, 1);
  first[Symbol.dispose]();
  assertEquals(clock.pendingTimers, 1);
  second[Symbol.dispose]();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("Transport ends its watches to reconnect, also while it has no connection", () => {
  const { transport: connection, reconnects } = transport();
  using watch = connection.registerWatch();
  connection.reconnect("its certificates were replaced");
  assertEquals([watch.signal.reason.message, reconnects], [
    "its certificates were replaced",
    ["its certificates were replaced"],
  ]);
});

Deno.test("Transport sends nothing after it was closed, and does not reconnect", async () => {
  const { transport: connection, reconnects } = transport();
  connection[Symbol.dispose]();
  connection[Symbol.dispose]();
  connection.reconnectIfIdleSince(1, "idle");
  const { signal } = new AbortController();
  await assertRejects(() => connection.fetch("/livez", { signal }), Error, "the client was closed");
  assertEquals(reconnects, []);
});

Deno.test("Transport notices within 35 s that the server does not answer any more", async () => {
  using server = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { transport: connection, clock, reconnects } = transport(`http://127.0.0.1:${server.addr.port}`);
  using watch = connection.registerWatch();
  await clock.advance(30_000);
  await nextTurn(); // it has asked for a sign of life
  await clock.advance(5_000);
  await pollUntil(() => Promise.resolve(watch.signal.aborted), {
    action: "end the watch",
    timeoutMs: 10_000,
    intervalMs: 10,
  });
  assertEquals([watch.signal.reason.message, reconnects.length], ["no sign of life: no answer within 5000 ms", 1]);
});
