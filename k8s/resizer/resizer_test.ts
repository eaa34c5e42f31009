import { assert, assertEquals } from "@std/assert";
import { DRIVER, FakeControlPlane, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { PRE_RESIZE_CAPACITY_ANNOTATION } from "./resize_plan.ts";
import { Resizer } from "./resizer.ts";

const GiB = 1n << 30n;
const CLAIM = { namespace: "default", name: "data" };

/** Starts a cluster and a resizer, with a claim that is bound to a volume of 1 GiB. */
async function harness({ driver: name = DRIVER, uid = undefined as string | undefined } = {}) {
  const cluster = await FakeControlPlane.start({ withBinder: false });
  const { driver, client } = cluster;
  const claim = cluster.addClaim("data", { volumeName: "v" });
  const capacity = { storage: "1Gi" };
  cluster.api.put(persistentVolumes, {
    metadata: { name: "v" },
    spec: {
      capacity,
      accessModes: ["ReadWriteOnce"],
      mountOptions: ["noatime"],
      csi: { driver: name, volumeHandle: "v1", fsType: "ext4" },
      claimRef: { ...CLAIM, uid: uid ?? claim.metadata.uid! },
    },
    status: { phase: "Bound" },
  });
  driver.volumes.set("v1", { bytes: GiB } as never);
  const setStatus = (status: Partial<PersistentVolumeClaim["status"]>) =>
    client.patch(persistentVolumeClaims, CLAIM, { merge: { status } as never, subresource: "status" });
  await setStatus({ phase: "Bound", capacity });
  const turns: string[] = [];
  const options = {
    ...cluster.controllerOptions(),
    slowRetryMs: 3_600_000,
    nodeOfVolume: (handle: string) => handle === "v1" ? "a" : undefined,
    onReconciled: ({ key }: { key: string }) => void turns.push(key),
  };
  await Promise.all([options.claims.synced, options.volumes.synced]);
  const resizer = new Resizer(options);
  cluster.run((signal) => resizer.run(signal));
  return {
    cluster,
    driver,
    options,
    turns,
    setStatus,
    ask: (storage: string) =>
      client.patch(persistentVolumeClaims, CLAIM, { merge: { spec: { resources: { requests: { storage } } } } }),
    /** Settles when the claim says that the resize is in that state. */
    state: (state: string | undefined) =>
      cluster.claims.waitFor("default/data", (now) => now?.status?.allocatedResourceStatuses?.["storage"] === state, {
        timeoutMs: 5_000,
      }),
    /** Writes what kubelet writes after the filesystem was resized. */
    nodeFinishes: (storage: string) =>
      setStatus({ capacity: { storage }, conditions: [], allocatedResourceStatuses: { storage: null } as never }),
    conditions: () => cluster.storedClaim()?.status?.conditions?.map(({ type }) => type),
    sizes: () => driver.calls.flatMap(({ request }) => "requiredBytes" in request ? [request.requiredBytes / GiB] : []),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("a claim that requests more gets a larger volume, and waits for the node", async () => {
  await using s = await harness();
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  assertEquals(s.conditions(), ["FileSystemResizePending", "Resizing"]);
  const [volume] = s.cluster.storedVolumes;
  assertEquals(volume!.spec!.capacity, { storage: "3Gi" });
  assertEquals(volume!.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION], "1Gi");
  assertEquals(s.cluster.storedClaim()?.status?.capacity, { storage: "1Gi" });
  assertEquals(s.driver.calls.map(({ request }) => request), [{
    volumeId: "v1",
    requiredBytes: 3n * GiB,
    capability: { mode: "SINGLE_NODE_MULTI_WRITER", access: { kind: "mount", fsType: "ext4", flags: ["noatime"] } },
    secrets: {},
  }]);
  await s.cluster.waitForEvent("FileSystemResizeRequired");
  assertEquals(s.cluster.eventReasons(), ["Resizing", "FileSystemResizeRequired"]);
  await s.nodeFinishes("3Gi");
  await waitUntil(
    () => s.cluster.storedVolumes[0]!.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] === undefined,
    "the end",
  );
});

Deno.test("allocatedResources is what the volume got, with and without a filesystem", async () => {
  for (const nodeExpansionRequired of [true, false]) {
    await using s = await harness();
    Object.assign(s.driver, { nodeExpansionRequired, extentBytes: 4n << 20n });
    await s.ask("1500M");
    await s.cluster.waitForEvent(nodeExpansionRequired ? "FileSystemResizeRequired" : "VolumeResizeSuccessful");
    const { status } = s.cluster.storedClaim()!;
    assertEquals(status?.allocatedResources, s.cluster.storedVolumes[0]!.spec!.capacity as never);
    assertEquals(status?.allocatedResources, { storage: "1432Mi" });
  }
});

Deno.test("an expansion that ended below the size of the PersistentVolume is completed", async () => {
  await using s = await harness();
  s.driver.volumes.get("v1")!.bytes = 1432n << 20n;
  const storage = "1500M"; // as kubelet left it, which took allocatedResources for the new size
  await s.ask(storage);
  await s.setStatus({ capacity: { storage }, allocatedResources: { storage } });
  const merge = { spec: { capacity: { storage: "1432Mi" } } };
  await s.cluster.client.patch(persistentVolumes, { name: "v" }, { merge });
  await s.state("NodeResizePending");
  assertEquals(s.cluster.storedClaim()!.status?.allocatedResources, { storage: "1432Mi" });
  await s.nodeFinishes("1432Mi");
  await s.cluster.client.patch(persistentVolumes, { name: "v" }, { merge: { metadata: { labels: { a: "b" } } } });
  await waitUntil(() => s.turns.length > 2, "another turn");
  assertEquals(s.cluster.storedClaim()!.status?.allocatedResourceStatuses, {});
});

Deno.test("an expansion costs four requests, and none are sent while it waits for the node", async () => {
  await using s = await harness();
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  await s.cluster.client.patch(persistentVolumeClaims, CLAIM, { merge: { metadata: { labels: { a: "b" } } } });
  await s.nodeFinishes("3Gi");
  await waitUntil(
    () => s.cluster.storedVolumes[0]!.metadata.annotations?.[PRE_RESIZE_CAPACITY_ANNOTATION] === undefined,
    "the end",
  );
  const [status, volume] = ["namespaces/default/persistentvolumeclaims/data/status", "persistentvolumes/v"];
  assertEquals(s.cluster.requestsOf(), [status, volume, status, volume].map((path) => `PATCH /api/v1/${path}`));
  assertEquals(s.driver.calls.length, 1);
});

Deno.test("the expansion of a volume without a filesystem is complete when the volume is larger", async () => {
  await using s = await harness();
  s.driver.nodeExpansionRequired = false;
  await s.ask("3Gi");
  await s.cluster.waitForEvent("VolumeResizeSuccessful");
  const { status, metadata } = s.cluster.storedClaim()!;
  assertEquals([status?.capacity, status?.conditions], [{ storage: "3Gi" }, []]);
  assertEquals(status?.allocatedResourceStatuses?.["storage"], undefined);
  const writes = s.cluster.api.requests.filter(({ method, path }) => method === "PATCH" && path.endsWith("/v"));
  assertEquals(writes.map(({ body }) => body), [{ spec: { capacity: { storage: "3Gi" } } }]);
  assertEquals(metadata.annotations?.["volume.kubernetes.io/node-expansion-not-required"], "true");
  s.driver.nodeExpansionRequired = true;
  await s.ask("4Gi");
  await s.state("NodeResizePending");
  assertEquals(
    s.cluster.storedClaim()!.metadata.annotations?.["volume.kubernetes.io/node-expansion-not-required"],
    undefined,
  );
});

Deno.test("an infeasible request says so, is not repeated, and is mended by asking for less", async () => {
  await using s = await harness();
  s.driver.maxVolumeBytes = 5n * GiB;
  await s.ask("9Gi");
  await s.state("ControllerResizeInfeasible");
  assertEquals(await s.cluster.waitForEvent("VolumeResizeFailed"), "no space to grow");
  assertEquals(s.conditions(), ["ControllerResizeError", "Resizing"]);
  assertEquals(s.cluster.storedClaim()?.status?.allocatedResources, { storage: "9Gi" });
  await s.ask("4Gi");
  await s.state("NodeResizePending");
  assertEquals(s.sizes(), [9n, 4n]);
  assertEquals(s.conditions(), ["FileSystemResizePending", "Resizing"]);
  assertEquals(s.cluster.storedClaim()?.status?.allocatedResources, { storage: "4Gi" });
});

Deno.test("an infeasible request is tried again when there is said to be more space", async () => {
  await using s = await harness();
  s.driver.maxVolumeBytes = 5n * GiB;
  await s.ask("9Gi");
  await s.state("ControllerResizeInfeasible");
  s.driver.maxVolumeBytes = 10n * GiB;
  await waitUntil(() => {
    s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
    return s.sizes().length > 1;
  }, "another try");
  await s.state("NodeResizePending");
  assertEquals(s.cluster.storedVolumes[0]!.spec!.capacity, { storage: "9Gi" });
});

Deno.test("an expansion without space is tried again only when the node of the volume has enough", async () => {
  await using s = await harness();
  s.driver.maxVolumeBytes = 5n * GiB;
  await s.ask("9Gi");
  await s.state("ControllerResizeInfeasible");
  await waitUntil(() => s.turns.length > 0, "the end of the attempt");
  s.driver.maxVolumeBytes = 10n * GiB;
  s.cluster.wakeUps.wake("space", { nodeName: "b", largestBytes: 1n << 40n });
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 8n * GiB - 1n });
  await new Promise((resolve) => setTimeout(resolve, 1_200));
  assertEquals(s.sizes().length, 1);
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 8n * GiB });
  await s.state("NodeResizePending");
});

