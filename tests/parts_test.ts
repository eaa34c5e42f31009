import { assertEquals } from "@std/assert";
import { divide, failedFiles, importAll, isAlone } from "./parts.ts";

function file(path: string, text = "") {
  return { path, text };
}

Deno.test("divide() makes parts of about the same time, the slowest first, and keeps every file", () => {
  const seconds: Record<string, number> = { "a_test.ts": 5, "b_test.ts": 3, "c_test.ts": 3 };
  const files = ["d_test.ts", "c_test.ts", "b_test.ts", "a_test.ts"].map((path) => file(path));
  assertEquals(divide(files, 2, (path) => seconds[path] ?? 1), [
    { shared: ["a_test.ts", "d_test.ts"], alone: [] },
    { shared: ["b_test.ts", "c_test.ts"], alone: [] },
  ]);
  assertEquals(divide(files.slice(0, 1), 3, () => 1).length, 1, "no part is empty");
});

Deno.test("isAlone() finds the tests that leave timers behind, and those with snapshots", () => {
  const texts = [
    "Deno.test(title, { sanitizeOps: false }, fn)",
    'import { assertSnapshot } from "@std/testing/snapshot";',
  ];
  const alone = texts.map((text, index) => file(`${index}_test.ts`, text));
  const shared = file("x_test.ts", 'import { stub } from "@std/testing/mock";');
  assertEquals([...alone, shared].map(isAlone), [true, true, false]);
  assertEquals(divide([...alone, shared], 1, () => 1), [{ shared: ["x_test.ts"], alone: ["0_test.ts", "1_test.ts"] }]);
});

Deno.test("importAll() imports each file by its URL", () => {
  const root = new URL("file:///the folder/");
  assertEquals(importAll(["lvm/a_test.ts"], root), 'import "file:///the%20folder/lvm/a_test.ts";\n');
});

Deno.test("failedFiles() returns the files that deno test names, or all when it ended before that", () => {
  const part = { shared: ["a_test.ts", "b_test.ts"], alone: ["c_test.ts"] };
  const output = [
    ...["x ... FAILED (3ms)", "", " ERRORS ", "", "x => ./a_test.ts:1:6", "error: Error: y => ./b_test.ts:2:2", ""],
    ...[
      "\x1b[41m FAILURES \x1b[0m",
      "",
      "x \x1b[38;5;245m=> ./tests/host.ts:1:6\x1b[0m",
      "y => ./a_test.ts:9:6",
      "",
      "FAILED | 0 passed | 2 failed",
    ],
  ].join("\n");
  assertEquals(failedFiles(output, part), ["tests/host.ts", "a_test.ts"]);
  assertEquals(failedFiles("error: a module cannot be loaded", part), ["a_test.ts", "b_test.ts", "c_test.ts"]);
});
