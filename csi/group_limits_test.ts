import { assert, assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { cpuMs } from "../tests/fake/cpu_time.ts";
import { parseGroupLimits } from "./group_limits.ts";

Deno.test("limits are said by group or pattern, for each GiB; the first that matches counts", () => {
  const limits = parseGroupLimits({
    "read-iops-per-gib": "data=100, /fast-[a-z]{1,3}/=500,/.*/=10",
    "write-bps-per-gib": "data=4Mi",
  });
  assertEquals(limits("data"), {
    readIops: { rate: 100n, perGiB: true },
    writeBps: { rate: 4n << 20n, perGiB: true },
  });
  assertEquals(limits("fast-a"), { readIops: { rate: 500n, perGiB: true } });
  assertEquals(limits("other"), { readIops: { rate: 10n, perGiB: true } });
  assertEquals(parseGroupLimits({})("data"), {});
});

Deno.test.each([
  "data",
  "data=",
  "=100",
  "data=0",
  "data=max",
  "data=1.5",
  "/(/=5",
  "-x=5",
  "data=100,fast",
  "x/data=100",
  "/a/b=5",
])(
  "an entry that is none is refused, with its flag: %j",
  (list) =>
    void assertThrows(() => parseGroupLimits({ "read-iops-per-gib": list }), StorageError, "--read-iops-per-gib"),
);

Deno.test("a long list of limits is read quickly", () => {
  const start = cpuMs();
  assertThrows(() => parseGroupLimits({ "read-iops-per-gib": " ".repeat(2_000) + "/" }), StorageError);
  assert(cpuMs() - start < 2_000, "it takes seconds");
});
