import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { StorageError } from "../../base/error.ts";
import { KEY, NAME } from "../../tests/fake/cluster/move_objects.ts";
import { lvmNodeOf, movableVolume, MOVE_DRIVER, MoverHarness } from "../../tests/fake/cluster/mover_harness.ts";
import { lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  storageClasses,
} from "../../k8s/api/objects.ts";
import {
  csiNodesOf,
  type MovePlan,
  movePlanText,
  type MoveRequest,
  namedObjects,
  podsUsing,
  previewMove,
} from "./preview.ts";

const OPTIONS = { topologyKey: KEY, parseGroups: parseGroupList, now: Date.parse("2026-01-01T00:00:00Z") };
const REQUEST: MoveRequest = { driver: MOVE_DRIVER, namespace: "n", claimName: "c", targetNode: "b" };

/** Returns the preview of a move. @param change changes the objects before */
async function preview(change: (s: MoverHarness) => void = () => {}, request: Partial<MoveRequest> = {}) {
  await using s = await MoverHarness.start(change);
  return await previewMove(s.client, { ...REQUEST, ...request }, OPTIONS);
}

const refusalOf = async (change: (s: MoverHarness) => void, request: Partial<MoveRequest> = {}) =>
  (await preview(change, request)).plan.refusal;

function pod(name: string, claims: readonly object[], more: Partial<Pod> = {}): Pod {
  return {
    metadata: { name, namespace: "n" },
    spec: { containers: [], volumes: claims.map((claim, index) => ({ name: `v${index}`, ...claim })) },
    ...more,
  } as Pod;
}

const uses = (claimName: string) => ({ persistentVolumeClaim: { claimName } });

Deno.test("previewMove() returns the plan, and the LVMMove that asks for it", async () => {
  const { plan, move } = await preview((s) => s.restore(pods, pod("db-0", [uses("c")])));
  assertEquals(plan, {
    ...{ claim: "n/c", persistentVolume: "pv", volume: NAME, size: 32n << 20n, thin: false, erase: "none" },
    ...{ sourceNode: "a", targetNode: "b", pods: ["n/db-0"], companions: [], copyMode: "Online" },
  });
  assertEquals(move, {
    metadata: { name: NAME },
    spec: {
      ...{ driverName: MOVE_DRIVER, persistentVolume: "pv", claim: { namespace: "n", name: "c", uid: "u" } },
      ...{ sourceNode: "a", targetNode: "b" },
    },
  });
});

Deno.test("previewMove() names the other claims of its pods on the node", async () => {
  const { plan } = await preview((s) => {
    s.restore(pods, pod("db-0", [uses("c"), uses("wal"), uses("away"), uses("network")]));
    const add = (name: string, nodeName: string, driver = MOVE_DRIVER) => {
      const id = `v1-${name}`;
      s.restore(lvmVolumes, {
        ...movableVolume(),
        metadata: { name: id },
        spec: { ...movableVolume().spec, nodeName },
      });
      const claimRef = { namespace: "n", name };
      s.restore(persistentVolumes, { metadata: { name }, spec: { claimRef, csi: { driver, volumeHandle: id } } });
    };
    add("wal", "a");
    add("away", "b");
    add("network", "a", "other");
    add("unused", "a");
  });
  assertEquals(plan.companions, ["n/wal"]);
  assertStringIncludes(
    movePlanText(plan),
    "Its pods also use the claims n/wal on node a. They start only where all of",
  );
});

Deno.test("previewMove() says that a move is offline, and why", async () => {
  const asked = await preview(() => {}, { offline: true });
  assertEquals([asked.plan.copyMode, asked.plan.offlineReason], ["Offline", "it was asked for"]);
  assertEquals(asked.move.spec.offline, true);
  const { plan } = await preview((s) => s.restore(lvmNodes, lvmNodeOf("a", { free: "4Mi" })));
  assertEquals([plan.copyMode, plan.refusal], ["Offline", undefined]);
  assertEquals(
    plan.offlineReason,
    "temporary snapshots of a volume in use take 40 MiB, and the volume group data has 4 MiB free",
  );
});

Deno.test("previewMove() has the size and kind of a thin volume", async () => {
  const { plan } = await preview((s) => {
    const { spec, status } = movableVolume();
    s.restore(
      lvmVolumes,
      movableVolume({ spec: { ...spec, thinProvision: true }, status: { ...status, size: "1Gi" } }),
    );
  });
  assertEquals([plan.thin, plan.size], [true, 1n << 30n]);
});