Deno.test("an expansion that failed for another reason does not wait for free space", async () => {
  await using s = await harness();
  s.driver.injectFault("expandVolume", { error: new CallError(Code.InvalidArgument, "no") });
  await s.ask("9Gi");
  await s.state("ControllerResizeInfeasible");
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  await new Promise((resolve) => setTimeout(resolve, 1_200));
  assertEquals(s.sizes().length, 1);
});

Deno.test("a failure that may pass is said, and tried again until it does", async () => {
  await using s = await harness();
  for (let n = 0; n < 3; n++) {
    s.driver.injectFault("expandVolume", { error: new CallError(Code.Internal, "lvextend failed") });
  }
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  assertEquals(await s.cluster.waitForEvent("VolumeResizeFailed"), "lvextend failed");
  assertEquals(s.sizes(), [3n, 3n, 3n, 3n]);
});

Deno.test("a failure that does not pass is mended by asking for less", async () => {
  await using s = await harness();
  const expand = s.driver.expandVolume.bind(s.driver);
  s.driver.expandVolume = async (request, options) => {
    if (request.requiredBytes > 5n * GiB) throw new CallError(Code.Internal, "lvextend failed");
    return await expand(request, options);
  };
  await s.ask("9Gi");
  await s.cluster.waitForEvent("VolumeResizeFailed");
  await s.ask("4Gi");
  await s.state("NodeResizePending");
  assertEquals(s.cluster.storedVolumes[0]!.spec!.capacity, { storage: "4Gi" });
});

