import { assertEquals, assertMatch } from "@std/assert";
import { FakeControlPlane, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { SELECTED_NODE_ANNOTATION, selectedNodeOf } from "./claim.ts";
import { ApiError } from "../client/client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { csiNodes, nodes, persistentVolumeClaims, storageClasses } from "../api/objects.ts";
import type { ReconcileResult } from "../runtime/controller.ts";
import { Provisioner } from "./provisioner.ts";

/** Starts a cluster and a provisioner. */
async function harness() {
  const cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  return {
    cluster,
    driver: cluster.driver,
    stop,
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

const withSelectedNode = (node: string) => ({ annotations: { [SELECTED_NODE_ANNOTATION]: node } });

/** Starts a provisioner with a fake clock, and a claim of the class `odd` that has failed for long. */
async function harnessAfterFailures(error: CallError) {
  const cluster = await FakeControlPlane.start();
  const clock = new FakeClock();
  const options = { ...cluster.controllerOptions(), clock, backoff: { startMs: 1_000, capMs: 300_000 } };
  const provisioner = new Provisioner(options);
  cluster.run((signal) => provisioner.run(signal));
  cluster.addStorageClass("odd", { volumeBindingMode: "Immediate" });
  for (let n = 0; n < 6; n++) cluster.driver.injectFault("createVolume", { error });
  cluster.addClaim("data", { storageClassName: "odd" });
  await waitUntil(() => cluster.driver.callCount("createVolume") === 1);
  await waitUntil(async () => {
    await clock.advance(500);
    return cluster.driver.callCount("createVolume") >= 6;
  });
  // The next turn would come in half a minute.
  return { cluster, clock, options, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() };
}

Deno.test("a claim that failed for long is tried again within a second of a change of its class", async () => {
  await using s = await harnessAfterFailures(new CallError(Code.InvalidArgument, "no"));
  await s.cluster.remove(storageClasses, { name: "odd" });
  s.cluster.addStorageClass("odd", { volumeBindingMode: "Immediate", parameters: { stripes: "2" } });
  await s.options.classes.waitFor("odd", (now) => now?.parameters !== undefined);
  await s.clock.advance(1_000);
  await s.cluster.waitForBound();
});

Deno.test("a claim that failed for lack of space is retried within a second after space became free", async () => {
  await using s = await harnessAfterFailures(new CallError(Code.ResourceExhausted, "full"));
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  await s.clock.advance(1_000);
  await s.cluster.waitForBound();
});

Deno.test("a claim that failed for another reason does not care for more space", async () => {
  await using s = await harnessAfterFailures(new CallError(Code.InvalidArgument, "no"));
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  await s.clock.advance(1_000);
  assertEquals(s.cluster.driver.callCount("createVolume"), 6);
});

Deno.test("a claim that waits for a pod is served when its class is made again, and does not ask for that any more", async () => {
  await using cluster = await FakeControlPlane.start();
  const options = cluster.controllerOptions();
  const provisioner = new Provisioner(options);
  cluster.run((signal) => provisioner.run(signal));
  cluster.addStorageClass("odd", { volumeBindingMode: "WaitForFirstConsumer" });
  await options.classes.waitFor("odd", (now) => now !== undefined);
  cluster.addClaim("data", { storageClassName: "odd" });
  await options.claims.waitFor("default/data", (now) => now !== undefined);
  await new Promise((resolve) => setTimeout(resolve, 100)); // nobody says that it waits
  await cluster.remove(storageClasses, { name: "odd" });
  cluster.addStorageClass("odd", { volumeBindingMode: "Immediate" });
  await cluster.waitForBound();
});

Deno.test("a claim of a broken class says what is wrong, and is served as soon as the class is mended", async () => {
  await using s = await harness();
  s.cluster.addStorageClass("broken", {
    volumeBindingMode: "Immediate",
    parameters: { "csi.storage.k8s.io/fstipe": "ext4" },
  });
  s.cluster.addClaim("data", { storageClassName: "broken" });
  assertMatch(await s.cluster.waitForEvent("ProvisioningFailed"), /fstipe: there is no such key/);
  await s.cluster.remove(storageClasses, { name: "broken" });
  s.cluster.addStorageClass("broken", {
    volumeBindingMode: "Immediate",
    parameters: { "csi.storage.k8s.io/fstype": "xfs" },
  });
  await s.cluster.waitForBound();
  assertEquals(s.driver.callCount("createVolume"), 1);
  assertEquals(s.cluster.storedVolumes[0]!.spec!.csi!.fsType, "xfs");
});

Deno.test("a refusal by the driver is reported with its reason, and the request repeated with the class as it is then", async () => {
  await using s = await harness();
  s.cluster.addStorageClass("odd", { volumeBindingMode: "Immediate", parameters: { stripes: "9" } });
  const refusal = { error: new CallError(Code.InvalidArgument, "stripes 9: too many") };
  for (let n = 0; n < 100; n++) s.driver.injectFault("createVolume", refusal);
  s.cluster.addClaim("data", { storageClassName: "odd" });
  assertEquals(await s.cluster.waitForEvent("ProvisioningFailed"), "stripes 9: too many");
  await s.cluster.remove(storageClasses, { name: "odd" });
  s.driver.clearFaults();
  s.cluster.addStorageClass("odd", { volumeBindingMode: "Immediate", parameters: { stripes: "2" } });
  await s.cluster.waitForBound();
  assertEquals([...s.driver.volumes.values()][0]!.request.parameters, { stripes: "2" });
});

for (
  const [what, error] of [
    ["Canceled", new CallError(Code.Canceled, "?")],
    ["DeadlineExceeded", new CallError(Code.DeadlineExceeded, "?")],
    ["Unavailable", new CallError(Code.Unavailable, "?")],
    ["Aborted", new CallError(Code.Aborted, "?")],
    ["no code at all", new TypeError("?")],
  ] as const
) {
  Deno.test(`after ${what} the very same request is repeated, whatever happened to class and node`, async () => {
    await using s = await harness();
    const { promise, resolve } = Promise.withResolvers<void>();
    s.driver.injectFault("createVolume", { error, waitFor: promise });
    const called = s.driver.waitForCall("createVolume");
    s.cluster.addStorageClass("moves", { volumeBindingMode: "WaitForFirstConsumer", parameters: { a: "1" } });
    s.cluster.addClaim("data", { storageClassName: "moves" }, withSelectedNode("a"));
    await called;
    await s.cluster.remove(storageClasses, { name: "moves" });
    s.cluster.addStorageClass("moves", { volumeBindingMode: "WaitForFirstConsumer", parameters: { a: "2" } });
    const merge = { metadata: withSelectedNode("b") };
    await s.cluster.client.patch(persistentVolumeClaims, { namespace: "default", name: "data" }, { merge });
    resolve();
    await s.cluster.waitForBound();
    const [first, second] = s.driver.calls.map(({ request }) => request);
    assertEquals(first, second);
    assertEquals(s.driver.callCount("createVolume"), 2);
  });
}

Deno.test("after a restart, an uncertain request continues as recorded, not as the class is now", async () => {
  await using cluster = await FakeControlPlane.start();
  const { driver } = cluster;
  cluster.addStorageClass("moves", { volumeBindingMode: "Immediate", parameters: { a: "1" } });
  const first = new Provisioner(cluster.controllerOptions("first"));
  const stop = cluster.run((signal) => first.run(signal));
  const gate = Promise.withResolvers<void>();
  driver.injectFault("createVolume", {
    error: new CallError(Code.Unavailable, "the process ends"),
    waitFor: gate.promise,
  });
  const called = driver.waitForCall("createVolume");
  cluster.addClaim("data", { storageClassName: "moves" });
  await called;
  const stopped = stop();
  gate.resolve();
  await stopped;
  await cluster.remove(storageClasses, { name: "moves" });
  cluster.addStorageClass("moves", { volumeBindingMode: "Immediate", parameters: { a: "2" } });
  const second = new Provisioner(cluster.controllerOptions("second"));
  cluster.run((signal) => second.run(signal));
  await cluster.waitForBound();
  assertEquals([...driver.volumes.values()].map(({ request }) => request.parameters), [{ a: "1" }]);
});

Deno.test("without space on the chosen node the choice is taken back, and the scheduler's next one is served", async () => {
  await using s = await harness();
  s.driver.injectFault("createVolume", { error: new CallError(Code.ResourceExhausted, "vg is full") });
  s.cluster.addClaim("data", { storageClassName: "later" }, withSelectedNode("a"));
  const claim = await s.cluster.claims.waitFor("default/data", (now) => now !== undefined && !selectedNodeOf(now), {
    timeoutMs: 5_000,
  });
  assertEquals(await s.cluster.waitForEvent("ProvisioningFailed"), "vg is full");
  assertEquals([s.driver.intents.size, claim!.metadata.annotations?.[SELECTED_NODE_ANNOTATION]], [0, undefined]);
  const merge = { metadata: withSelectedNode("b") };
  await s.cluster.client.patch(persistentVolumeClaims, { namespace: "default", name: "data" }, { merge });
  await s.cluster.waitForBound();
  assertEquals([...s.driver.volumes.values()][0]!.request.topology.requisite, [{ [TOPOLOGY_KEY]: "b" }]);
});

Deno.test("the selected node is withdrawn when the scheduler knows that it has no free capacity, not before", async () => {
  await using cluster = await FakeControlPlane.start();
  const correction = Promise.withResolvers<void>();
  const waits: unknown[] = [];
  const provisioner = new Provisioner({
    ...cluster.controllerOptions(),
    waitForCapacityBelow: (key, bytes, { timeoutMs }) => {
      waits.push([key, bytes, timeoutMs]);
      return correction.promise;
    },
  });
  cluster.run((signal) => provisioner.run(signal));
  cluster.driver.injectFault("createVolume", { error: new CallError(Code.ResourceExhausted, "vg is full") });
  cluster.addClaim("data", { storageClassName: "later" }, withSelectedNode("a"));
  await cluster.waitForEvent("ProvisioningFailed");
  await waitUntil(() => waits.length > 0, "the question");
  assertEquals(waits, [[{ nodeName: "a", className: "later" }, 1n << 30n, 5_000]]);
  assertEquals(selectedNodeOf(cluster.storedClaim()!), "a");
  correction.resolve();
  await waitUntil(() => selectedNodeOf(cluster.storedClaim()!) === undefined, "the choice to be taken back");
});

Deno.test("a chosen node without the driver is given back to the scheduler, with an event", async () => {
  await using s = await harness();
  s.cluster.addNode("c", { driver: false });
  s.cluster.addClaim("data", { storageClassName: "later" }, withSelectedNode("c"));
  await s.cluster.claims.waitFor("default/data", (now) => now !== undefined && !selectedNodeOf(now), {
    timeoutMs: 5_000,
  });
  assertMatch(await s.cluster.waitForEvent("ProvisioningFailed"), /node c: lvm.denolith.dev is not registered there/);
  assertEquals(s.driver.calls, []);
});

Deno.test("without space anywhere the claim waits, and is served when there is said to be more", async () => {
  await using s = await harness();
  s.driver.maxVolumeBytes = 1n << 20n;
  s.cluster.addClaim();
  assertEquals(await s.cluster.waitForEvent("ProvisioningFailed"), "no space");
  assertEquals(s.cluster.storedClaim()?.status?.phase, "Pending");
  s.driver.maxVolumeBytes = 1n << 40n;
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 50n });
  await s.cluster.waitForBound();
});

Deno.test("where the driver is on no node the claim waits for the first", async () => {
  await using s = await harness();
  for (const name of ["a", "b"]) await s.cluster.remove(csiNodes, { name });
  await waitUntil(() => s.cluster.api.objects(csiNodes).length === 0);
  s.cluster.addStorageClass("c-only", {
    volumeBindingMode: "Immediate",
    allowedTopologies: [{ matchLabelExpressions: [{ key: "zone", values: ["c"] }] }],
  });
  s.cluster.addClaim("data", { storageClassName: "c-only" });
  await s.cluster.waitForEvent("ProvisioningFailed");
  s.cluster.addNode("c", { labels: { zone: "c" } });
  await s.cluster.waitForBound();
  assertEquals([...s.driver.volumes.values()][0]!.request.topology.requisite, [{ [TOPOLOGY_KEY]: "c" }]);
});

Deno.test("a volume that is too small is deleted, and created again", async () => {
  await using s = await harness();
  const { createVolume } = s.driver;
  let first = true;
  s.driver.createVolume = async (request, options) => {
    const created = await createVolume.call(s.driver, request, options);
    const capacityBytes = first ? 1n : created.capacityBytes;
    first = false;
    return { ...created, capacityBytes };
  };
  s.cluster.addClaim();
  await s.cluster.waitForBound();
  assertMatch(await s.cluster.waitForEvent("ProvisioningFailed"), /made with 1 of 1073741824 bytes/);
  assertEquals(s.driver.calls.map(({ call }) => call), ["createVolume", "deleteVolume", "createVolume"]);
});

Deno.test("an API server that is away for a while delays the PersistentVolume, and costs no second volume", async () => {
  await using s = await harness();
  const { promise, resolve } = Promise.withResolvers<void>();
  s.driver.injectFault("createVolume", { waitFor: promise });
  const called = s.driver.waitForCall("createVolume");
  s.cluster.addClaim();
  await called;
  s.cluster.api.faults.refuse = { status: 500, times: 5 };
  resolve();
  await s.cluster.waitForBound();
  assertEquals(s.driver.calls.map(({ call }) => call), ["createVolume"]);
});

Deno.test("after repeated refusals of its PersistentVolume, a volume is deleted, and provisioning starts again", async () => {
  await using cluster = await FakeControlPlane.start();
  let refusals = 7;
  let refusalsBeforeDeletion = 0;
  const provisioner = new Provisioner(
    cluster.controllerOptions("loop", (client) =>
      interceptClient(client, (request, when) => {
        if (request !== "create persistentvolumes" || when === "after" || refusals-- <= 0) return Promise.resolve();
        if (cluster.driver.callCount("deleteVolume") === 0) refusalsBeforeDeletion++;
        return Promise.reject(new ApiError("refused by a webhook", { status: 403, reason: "Forbidden" }));
      })),
  );
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim();
  await cluster.waitForBound();
  assertEquals(await cluster.waitForEvent("ProvisioningFailed"), "refused by a webhook");
  assertEquals(cluster.driver.calls.map(({ call }) => call), ["createVolume", "deleteVolume", "createVolume"]);
  assertEquals(refusalsBeforeDeletion, 5);
});

Deno.test("a claim whose secret cannot be read has an event with the remedy, and gets its volume once it can", async () => {
  await using cluster = await FakeControlPlane.start();
  cluster.addClassWithSecret({ name: "key", namespace: "team" });
  let refusals = 2;
  const provisioner = new Provisioner(
    cluster.controllerOptions("loop", (client) =>
      interceptClient(client, (request, when) => {
        if (request !== "get secrets" || when === "after" || refusals-- <= 0) return Promise.resolve();
        return Promise.reject(new ApiError("get secrets team/key: forbidden", { status: 403, reason: "Forbidden" }));
      })),
  );
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim("data", { storageClassName: "locked" });
  await cluster.waitForBound();
  assertMatch(
    await cluster.waitForEvent("ProvisioningFailed"),
    /^get secrets team\/key: forbidden\. .* Role in namespace team /,
  );
  assertEquals(cluster.requestsOf().filter((line) => line.includes("secrets")), [
    "GET /api/v1/namespaces/team/secrets/key",
  ]);
});

/** A provisioner with a fake clock, and a claim that found no space on the nodes that its class allows, if there are any. */
async function harnessWithoutSpace(zone = "c") {
  const cluster = await FakeControlPlane.start();
  cluster.addNode("c", { labels: { zone: "c" } });
  const clock = new FakeClock();
  const options = {
    ...{ ...cluster.controllerOptions(), clock, backoff: { startMs: 1_000, capMs: 300_000 } },
    onReconciled: ({ controller }: ReconcileResult) => void (controller === "provisioner" && reconciled++),
  };
  await options.nodes.waitFor("c", (node) => node !== undefined);
  const provisioner = new Provisioner(options);
  cluster.run((signal) => provisioner.run(signal));
  const allowedTopologies = [{ matchLabelExpressions: [{ key: "zone", values: [zone] }] }];
  let reconciled = 0;
  cluster.addStorageClass("c-only", { volumeBindingMode: "Immediate", allowedTopologies });
  cluster.driver.maxVolumeBytes = 1n;
  cluster.addClaim("data", { storageClassName: "c-only" });
  const tries = () => reconciled;
  await waitUntil(async () => {
    await clock.advance(500);
    return tries() >= 6;
  });
  await waitUntil(() => clock.msUntilNextTimer > 10_000, "a long delay");
  return { cluster, clock, options, tries, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() };
}

Deno.test("a claim without space is tried again only when a node that it may be on has enough", async () => {
  await using s = await harnessWithoutSpace();
  for (const [nodeName, largestBytes] of [["a", 1n << 40n], ["c", (1n << 30n) - 1n]] as const) {
    s.cluster.wakeUps.wake("space", { nodeName, largestBytes });
    await s.clock.advance(5_000);
    assertEquals(s.tries(), 6, `node ${nodeName}`);
  }
  s.cluster.wakeUps.wake("space", { nodeName: "c", largestBytes: 1n << 30n });
  await s.clock.advance(1_000);
  await waitUntil(() => s.tries() === 7, "another attempt");
});

Deno.test("a claim that was woken and found no space again waits longer after the next wake-up", async () => {
  await using s = await harnessWithoutSpace();
  const growth = { nodeName: "c", largestBytes: 1n << 40n };
  s.cluster.wakeUps.wake("space", growth);
  await s.clock.advance(1_000);
  await waitUntil(() => s.tries() === 7 && s.clock.msUntilNextTimer > 10_000, "another attempt");
  s.cluster.wakeUps.wake("unreserved", growth);
  await s.clock.advance(1_999);
  assertEquals(s.tries(), 7);
  await s.clock.advance(1);
  await waitUntil(() => s.tries() === 8, "another attempt");
});

for (const zone of ["c", "d"]) { // no space on the node of zone c, no node in zone d
  Deno.test(`a claim that failed is tried again when a node may help, and not at other changes: zone ${zone}`, async () => {
    await using s = await harnessWithoutSpace(zone);
    const { client } = s.cluster;
    const delayMs = s.clock.msUntilNextTimer;
    const seen = { merge: { metadata: { annotations: { seen: "now" } } } };
    const { metadata: { resourceVersion } } = await client.patch(csiNodes, { name: "a" }, seen);
    await s.options.csiNodes.waitFor("a", (node) => node?.metadata.resourceVersion === resourceVersion);
    assertEquals(s.clock.msUntilNextTimer, delayMs, "a CSINode that had the driver before");
    const label = async (labels: Record<string, string>) => {
      const { metadata } = await client.patch(nodes, { name: "a" }, { merge: { metadata: { labels } } });
      await s.options.nodes.waitFor("a", (node) => node?.metadata.resourceVersion === metadata.resourceVersion);
    };
    await label({ "nvidia.com/gfd.timestamp": "1" });
    assertEquals(s.clock.msUntilNextTimer, delayMs, "a label that decides nothing");
    await label({ zone });
    assertEquals(s.clock.msUntilNextTimer, 1_000, "a label in the allowedTopologies of the class");
  });
}

Deno.test("a claim that failed is tried again when a node registers the driver", async () => {
  await using s = await harnessWithoutSpace("c");
  s.cluster.addNode("e");
  await s.options.csiNodes.waitFor("e", (node) => node !== undefined);
  assertEquals(s.clock.msUntilNextTimer, 1_000);
});

Deno.test("a claim that the driver refuses is not tried again when nodes change", async () => {
  await using s = await harnessAfterFailures(new CallError(Code.InvalidArgument, "no"));
  await waitUntil(() => s.clock.msUntilNextTimer > 10_000, "a long delay");
  const delayMs = s.clock.msUntilNextTimer;
  s.cluster.addNode("e");
  await s.options.csiNodes.waitFor("e", (node) => node !== undefined);
  assertEquals(s.clock.msUntilNextTimer, delayMs);
});
