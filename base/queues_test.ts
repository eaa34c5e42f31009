import { assertEquals, assertRejects } from "@std/assert";
import { SharedRuns } from "./queues.ts";

Deno.test("SharedRuns begins a run at once, and the next one for all who ask meanwhile, also after a failure", async () => {
  const runs = new SharedRuns<number>();
  const ends: PromiseWithResolvers<number>[] = [];
  const ask = (key = "a") =>
    runs.run(key, () => {
      ends.push(Promise.withResolvers<number>());
      return ends.at(-1)!.promise;
    });
  const first = [ask(), ask()]; // both before it begins
  await Promise.resolve();
  assertEquals(ends.length, 1);
  const second = [ask(), ask()];
  const other = ask("b");
  await Promise.resolve();
  assertEquals(ends.length, 2, "that of another key does not wait");
  ends[0]!.reject(new Error("no"));
  for (const one of first) await assertRejects(() => one, Error, "no");
  await Promise.resolve();
  assertEquals(ends.length, 3);
  ends[2]!.resolve(2);
  ends[1]!.resolve(1);
  assertEquals(await Promise.all([...second, other]), [2, 2, 1]);
});