Deno.test("when a result is uncertain, the started resize is finished first, whatever is requested meanwhile", async () => {
  await using s = await harness();
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("expandVolume", { error: new CallError(Code.DeadlineExceeded, "?"), waitFor: gate.promise });
  const called = s.driver.waitForCall("expandVolume");
  await s.ask("5Gi");
  await called;
  await s.ask("3Gi");
  gate.resolve();
  await s.state("NodeResizePending");
  assertEquals(s.sizes(), [5n, 5n]);
  assertEquals(s.cluster.storedVolumes[0]!.spec!.capacity, { storage: "5Gi" });
});

Deno.test("a second expansion waits until the node has completed the first", async () => {
  await using s = await harness();
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  await s.ask("5Gi");
  await s.options.claims.waitFor("default/data", (now) => now?.spec?.resources?.requests?.["storage"] === "5Gi");
  await s.nodeFinishes("3Gi");
  await waitUntil(() => s.sizes().length === 2, "the second resize");
  assertEquals(s.sizes(), [3n, 5n]);
});

Deno.test("a node that could not has the call repeated, so that it may try again", async () => {
  await using s = await harness();
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  await s.setStatus({ allocatedResourceStatuses: { storage: "NodeResizeInfeasible" } });
  await waitUntil(() => s.sizes().length === 2, "the repetition");
  await s.state("NodeResizePending");
  assertEquals(s.sizes(), [3n, 3n]);
});

Deno.test("a restart after the volume grew goes on to the node, by a call that changes nothing", async () => {
  await using s = await harness();
  await s.cluster.client.patch(persistentVolumes, { name: "v" }, { merge: { spec: { capacity: { storage: "3Gi" } } } });
  await s.options.volumes.waitFor("v", (volume) => volume?.spec?.capacity?.["storage"] === "3Gi");
  s.driver.volumes.get("v1")!.bytes = 3n * GiB;
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  assertEquals([s.driver.volumes.get("v1")!.bytes, s.sizes()], [3n * GiB, [3n]]);
});

Deno.test("a status that others change at the same time is written all the same", async () => {
  await using s = await harness();
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("expandVolume", { waitFor: gate.promise });
  const called = s.driver.waitForCall("expandVolume");
  await s.ask("3Gi");
  await called;
  await s.setStatus({ conditions: [{ type: "Other", status: "True" }] });
  gate.resolve();
  await s.state("NodeResizePending");
  assert(s.conditions()!.includes("Other"));
  assertEquals(s.sizes(), [3n]);
});

Deno.test("an API server that is away for a while delays a resize, and loses nothing", async () => {
  await using s = await harness();
  const gate = Promise.withResolvers<void>();
  s.driver.injectFault("expandVolume", { waitFor: gate.promise });
  const called = s.driver.waitForCall("expandVolume");
  await s.ask("3Gi");
  await called;
  s.cluster.api.faults.refuse = { status: 500, times: 4 };
  gate.resolve();
  await s.state("NodeResizePending");
  assertEquals(s.cluster.storedVolumes[0]!.spec!.capacity, { storage: "3Gi" });
});

