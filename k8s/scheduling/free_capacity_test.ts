import { assert, assertEquals, assertThrows } from "@std/assert";
import fc from "fast-check";
import { ANY_GROUP, exactMatcher, type GroupMatcher, type GroupPreference } from "../../lvm/model/groups.ts";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { Layout } from "../../lvm/model/layout.ts";
import { type ThinSpec, withThinSpace } from "../../lvm/pools/pool.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { AgentModel, EXTENT, type ObservedState } from "../../tests/fake/cluster/agent_model.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "../runtime/informer.ts";
import {
  type LvmNode,
  lvmNodes,
  type LvmNodeStatus,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeStatus,
  type NodeVolumeGroup,
} from "../api/lvm_objects.ts";
import { chooseNode, totalCapacity } from "./placement.ts";
import { freeCapacityOf, freeSpaceGrowth, NodeCapacities } from "./free_capacity.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";

const MiB = 1n << 20n;

/** Returns a report of groups with extents of 4 MiB, their free space in MiB, and the listed volumes. */
function report(groups: Record<string, [free: number, ...listed: [string, number][]]>): LvmNode {
  const volumeGroups = Object.entries(groups).map(([name, [free, ...listed]]): NodeVolumeGroup => ({
    name,
    uuid: name,
    ...{ size: "100Gi", free: `${free}Mi`, extentSize: "4Mi" },
    ...{ lvCount: 0, pvCount: 1, snapshotCount: 0, missingPVCount: 0, writeable: true },
    volumes: listed.map(([volume, mib]) => ({ name: volumeIdOf(volume), size: `${mib}Mi` })),
  }));
  return { metadata: { name: "n" }, spec: { driverName: "d" }, status: { volumeGroups } };
}

interface VolumeFixture {
  layout?: Layout;
  thin?: ThinSpec;
  groups?: GroupMatcher;
  preference?: GroupPreference;
  /** The status that its node has reported. */
  status?: LvmVolumeStatus;
  metadata?: Partial<LvmVolume["metadata"]>;
}

function volume(name: string, mib: number, { status, metadata, ...more }: VolumeFixture = {}): LvmVolume {
  const object = lvmVolumeFor(namedRequest(name, BigInt(mib) * MiB, more), { driver: "d", nodeName: "n" });
  return { ...object, metadata: { ...object.metadata, generation: 1, ...metadata }, ...(status && { status }) };
}

/** Returns the status that an agent reports of a volume that it created. */
function createdStatus(mib: number, more: Partial<LvmVolumeStatus> = {}): LvmVolumeStatus {
  return { state: "Ready", observedGeneration: 1, volumeGroup: "data", lvUUID: "u", size: `${mib}Mi`, ...more };
}

const parseGroups = (list: string) => exactMatcher(list);

/** Returns the free capacity of each group, in MiB. */
function freeMiB(node: LvmNode, ...volumes: LvmVolume[]): Record<string, number> {
  const { groups } = freeCapacityOf(node, volumes, parseGroups);
  return Object.fromEntries(groups.map(({ name, free }) => [name, Number(free / MiB)]));
}

Deno.test("freeCapacityOf() subtracts pending volumes, in whole extents, from the group in which they will be created", () => {
  const node = report({ data: [100], fast: [40] });
  assertEquals(freeMiB(node), { data: 100, fast: 40 });
  assertEquals(freeMiB(node, volume("a", 30)), { data: 100, fast: 8 }, "least free that fits");
  assertEquals(freeMiB(node, volume("a", 30, { preference: "mostFree" })), { data: 68, fast: 40 });
  assertEquals(freeMiB(node, volume("a", 30, { groups: exactMatcher("data") })), { data: 68, fast: 40 });
  assertEquals(freeMiB(node, volume("a", 30, { status: { state: "Pending", volumeGroup: "data" } })), {
    data: 68,
    fast: 40,
  });
  const status = { state: "Pending", volumeGroup: "other" } as const;
  assertEquals(freeMiB(node, volume("a", 30, { status })), { data: 100, fast: 40 }, "that group is not the agent's");
});