Deno.test("previewMove() fails without a claim, or a volume of the driver", async () => {
  const failure = async (change: (s: MoverHarness) => void, request: Partial<MoveRequest> = {}) => {
    const { kind, message } = await assertRejects(() => preview(change, request), StorageError);
    return `${kind}: ${message}`;
  };
  const none = () => {};
  assertEquals(await failure(none, { claimName: "x" }), "NotFound: moving claim n/x: there is no such claim");
  assertEquals(await failure(none, { namespace: "x" }), "NotFound: moving claim x/c: there is no such claim");
  const unbound = "NotFound: moving claim n/c: it is not bound to a PersistentVolume of the driver d";
  assertEquals(
    await failure((s) => s.change(persistentVolumeClaims, "c", (claim) => ({ ...claim, spec: {} }))),
    unbound,
  );
  assertEquals(await failure((s) => s.remove(persistentVolumes, "pv")), unbound);
  assertEquals(
    await failure(none, { driver: "x" }),
    "NotFound: moving claim n/c: it is not bound to a PersistentVolume of the driver x",
  );
  assertEquals(
    await failure((s) => s.remove(lvmVolumes, NAME)),
    `NotFound: moving claim n/c: there is no LVMVolume ${NAME}`,
  );
});

Deno.test("previewMove() refuses a volume that is being moved, but not one whose move has ended", async () => {
  const move = (state?: "Failed" | "Copying") => (s: MoverHarness) => {
    s.addMove({ targetNode: "c", driverName: "other" }, state === undefined ? {} : { status: { state } });
  };
  assertEquals(await refusalOf(move("Copying")), "it is being moved to node c already (Copying)");
  assertEquals(await refusalOf(move()), "it is being moved to node c already (Pending)");
  assertEquals(await refusalOf(move("Failed")), undefined);
});

Deno.test("previewMove() refuses what the objects and the nodes do not allow", async () => {
  const none = () => {};
  assertEquals(await refusalOf(none, { targetNode: "a" }), "the volume is on node a already");
  assertEquals(await refusalOf(none, { targetNode: "z" }), "node z has no agent of the driver");
  assertEquals(
    await refusalOf((s) => s.restore(lvmNodes, lvmNodeOf("b", { driver: "other" }))),
    "node b has no agent of the driver",
  );
  assertEquals(
    await refusalOf((s) => s.restore(lvmNodes, lvmNodeOf("a", { transfers: false }))),
    "the agent of node a takes no part in transfers: set transfer.enabled of the chart",
  );
  assertEquals(
    await refusalOf((s) =>
      s.restore(lvmSnapshots, {
        metadata: { name: "s" },
        spec: { driverName: MOVE_DRIVER, requestName: "s", nodeName: "a", sourceVolume: NAME },
      })
    ),
    "the thick volume is the origin of the snapshots s; delete them first",
  );
  const allowedTopologies = [{ matchLabelExpressions: [{ key: KEY, values: ["c"] }] }];
  assertEquals(
    await refusalOf((s) => s.change(storageClasses, "local", (one) => ({ ...one, allowedTopologies }) as never)),
    "node b: not in the allowedTopologies of the class",
  );
  assertEquals(await refusalOf((s) => s.remove(storageClasses, "local")), undefined);
  assertEquals(
    await refusalOf((s) => s.restore(nodes, { metadata: { name: "b" } })),
    `node b: it has no label ${KEY} yet`,
  );
});

Deno.test("previewMove() takes an agent for silent as the controller does, whatever the clock of this machine says", async () => {
  const refusal = async (state: "Alive" | "Silent", days: number) => {
    await using s = await MoverHarness.start((s) => {
      const lastUpdateTime = "2026-01-01T00:00:00Z";
      const { status, ...node } = lvmNodeOf("b");
      s.restore(lvmNodes, { ...node, status: { ...status, lastUpdateTime, agent: { state } } });
    });
    const now = OPTIONS.now + days * 86_400_000;
    return (await previewMove(s.client, REQUEST, { ...OPTIONS, now })).plan.refusal;
  };
  assertEquals(await refusal("Alive", 1), undefined);
  assertEquals(await refusal("Silent", -1), "the agent of node b has not reported for minutes");
});

Deno.test("previewMove() counts what the volumes of the other node take, and of no other one", async () => {
  const pending = (nodeName: string) => (s: MoverHarness) => {
    const { spec } = movableVolume();
    const name = `v1-${"c".repeat(32)}`;
    s.restore(lvmVolumes, { metadata: { name }, spec: { ...spec, nodeName, size: "1000Mi" } } as LvmVolume);
  };
  assertEquals((await refusalOf(pending("b")))?.startsWith("node b: "), true);
  assertEquals(await refusalOf(pending("c")), undefined);
});

