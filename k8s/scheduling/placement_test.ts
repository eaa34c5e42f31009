import { LINEAR } from "../../lvm/model/layout.ts";
import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { type ErrorKind, StorageError } from "../../base/error.ts";
import { ANY_GROUP, exactMatcher, type GroupMatcher, type GroupPreference } from "../../lvm/model/groups.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { SizeRange } from "../../base/size.ts";
import type { NodeVolumeGroup } from "../api/lvm_objects.ts";
import { chooseNode, totalCapacity } from "./placement.ts";
import { freeCapacityOf, type NodeCapacity } from "./free_capacity.ts";
import type { NamedVolumeRequest } from "../api/volume_mapping.ts";

const MiB = 1n << 20n;

function node(name: string, ...groups: (Partial<NodeVolumeGroup> & { free: string })[]): NodeCapacity {
  const volumeGroups = groups.map((group) => ({
    name: "data",
    uuid: "u",
    size: "100Gi",
    extentSize: "4Mi",
    lvCount: 0,
    pvCount: 1,
    snapshotCount: 0,
    missingPVCount: 0,
    writeable: true,
    ...group,
  }));
  return freeCapacityOf(
    { metadata: { name }, spec: { driverName: "d" }, status: { volumeGroups } },
    [],
    () => ANY_GROUP,
  );
}

function request(range: SizeRange, preference: GroupPreference = "leastFree", groups = ANY_GROUP): NamedVolumeRequest {
  const format = { state: "raw" } as const;
  const fixed = { format, mkfsOptions: [], shared: true, erase: "none", layout: LINEAR } as const;
  return { id: volumeIdOf("pvc-1"), name: "pvc-1", range, preference, groups, ...fixed };
}

const TEN = request({ required: 10n * MiB });
const ANYWHERE = { preferred: [] };

function refusal(kind: ErrorKind, ...args: Parameters<typeof chooseNode>): string {
  const error = assertThrows(() => chooseNode(...args), StorageError);
  assertEquals(error.kind, kind, error.message);
  return error.message;
}

Deno.test("chooseNode() chooses the first preferred node that has free capacity and is allowed", () => {
  const nodes = [node("a", { free: "8Mi" }), node("b", { free: "1Gi" }), node("c", { free: "2Gi" })];
  assertEquals(chooseNode(TEN, { preferred: ["a", "c", "b"] }, nodes), "c", "a has no room");
  assertEquals(chooseNode(TEN, { allowed: ["b"], preferred: ["c", "b"] }, nodes), "b");
  assertEquals(chooseNode(TEN, { allowed: ["b"], preferred: ["c"] }, nodes), "b");
  assertEquals(chooseNode(TEN, { preferred: ["x"] }, nodes), "b", "one that does not exist helps nobody");
});

Deno.test("chooseNode() chooses a node that has refused the volume when no other one fits", () => {
  const nodes = [node("a", { free: "1Gi" }), node("b", { free: "2Gi" })];
  assertEquals(chooseNode(TEN, ANYWHERE, nodes, new Set(["a"])), "b");
  assertEquals(chooseNode(TEN, { preferred: ["a"] }, nodes, new Set(["a"])), "b");
  assertEquals(chooseNode(TEN, { allowed: ["a"], preferred: [] }, nodes, new Set(["a"])), "a");
  assertEquals(chooseNode(TEN, ANYWHERE, nodes, new Set(["a", "b"])), "a");
});

Deno.test("chooseNode() leaves out a group in which LVM creates nothing, and says why", () => {
  const refused = node("a", { free: "1Gi", writeable: false, refusal: "its metadata area is full: 12 B are free" });
  assertEquals(chooseNode(TEN, ANYWHERE, [refused, node("b", { free: "2Gi" })]), "b");
  assertEquals(refusal("NoSpace", TEN, ANYWHERE, [refused]).includes("data (its metadata area is full: 12 B"), true);
  assertEquals(totalCapacity({ groups: ANY_GROUP, layout: LINEAR }, [refused]).available, 0n);
});