Deno.test("freeCapacityOf() counts with usual extents when a node reports extents of no size", () => {
  const node = report({ data: [100] });
  const pending = [volume("a", 9, { status: { state: "Pending", volumeGroup: "data" } })];
  const usual = freeCapacityOf(node, pending, parseGroups);
  const [group] = node.status!.volumeGroups!;
  const odd = { ...node, status: { ...node.status, volumeGroups: [{ ...group!, extentSize: "0" }] } };
  assertEquals(freeCapacityOf(odd, pending, parseGroups), usual);
});

Deno.test("freeCapacityOf() places pending volumes without a group as their agent will, the oldest first", () => {
  const node = report({ data: [100], fast: [40] });
  const at = (second: number) => ({ metadata: { creationTimestamp: `2026-01-01T00:00:0${second}Z` } });
  const [old, young] = [volume("old", 40, at(1)), volume("young", 40, at(2))];
  for (const volumes of [[old, young], [young, old]]) assertEquals(freeMiB(node, ...volumes), { data: 60, fast: 0 });
  assertEquals(
    freeMiB(node, volume("new", 24), volume("old", 32, at(1))),
    { data: 76, fast: 8 },
    "unwritten ones last",
  );
  assertEquals(freeMiB(node, volume("a", 500)), { data: 0, fast: 40 }, "it may get what there is");
  assertEquals(freeMiB(node, volume("a", 30, { groups: exactMatcher("none") })), { data: 100, fast: 40 });
  const decided = volume("decided", 40, { status: { state: "Pending", volumeGroup: "fast" }, ...at(3) });
  assertEquals(freeMiB(node, volume("a", 20, at(1)), decided), { data: 80, fast: 0 }, "what is decided goes first");
});

Deno.test("freeCapacityOf() subtracts a volume whole if the report does not list it, and otherwise not at all", () => {
  const before = report({ data: [100] });
  const after = report({ data: [68, ["a", 32]] });
  for (
    const object of [
      volume("a", 30),
      volume("a", 30, { status: { state: "Pending", volumeGroup: "data" } }),
      volume("a", 30, { status: createdStatus(32) }),
      volume("a", 30, { status: createdStatus(32), metadata: { deletionTimestamp: "now", generation: 2 } }),
    ]
  ) {
    assertEquals(
      [freeMiB(before, object), freeMiB(after, object)],
      [{ data: 68 }, { data: 68 }],
      JSON.stringify(object),
    );
  }
});

Deno.test("freeCapacityOf() subtracts a layout's space on each physical volume, and is zero if the agent reports none", () => {
  const node = report({ data: [300] });
  const raid1 = { layout: { type: "raid1", mirrors: 1 } } as const;
  const largestMiB = (...volumes: LvmVolume[]) =>
    Number(
      totalCapacity({ groups: exactMatcher("data"), ...raid1 }, [freeCapacityOf(node, volumes, parseGroups)])
        .maximumVolumeSize / MiB,
    );
  assertEquals([largestMiB(), freeMiB(node)], [0, { data: 300 }], "an agent that knows linear volumes alone");
  assertThrows(
    () => chooseNode(namedRequest("a", 4n * MiB, raid1), { preferred: [] }, [freeCapacityOf(node, [], parseGroups)]),
    StorageError,
    "0 of 0 have that free",
  );

  node.status!.volumeGroups![0]!.physicalVolumes = ["a", "b", "c"].map((uuid) => ({ uuid, free: "100Mi" }));
  assertEquals(largestMiB(), 96);
  assertEquals(freeMiB(node, volume("one", 40, raid1)), { data: 212 }, "and an extent of metadata on each");
  assertEquals(largestMiB(volume("one", 40, raid1)), 52, "on two of three disks");
  assertEquals(largestMiB(volume("one", 40, raid1), volume("two", 40, raid1)), 52);
  assertEquals(largestMiB(volume("one", 40)), 96, "a linear one is on one of them");
  assertEquals(largestMiB(volume("one", 220)), 0, "or on several");
  const thin = { poolSize: { bytes: 200n * MiB } };
  assertEquals(largestMiB(volume("one", 40, { thin })), 0, "its pool, too, takes of the disks");
  node.status!.volumeGroups![0]!.volumes = [{ name: volumeIdOf("one"), size: "40Mi" }];
  assertEquals(largestMiB(volume("one", 40, raid1)), 96, "what is listed is counted");

  Object.assign(node.status!.volumeGroups![0]!, { free: "120Mi", spare: "180Mi", volumes: [] });
  assertEquals(largestMiB(), 56, "the spare space may be on any disk");
  assertEquals(largestMiB(volume("one", 40, raid1)), 12);
  assertThrows(
    () => chooseNode(namedRequest("a", 60n * MiB, raid1), { preferred: [] }, [freeCapacityOf(node, [], parseGroups)]),
    StorageError,
    "takes 128 MiB, but 120 MiB free and 180 MiB of spare space together",
  );
});

