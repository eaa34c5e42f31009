import { assertEquals } from "@std/assert";
import type { LvmNode, LvmNodeStatus, NodeVolumeGroup } from "../api/lvm_objects.ts";
import { freeSpaceGrowth } from "./free_space_growth.ts";

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
