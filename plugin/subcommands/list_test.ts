import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { GroupView, NodeView, PoolView } from "../diagnosis/nodes.ts";
import { coloursOf } from "../output.ts";
import { nodesTable, VOLUMES } from "./list.ts";

const NOW = new Date("2026-02-03T04:05:06Z");

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
  const groups = [{ ...first!, spare: 10n << 30n, erasing: 20n << 30n }, ...others];
  const table = nodesTable([{ ...node, groups }], { wide: true, colours, now: NOW });
  assertEquals(table.split("\n").map((line) => line.trim().split(/ {2,}/)), [
    [
      ...["NODE", "AGENT", "SEEN", "GROUP", "SIZE", "FREE", "SPARE", "ERASING", "USED", "VOLUMES"],
      ...["PVS", "METADATA", "OVERCOMMIT", "ORPHANS"],
    ],
    ["n1", "Alive", "g0", "1 TiB", "512 GiB", "10 GiB", "20 GiB", "50%", "1", "2", "0"],
    ["pool (thin)", "1 GiB", "79%", "5%"],
    ["g1", "1 TiB", "512 GiB", "51%", "1", "2 (1 missing)"],
  ]);
});

Deno.test("VOLUMES.table() says how full volumes are, those nearly full in colour, and their classes with --output wide", () => {
  const colours = coloursOf({ hasColours: true });
  const volume = (id: string, more: object) => ({
    ...{ id, node: "n1", size: 1n << 30n, state: "Ready", layout: "linear", content: "ext4", ...more },
  });
  const volumes = [
    volume("v1-a", { usedPercent: 89, storageClass: "fast" }),
    volume("v1-b", { usedPercent: 90 }),
    volume("v1-c", {}),
  ];
  const [title, ...rows] = VOLUMES.table(volumes, { wide: true, colours, now: NOW }).split("\n");
  assertStringIncludes(title!, "USED");
  assertStringIncludes(title!, "CLASS");
  assertStringIncludes(rows[0]!, " 89%");
  assertStringIncludes(rows[0]!, "fast");
  assertStringIncludes(rows[1]!, colours.severity("warning", "90%"));
  assert(!rows[2]!.includes("%"));
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
