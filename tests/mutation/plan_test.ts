import { assertEquals } from "@std/assert";
import { type Coverage, importsOf, type Test } from "./coverage.ts";
import { testsFor } from "./plan.ts";

const FILE = "lvm/pools/pool.ts";

function test(file: string, ms: number, name = "t"): Test {
  return { file, index: 0, name, ms, maxHits: 10, leaks: false };
}

function coverage(tests: readonly Test[], options: { reaching?: readonly Test[]; atLoad?: boolean } = {}): Coverage {
  const byFile = Map.groupBy(tests, ({ file }) => file);
  return {
    reaching: new Map([[7, options.reaching ?? tests]]),
    using: new Map(),
    atLoad: new Set(options.atLoad ? [7] : []),
    tests: byFile,
    imports: new Map([...byFile.keys()].map((file) => [file, new Set(file.startsWith("csi/") ? [] : [FILE])])),
    unusable: [],
  };
}

const OWN = test("lvm/pools/pool_test.ts", 50);
const BESIDE = test("lvm/pools/monitor_test.ts", 5);
const FAST = test("tests/contract/fast_test.ts", 1);
const SLOW = test("tests/contract/slow_test.ts", 300, "killer");
const OTHER = test("csi/other_test.ts", 1);

const filesOf = (found: Coverage, killers = new Set<string>()) =>
  testsFor({ number: 7, file: FILE }, found, killers).map(({ file }) => file);

Deno.test("testsFor() starts with the file's own tests, then those beside it, and then the fastest", () => {
  assertEquals(filesOf(coverage([SLOW, FAST, BESIDE, OWN])), [OWN.file, BESIDE.file, FAST.file, SLOW.file]);
});

Deno.test("testsFor() prefers a test that killed another mutant of the file", () => {
  const killers = new Set([`${SLOW.file}: killer`]);
  assertEquals(filesOf(coverage([SLOW, FAST, OWN]), killers), [OWN.file, SLOW.file, FAST.file]);
});

Deno.test("testsFor() runs no test for a mutant that none reaches", () => {
  assertEquals(filesOf(coverage([OWN], { reaching: [] })), []);
});

Deno.test("testsFor() runs the tests that use the file when the mutant is reached while modules are loaded", () => {
  const found = coverage([SLOW, OTHER, OWN], { reaching: [], atLoad: true });
  assertEquals(filesOf(found), [OWN.file, SLOW.file], "those that import it, if none uses it");
  assertEquals(filesOf({ ...found, using: new Map([[FILE, new Set([SLOW])]]) }), [SLOW.file]);
});

Deno.test("testsFor() leaves out the tests that the budget has no time for, unless all are wanted", () => {
  const tests = [test("a_test.ts", 16_000), test("b_test.ts", 16_001), test("c_test.ts", 16_002)];
  assertEquals(filesOf(coverage(tests)), ["a_test.ts", "b_test.ts"]);
  assertEquals(testsFor({ number: 7, file: FILE }, coverage(tests), new Set(), true).length, 3);
});

Deno.test("testsFor() limits time and hits by what the test needs without the mutant", () => {
  const { limitMs, hitLimit } = testsFor({ number: 7, file: FILE }, coverage([OWN]), new Set())[0]!;
  assertEquals([limitMs, hitLimit], [2_250, 20_200]);
});

Deno.test("importsOf() follows imports, also of types, re-exports and dynamic ones", () => {
  const texts = new Map([
    ["a_test.ts", 'import { x } from "./b/c.ts";\nimport "@std/assert";'],
    ["b/c.ts", 'export * from "../d.ts";\nconst e = await import("./e.ts");'],
    ["d.ts", ""],
    ["b/e.ts", 'import type { A } from "../a_test.ts";'],
    ["f.ts", ""],
  ]);
  assertEquals([...importsOf("a_test.ts", texts)], ["a_test.ts", "b/c.ts", "d.ts", "b/e.ts"]);
});
