import { assert, assertEquals } from "@std/assert";
import { type RegisteredTest, TestRegistry } from "./registry.ts";

const registry = new TestRegistry();

function run(fn: RegisteredTest["fn"], limitMs = 5_000) {
  return registry.run({ name: "t", file: "tests/mutation/registry_test.ts", isIgnored: false, fn }, limitMs);
}

Deno.test("TestRegistry: a test passes, fails, or does not end in time", async () => {
  const { failure, isTimeout, leaks } = await run(() => {});
  assertEquals([failure, isTimeout, leaks], [undefined, false, false]);
  assertEquals((await run(() => Promise.reject(new TypeError("why")))).failure, "TypeError: why");
  assertEquals((await run(() => new Promise(() => {}), 1)).isTimeout, true);
});

Deno.test("TestRegistry: a test that leaves a file open leaks", async () => {
  let file: Deno.FsFile | undefined;
  const { leaks, failure } = await run(async () => {
    file = await Deno.open("/dev/null");
  });
  file!.close();
  assertEquals([leaks, failure], [true, undefined]);
});

Deno.test("TestRegistry: a failing step fails its test, and steps know their parents", async () => {
  const { failure } = await run((context) =>
    context.step("inner", ({ parent }) => {
      assert(parent === context);
      throw new Error("in the step");
    })
  );
  assertEquals(failure, "Error: in the step");
});