Deno.test("freeCapacityOf() subtracts the cache of a pending volume from one physical volume for caches", () => {
  const node = report({ data: [300] });
  const cached = { layout: { type: "cache", cacheSize: 60n * MiB } } as const;
  const largestMiB = (...volumes: LvmVolume[]) =>
    Number(
      totalCapacity({ groups: exactMatcher("data"), ...cached }, [freeCapacityOf(node, volumes, parseGroups)])
        .maximumVolumeSize / MiB,
    );
  assertEquals(largestMiB(), 0, "no physical volume is for caches");
  const group = node.status!.volumeGroups![0]!;
  group.physicalVolumes = [{ uuid: "a", free: "300Mi" }, { uuid: "b", free: "0", cacheFree: "100Mi" }];
  assertEquals(largestMiB(), 300);
  assertEquals(largestMiB(volume("one", 40)), 260);
  assertEquals(largestMiB(volume("one", 40, cached)), 0, "40 MiB are left for caches");
  group.physicalVolumes.push({ uuid: "c", free: "0", cacheFree: "80Mi" });
  assertEquals(largestMiB(volume("one", 40, cached)), 260, "another one has space for a cache");
  assertEquals(largestMiB(volume("one", 40, cached), volume("two", 40, cached)), 0);
  group.physicalVolumes.pop();
  group.volumes = [{ name: volumeIdOf("one"), size: "40Mi" }];
  assertEquals(largestMiB(volume("one", 60, cached)), 280, "a cache does not grow");
});

Deno.test("freeCapacityOf() subtracts the space of an expansion, until the report lists it or the agent refuses it", () => {
  const node = report({ data: [100, ["a", 32]] });
  const newGeneration = { metadata: { generation: 2 } };
  assertEquals(freeMiB(node, volume("a", 62, { status: createdStatus(32), ...newGeneration })), { data: 68 });
  assertEquals(
    freeMiB(node, volume("a", 62, { status: createdStatus(64, { observedGeneration: 2 }), ...newGeneration })),
    { data: 68 },
  );
  const extendedReport = report({ data: [68, ["a", 64]] });
  for (const status of [createdStatus(32), createdStatus(64, { observedGeneration: 2 })]) {
    assertEquals(freeMiB(extendedReport, volume("a", 62, { status, ...newGeneration })), { data: 68 });
  }
  const error = { code: "OutOfRange", message: "full" } as const;
  const refused = createdStatus(32, { error, observedGeneration: 2 });
  assertEquals(freeMiB(node, volume("a", 62, { status: refused, ...newGeneration })), { data: 100 });
  assertEquals(
    freeMiB(node, volume("a", 62, { status: refused, metadata: { generation: 3 } })),
    { data: 68 },
    "requested again",
  );
});

Deno.test("freeCapacityOf() subtracts nothing for a volume that failed or is Lost, also while it is being deleted", () => {
  const node = report({ data: [100] });
  const error = { code: "NoSpace", message: "full" } as const;
  const failed: LvmVolumeStatus = { state: "Failed", observedGeneration: 1, volumeGroup: "data", error };
  assertEquals(freeMiB(node, volume("a", 30, { status: failed })), { data: 100 });
  const deleting = { deletionTimestamp: "now", generation: 2 };
  assertEquals(freeMiB(node, volume("a", 30, { status: failed, metadata: deleting })), { data: 100 });
  assertEquals(
    freeMiB(node, volume("a", 30, { status: failed, metadata: { generation: 2 } })),
    { data: 68 },
    "requested again",
  );
  assertEquals(freeMiB(node, volume("a", 30, { status: createdStatus(32, { state: "Lost" }) })), { data: 100 });
  const pending = { state: "Pending", volumeGroup: "data" } as const;
  assertEquals(
    freeMiB(node, volume("a", 30, { status: pending, metadata: deleting })),
    { data: 68 },
    "it may be in creation",
  );
});

