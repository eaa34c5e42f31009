import { assertEquals } from "@std/assert";
import { countCommands, operationResult } from "./measure.ts";
import { CountingExec } from "./measured_driver.ts";

Deno.test("countCommands() counts on within a sequence, and leaves out what prepares it", async () => {
  const exec = new CountingExec();
  const runs = (commands: number) => () => Promise.resolve(exec.completed += commands);
  const sides = {
    stats: { run: runs(2) },
    deleteSnapshot: { prepare: runs(10), run: runs(3) },
    removeSnapshot: { run: runs(4) },
  };
  const counts = await countCommands([["stats"], ["deleteSnapshot", "removeSnapshot"]], sides, exec);
  assertEquals(counts, { stats: 2, deleteSnapshot: 3, removeSnapshot: 7 });
});

Deno.test("operationResult() has medians and their ratio", () => {
  const times = { driver: [900.4, 5000, 300], plain: [500, 300, 200], typedCommands: ["lvs bench"] };
  assertEquals(operationResult(times, 1), {
    driverMs: 900,
    plainMs: 300,
    ratio: 3,
    commands: 1,
    plain: ["lvs bench"],
    runs: 3,
  });
});
