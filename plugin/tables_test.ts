import { assertEquals } from "@std/assert";
import { coloursOf } from "./output.ts";
import type { Problem } from "./problem.ts";
import { formatAge, problemsText } from "./tables.ts";

const NOW = new Date("2026-02-03T04:05:06Z");

Deno.test.each([
  ["2026-02-03T04:05:06Z", "0s"],
  ["2026-02-03T04:03:07Z", "119s"],
  ["2026-02-03T04:03:06Z", "2m"],
  ["2026-02-03T03:59:36Z", "5m30s"],
  ["2026-02-03T03:45:00Z", "20m"],
  ["2026-02-03T01:00:06Z", "3h5m"],
  ["2026-02-02T04:05:06Z", "24h"],
  ["2026-01-31T03:05:06Z", "3d1h"],
  ["2025-02-03T04:05:06Z", "365d"],
  ["2026-02-03T04:06:06Z", "0s"],
  ["never", ""],
  [undefined, ""],
])("formatAge() of %s is %s", (time, expected) => assertEquals(formatAge(time, NOW), expected));

Deno.test("problemsText() has the remedy and the chapter of the runbooks with --output wide only", () => {
  const problem: Problem = {
    severity: "error",
    ...{ reason: "NoSpace", object: "claim/shop/db", message: "no space", remedy: "Add a disk." },
    ...{ since: "2026-02-03T04:00:06Z", runbook: "volume-group-full" },
  };
  const options = { colours: coloursOf({ hasColours: false }), now: NOW };
  const title = ["ERROR NoSpace claim/shop/db, for 5m", "  no space"];
  assertEquals(problemsText([problem], { ...options, wide: false }), title);
  assertEquals(problemsText([problem], { ...options, wide: true }), [
    ...title,
    "  Add a disk.",
    "  kubectl denolith help runbook volume-group-full",
  ]);
});