Deno.test("freeCapacityOf() is never negative, returns the pending size, and ignores what it cannot parse", () => {
  const node = report({ data: [40] });
  const inData = { status: { state: "Pending", volumeGroup: "data" } } as const;
  const { groups: [group] } = freeCapacityOf(node, [volume("a", 30, inData), volume("b", 30, inData)], parseGroups);
  assertEquals([group?.free, group?.pending], [0n, 64n * MiB]);
  const odd = volume("a", 30);
  odd.spec.size = "lots";
  assertEquals(freeMiB(node, odd), { data: 40 });
  assertEquals(freeMiB({ ...node, status: {} }, volume("a", 30)), {});
});

Deno.test("freeCapacityOf() subtracts no created volume if the agent's report has no list of volumes", () => {
  const node = report({ data: [100] });
  delete node.status!.volumeGroups![0]!.volumes;
  assertEquals(freeMiB(node, volume("a", 30, { status: createdStatus(32) })), { data: 100 });
  assertEquals(freeMiB(node, volume("b", 30)), { data: 68 });
  const extended = volume("a", 62, { status: createdStatus(32), metadata: { generation: 2 } });
  assertEquals(freeMiB(node, extended), { data: 68 });
});

Deno.test("NodeCapacities follows the nodes and volumes of the driver, and counts assumed volumes until they are seen", async () => {
  await using api = FakeApiServer.start({ resources: [lvmNodes, lvmVolumes] });
  using client = new HttpClient({ url: api.url }, { userAgent: "denolith/test" });
  for (const [name, driverName] of [["n", "d"], ["m", "d"], ["o", "e"]] as const) {
    api.put(lvmNodes, { ...report({ data: [100] }), metadata: { name }, spec: { driverName } });
  }
  api.put(lvmVolumes, volume("a", 32));
  api.put(lvmVolumes, { ...volume("b", 32), spec: { ...volume("b", 32).spec, driverName: "e" } });
  const [nodes, volumes] = [new Informer(client, lvmNodes), new Informer(client, lvmVolumes)];
  const capacities = new NodeCapacities({ driver: "d", nodes, volumes, parseGroups });
  const stop = new AbortController();
  const running = [nodes.start(stop.signal), volumes.start(stop.signal)];
  await Promise.all([nodes.synced, volumes.synced]);
  const free = (name?: string) =>
    capacities.list(name === undefined ? undefined : [name]).map(({ name, groups }) =>
      `${name} ${groups.map(({ free }) => free / MiB)}`
    );

  assertEquals([free().sort(), free("n"), free("o"), free("x")], [["m 100", "n 68"], ["n 68"], [], []]);
  {
    using _first = capacities.assume(volume("c", 32));
    using _known = capacities.assume(volume("a", 64));
    assertEquals([free("n"), free("m")], [["n 36"], ["m 100"]], "what is known counts as it is");
    api.put(lvmVolumes, volume("c", 16));
    await volumes.waitFor(volumeIdOf("c"), (now) => now !== undefined);
    assertEquals(free("n"), ["n 52"]);
  }
  await client.patch(lvmVolumes, { name: volumeIdOf("c") }, { merge: { spec: { nodeName: "m" } } });
  await volumes.waitFor(volumeIdOf("c"), (now) => now?.spec.nodeName === "m");
  assertEquals([free("n"), free("m")], [["n 68"], ["m 84"]]);
  await client.patch(lvmVolumes, { name: volumeIdOf("a") }, { merge: { metadata: { finalizers: [] } } });
  await client.delete(lvmVolumes, { name: volumeIdOf("a") });
  await volumes.waitFor(volumeIdOf("a"), (now) => now === undefined);
  assertEquals(free("n"), ["n 100"]);
  {
    using _never = capacities.assume(volume("d", 32));
    assertEquals(free("n"), ["n 68"]);
  }
  assertEquals(free("n"), ["n 100"]);
  const { status } = report({ data: [40] });
  await client.patch(lvmNodes, { name: "n" }, { merge: { status }, subresource: "status" });
  await nodes.waitFor("n", (now) => now?.status?.volumeGroups?.[0]?.free === "40Mi");
  assertEquals(free("n"), ["n 40"]);
  stop.abort();
  await Promise.all(running);
});

