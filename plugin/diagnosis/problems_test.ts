import { assertEquals } from "@std/assert";
import type { LvmNode, LvmSnapshot, LvmVolume } from "../../k8s/api/lvm_objects.ts";
import { FORGOTTEN_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import type { PersistentVolumeClaim } from "../../k8s/api/objects.ts";
import type { LvmMove } from "../../k8s/handover/moves.ts";
import { type ApiClient, ApiError } from "../../k8s/client/client.ts";
import { messageProblem } from "./evidence.ts";
import { type ClaimState, readClaimState } from "./claim_state.ts";
import { type ClusterState, readClusterState } from "./cluster_state.ts";
import { nodeProblems, nodeViews } from "./nodes.ts";
import { explainNode } from "./overview.ts";
import { compareText, conditionProblem, remedyOf } from "../problem.ts";
import { heldProblems, snapshotViews, volumeProblems } from "./volumes.ts";
import { explainClaim } from "./why.ts";
import { boundProblems } from "./why_bound.ts";
import { moveInProgress } from "./why_handover.ts";
import { terminatingProblems } from "./why_terminating.ts";
import { clusterState } from "../../tests/fake/cluster/cluster_states.ts";

const NOW = new Date("2026-05-01T12:00:00Z");
const ABOUT = { object: "node/n1", severity: "error" } as const;

const condition = (type: string, reason: string, status = "False") => ({
  type,
  status,
  reason,
  message: `${type} ${reason}`,
});

function volume(...conditions: object[]): LvmVolume {
  const spec = { driverName: "d", nodeName: "n1", size: "1Gi" };
  return { metadata: { name: "v1" }, spec, status: { state: "Ready", conditions } } as unknown as LvmVolume;
}

function stateOf(more: object): ClaimState {
  return {
    ...{ driver: "d", now: NOW, key: "ns/data", claimEvents: [], pods: [], podEvents: [], volumeEvents: [] },
    ...{ agentLeases: [], capacities: [], lvmNodes: [], absentAgents: [], otherClaims: [], unread: [], ...more },
  };
}

function claimOf(more: object): PersistentVolumeClaim {
  return { metadata: { name: "data", namespace: "ns", uid: "u" }, ...more } as PersistentVolumeClaim;
}

/** Returns a client of a cluster that has some lists of objects, by their plurals, and else nothing. */
function clientOf(lists: Readonly<Record<string, readonly object[]>>): ApiClient {
  return {
    get: () => Promise.reject(new ApiError("not found", { status: 404, reason: "NotFound" })),
    list: ({ plural }: { plural: string }) => Promise.resolve({ items: lists[plural] ?? [] }),
  } as unknown as ApiClient;
}

Deno.test("conditionProblem() leads to the chapter of the runbooks, or to another guide, that the description names", () => {
  const runbookOf = (meaning: string) =>
    conditionProblem(condition("A", "R"), ABOUT, { R: { meaning } as never }).runbook;
  assertEquals(runbookOf("Bad: [runbook](../guides/runbooks/storage.md#full)"), "full");
  assertEquals(
    runbookOf("Bad: [runbook](../guides/node-maintenance.md#remove-a-dead-node)"),
    "node-maintenance/remove-a-dead-node",
  );
  assertEquals(Object.keys(conditionProblem(condition("A", "R"), ABOUT)), ["object", "severity", "reason", "message"]);
});

Deno.test("compareText() orders texts, and equal ones are equal", () => {
  assertEquals([compareText("a", "b"), compareText("b", "a"), compareText("a", "a")], [-1, 1, 0]);
});

Deno.test("nodeProblems(): missing disks and a full pool are errors, and what else a node reports is a warning", () => {
  const conditions = ["PhysicalVolumesMissing", "ThinPoolFull", "DisksLost", "DisksRefused"].map((reason) =>
    condition("X", reason, "True")
  );
  const lvmNode = { metadata: { name: "n1" }, spec: {}, status: { conditions } } as unknown as LvmNode;
  const problems = nodeProblems({ lvmNodes: [lvmNode] } as unknown as ClusterState, []);
  assertEquals(problems.map(({ severity }) => severity), ["error", "error", "error", "warning"]);
});

Deno.test("nodeProblems(): a full volume group names the disk that is proposed for it", () => {
  const remedyWith = (disk: object) => {
    const volumeGroups = [{ name: "data", uuid: "u", size: "1Gi", free: "0" }];
    const lvmNodes = [{ metadata: { name: "n1" }, spec: {}, status: { volumeGroups, disks: [disk] } }];
    const state = { lvmNodes, nodes: [], agentLeases: [], now: new Date(), unread: [] } as unknown as ClusterState;
    return nodeProblems(state, nodeViews(state)).find(({ reason }) => reason === "VolumeGroupFull")?.remedy;
  };
  const spare = { name: "ata-X", volumeGroup: "data", proposed: true };
  const words = "Add the disk that nobody uses (kubectl denolith disks --accept ata-X --node n1), or delete claims.";
  assertEquals(remedyWith(spare), words);
  assertEquals(remedyWith({ ...spare, proposed: false }), "Add a disk, or delete claims.");
  assertEquals(remedyWith({ ...spare, volumeGroup: "other" }), "Add a disk, or delete claims.");
});

Deno.test("nodeProblems(): a volume group whose space is in a thin pool is full when the pool can allocate nothing more", () => {
  const reasons = (...pools: object[]) => {
    const volumeGroups = [{ name: "data", uuid: "u", size: "1Ti", free: "0", thinPools: pools }];
    const lvmNodes = [{ metadata: { name: "n1" }, spec: {}, status: { volumeGroups } }];
    const state = { lvmNodes, nodes: [], agentLeases: [], now: new Date(), unread: [] } as unknown as ClusterState;
    return nodeProblems(state, nodeViews(state)).map(({ reason }) => reason).filter((reason) =>
      reason === "VolumeGroupFull"
    );
  };
  assertEquals(reasons({ name: "p", size: "1Ti", owned: false, availableVirtual: "900Gi" }), []);
  assertEquals(reasons({ name: "p", size: "1Ti", owned: false, availableVirtual: "0" }), ["VolumeGroupFull"]);
  assertEquals(reasons(), ["VolumeGroupFull"]);
});

Deno.test("volumeProblems(): only of a lost volume nothing is to be deleted before the runbook is read", () => {
  const runbooks = (...conditions: object[]) =>
    volumeProblems(volume(...conditions), "o").map(({ runbook }) => runbook);
  assertEquals(runbooks(condition("Ready", "Lost")), ["lost-volume"]);
  for (const other of [condition("Ready", "Other"), condition("Healthy", "Other")]) {
    assertEquals(runbooks(other), [undefined]);
  }
  assertEquals(runbooks(condition("Ready", "NoSpace")), ["claim-stays-pending"]);
});

Deno.test("snapshotViews() has a logical volume only of a snapshot that has one", () => {
  const of = (status: object) => {
    const snapshot = { metadata: { name: "s" }, spec: { sourceVolume: "v1", nodeName: "n1" }, status };
    const state = { snapshots: [snapshot as unknown as LvmSnapshot], contents: [] } as unknown as ClusterState;
    return "logicalVolume" in snapshotViews(state)[0]!;
  };
  assertEquals([of({ state: "Ready" }), of({ state: "Ready", lvName: "snap-1" })], [false, true]);
});

Deno.test("terminatingProblems() says what keeps a claim, and of a volume what failed since its deletion", () => {
  const finalizers = ["provisioner.storage.kubernetes.io/cloning-protection"];
  const kept = terminatingProblems(stateOf({ claim: { metadata: { name: "data", finalizers } } }), "claim/data");
  assertEquals(kept.map(({ reason, severity }) => [reason, severity]), [["KeptByFinalizers", "info"]]);
  const deleted = { ...volume(), metadata: { name: "v1", deletionTimestamp: "2026-05-01T11:00:00Z" } };
  const failed = (lastTimestamp: string) => {
    const volumeEvents = [{ metadata: { name: "e" }, reason: "Failed", message: "it is odd", lastTimestamp }];
    return terminatingProblems(stateOf({ volume: deleted, volumeEvents }), "claim/data")
      .map(({ reason, object }) => [reason, object]).at(0);
  };
  assertEquals(failed("2026-05-01T11:00:00Z"), ["Failed", "lvmvolume/v1"]);
  assertEquals(failed("2026-05-01T10:59:59Z")?.[0] === "Failed", false);
});

Deno.test("boundProblems(): of a lost volume, or that of a node that was given up, nothing is said of the agent", () => {
  const claim = claimOf({ status: { phase: "Bound" } });
  const reasons = (one: LvmVolume) =>
    boundProblems(stateOf({ claim, volume: one, nodeName: "n1" }), "claim/data").map(({ reason }) => reason);
  assertEquals(reasons(volume()), ["NodeGone"]);
  const lost = volume(condition("Ready", "Lost"));
  assertEquals(reasons(lost), ["Lost"]);
  const metadata = { name: "v1", annotations: { [FORGOTTEN_ANNOTATION]: "x" } };
  assertEquals(reasons({ ...lost, metadata }), ["NodeForgotten"]);
});

Deno.test("boundProblems(): a claim that grows waits for a resizer that holds no Lease", () => {
  const claim = claimOf({
    spec: { resources: { requests: { storage: "2Gi" } } },
    status: { phase: "Bound", capacity: { storage: "1Gi" } },
  });
  const reasons = boundProblems(stateOf({ claim }), "claim/data").map(({ message }) => message);
  assertEquals(reasons.some((message) => message.includes("resizer")), true, reasons.join());
});

Deno.test("boundProblems(): what keeps a claim from growing is said once, whatever its reason", () => {
  const claim = claimOf({
    spec: { resources: { requests: { storage: "2Gi" } } },
    status: { phase: "Bound", capacity: { storage: "1Gi" } },
  });
  const said = "extending vg/lv: the metadata area is full";
  const event = {
    reason: "VolumeResizeFailed",
    message: `resize volume "pv" failed: rpc error: ${said} [MetadataAreaFull]`,
  };
  const claimEvents = [{ metadata: { name: "e" }, ...event }];
  const failed = volume();
  for (const reason of ["NoSpace", "MetadataAreaFull"]) {
    const status = { ...failed.status, error: { code: "NoSpace", reason, message: said } } as LvmVolume["status"];
    const problems = boundProblems(stateOf({ claim, volume: { ...failed, status }, claimEvents }), "claim/data");
    assertEquals(problems.map(({ message }) => message.includes(said)).filter(Boolean), [true], reason);
  }
});

Deno.test("explainClaim() explains a claim that has no status yet", () => {
  assertEquals(explainClaim(stateOf({ claim: claimOf({}) })).facts.some(([label]) => label === "Capacities"), false);
});

Deno.test("readClaimState(): the volume of a claim that is gone is one of the driver, and of its namespace", async () => {
  const pv = (name: string, driver: string, namespace: string) => ({
    metadata: { name },
    spec: { csi: { driver, volumeHandle: name }, claimRef: { namespace, name: "data" } },
  });
  const find = async (...persistentvolumes: object[]) => {
    const at = { driver: "d", namespace: "ns", name: "data", now: NOW };
    return (await readClaimState(clientOf({ persistentvolumes }), at)).persistentVolume?.metadata.name;
  };
  const others = [pv("driver", "other", "ns"), pv("namespace", "d", "other")];
  assertEquals([await find(...others), await find(pv("own", "d", "ns"), ...others)], [undefined, "own"]);
});

Deno.test("readClusterState(): a claim waits for the driver that is Pending, and that the driver was asked for", async () => {
  const claim = (name: string, phase: string, driver: string) => ({
    metadata: { name, annotations: { "volume.kubernetes.io/storage-provisioner": driver } },
    status: { phase },
  });
  const persistentvolumeclaims = [claim("a", "Pending", "d"), claim("b", "Pending", "other"), claim("c", "Bound", "d")];
  const state = await readClusterState(clientOf({ persistentvolumeclaims }), "d", NOW, { withClaims: true });
  assertEquals(state.pendingClaims.map(({ metadata: { name } }) => name), ["a"]);
});

Deno.test("readClusterState() reads what is under way where it is asked for: moves, imports, and claims with their events", async () => {
  const claim = (name: string, storageClassName: string, more: object = {}) => ({
    ...{ metadata: { name }, spec: { storageClassName, ...more }, status: { phase: "Pending" } },
  });
  const ofDriver = (name: string, driverName: string) => ({ metadata: { name }, spec: { driverName } });
  const lists = {
    persistentvolumeclaims: [claim("a", "own"), claim("b", "other"), claim("c", "own", { volumeName: "pv" })],
    storageclasses: [{ metadata: { name: "own" }, provisioner: "d" }, {
      metadata: { name: "other" },
      provisioner: "e",
    }],
    lvmmoves: [ofDriver("m", "d"), ofDriver("n", "e")],
    lvmimports: [ofDriver("i", "d"), ofDriver("j", "e")],
    events: [{ metadata: { name: "e" } }],
  };
  const read = async (of: Readonly<Record<string, readonly object[]>>) => {
    const { work } = await readClusterState(clientOf(of), "d", NOW, { withWork: true });
    const { claims, moves, imports, storageClasses, claimEvents } = work!;
    return [claims, moves, imports, storageClasses, claimEvents]
      .map((objects) => objects.map(({ metadata }) => metadata!.name).join());
  };
  assertEquals(await read(lists), ["a", "m", "i", "own", "e"]);
  assertEquals(await read({ ...lists, persistentvolumeclaims: [] }), ["", "m", "i", "own", ""]); // of no claim, no events
  assertEquals((await readClusterState(clientOf(lists), "d", NOW)).work, undefined);
});

Deno.test("remedyOf() has the commands that a remedy has between backticks, and the remedy without them", () => {
  assertEquals(remedyOf("See `kubectl denolith doctor NODE`, or `kubectl get pods`. Set `previousPassphrase`."), {
    remedy: "See kubectl denolith doctor NODE, or kubectl get pods. Set previousPassphrase.",
    commands: ["kubectl denolith doctor NODE", "kubectl get pods"],
  });
  assertEquals([remedyOf("Wait."), remedyOf(undefined)], [{ remedy: "Wait." }, {}]);
});

Deno.test("heldProblems() finds a volume that nobody has been able to use for five minutes", () => {
  const held = (minutes: number, status = "True", isHeld = true) => {
    const lastTransitionTime = new Date(NOW.getTime() - minutes * 60_000).toISOString();
    const object = volume({ type: "Held", status, reason: "NotInUse", message: "", lastTransitionTime });
    return heldProblems({ ...object, spec: { ...object.spec, held: isHeld } }, "claim/ns/data", NOW);
  };
  assertEquals(held(5).map(({ reason, severity }) => [reason, severity]), [["HeldForLong", "warning"]]);
  assertEquals([held(4.9), held(5, "False"), held(5, "True", false)], [[], [], []]);
  assertEquals(heldProblems(volume(), "claim/ns/data", NOW), []);
});

Deno.test("moveInProgress() says what to do while the agent of either node is away", () => {
  const remedyOf = (absent: string, status: LvmMove["status"] = {}, adopt = false) => {
    const move = { metadata: { name: "v1" }, spec: { sourceNode: "a", targetNode: "b", adopt }, status } as LvmMove;
    const { severity, remedy } = moveInProgress({ move, absentAgents: [absent] }, "claim/ns/data")!;
    assertEquals(severity, "error");
    return remedy!.replace(/^The agent of node . is away. Do not delete the claim. Bring the node back, or /, "");
  };
  const undo = "undo the move: kubectl denolith move CLAIM --cancel";
  const forget = (name: string) => `forget it if it is gone for good: kubectl denolith forget-node ${name}`;
  assertEquals([remedyOf("b", { state: "Copying" }), remedyOf("b", { state: "Holding" })], [undo, undo]);
  assertEquals([remedyOf("b", { removing: true }), remedyOf("b", { state: "Undoing" })], [forget("b"), forget("b")]);
  assertEquals([remedyOf("a", { state: "Copying" }), remedyOf("b", {}, true)], [forget("a"), forget("b")]);
});

Deno.test("readClaimState() finds the agents of a move that are away, and the volumes of a pod's other claims", async () => {
  const { namespace, name, uid } = { namespace: "ns", name: "data", uid: "u" };
  const pv = (id: string, driver = "d") => ({
    metadata: { name: `pv-${id}` },
    spec: { csi: { driver, volumeHandle: id }, claimRef: { namespace, name: id } },
    status: { phase: "Bound" },
  });
  const claim = (id: string) => ({
    metadata: { namespace, name: id, uid },
    spec: { volumeName: `pv-${id}` },
    status: { phase: "Bound" },
  });
  const lv = (id: string, nodeName: string) => ({ metadata: { name: id }, spec: { driverName: "d", nodeName } });
  const used = ["data", "wal", "network", "same", "unbound"].map((claimName) => ({
    name: claimName,
    persistentVolumeClaim: { claimName },
  }));
  const message = "0/2 nodes are available: 2 node(s) had volume node affinity conflict.";
  const pod = {
    metadata: { namespace, name: "db-0" },
    spec: { volumes: used },
    status: {
      phase: "Pending",
      conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }],
    },
  };
  const lists: Record<string, readonly { metadata: { name: string } }[]> = {
    pods: [pod],
    persistentvolumeclaims: ["data", "wal", "network", "same"].map(claim),
    persistentvolumes: [pv("data"), pv("wal"), pv("network", "other"), pv("same")],
    lvmvolumes: [lv("data", "b"), lv("wal", "a"), lv("same", "b")],
    lvmnodes: [
      { metadata: { name: "b" }, spec: { driverName: "d" }, status: { lastUpdateTime: NOW.toISOString() } } as never,
    ],
    lvmmoves: [
      {
        metadata: { name: "data" },
        spec: { driverName: "d", claim: { namespace, name, uid }, sourceNode: "a", targetNode: "b" },
      } as never,
    ],
  };
  const client = {
    list: ({ plural }: { plural: string }) => Promise.resolve({ items: lists[plural] ?? [] }),
    get: ({ plural }: { plural: string }, at: { name: string }) => {
      const found = lists[plural]?.find(({ metadata }) => metadata.name === at.name);
      return found
        ? Promise.resolve(found)
        : Promise.reject(new ApiError("not found", { status: 404, reason: "NotFound" }));
    },
  } as unknown as ApiClient;
  const state = await readClaimState(client, { driver: "d", namespace, name, now: NOW });
  assertEquals(state.absentAgents, ["a"]);
  assertEquals(state.otherClaims, [
    { pod: "db-0", claim: "wal", nodeName: "a" },
    { pod: "db-0", claim: "same", nodeName: "b" },
  ]);
  const [problem] = boundProblems({ ...state, move: undefined }, "claim/ns/data").filter(({ reason }) =>
    reason === "Unschedulable"
  );
  assertEquals(
    problem?.remedy,
    "The volume is on node b, and that of claim wal of the pod on node a. Move one of them: " +
      "kubectl denolith move wal --namespace ns --to b",
  );
});

Deno.test("explainNode() names the space that is being erased", () => {
  const group = { name: "data", size: "10Gi", free: "4Gi", erasing: { volumes: 1, space: "3Gi" } };
  const lvmNode = { metadata: { name: "n1" }, spec: { driverName: "d" }, status: { volumeGroups: [group] } };
  const { facts } = explainNode(
    clusterState({ driver: "d", now: NOW, lvmNodes: [lvmNode as unknown as LvmNode] }),
    "n1",
  )!;
  assertEquals(
    facts.find(([label]) => label === "Group data")?.[1],
    "4 GiB of 10 GiB free, 60% used, 3 GiB being erased",
  );
});

Deno.test("messageProblem() has no commands of a remedy that another one takes the place of", () => {
  const source = {
    chapter: "pending",
    object: "claim/ns/data",
    reason: "Event",
    remedy: "See `kubectl get pods`.",
  } as const;
  assertEquals(messageProblem("no [NoSpace]", source).commands, undefined);
  assertEquals(messageProblem("no", source).commands, ["kubectl get pods"]);
});