Deno.test("podsUsing() returns the pods of the namespace that use a claim, also an ephemeral one, and have not ended", async () => {
  await using s = await MoverHarness.start((s) => {
    s.restore(pods, pod("uses", [uses("other"), uses("c")]));
    s.restore(pods, pod("another", [uses("other"), { emptyDir: {} }]));
    s.restore(pods, pod("running", [uses("c")], { status: { phase: "Running" } } as never));
    s.restore(pods, pod("done", [uses("c")], { status: { phase: "Succeeded" } } as never));
    s.restore(pods, pod("failed", [uses("c")], { status: { phase: "Failed" } } as never));
    s.restore(pods, { ...pod("elsewhere", [uses("c")]), metadata: { name: "elsewhere", namespace: "m" } });
    s.restore(pods, { metadata: { name: "bare", namespace: "n" } } as Pod);
    s.restore(pods, { metadata: { name: "c", namespace: "n" }, spec: { containers: [] } } as Pod);
    s.restore(pods, pod("scratch", [{ name: "data", ephemeral: {} }]));
  });
  const names = async (name: string) => {
    const found = await podsUsing(s.client, { metadata: { name, namespace: "n" } } as never);
    return found.map(({ metadata }) => metadata.name).sort();
  };
  assertEquals(await names("c"), ["running", "uses"]);
  assertEquals(await names("scratch-data"), ["scratch"]);
  assertEquals(await names("data"), []);
});

Deno.test("csiNodesOf() shows the driver on each node with an LVMNode", () => {
  const csiNodes = csiNodesOf("x", [lvmNodeOf("a"), lvmNodeOf("b")]);
  assertEquals(csiNodes.get("b"), { metadata: { name: "b" }, spec: { drivers: [{ name: "x", nodeID: "b" }] } });
  assertEquals([csiNodes.list().length, csiNodes.get("c")], [2, undefined]);
});

Deno.test("namedObjects() finds and lists objects", () => {
  const objects = [{ metadata: { name: "a" } }, { metadata: { name: "b" } }];
  const byName = namedObjects(objects);
  assertEquals([byName.get("b"), byName.get("c"), byName.list()], [objects[1], undefined, objects]);
});

const PLAN: MovePlan = {
  ...{ claim: "n/c", persistentVolume: "pv", volume: "v", size: 1n << 20n, thin: false, erase: "zero" },
  ...{ sourceNode: "a", targetNode: "b", pods: ["n/p", "n/q"], companions: [], copyMode: "Online" },
};
const HEAD = "Claim n/c (thick volume v, 1 MiB) moves from node a to node b:";
const TAIL = [
  "PersistentVolume pv gets the affinity to node b. Where the API server does not allow",
  "     to change it, it is deleted and created again with the same name; the claim is Lost for some seconds.",
].join("\n");

Deno.test("movePlanText() has the steps of an online move", () => {
  assertEquals(
    movePlanText(PLAN),
    [
      HEAD,
      "",
      "  1. It is copied to node b while it is used, from a temporary snapshot, and compared. Then what changed",
      "     meanwhile is copied, where that is much.",
      "  2. Nobody may begin to use it on node a, and the move waits until nobody uses it.",
      "     Pods that use it: n/p, n/q",
      "  3. What changed last is copied, while nobody can use it.",
      `  4. ${TAIL}`,
      "  5. The volume on node a is deleted, its data overwritten with zeros, and the copy takes its place.",
      "",
      "Until step 5, --cancel undoes it.",
    ].join("\n"),
  );
});

Deno.test("movePlanText() has the steps of an offline move, and why it is one", () => {
  const plan = {
    ...PLAN,
    thin: true,
    erase: "discard",
    pods: [],
    copyMode: "Offline",
    offlineReason: "no space",
  } as const;
  assertEquals(
    movePlanText(plan),
    [
      HEAD.replace("thick", "thin"),
      "",
      "  1. Nobody may begin to use it on node a, and the move waits until nobody uses it.",
      "     Pods that use it: none",
      "  2. It is copied to node b while nobody can use it, and compared. It cannot be copied before:",
      "     no space.",
      `  3. ${TAIL}`,
      "  4. The volume on node a is deleted, its data discarded, and the copy takes its place.",
      "",
      "Until step 4, --cancel undoes it.",
    ].join("\n"),
  );
});

Deno.test("movePlanText() says how the data is erased, or why nothing is moved", () => {
  assertEquals(movePlanText({ ...PLAN, erase: "none" }).includes("its data not erased, and"), true);
  assertEquals(
    movePlanText({ ...PLAN, refusal: "it is full" }),
    "Claim n/c (thick volume v, 1 MiB) cannot be moved from node a to node b: it is full",
  );
});