for (
  const [whose, options] of [
    ["another driver", { driver: "other.example" }],
    ["another claim", { uid: crypto.randomUUID() }],
  ] as const
) {
  Deno.test(`a volume of ${whose} is left alone`, async () => {
    await using s = await harness(options);
    await s.ask("3Gi");
    await waitUntil(() => s.turns.length > 0, "a look at it");
    assertEquals([s.driver.calls, s.cluster.requestsOf()], [[], []]);
  });
}

Deno.test("two resizers at once give a volume its size, and the claim its state", async () => {
  await using s = await harness();
  const other = new Resizer(s.cluster.controllerOptions("other"));
  s.cluster.run((signal) => other.run(signal));
  for (const size of ["2Gi", "3Gi", "4Gi"]) {
    await s.ask(size);
    await s.cluster.claims.waitFor(
      "default/data",
      ({ status } = { metadata: { name: "" } }) =>
        status?.allocatedResourceStatuses?.["storage"] === "NodeResizePending" &&
        status.allocatedResources?.["storage"] === size,
      { timeoutMs: 5_000 },
    );
    await s.nodeFinishes(size);
  }
  assertEquals(s.cluster.storedVolumes[0]!.spec!.capacity, { storage: "4Gi" });
});

Deno.test("a claim that asks for more is expanded when its PersistentVolume appears", async () => {
  await using s = await harness();
  const [volume] = s.cluster.storedVolumes;
  await s.cluster.client.delete(persistentVolumes, { name: "v" });
  await s.options.volumes.waitFor("v", (now) => now === undefined, { timeoutMs: 5_000 });
  await s.ask("3Gi");
  await waitUntil(() => s.turns.length > 0, "a look at the claim");
  s.cluster.api.put(persistentVolumes, { metadata: { name: "v" }, spec: volume!.spec! });
  await s.state("NodeResizePending");
});

Deno.test("a volume without a claim is not reconciled, even with the capacity of an unfinished expansion", async () => {
  await using s = await harness();
  s.cluster.api.put(persistentVolumes, {
    metadata: { name: "free", annotations: { [PRE_RESIZE_CAPACITY_ANNOTATION]: "1Gi" } },
    spec: { csi: { driver: DRIVER, volumeHandle: "f" } },
  });
  await s.options.volumes.waitFor("free", (now) => now !== undefined, { timeoutMs: 5_000 });
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  await waitUntil(() => s.turns.length > 0, "a reconcile attempt");
  assertEquals(new Set(s.turns), new Set(["default/data"]));
});

for (const seen of ["seen", "missed by a watch"]) {
  Deno.test(`a claim that is made again is not slowed by an earlier one of its name, whose end is ${seen}`, async () => {
    await using s = await harness();
    const { api } = s.cluster;
    s.driver.maxVolumeBytes = 5n * GiB;
    await s.ask("9Gi");
    await s.state("ControllerResizeInfeasible");
    const { spec, status } = s.cluster.storedClaim()!;
    if (seen !== "seen") {
      api.faults.refuse = { status: 500, times: 1_000 };
      api.endWatches();
    }
    api.collection(persistentVolumeClaims).delete(CLAIM, {});
    if (seen === "seen") {
      await s.options.claims.waitFor("default/data", (now) => now === undefined, { timeoutMs: 5_000 });
    }
    const { metadata: { uid } } = api.put(persistentVolumeClaims, {
      metadata: { ...CLAIM },
      spec: spec!,
      status: status!,
    });
    api.compact();
    api.faults.refuse.times = 0;
    await s.cluster.client.patch(persistentVolumes, { name: "v" }, { merge: { spec: { claimRef: { uid } } } as never });
    await waitUntil(() => s.sizes().length > 1, "another try");
    assertEquals(s.sizes(), [9n, 9n]);
  });
}

Deno.test("after an expansion, the resizer waits until its cache shows that the earlier capacity is gone", async () => {
  await using s = await harness();
  const { volumes } = s.options;
  const annotated = { metadata: { name: "v", annotations: { [PRE_RESIZE_CAPACITY_ANNOTATION]: "1Gi" } } };
  const accepted: boolean[][] = [];
  const waitForCache = volumes.waitForCache.bind(volumes);
  volumes.waitForCache = async (key, isObserved, options) => {
    await waitForCache(key, isObserved, options);
    accepted.push([annotated, volumes.get(key), undefined].map(isObserved));
  };
  await s.ask("3Gi");
  await s.state("NodeResizePending");
  await s.nodeFinishes("3Gi");
  await waitUntil(() => accepted.length > 1, "both writes of the volume");
  assertEquals(accepted, [[false, true, true], [false, true, true]]);
});
