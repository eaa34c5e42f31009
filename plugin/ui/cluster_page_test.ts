import { assert, assertEquals } from "@std/assert";
import {
  CLAIM_ANNOTATION,
  type LvmNode,
  type LvmSnapshot,
  type LvmVolume,
  type NodeVolumeGroup,
} from "../../k8s/api/lvm_objects.ts";
import type { ClusterState } from "../diagnosis/cluster_state.ts";
import { DRIVER } from "../../tests/fake/cluster/control_plane.ts";
import { clusterState } from "../../tests/fake/cluster/cluster_states.ts";
import { cpuMs } from "../../tests/fake/cpu_time.ts";
import { ClusterChanges, clusterPage, type NodePage, type Segment, toJson } from "./cluster_page.ts";
import { familyTree, type TreeNode } from "./family_tree.ts";
import { volumePage } from "./volume_page.ts";
import { volumeViews } from "../diagnosis/volumes.ts";

const NOW = new Date("2026-05-01T12:00:00Z");
const GiB = 1n << 30n;

function group(name: string, more: Partial<NodeVolumeGroup> = {}): NodeVolumeGroup {
  return {
    ...{ name, uuid: "u", size: "100Gi", free: "40Gi", extentSize: "4Mi", lvCount: 1, pvCount: 2, snapshotCount: 0 },
    ...{ missingPVCount: 0, writeable: true, ...more },
  };
}

function node(name: string, ...volumeGroups: NodeVolumeGroup[]): LvmNode {
  return {
    metadata: { name },
    spec: { driverName: DRIVER },
    status: { volumeGroups, lastUpdateTime: NOW.toISOString() },
  };
}

function volume(
  name: string,
  { spec = {}, status = {} }: { spec?: Partial<LvmVolume["spec"]>; status?: Partial<LvmVolume["status"]> } = {},
): LvmVolume {
  return {
    metadata: { name },
    spec: {
      ...{ driverName: DRIVER, requestName: name, nodeName: "n1", size: "10Gi", volumeGroupPreference: "mostFree" },
      ...{ volumeMode: "Filesystem", fsType: "ext4", shared: false, erase: "zero", ...spec },
    },
    status: { state: "Ready", volumeGroup: "data", size: "10Gi", ...status },
  } as LvmVolume;
}

function snapshot(name: string, sourceVolume: string, status: Partial<LvmSnapshot["status"]> = {}): LvmSnapshot {
  return {
    metadata: { name },
    spec: { driverName: DRIVER, requestName: name, nodeName: "n1", sourceVolume },
    status: { state: "Ready", volumeGroup: "data", restoreSize: "10Gi", ...status },
  } as LvmSnapshot;
}

const state = (more: Partial<ClusterState>) => clusterState({ now: NOW, ...more });

/** Returns the page of a node. */
function pageOf(name: string, of: ClusterState): NodePage {
  return clusterPage(of, { context: "ctx" }).nodes.get(name)!;
}

/** Returns segments in short: kind, name and size in GiB. */
function short(segments: readonly Segment[]): string[] {
  return segments.map(({ kind, name, bytes }) => `${kind} ${name} ${Number(bytes * 100n / GiB) / 100}`);
}

Deno.test("clusterPage(): the segments of a group are its volumes with all RAID images, snapshots, other LVs and free space", () => {
  const page = pageOf(
    "n1",
    state({
      lvmNodes: [node("n1", group("data"))],
      volumes: [
        volume("v1"),
        volume("v2", { spec: { layout: { type: "raid1", mirrors: 1 } } }),
        volume("v3", { status: { volumeGroup: "other" } }),
      ],
      snapshots: [snapshot("s1", "v1", { size: "2Gi" })],
    }),
  );
  assertEquals(short(page.groups[0]!.segments), [
    ...["volume v1 10", "volume v2 20", "snapshot s1 2"],
    ...["other other logical volumes and metadata 27.99", "free free 40"],
  ]);
  const { segments } = page.groups[0]!;
  assertEquals(segments.reduce((sum, { bytes }) => sum + bytes, 0n), 100n * GiB);
  assertEquals(segments.map(({ volume }) => volume), ["v1", "v2", "v1", undefined, undefined]);
  assertEquals([page.size, page.free, page.volumes.length], [100n * GiB, 40n * GiB, 3]);
});