/** Returns the number of extents that the rule has for volumes that were not requested yet. */
function availableExtents({ report, volumes }: ObservedState): number {
  const { groups: [group] } = freeCapacityOf(report, volumes, () => ANY_GROUP);
  assert(group!.free % EXTENT === 0n, `${group!.free} is no whole number of extents`);
  return Number(group!.free / EXTENT);
}

const steps = fc.array(
  fc.record({ kind: fc.nat(11), which: fc.nat(9), extents: fc.integer({ min: 1, max: 12 }) }),
  { maxLength: 60, size: "max" },
);

Deno.test("for any report and any objects, the free capacity is what remains when all requested volumes are created", () => {
  const property = fc.property(steps, (all) => {
    const agent = new AgentModel();
    for (const step of all) agent.step(step, () => true);
    for (const view of agent.views()) {
      const outstanding = [...view.targets].map(([name, extents]) =>
        Math.max(0, extents - (view.counted.get(name) ?? 0))
      );
      const expected = view.free - outstanding.reduce((sum, extents) => sum + extents, 0);
      assertEquals(availableExtents(view), Math.max(0, expected), agent.history);
    }
  });
  fc.assert(property, { numRuns: 500 });
});

Deno.test("a volume that is requested within the free capacity is never refused by its node, whichever report was last", () => {
  let accepted = 0;
  const property = fc.property(steps, fc.array(fc.nat(), { minLength: 60, maxLength: 60 }), (all, viewIndexes) => {
    const agent = new AgentModel();
    for (const [index, step] of all.entries()) {
      const view = agent.view(viewIndexes[index]!);
      agent.step(step, (extents) => availableExtents(view) >= extents && ++accepted > 0);
      assertEquals(agent.refused, [], agent.history);
    }
  });
  fc.assert(property, { numRuns: 1_000 });
  assert(accepted > 1_000, `only ${accepted} were requested`);
});

/** Returns a report of a group with 1000 MiB free, and a thin pool with this available virtual size, in MiB. */
function withPool(mib: number, ...listed: [string, number][]): LvmNode {
  const node = report({ data: [1000, ...listed] });
  node.status!.volumeGroups![0]!.thinPools = [{ name: "data_thinpool", size: "200Mi", availableVirtual: `${mib}Mi` }];
  return node;
}

/** Returns the free capacity for thin volumes in each group, in MiB. */
function freeThinMiB(node: LvmNode, thin: ThinSpec, ...volumes: LvmVolume[]): Record<string, number> {
  const { groups } = freeCapacityOf(node, volumes, parseGroups);
  return Object.fromEntries(withThinSpace(groups, thin).map(({ name, free }) => [name, Number(free / MiB)]));
}

Deno.test("freeCapacityOf() subtracts a thin volume from the available virtual size of its pool, not from its group", () => {
  const thin: ThinSpec = { poolSize: { percent: 80n } };
  const wanted = volume("a", 64, { thin });
  assertEquals(freeMiB(withPool(100), wanted), { data: 1000 });
  assertEquals(freeThinMiB(withPool(100), thin, wanted), { data: 36 });
  assertEquals(freeThinMiB(withPool(100, ["a", 64]), thin, wanted), { data: 100 }, "the report counts it");
  assertEquals(freeThinMiB(withPool(100), thin, volume("b", 64)), { data: 100 }, "a thick one takes nothing of it");
  assertEquals(freeMiB(withPool(100), volume("b", 64)), { data: 936 });
  assertEquals(freeThinMiB(withPool(100), { ...thin, pool: "other" }, wanted), { data: 0 });
});

Deno.test("freeCapacityOf() counts a pool that will be created for a thin volume, by the node's overcommit ratio", () => {
  const thin: ThinSpec = { poolSize: { percent: 50n } };
  const node = report({ data: [1000] });
  node.status!.thinPoolOvercommit = "2";
  assertEquals(freeThinMiB(node, thin), { data: 1000 });
  const wanted = volume("a", 100, { thin, status: { state: "Pending", volumeGroup: "data" } });
  assertEquals(freeThinMiB(node, thin, wanted), { data: 900 });
  assertEquals(freeMiB(node, wanted), { data: 492 }, "the pool, its metadata and the spare");
});

