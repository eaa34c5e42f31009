import { assertEquals, assertMatch } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { FakeControlPlane, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { hangingClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { SELECTED_NODE_ANNOTATION, selectedNodeOf, volumeNameOf } from "./claim.ts";
import { Provisioner } from "./provisioner.ts";

/** Starts a cluster and a provisioner. */
async function harness() {
  const cluster = await FakeControlPlane.start();
  const options = cluster.controllerOptions();
  const provisioner = new Provisioner(options);
  cluster.run((signal) => provisioner.run(signal));
  return {
    ...{ cluster, driver: cluster.driver },
    provisionerClaims: options.claims,
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

const withSelectedNode = (node: string) => ({ annotations: { [SELECTED_NODE_ANNOTATION]: node } });

Deno.test("a provisioner that ends does not wait for its PersistentVolume", async () => {
  await using cluster = await FakeControlPlane.start();
  const hanging = hangingClient(cluster.controllerOptions().client, "create persistentvolumes");
  const provisioner = new Provisioner({ ...cluster.controllerOptions(), client: hanging.client });
  const stop = cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim();
  await hanging.asked;
  const stopped = stop();
  assertEquals(await hanging.ended, "aborted");
  await stopped;
});

Deno.test("a volume whose size the driver does not tell has that of its claim", async () => {
  await using s = await harness();
  const { createVolume } = s.driver;
  s.driver.createVolume = async (request, options) => {
    return { ...await createVolume.call(s.driver, request, options), capacityBytes: 0n };
  };
  s.cluster.addClaim();
  await s.cluster.waitForBound();
  assertEquals(s.cluster.storedVolumes[0]!.spec!.capacity, { storage: "1Gi" });
});

Deno.test("another operation that a volume waits for is said once, and is no failure", async () => {
  await using s = await harness();
  for (const done of ["1", "2"]) {
    s.driver.injectFault("createVolume", { error: new CallError(Code.Aborted, `${done} MiB copied`) });
  }
  s.cluster.addClaim();
  assertEquals(await s.cluster.waitForEvent("Provisioning"), "1 MiB copied");
  await s.cluster.waitForBound();
  await s.cluster.waitForEvent("ProvisioningSucceeded");
  assertEquals(s.cluster.eventReasons(), ["Provisioning", "ProvisioningSucceeded"]);
});

Deno.test("a volume that is created within five seconds is not announced, and a slower one is, once", async () => {
  await using cluster = await FakeControlPlane.start();
  const clock = new FakeClock();
  const { createVolume } = cluster.driver;
  const [asked, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  cluster.driver.createVolume = async (request, options) => {
    asked.resolve();
    await gate.promise;
    return await createVolume.call(cluster.driver, request, options);
  };
  const provisioner = new Provisioner({ ...cluster.controllerOptions(), clock });
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim();
  await asked.promise;
  await clock.advance(4_900);
  assertEquals(cluster.eventReasons(), []);
  await clock.advance(100);
  assertMatch(await cluster.waitForEvent("Provisioning"), /is creating a volume for claim default\/data/);
  gate.resolve();
  await cluster.waitForBound();
  await cluster.waitForEvent("ProvisioningSucceeded");
  cluster.addClaim("quick");
  await cluster.waitForBound("quick");
  const done = ["Provisioning", "ProvisioningSucceeded", "ProvisioningSucceeded"];
  await waitUntil(() => cluster.eventReasons().length === done.length, "the last event");
  await clock.advance(60_000);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assertEquals(cluster.eventReasons(), done);
});

Deno.test("a node that the scheduler has chosen meanwhile is kept when the one before had no space", async () => {
  await using s = await harness();
  const refusal = Promise.withResolvers<void>();
  const error = new CallError(Code.ResourceExhausted, "vg is full");
  s.driver.injectFault("createVolume", { error, waitFor: refusal.promise });
  const asked = s.driver.waitForCall("createVolume");
  s.cluster.addClaim("data", { storageClassName: "later" }, withSelectedNode("a"));
  await asked;
  const at = { namespace: "default", name: "data" };
  await s.cluster.client.patch(persistentVolumeClaims, at, { merge: { metadata: withSelectedNode("b") } });
  const selections = new Set<string | undefined>();
  s.cluster.claims.subscribe((_, now) => selections.add(now && selectedNodeOf(now)));
  await s.provisionerClaims.waitFor("default/data", (now) => now !== undefined && selectedNodeOf(now) === "b");
  refusal.resolve();
  await s.cluster.waitForBound();
  assertEquals([...selections], ["b"]);
});

Deno.test("a claim whose node was changed between two tries is created on the new one when the old one has no space", async () => {
  await using s = await harness();
  const refusal = Promise.withResolvers<void>();
  s.driver.injectFault("createVolume", { error: new CallError(Code.Unavailable, "no answer") });
  s.driver.injectFault("createVolume", {
    error: new CallError(Code.Unavailable, "no answer"),
    waitFor: refusal.promise,
  });
  s.driver.injectFault("createVolume", { error: new CallError(Code.Unavailable, "no answer") });
  s.driver.injectFault("createVolume", { error: new CallError(Code.ResourceExhausted, "node a is silent") });
  const asked = s.driver.waitForCall("createVolume").then(() => s.driver.waitForCall("createVolume"));
  s.cluster.addClaim("data", { storageClassName: "later" }, withSelectedNode("a"));
  await asked;
  const at = { namespace: "default", name: "data" };
  await s.cluster.client.patch(persistentVolumeClaims, at, { merge: { metadata: withSelectedNode("b") } });
  await s.provisionerClaims.waitFor("default/data", (now) => now !== undefined && selectedNodeOf(now) === "b");
  refusal.resolve();
  await s.cluster.waitForBound();
  assertEquals([...s.driver.volumes.values()][0]!.request.topology.requisite, [{ [TOPOLOGY_KEY]: "b" }]);
});

Deno.test("after a restart, the node of the recorded request is the one without space, not the claim's", async () => {
  await using cluster = await FakeControlPlane.start();
  const waits: unknown[] = [];
  const { driver } = cluster;
  driver.injectFault("createVolume", { error: new CallError(Code.ResourceExhausted, "vg is full") });
  const only = [{ [TOPOLOGY_KEY]: "a" }];
  const claim = cluster.addClaim("data", { storageClassName: "later" }, withSelectedNode("b"));
  const requestName = volumeNameOf(claim.metadata.uid!);
  const spec = { topology: { requisite: only, preferred: only } };
  driver.intents.set(requestName, { requestName, volumeId: volumeIdOf(requestName), pending: true, spec });
  const provisioner = new Provisioner({
    ...cluster.controllerOptions(),
    waitForCapacityBelow: (key) => Promise.resolve(void waits.push(key.nodeName)),
  });
  cluster.run((signal) => provisioner.run(signal));
  const selections = new Set<string | undefined>();
  cluster.claims.subscribe((_, now) => selections.add(now && selectedNodeOf(now)));
  await cluster.waitForBound();
  assertEquals([waits, [...selections]], [["a"], ["b"]]);
});

Deno.test("a PersistentVolume without a spec holds nothing up", async () => {
  await using s = await harness();
  s.cluster.api.put(persistentVolumes, { metadata: { name: "odd" } });
  await s.cluster.volumes.waitFor("odd", (volume) => volume !== undefined, { timeoutMs: 5_000 });
  s.cluster.addClaim();
  await s.cluster.waitForBound();
});