Deno.test("clusterPage(): spare space, and that of deleted volumes, are segments of their own", () => {
  const more = { spare: "10Gi", erasing: { volumes: 2, space: "20Gi" } };
  const page = pageOf("n1", state({ lvmNodes: [node("n1", { ...group("data"), ...more })] }));
  assertEquals(short(page.groups[0]!.segments), [
    ...["other other logical volumes and metadata 30", "erasing deleted volumes, being erased 20"],
    ...["other spare space 10", "free free 40"],
  ]);
});

Deno.test("clusterPage(): the summary has what is erased, disks with the commands for them, and the space of namespaces", () => {
  const disk = (name: string, proposed: boolean) => ({
    name,
    path: "/dev/x",
    size: "1Ti",
    volumeGroup: "data",
    proposed,
  });
  const accepted = { name: "refused", volumeGroup: "data", state: "Refused" as const, message: "it has a filesystem" };
  const lvmNode = node("n1", group("data", { erasing: { volumes: 1, space: "20Gi" } }));
  Object.assign(lvmNode.status!, {
    disks: [disk("nvme-1", true), disk("used", false), disk("x;reboot", true)],
    acceptedDisks: [accepted],
  });
  const claimed = (name: string, claim: string) => ({
    ...volume(name),
    metadata: { name, annotations: { [CLAIM_ANNOTATION]: claim } },
  });
  const volumes = [claimed("v1", "shop/a"), claimed("v2", "shop/b"), claimed("v3", "data/a"), volume("v4")];
  const { cluster } = clusterPage(state({ lvmNodes: [lvmNode], volumes }), { context: "prod" });
  assertEquals(cluster.erasing, 20n * GiB);
  assertEquals(cluster.disks.map(({ name, state, commands }) => [name, state, commands]), [
    ["nvme-1", "Proposed", ["kubectl denolith disks --accept nvme-1 --node n1 --context prod"]],
    ["refused", "Refused", ["kubectl denolith disks --withdraw refused --node n1 --context prod"]],
    // the API server takes any name that an agent reports
    ["x;reboot", "Proposed", ["kubectl denolith disks --accept 'x;reboot' --node n1 --context prod"]],
  ]);
  assertEquals(cluster.namespaces, [
    { namespace: "shop", volumes: 2, size: 20n * GiB },
    { namespace: "", volumes: 1, size: 10n * GiB },
    { namespace: "data", volumes: 1, size: 10n * GiB },
  ]);
});

Deno.test("clusterPage(): a problem has commands for the cluster of the page", () => {
  const { cluster } = clusterPage(state({ lvmNodes: [node("n1", group("data", { writeable: false }))] }), {
    context: "prod",
  });
  assertEquals(cluster.problems.map(({ remedy, commands }) => [remedy, commands]), [
    ["See kubectl denolith doctor n1.", [
      "kubectl denolith doctor n1 --context prod",
      "kubectl denolith why node/n1 --context prod",
    ]],
  ]);
});

Deno.test("clusterPage(): thin volumes and thin snapshots are in their pools, with their virtual sizes", () => {
  const thinPools = [
    { name: "own", size: "20Gi", owned: true, dataPercent: 50 },
    { name: "shared", size: "10Gi", dataPercent: 5 },
  ];
  const page = pageOf(
    "n1",
    state({
      lvmNodes: [node("n1", group("data", { thinPools, free: "70Gi" }))],
      volumes: [
        volume("v1", { spec: { thinProvision: true } }),
        volume("v2", { spec: { thinProvision: true, thinPool: "shared" } }),
      ],
      snapshots: [snapshot("s1", "v1")],
    }),
  );
  const [{ segments, pools }] = page.groups as [NodePage["groups"][number]];
  assertEquals(short(segments), ["pool own 20", "pool shared 10", "free free 70"]);
  assertEquals(pools.map(({ segments }) => short(segments)), [["volume v1 10", "snapshot s1 10"], ["volume v2 10"]]);
});

