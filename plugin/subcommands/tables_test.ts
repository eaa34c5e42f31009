import { assertEquals, assertStringIncludes } from "@std/assert";
import type { GroupView, NodeView, PoolView } from "../diagnosis/nodes.ts";
import type { Problem } from "../problem.ts";
import { coloursOf } from "../output.ts";
import { formatAge, nodesTable, problemsText } from "./tables.ts";
import { answerText } from "./why.ts";

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

/** Returns a node that has a group with each of these percentages used, and a thin pool in the first. */
function nodeWith(...used: number[]): NodeView {
  const pool: PoolView = { name: "pool", size: 1n << 30n, owned: true, dataPercent: 79, metadataPercent: 5 };
  const groups = used.map((usedPercent, index): GroupView => ({
    ...{ name: `g${index}`, size: 1n << 40n, free: 1n << 39n, usedPercent, physicalVolumes: 2, missing: index },
    ...{ volumes: 1, writeable: true, pools: index === 0 ? [pool] : [] },
  }));
  return { name: "n1", agent: "Alive", groups, orphans: 0 };
}

Deno.test("nodesTable() shows from 80 and from 95 percent on how full a group is, by its colour", () => {
  const colours = coloursOf({ hasColours: true });
  const lines = nodesTable([nodeWith(80, 94, 95)], { wide: false, colours, now: NOW }).split("\n").slice(1);
  const [first, pool, second, third] = lines;
  for (
    const [line, text] of [
      [first, colours.severity("warning", "80%")],
      [pool, " 79%"],
      [second, colours.severity("warning", "94%")],
      [third, colours.severity("error", "95%")],
    ] as const
  ) {
    assertStringIncludes(line!, text);
  }
});

Deno.test("nodesTable() has the physical volumes of groups, and the metadata of pools, with --output wide", () => {
  const colours = coloursOf({ hasColours: false });
  const { groups: [first, ...others], ...node } = nodeWith(50, 51);
  const groups = [{ ...first!, spare: 10n << 30n }, ...others];
  const table = nodesTable([{ ...node, groups }], { wide: true, colours, now: NOW });
  assertEquals(table.split("\n").map((line) => line.trim().split(/ {2,}/)), [
    [
      ...["NODE", "AGENT", "SEEN", "GROUP", "SIZE", "FREE", "SPARE", "USED", "VOLUMES", "PVS", "METADATA"],
      ...["OVERCOMMIT", "ORPHANS"],
    ],
    ["n1", "Alive", "g0", "1 TiB", "512 GiB", "10 GiB", "50%", "1", "2", "0"],
    ["pool (thin)", "1 GiB", "79%", "5%"],
    ["g1", "1 TiB", "512 GiB", "51%", "1", "2 (1 missing)"],
  ]);
});

Deno.test("answerText() has its facts in two columns, with two blanks between them", () => {
  const facts = [["Node", "n1"], ["Requested", "1Gi\nin ext4"]] as const;
  const answer = { object: "claim/shop/db", state: "Bound", problems: [], facts, unread: ["events: no"] };
  assertEquals(answerText(answer, { colours: coloursOf({ hasColours: false }), now: NOW }).split("\n"), [
    ...["claim/shop/db is Bound", "", "Nothing is wrong in what you may read.", ""],
    ...["Node       n1", "Requested  1Gi in ext4", "Not read: events: no"],
  ]);
});

Deno.test("nodesTable() says which groups classes use only by name, and why", () => {
  const node = nodeWith(10, 20);
  const options = { wide: false, colours: coloursOf({ hasColours: false }), now: NOW };
  const plain = nodesTable([node], options);
  const groups = node.groups.map((group, index) => index === 0 ? group : { ...group, hostUse: "root (mounted)" });
  assertEquals(
    nodesTable([{ ...node, groups }], options),
    `${plain}\n\ng1 of n1: only for StorageClasses that name it, since the node uses root (mounted).`,
  );
});