Deno.test("chooseNode() says why as a code: what keeps a group from being used comes before its lack of space", () => {
  const reasonOf = (...nodes: NodeCapacity[]) =>
    assertThrows(() => chooseNode(request({ required: 4n << 40n }), ANYWHERE, nodes), StorageError).reason;
  const full = node("a", { free: "1Gi" });
  const locked = { free: "1Gi", writeable: false, refusal: "it is full" };
  assertEquals(reasonOf(full), "NoSpace");
  assertEquals(reasonOf(full, node("b", { free: "1Gi", missingPVCount: 1 })), "PhysicalVolumesMissing");
  assertEquals(reasonOf(full, node("b", { ...locked, refusalReason: "MetadataAreaFull" })), "MetadataAreaFull");
  assertEquals(
    reasonOf(full, node("b", { ...locked, refusalReason: "OfNewer" as never })),
    "VolumeGroupRefusesChanges",
  );
  assertEquals(reasonOf(), "NodeWithoutAgent");
});

Deno.test("chooseNode() leaves out a node on whose disks the content could not be used, and says why", () => {
  const nodes = [node("a", { free: "1Gi", sectorSize: "4Ki" }), node("b", { free: "2Gi", sectorSize: "512" })];
  const copied = { ...TEN, maximumSectorBytes: 512n };
  assertEquals(chooseNode(copied, { preferred: ["a"] }, nodes), "b");
  assertMatch(
    refusal("NoSpace", copied, { allowed: ["a"], preferred: [] }, nodes),
    /^node a: volume group data, which it would be in, has logical sectors of 4 KiB, and .* on sectors of 512 B at most; copy/,
  );
  assertEquals(chooseNode({ ...TEN, maximumSectorBytes: 4_096n }, { preferred: ["a"] }, nodes), "a");
  assertEquals(chooseNode(TEN, { preferred: ["a"] }, nodes), "a", "what is not known is not refused");
  assertEquals(chooseNode(copied, { preferred: ["c"] }, [node("c", { free: "1Gi" })]), "c");
});

Deno.test("chooseNode() without a preferred node compares the best group of each by the preference of the class", () => {
  const nodes = [
    node("a", { name: "data", free: "2Gi" }, { name: "more", free: "20Mi" }),
    node("b", { free: "1Gi" }),
    node("c", { free: "1Gi" }),
  ];
  assertEquals(chooseNode(TEN, ANYWHERE, nodes), "a", "its smaller group is the tightest of all");
  assertEquals(chooseNode(request({ required: 10n * MiB }, "mostFree"), ANYWHERE, nodes), "a");
  assertEquals(chooseNode(request({ required: 100n * MiB }), ANYWHERE, nodes), "b", "of equals, the first by name");
});

Deno.test("chooseNode() ignores groups that LVM would refuse, of other names, or without sizes", () => {
  const nodes = [
    node("gone", { free: "1Gi", missingPVCount: 1 }),
    node("locked", { free: "1Gi", writeable: false }),
    node("odd", { free: "a lot" }),
    node("new"),
    node("good", { name: "fast", free: "1Gi" }),
  ];
  assertEquals(chooseNode(TEN, ANYWHERE, nodes), "good");
  const message = refusal(
    "NoSpace",
    request({ required: 10n * MiB }, "leastFree", exactMatcher("data")),
    ANYWHERE,
    nodes,
  );
  for (
    const part of ["node gone: ", "1 of its physical volumes are missing", "node locked: ", "read-only", "node good: "]
  ) {
    assert(message.includes(part), `${part} in ${message}`);
  }
});

Deno.test("chooseNode() names the nodes with agents when none of the allowed nodes has one", () => {
  const message = refusal("NoSpace", TEN, { allowed: ["x", "y"], preferred: [] }, [node("a", { free: "1Gi" })]);
  assert(message.endsWith("none of x, y has an agent of the driver; those that have one: a"), message);
  assert(
    refusal("NoSpace", TEN, ANYWHERE, []).endsWith("no node has an agent of the driver; those that have one: none"),
  );
});

Deno.test("chooseNode() distinguishes a size that fits no number of extents from a lack of free capacity", () => {
  const between = request({ required: 5n * MiB, limit: 6n * MiB });
  const coarse = [node("a", { free: "1Gi" }), node("b", { free: "1Gi" })];
  refusal("OutOfRange", between, ANYWHERE, coarse);
  refusal("NoSpace", between, ANYWHERE, [...coarse, node("c", { free: "0", extentSize: "1Mi" })]);
  assertEquals(chooseNode(between, ANYWHERE, [...coarse, node("d", { free: "1Gi", extentSize: "1Mi" })]), "d");
});

