import { assertEquals, assertThrows } from "@std/assert";
import { cpuOf, kibOf, parentOf, treeOf } from "./proc.ts";

const STATUS = "Name:\tdeno\nState:\tS (sleeping)\nVmRSS:\t   92160 kB\nRssAnon:\t   40960 kB\nThreads:\t9\n";

const SMAPS_ROLLUP = `00200000-7fff0000 ---p 00000000 00:00 0                          [rollup]
Rss:               92160 kB
Pss:               81920 kB
Pss_Dirty:         40960 kB
`;

Deno.test("kibOf() reads the line of that very name, if there is one", () => {
  assertEquals(kibOf(STATUS, "VmRSS"), 92160);
  assertEquals(kibOf(SMAPS_ROLLUP, "Pss"), 81920);
  assertEquals(kibOf(STATUS, "Threads"), undefined);
  assertEquals(kibOf(STATUS, "VmHWM"), undefined);
  assertEquals(kibOf("", "VmRSS"), undefined);
});

Deno.test("parentOf() is not misled by a program's name", () => {
  assertEquals(parentOf("812 (deno) S 7 812 812 0 -1"), 7);
  assertEquals(parentOf("813 (a) S 1 (b)) R 812 813 813 0 -1"), 812);
  assertEquals(parentOf(""), undefined);
});

Deno.test("treeOf() has the process, its children and theirs, and nobody else", () => {
  const parents = new Map([[1, 0], [10, 1], [11, 10], [12, 11], [20, 1], [13, 10]]);
  assertEquals(treeOf(10, parents).sort(), [10, 11, 12, 13]);
  assertEquals(treeOf(20, parents), [20]);
});

Deno.test("cpuOf() reads the times of a process and of its children, whatever the process's name is", () => {
  const stat = "7 (a) S (b)) S 1 7 7 0 -1 4194560 100 200 0 0 150 50 30 12 20 0 9 0 100 1000 50";
  assertEquals(cpuOf(stat), { own: 2_000, commands: 420 });
  assertThrows(() => cpuOf("7 (a) S 1"), Error, "processor time");
});
