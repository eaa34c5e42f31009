import { assertEquals } from "@std/assert";
import { nearestNames, selectTests } from "./selection.ts";

const SOURCES = [
  { path: "lvm/pools/pool.ts", text: "" },
  { path: "lvm/pools/pool_test.ts", text: 'Deno.test("a full pool refuses writes", () => {});' },
  { path: "lvm/size_test.ts", text: 'Deno.test("formatBytes() is short", () => {});' },
  { path: "tests/contract/contract_test.ts", text: `import { volumes } from ${JSON.stringify("./volumes_suite.ts")};` },
  { path: "tests/contract/volumes_suite.ts", text: "test(`${type}: mounts at two targets`);" },
];

Deno.test("selectTests() takes the beginning of a path, or else a part of a file's name", () => {
  const files = (filter: string) => selectTests(SOURCES, [filter]).files;
  assertEquals(files("lvm/"), ["lvm/pools/pool_test.ts", "lvm/size_test.ts"]);
  assertEquals(files("./lvm/pools/"), ["lvm/pools/pool_test.ts"]);
  assertEquals(files("lvm/pools/pool.ts"), ["lvm/pools/pool_test.ts"]);
  assertEquals(files("size"), ["lvm/size_test.ts"]);
});

Deno.test("selectTests() takes a part of a test's name, also of one that a helper registers or that is put together", () => {
  const byTitle = (filter: string) => selectTests(SOURCES, [filter]).byTitle;
  assertEquals(byTitle("is short"), [{ title: "is short", files: ["lvm/size_test.ts"] }]);
  assertEquals(byTitle("ext4: mounts at two"), [{
    title: "ext4: mounts at two",
    files: ["tests/contract/contract_test.ts"],
  }]);
});

Deno.test("selectTests() returns the filters that match no test, and nearestNames() suggests names", () => {
  assertEquals(selectTests(SOURCES, ["lvm/pool", "lvm/poolz"]), {
    files: ["lvm/pools/pool_test.ts"],
    byTitle: [],
    unmatched: ["lvm/poolz"],
  });
  assertEquals(nearestNames(SOURCES, "lvm/poolz")[0], "lvm/pools");
  assertEquals(nearestNames(SOURCES, "formatByte is short")[0], "formatBytes() is short");
});