Deno.test("freeCapacityOf() counts a volume of a layout that only a newer version knows as a linear one", () => {
  const newer = volume("a", 30);
  Object.assign(newer.spec, { layout: { type: "raid4", stripes: 2, stripeSize: "64Ki" } });
  const pending: LvmVolume = { ...newer, status: { state: "Pending", volumeGroup: "data" } };
  assertEquals(freeMiB(report({ data: [100] }), pending), { data: 68 });
});

Deno.test("freeCapacityOf() takes a thin volume from the pool that it names, and no more than that has", () => {
  const thin: ThinSpec = { poolSize: { percent: 80n }, pool: "own" };
  const node = report({ data: [1000] });
  node.status!.volumeGroups![0]!.thinPools = ["first", "own"].map((name) => (
    { name, size: "200Mi", availableVirtual: "100Mi" }
  ));
  const free = (...volumes: LvmVolume[]) =>
    ["first", "own"].map((pool) => freeThinMiB(node, { ...thin, pool }, ...volumes)["data"]);
  assertEquals(free(), [100, 100]);
  assertEquals(free(volume("a", 64, { thin })), [100, 36]);
  assertEquals(free(volume("a", 164, { thin })), [100, 0]);
});

Deno.test("freeCapacityOf() gives no space to a volume whose request only a newer version can read", () => {
  const newer = volume("a", 30);
  Object.assign(newer.spec, { source: { image: "newer" } });
  assertEquals(freeMiB(report({ data: [100] }), newer), { data: 100 });
});

const GiB = 1n << 30n;

function node(group: Partial<NodeVolumeGroup> = {}, status: LvmNodeStatus = {}): LvmNode {
  const data = {
    ...{ name: "data", uuid: "u", size: "9Gi", free: "4Gi", extentSize: "4Mi", lvCount: 1, pvCount: 1 },
    ...{ snapshotCount: 0, missingPVCount: 0, writeable: true },
    physicalVolumes: [{ uuid: "p", free: "4Gi" }],
    ...group,
  };
  return { metadata: { name: "a" }, spec: { driverName: "d" }, status: { volumeGroups: [data], ...status } };
}

function pool(availableVirtual: string): Partial<NodeVolumeGroup> {
  return { thinPools: [{ name: "p", size: "3Gi", availableVirtual }] };
}

function cachePv(cacheFree: string): Partial<NodeVolumeGroup> {
  return { physicalVolumes: [{ uuid: "p", free: "0", cacheFree }] };
}

const cases: [string, LvmNode | undefined, LvmNode, bigint | undefined][] = [
  ["a report without a change", node(), node({ lvCount: 2 }), undefined],
  ["less free space", node(), node({ free: "3Gi" }), undefined],
  ["more free space", node({ free: "3Gi" }), node(), 4n * GiB],
  ["a new node", undefined, node(), 4n * GiB],
  ["the first report of a node", { ...node(), status: {} }, node(), 4n * GiB],
  ["a new volume group", node({ name: "other" }), node(), 4n * GiB],
  ["a group that is full", node({ name: "other" }), node({ free: "0" }), 0n],
  ["a disk that is back", node({ missingPVCount: 1 }), node(), 4n * GiB],
  ["a disk that is missing", node(), node({ missingPVCount: 1, free: "8Gi" }), undefined],
  ["a group that may be written again", node({ writeable: false }), node(), 4n * GiB],
  [
    "more space on one disk, less on another",
    node(),
    node({ physicalVolumes: [{ uuid: "p", free: "5Gi" }] }),
    4n * GiB,
  ],
  ["more space for caches", node(cachePv("1Gi")), node(cachePv("2Gi")), 4n * GiB],
  ["less space for caches", node(cachePv("2Gi")), node(cachePv("1Gi")), undefined],
  ["a larger pool", node(pool("1Gi")), node(pool("7Gi")), 7n * GiB],
  ["a fuller pool", node(pool("7Gi")), node(pool("6Gi")), undefined],
  ["a pool and less free space", node(pool("1Gi")), node({ ...pool("2Gi"), free: "1Gi" }), 2n * GiB],
  ["more overcommit", node(), node({}, { thinPoolOvercommit: "2" }), 8n * GiB],
];

for (const [what, before, now, expected] of cases) {
  Deno.test(`freeSpaceGrowth(): ${what}`, () => {
    assertEquals(
      freeSpaceGrowth(before, now),
      expected === undefined ? undefined : { nodeName: "a", largestBytes: expected },
    );
  });
}
