import { assertEquals } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { KEY } from "../../tests/fake/cluster/move_objects.ts";
import { lvmNodeOf, movableVolume, MOVE_DRIVER } from "../../tests/fake/cluster/mover_harness.ts";
import { lvmNodes, type LvmSnapshot, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  type Node,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods as podResource,
  type StatefulSet,
  statefulSets,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { PROVISIONED_BY_ANNOTATION } from "../../k8s/provisioner/persistent_volume.ts";
import { type DrainedVolume, type DrainState, planDrain, readDrainState } from "./drain.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { affinityTo } from "../../k8s/handover/persistent_volume.ts";

const OPTIONS = { topologyKey: KEY, parseGroups: parseGroupList, now: Date.parse("2026-01-01T00:00:00Z") };

const idOf = (digit: string) => `v1-${digit.repeat(32)}`;

/** Returns the volume of a claim on node `a`. */
function volume(digit: string, spec: Partial<LvmVolume["spec"]> = {}, metadata: object = {}): LvmVolume {
  const size = spec.size ?? "32Mi";
  const { spec: usual, status } = movableVolume();
  return {
    metadata: { name: idOf(digit), ...metadata },
    spec: { ...usual, requestName: `pv-${digit}`, size, ...spec },
    status: { ...status, size },
  } as LvmVolume;
}

/** Returns the PersistentVolume of a claim, and the claim. */
function bound(digit: string, claim: string, { phase = "Bound", driver = MOVE_DRIVER, claimRef = {} } = {}) {
  const persistentVolume = {
    metadata: { name: `pv-${digit}`, annotations: { [PROVISIONED_BY_ANNOTATION]: driver } },
    spec: {
      claimRef: { namespace: "n", name: claim, uid: digit, ...claimRef },
      ...{ csi: { driver, volumeHandle: idOf(digit) }, nodeAffinity: affinityTo("a", KEY) },
    },
    status: { phase },
  } as PersistentVolume;
  const object = {
    metadata: { namespace: "n", name: claim, uid: digit },
    spec: { volumeName: `pv-${digit}`, storageClassName: "local" },
    status: { phase: "Bound" },
  } as PersistentVolumeClaim;
  return { persistentVolume, claim: object };
}

const READY = { conditions: [{ type: "Ready", status: "True" }] };
const node = (name: string, unschedulable = false): Node => ({
  metadata: { name, labels: { [KEY]: name } },
  spec: { unschedulable },
  status: READY,
});

/** Returns the state of three nodes, of which `a` has a volume of a claim. */
function state(more: Partial<DrainState> = {}): DrainState {
  const { persistentVolume, claim } = bound("1", "c");
  return {
    ...{ driver: MOVE_DRIVER, nodeName: "a", nodes: ["a", "b", "c"].map((name) => node(name)) },
    lvmNodes: [lvmNodeOf("a"), lvmNodeOf("b", { free: "512Mi" }), lvmNodeOf("c", { free: "768Mi" })],
    ...{ volumes: [volume("1")], snapshots: [], persistentVolumes: [persistentVolume], claims: [claim], moves: [] },
    classes: new Map([["local", { metadata: { name: "local" }, provisioner: MOVE_DRIVER } as StorageClass]]),
    ...{ pods: [], statefulSets: [] },
    ...more,
  };
}

const MiB = 1n << 20n;
const plan = (more: Partial<DrainState> = {}): DrainedVolume[] => planDrain(state(more), OPTIONS);
/** Returns why the only volume stays. */
const refusal = (more: Partial<DrainState>) => {
  const [only, ...others] = plan(more);
  assertEquals([others, only?.targetNode], [[], undefined]);
  return only?.refusal;
};

Deno.test("planDrain() sends a volume to the node with the most free space that takes pods", () => {
  const [only] = plan();
  assertEquals(only, { volume: idOf("1"), claim: "n/c", size: 32n * MiB, targetNode: "c" });
  assertEquals(plan({ nodes: [node("a"), node("b"), node("c", true)] })[0]?.targetNode, "b");
  const { spec: _, ...plain } = node("c");
  assertEquals(plan({ nodes: [node("a", true), node("b"), plain] })[0]?.targetNode, "c");
  const { status: _status, ...silent } = lvmNodeOf("b");
  assertEquals(plan({ lvmNodes: [lvmNodeOf("a"), silent, lvmNodeOf("c")] })[0]?.targetNode, "c");
  const withoutFigures = { ...silent, status: { ...lvmNodeOf("b").status, total: undefined } } as never;
  assertEquals(plan({ lvmNodes: [lvmNodeOf("a"), withoutFigures, lvmNodeOf("c")] })[0]?.targetNode, "c");
});

Deno.test("planDrain() goes on to the next node when one cannot have it, and says why the first cannot", () => {
  const lvmNodesOf = (free: string, other = free) => [
    lvmNodeOf("a"),
    lvmNodeOf("b", { free: other }),
    lvmNodeOf("c", { free, transfers: false }),
  ];
  assertEquals(plan({ lvmNodes: lvmNodesOf("1Gi", "512Mi") })[0]?.targetNode, "b");
  const why = refusal({ lvmNodes: lvmNodesOf("1Gi", "4Mi") });
  assertEquals(why, "the agent of node c takes no part in transfers: set transfer.enabled of the chart");
  assertEquals(
    refusal({ lvmNodes: [lvmNodeOf("a")] }),
    "no other node has an agent of the driver and takes its pods",
  );
});

Deno.test("planDrain() counts what volumes take that are there, and those that move before", () => {
  const [one, two, other] = [bound("1", "x"), bound("2", "b"), bound("3", "a")];
  const size = "400Mi";
  const volumes = [volume("1", { size }), volume("2", { size }), volume("3", { size })];
  const given = {
    volumes,
    persistentVolumes: [one, two, other].map(({ persistentVolume }) => persistentVolume),
    claims: [one, two, other].map(({ claim }) => claim),
  };
  const plans = plan(given);
  assertEquals(plans.map(({ claim, targetNode }) => [claim, targetNode]), [["n/a", "c"], ["n/b", "b"], [
    "n/x",
    undefined,
  ]]);
  assertEquals(plans[2]?.refusal?.startsWith("node c: "), true, plans[2]?.refusal);
  const pending = { ...volume("4", { nodeName: "c", size: "700Mi" }), status: {} } as LvmVolume;
  assertEquals(plan({ volumes: [volume("1"), pending] })[0]?.targetNode, "c");
  assertEquals(plan({ volumes: [volume("1", { size: "100Mi" }), pending] })[0]?.targetNode, "b");
});

/** Returns the state of claims, each of a volume on node `a` of a size. */
function claims(sizes: Readonly<Record<string, string>>): Partial<DrainState> {
  const all = Object.entries(sizes).map(([name, size], index) => ({
    size,
    digit: `${index + 1}`,
    ...bound(`${index + 1}`, name),
  }));
  return {
    volumes: all.map(({ digit, size }) => volume(digit, { size })),
    persistentVolumes: all.map(({ persistentVolume }) => persistentVolume),
    claims: all.map(({ claim }) => claim),
  };
}

/** Returns a pod that uses claims. */
const podOf = (name: string, claims: readonly string[], tolerations: object[] = []): Pod =>
  ({
    metadata: { namespace: "n", name },
    spec: {
      containers: [],
      tolerations,
      volumes: claims.map((claimName) => ({ name: claimName, persistentVolumeClaim: { claimName } })),
    },
  }) as Pod;

const targets = (plans: readonly DrainedVolume[]) => plans.map(({ claim, targetNode }) => [claim, targetNode]);

Deno.test("planDrain() sends all volumes of a pod to one node", () => {
  const sizes = { "data-db-0": "400Mi", "data-db-1": "400Mi", "wal-db-0": "300Mi", "wal-db-1": "100Mi" };
  const all = claims(sizes);
  const expected = [["n/data-db-0", "c"], ["n/wal-db-0", "c"], ["n/data-db-1", "b"], ["n/wal-db-1", "b"]];
  const pods = ["0", "1"].map((ordinal) => podOf(`db-${ordinal}`, [`data-db-${ordinal}`, `wal-db-${ordinal}`]));
  assertEquals(targets(plan({ ...all, pods })), expected);
  const templates = ["data", "wal"].map((name) => ({ metadata: { name } }));
  const set = { metadata: { namespace: "n", name: "db" }, spec: { volumeClaimTemplates: templates } } as StatefulSet;
  assertEquals(targets(plan({ ...all, statefulSets: [set] })), expected); // it has no pods now
  const elsewhere = { ...set, metadata: { namespace: "other", name: "db" } };
  assertEquals(targets(plan({ ...all, statefulSets: [elsewhere] }))[1], ["n/data-db-1", "b"]);
  // each pod shares a volume with the next one
  const chained = [podOf("x", ["data-db-0", "wal-db-1"]), podOf("y", ["wal-db-1", "wal-db-0"])];
  assertEquals(targets(plan({ ...all, pods: chained })), [
    ["n/data-db-0", undefined],
    ["n/wal-db-0", undefined],
    ["n/wal-db-1", undefined],
    ["n/data-db-1", "c"],
  ]);
});

Deno.test("planDrain() lets no volume of a pod go where another one cannot, and says so", () => {
  const all = claims({ data: "32Mi", wal: "800Mi" });
  const pods = [podOf("db-0", ["data", "wal"])];
  const why = "its pods use several volumes, and no node can have all of them: n/wal: node c: ";
  for (const { targetNode, refusal } of plan({ ...all, pods })) {
    assertEquals([targetNode, refusal?.startsWith(why)], [undefined, true], refusal);
  }
  const small = claims({ data: "32Mi", wal: "32Mi" });
  const moving = { metadata: { name: idOf("2") }, spec: { claim: { namespace: "n", name: "wal" }, targetNode: "b" } };
  const moved = { ...small, pods, moves: [moving as LvmMove] };
  assertEquals(targets(plan(moved)), [["n/data", "b"], ["n/wal", undefined]]);
  assertEquals(plan(moved)[1]?.refusal, "it is being moved to node b already");
  const volumes = [volume("1"), volume("2", { nodeName: "b" })];
  assertEquals(targets(plan({ ...small, pods, volumes })), [["n/data", "b"]]);
  assertEquals(
    refusal({ ...small, pods, volumes, nodes: [node("a"), node("b", true), node("c")] }),
    "its pods have volumes on node b, too, where it cannot go",
  );
});

Deno.test("planDrain() sends no volume to a node that takes no pods of it, or whose agent is silent", () => {
  const to = (more: Partial<DrainState>) => plan(more)[0]?.targetNode;
  const withC = (more: object) => ({ nodes: [node("a"), node("b"), { ...node("c"), ...more } as Node] });
  const tainted = (effect: string) => withC({ spec: { taints: [{ key: "control", value: "x", effect }] } });
  assertEquals(["NoSchedule", "NoExecute", "PreferNoSchedule"].map((effect) => to(tainted(effect))), ["b", "b", "c"]);
  const tolerating = (...tolerations: object[]) =>
    to({ ...tainted("NoSchedule"), pods: [podOf("p", ["c"], tolerations)] });
  assertEquals(tolerating({ key: "control", operator: "Exists" }), "c");
  assertEquals(tolerating({ operator: "Exists" }), "c");
  assertEquals(tolerating({ key: "control", value: "x", effect: "NoSchedule" }), "c");
  assertEquals(tolerating({ key: "control", value: "y" }), "b");
  assertEquals(
    tolerating({ key: "other", operator: "Exists" }, { key: "control", value: "x", effect: "NoExecute" }),
    "b",
  );
  assertEquals(to(withC({ status: { conditions: [{ type: "Ready", status: "Unknown" }] } })), "b");
  assertEquals(to({ nodes: [node("a"), node("b")] }), "b");
  const withAgent = (agent: "Silent" | "Alive") => {
    const [a, b, c] = state().lvmNodes;
    return { lvmNodes: [a!, b!, { ...c!, status: { ...c!.status, agent: { state: agent } } }] };
  };
  assertEquals([to(withAgent("Silent")), to(withAgent("Alive"))], ["b", "c"]);
});

Deno.test("planDrain() says that the volume of a pod goes with it", () => {
  const { persistentVolume, claim } = bound("1", "c");
  const ownerReferences = [{ apiVersion: "v1", kind: "Pod", name: "p", uid: "x", controller: true }];
  const owned = { ...claim, metadata: { ...claim.metadata, ownerReferences } };
  assertEquals(
    refusal({ persistentVolumes: [persistentVolume], claims: [owned] }),
    "claim n/c is of a generic ephemeral volume, and is deleted with its pod p",
  );
});

Deno.test("planDrain() is about the volumes of the driver on the node that nobody deletes", () => {
  const deletionTimestamp = "2026-01-01T00:00:00Z";
  assertEquals(plan({ volumes: [volume("1", { driverName: "other" })] }), []);
  assertEquals(plan({ volumes: [volume("1", { nodeName: "b" })] }), []);
  assertEquals(plan({ volumes: [volume("1", {}, { deletionTimestamp })] }), []);
});

Deno.test("planDrain() lists volumes without a claim by their ids among the others, and says that they stay", () => {
  const claimed = bound("5", "v1-4");
  const plans = plan({
    volumes: [volume("6"), volume("5"), volume("3")],
    persistentVolumes: [claimed.persistentVolume],
    claims: [claimed.claim],
  });
  assertEquals(plans.map(({ volume, claim, refusal }) => [volume, claim, refusal]), [
    [idOf("3"), undefined, "no claim is bound to it"],
    [idOf("5"), "n/v1-4", undefined],
    [idOf("6"), undefined, "no claim is bound to it"],
  ]);
});

const UNBOUND: Readonly<Record<string, Parameters<typeof bound>[2]>> = {
  "is Released": { phase: "Released" },
  "is of another driver": { driver: "other" },
  "names no namespace": { claimRef: { namespace: undefined } },
  "names no claim": { claimRef: { name: undefined } },
};

for (const [what, how] of Object.entries(UNBOUND)) {
  Deno.test(`planDrain() takes a volume for unclaimed whose PersistentVolume ${what}`, () => {
    const { persistentVolume } = bound("1", "c", how);
    assertEquals(refusal({ persistentVolumes: [persistentVolume] }), "no claim is bound to it");
  });
}

Deno.test("planDrain() says of each volume why it cannot move", () => {
  const { persistentVolume, claim } = bound("1", "c");
  const other = { ...claim, metadata: { ...claim.metadata, namespace: "other" } };
  assertEquals(refusal({ claims: [other] }), "claim n/c does not exist any more");
  const namesake = { ...claim, metadata: { ...claim.metadata, name: "d" } };
  assertEquals(refusal({ claims: [namesake] }), "claim n/c does not exist any more");
  const unknown = { ...persistentVolume.spec, claimRef: { namespace: "n", name: "c" } };
  assertEquals(
    refusal({ persistentVolumes: [{ ...persistentVolume, spec: unknown }] }),
    "claim n/c does not exist any more",
  );
  const snapshot = { metadata: { name: "s" }, spec: { driverName: MOVE_DRIVER, sourceVolume: idOf("1") } };
  assertEquals(
    refusal({ snapshots: [snapshot as LvmSnapshot] }),
    "the thick volume is the origin of the snapshots s; delete them first",
  );
  const cached = volume("1", { layout: { type: "cache", cacheSize: "8Mi" } });
  assertEquals(
    refusal({ volumes: [cached] }),
    "the volume is cache of 8Mi, and the driver takes no snapshots of such a volume, which it would be copied from; " +
      "restore a backup of it on the other node",
  );
  const allowedTopologies = [{ matchLabelExpressions: [{ key: KEY, values: ["b"] }] }];
  const classes = new Map([["local", { metadata: { name: "local" }, allowedTopologies } as unknown as StorageClass]]);
  assertEquals(plan({ classes })[0]?.targetNode, "b");
  assertEquals(
    refusal({ classes, nodes: [node("a"), node("b", true), node("c")] }),
    "node c: not in the allowedTopologies of the class",
  );
});

Deno.test("planDrain() leaves a volume alone that is being moved, and moves it again when that has ended", () => {
  const move = (name: string, state: string) =>
    ({ metadata: { name }, spec: { claim: { name: "other" }, targetNode: "b" }, status: { state } }) as LvmMove;
  assertEquals(refusal({ moves: [move(idOf("1"), "Copying")] }), "it is being moved to node b already");
  assertEquals(plan({ moves: [move(idOf("1"), "Failed"), move(idOf("2"), "Copying")] })[0]?.targetNode, "c");
});

Deno.test("readDrainState() reads the objects of the driver, and the classes of the claims", async () => {
  await using api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves] });
  using client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (administrator)" });
  const kept = state({
    snapshots: [{
      metadata: { name: "s" },
      spec: { driverName: MOVE_DRIVER, requestName: "s", nodeName: "a", sourceVolume: "x" },
    }],
    moves: [{ metadata: { name: idOf("1") }, spec: {}, status: { state: "Failed" } } as LvmMove],
  });
  const put = (resource: Parameters<typeof api.restore>[0], objects: readonly object[]) => {
    for (const object of objects) api.restore(resource, object as never);
  };
  put(nodes, kept.nodes);
  put(lvmNodes, [...kept.lvmNodes, lvmNodeOf("z", { driver: "other" })]);
  put(lvmVolumes, kept.volumes);
  put(lvmSnapshots, kept.snapshots);
  put(persistentVolumes, kept.persistentVolumes);
  put(
    persistentVolumeClaims,
    [...kept.claims, bound("9", "classless").claim].map((claim, index) => ({
      ...claim,
      spec: { ...claim.spec, storageClassName: index === 0 ? "local" : "gone" },
    })),
  );
  put(lvmMoves, kept.moves);
  put(podResource, [podOf("p", ["c"]), { ...podOf("ended", ["c"]), status: { phase: "Succeeded" } }]);
  put(statefulSets, [{ metadata: { namespace: "n", name: "set" } }]);
  put(storageClasses, [...kept.classes.values(), { metadata: { name: "unused" } }]);
  const read = await readDrainState(client, MOVE_DRIVER, "a");
  const names = (objects: readonly { metadata: { name: string } }[]) => objects.map(({ metadata }) => metadata.name);
  assertEquals([read.driver, read.nodeName, [...read.classes.keys()]], [MOVE_DRIVER, "a", ["local"]]);
  assertEquals([names(read.nodes), names(read.lvmNodes)], [["a", "b", "c"], ["a", "b", "c"]]);
  assertEquals([names(read.volumes), names(read.snapshots)], [[idOf("1")], ["s"]]);
  assertEquals([names(read.persistentVolumes), names(read.claims)], [["pv-1"], ["c", "classless"]]);
  assertEquals([names(read.pods), names(read.statefulSets)], [["p"], ["set"]]);
  assertEquals([names(read.moves), planDrain(read, OPTIONS)[0]?.targetNode], [[idOf("1")], "c"]);
});