Deno.test("clusterPage(): problems lead to their nodes and volumes, which have the severity of the worst", () => {
  const conditions = [{ type: "Redundant", status: "False", reason: "Degraded", message: "m" }];
  const page = clusterPage(
    state({
      lvmNodes: [node("n1", group("data")), node("n2", group("data", { free: "0" }))],
      volumes: [
        volume("v1", { status: { conditions } as LvmVolume["status"] & object }),
        volume("v2", { spec: { nodeName: "gone" } }),
      ],
    }),
    { context: "ctx" },
  );
  assertEquals(page.cluster.problems.map(({ reason, node, volume }) => [reason, node, volume]), [
    ["NodeWithoutAgent", "gone", undefined],
    ["Degraded", "n1", "v1"],
    ["VolumeGroupFull", "n2", undefined],
  ]);
  assertEquals([...page.nodes.values()].map(({ name, problems, agent }) => [name, agent, problems]), [
    ["n1", "Alive", [{ severity: "warning", reason: "Degraded", count: 1 }]],
    ["n2", "Alive", [{ severity: "warning", reason: "VolumeGroupFull", count: 1 }]],
    ["gone", undefined, [{ severity: "error", reason: "NodeWithoutAgent", count: 1 }]],
  ]);
  assertEquals(page.nodes.get("n1")!.volumes[0]!.severity, "warning");
  assertEquals(page.nodes.get("n1")!.groups[0]!.segments[0]!.severity, "warning");
});

Deno.test("clusterPage(): twenty thousand volumes with a problem each take less than seconds", () => {
  const names = Array.from({ length: 1000 }, (_, n) => `n${n}`);
  const lost: Partial<LvmVolume["status"]> = { state: "Lost", error: { code: "Lost", message: "gone" } };
  const volumes = names.flatMap((nodeName) =>
    Array.from({ length: 20 }, (_, n) => volume(`${nodeName}-${n}`, { spec: { nodeName }, status: lost }))
  );
  const large = state({ lvmNodes: names.map((name) => node(name, group("data"))), volumes });
  const before = cpuMs();
  const { cluster, nodes } = clusterPage(large, { context: "ctx" });
  const ms = cpuMs() - before;
  assertEquals([cluster.problems.length, nodes.get("n7")!.volumes[3]!.severity], [volumes.length, "error"]);
  assert(ms < 3_000, `${ms} ms`);
});

Deno.test("ClusterChanges: sends everything first, then what has changed, and what is gone", () => {
  const changes = new ClusterChanges();
  const next = (of: ClusterState, now = NOW) => {
    const { whole, cluster, nodes } = changes.next(clusterPage({ ...of, now }, { context: "ctx" }), now);
    return [
      whole,
      cluster !== undefined,
      Object.entries(nodes).map(([name, node]) => node === null ? `-${name}` : name),
    ];
  };
  const [n1, n2] = [node("n1", group("data")), node("n2", group("data"))];
  assertEquals(next(state({ lvmNodes: [n1, n2] })), [true, true, ["n1", "n2"]]);
  // a sign of life changes nothing that is shown
  const alive = { ...n1, status: { ...n1.status, lastUpdateTime: "2026-05-01T12:00:30Z" } };
  assertEquals(next(state({ lvmNodes: [alive, n2] }), new Date("2026-05-01T12:00:31Z")), [false, false, []]);
  const full = node("n1", group("data", { free: "39Gi" }));
  assertEquals(next(state({ lvmNodes: [full, n2] })), [false, true, ["n1"]]);
  assertEquals(next(state({ lvmNodes: [full] })), [false, true, ["-n2"]]);
});