Deno.test("totalCapacity() adds up the matching groups of the nodes", () => {
  const one = node(
    "a",
    { free: "2Gi" },
    { name: "fast", free: "1Gi", extentSize: "1Mi" },
    { free: "9Gi", missingPVCount: 1 },
  );
  const nodes = [one, node("b", { free: "3Gi" })];
  const GiB = 1n << 30n;
  assertEquals(totalCapacity({ groups: ANY_GROUP, layout: LINEAR }, nodes), {
    available: 6n * GiB,
    maximumVolumeSize: 3n * GiB,
    minimumVolumeSize: MiB,
  });
  assertEquals(totalCapacity({ groups: exactMatcher("data"), layout: LINEAR }, [one]), {
    available: 2n * GiB,
    maximumVolumeSize: 2n * GiB,
    minimumVolumeSize: 4n * MiB,
  });
  assertEquals(totalCapacity({ groups: ANY_GROUP, layout: LINEAR }, []), {
    available: 0n,
    maximumVolumeSize: 0n,
    minimumVolumeSize: 0n,
  });
});

/** Returns the names as an array that counts how often one of them is read. */
function countReads(names: readonly string[]): { names: readonly string[]; reads: () => number } {
  let reads = 0;
  const proxy = new Proxy(names, {
    get: (target, key, receiver) => {
      if (typeof key === "string" && /^\d+$/.test(key)) reads++;
      return Reflect.get(target, key, receiver);
    },
  });
  return { names: proxy, reads: () => reads };
}

Deno.test("chooseNode() reads each allowed and each preferred name about once, however many there are", () => {
  const nodes = Array.from({ length: 300 }, (_, index) => node(`n${index}`, { free: "1Gi" }));
  const allowed = countReads(nodes.map(({ name }) => name));
  const preferred = countReads(nodes.map(({ name }) => `not-${name}`));
  assertEquals(chooseNode(TEN, { allowed: allowed.names, preferred: preferred.names }, nodes), "n0");
  assert(allowed.reads() <= 600, `${allowed.reads()} reads of allowed names`);
  assert(preferred.reads() <= 600, `${preferred.reads()} reads of preferred names`);
});

Deno.test("chooseNode() describes the nodes with the most free space when many refuse, and counts the others", () => {
  const nodes = Array.from({ length: 1000 }, (_, index) => node(`n${index}`, { free: `${index * 4}Mi` }));
  const message = refusal("NoSpace", request({ required: 1n << 40n }), ANYWHERE, nodes);
  assert(
    message.startsWith("none of the 1000 nodes can take the volume; those with the most free space: node n999: "),
    message,
  );
  for (const part of ["node n999: ", "(3.90 GiB free)", "node n995: ", "995 more nodes"]) {
    assert(message.includes(part), `${part} in ${message}`);
  }
  assert(!message.includes("node n994: "), message);
  assert(message.length < 1024, `${message.length} characters`);
});

Deno.test("chooseNode() names only some of many nodes without an agent", () => {
  const names = Array.from({ length: 1000 }, (_, index) => `n${index}`);
  const nodes = names.map((name) => node(name, { free: "1Gi" }));
  const message = refusal("NoSpace", TEN, { allowed: names.map((name) => `gone-${name}`), preferred: [] }, nodes);
  assert(message.endsWith("those that have one: n0, n1, n2, n3, n4 and 995 more"), message);
  assert(message.includes("none of gone-n0, gone-n1, gone-n2, gone-n3, gone-n4 and 995 more has an agent"), message);
});

Deno.test("a group that a node itself uses has no capacity for who names no group, and no volume", () => {
  const nodes = [node("a", { name: "system", free: "9Gi", hostUse: "root (mounted)" }), node("b", { free: "1Gi" })];
  const GiB = 1n << 30n;
  const available = (groups: GroupMatcher) => totalCapacity({ groups, layout: LINEAR }, nodes).available;
  assertEquals([available(ANY_GROUP), available(exactMatcher("system"))], [GiB, 9n * GiB]);
  assertEquals(chooseNode(TEN, ANYWHERE, nodes), "b");
  assertEquals(chooseNode(request(TEN.range, "leastFree", exactMatcher("system")), ANYWHERE, nodes), "a");
  assertMatch(refusal("NoSpace", TEN, ANYWHERE, nodes.slice(0, 1)), /system \(the host uses root \(mounted\) of it/);
});
