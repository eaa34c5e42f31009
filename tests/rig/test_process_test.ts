import { assert, assertEquals, assertMatch } from "@std/assert";
import { runTestProcess } from "./test_process.ts";

/** Runs the tests of a text. @returns whether they passed, and what was printed */
async function runText(text: string, startMs = 3_000): Promise<{ passed: boolean; printed: string }> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/some_test.ts`, text);
    const decoder = new TextDecoder();
    let printed = "";
    const passed = await runTestProcess({
      args: ["-A", "--quiet", "--no-check", "--no-config", `${folder}/some_test.ts`],
      env: { NO_COLOR: "1" },
      silenceMs: 3_000,
      startMs,
      onOutput: (chunk) => printed += decoder.decode(chunk, { stream: true }),
    });
    return { passed, printed };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("runTestProcess() kills a process whose test hangs, and names the test", async () => {
  const { passed, printed } = await runText(`
    Deno.test("the first one passes", () => {});
    Deno.test("the second one hangs", async () => {
      new Deno.Command("sleep", { args: ["20"], stdout: "inherit" }).spawn();
      setInterval(() => {}, 100);
      await new Promise(() => {});
    });
  `);
  assertEquals(passed, false);
  assertMatch(
    printed,
    /^FAILED \| 0 passed \| 1 failed: no output for 3 s, killed process \d+ after: the second one hangs \.\.\.$/m,
  );
});

Deno.test("runTestProcess() gives a process more time until it prints something", async () => {
  const text = `await new Promise((resolve) => setTimeout(resolve, 4_000)); Deno.test("passes", () => {});`;
  assertEquals((await runText(text, 60_000)).passed, true);
});

Deno.test("runTestProcess() answers whether all tests passed", async () => {
  assertEquals((await runText(`Deno.test("passes", () => {});`)).passed, true);
  const { passed, printed } = await runText(`Deno.test("fails", () => { throw new Error("why"); });`);
  assertEquals(passed, false);
  assert(printed.includes("why"), printed);
});