Deno.test("toJson() has sizes as numbers", () => {
  assertEquals(toJson({ a: [1n << 50n] }), `{"a":[${2 ** 50}]}`);
});

/** Returns a tree in short: names, and children in brackets. */
function names({ name, children }: TreeNode): string {
  return name + (children.length === 0 ? "" : `[${children.map(names).join(" ")}]`);
}

function treeOf(id: string, of: Partial<ClusterState>): string {
  const whole = state(of);
  return names(familyTree(volumeViews(whole).find((view) => view.id === id)!, whole));
}

Deno.test("familyTree(): a volume, its snapshots, what was made from them, and what it was made from itself", () => {
  const volumes = [
    volume("a"),
    volume("b", { spec: { source: { snapshot: "s2" } } }),
    volume("c", { spec: { source: { volume: "b" } } }),
    volume("d", { spec: { source: { volume: "a" } } }),
    volume("e", { spec: { source: { snapshot: "gone" } } }),
  ];
  const snapshots = [
    snapshot("s1", "a", { creationTime: "2026-01-02T00:00:00Z" }),
    snapshot("s2", "a", { creationTime: "2026-01-01T00:00:00Z" }),
    snapshot("s3", "b"),
  ];
  const of = { volumes, snapshots };
  assertEquals(treeOf("a", of), "a[d s2[b[c s3]] s1]");
  assertEquals(treeOf("c", of), "a[s2[b[c]]]");
  assertEquals(treeOf("e", of), "e");
});

Deno.test("familyTree(): objects that name each other in a circle end", () => {
  const volumes = [
    volume("a", { spec: { source: { volume: "b" } } }),
    volume("b", { spec: { source: { snapshot: "s" } } }),
    volume("self", { spec: { source: { volume: "self" } } }),
  ];
  assertEquals(
    treeOf("a", { volumes, snapshots: [snapshot("s", "a")] }),
    "a[s[b]]",
  );
  assertEquals(treeOf("self", { volumes }), "self");
});

Deno.test("volumePage(): a volume without a claim has its facts, its limits and its events, the last first", () => {
  const event = (reason: string, lastTimestamp: string) => ({
    metadata: { name: reason },
    ...{ type: "Warning", reason, message: "m", lastTimestamp, involvedObject: { kind: "LVMVolume", name: "v1" } },
  });
  const of = state({
    volumes: [volume("v1", {
      spec: { layout: { type: "raid5", stripes: 2, stripeSize: "64Ki" }, ioLimits: { readIops: "5" }, fstrim: "24h" },
      status: { copy: { copied: "1Gi", total: "10Gi", percent: 10 } },
    })],
  });
  const events = [event("Old", "2026-01-01T00:00:00Z"), event("New", "2026-01-02T00:00:00Z")];
  const page = volumePage("v1", { state: of, events, target: { context: "" }, usage: "not known" })!;
  assertEquals(Object.fromEntries(page.facts), {
    ...{ Node: "n1", Volume: "v1 (Ready)", "Volume group": "data", Layout: "raid5 with 2 stripes of 64Ki" },
    ...{ Images: "3, each on a physical volume of its own", Filesystem: "ext4", Discard: "fstrim each 24h" },
    ...{ "When deleted": "its data is erased (zero)", Copied: "1Gi of 10Gi, 10%" },
  });
  assertEquals([page.limits, page.usage, page.problems], [{ readIops: "5" }, "not known", []]);
  assertEquals(page.events.map(({ reason, object }) => `${reason} ${object}`), [
    "New LVMVolume/v1",
    "Old LVMVolume/v1",
  ]);
  assertEquals(volumePage("v2", { state: of, target: { context: "" }, usage: "" }), undefined);
});
