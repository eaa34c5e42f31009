import { assertEquals } from "@std/assert";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { sidecarController } from "./sidecar_controller.ts";

Deno.test("sidecarController(): an attempt that waits for a node takes no worker after a second, unless nothing waits for nodes", async () => {
  for (const waitsForNodes of [undefined, true, false]) {
    const clock = new FakeClock();
    const begun: string[] = [];
    const finish = Promise.withResolvers<void>();
    const stop = new AbortController();
    const controller = sidecarController("provisioner", { parallel: 1, clock, waitsForNodes } as never, (key) => {
      begun.push(key);
      return finish.promise;
    });
    const running = controller.run(stop.signal);
    await flushPromises();
    for (const key of ["a", "b"]) controller.add(key);
    await clock.advance(900);
    assertEquals(begun, ["a"]);
    await clock.advance(200);
    assertEquals(begun, waitsForNodes === false ? ["a"] : ["a", "b"]);
    finish.resolve();
    stop.abort();
    await running;
  }
});
