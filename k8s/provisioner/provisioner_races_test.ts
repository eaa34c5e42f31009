import { assertEquals, assertMatch } from "@std/assert";
import { FakeControlPlane, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { ApiError } from "../client/client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { nodes, type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { Provisioner } from "./provisioner.ts";

const CLAIM = { namespace: "default", name: "data" };

/** Returns everything that a claim could leave behind. */
function remainingObjects({ driver, storedVolumes }: FakeControlPlane) {
  return { volumes: driver.volumes.size, intents: driver.intents.size, objects: storedVolumes.length };
}

const NOTHING_LEFT = { volumes: 0, intents: 0, objects: 0 };

/** Adds a claim of a class with an attributes class, so that provisioning has many steps. */
function addLongClaim(cluster: FakeControlPlane): PersistentVolumeClaim {
  cluster.addAttributesClass("fast", {});
  return cluster.addClaim("data", { volumeAttributesClassName: "fast" });
}

/** The steps of provisioning such a claim between which something else may happen. */
const STEPS = [
  "before get volumeattributesclasses",
  "after get volumeattributesclasses",
  "before createVolume",
  "after createVolume",
  "before create persistentvolumes",
  "after create persistentvolumes",
  "before handOver",
  "after handOver",
];

for (const isObserved of [true, false]) {
  for (const at of STEPS) {
    const when = isObserved ? "and that is seen" : "which is seen later";
    Deno.test(`a claim deleted ${at}, ${when}, leaves nothing behind`, async () => {
      await using cluster = await FakeControlPlane.start();
      const { driver } = cluster;
      let reached = false;
      const step = async (name: string) => {
        if (name !== at || reached) return;
        reached = true;
        await cluster.remove(persistentVolumeClaims, CLAIM);
        if (isObserved) await options.claims.waitFor("default/data", (claim) => claim === undefined);
      };
      const options = cluster.controllerOptions(
        "loop",
        (client) => interceptClient(client, (request, when) => step(`${when} ${request}`)),
      );
      const provisioner = new Provisioner({
        ...options,
        csi: {
          createVolume: async (request, callOptions) => {
            await step("before createVolume");
            const created = await driver.createVolume(request, callOptions);
            await step("after createVolume");
            return created;
          },
          deleteVolume: (request, callOptions) => driver.deleteVolume(request, callOptions),
        },
        intents: {
          find: (name) => driver.find(name),
          listPending: () => driver.listPending(),
          clearPending: async (name) => {
            await step("before handOver");
            await driver.clearPending(name);
            await step("after handOver");
          },
        },
      });
      const stop = cluster.run((signal) => provisioner.run(signal));
      addLongClaim(cluster);
      await waitUntil(() => reached, at);
      cluster.addClaim("other");
      await cluster.waitForBound("other");
      await waitUntil(
        () => Object.values(remainingObjects(cluster)).every((count) => count === 1),
        "nothing of it left",
      );
      await stop();
      assertEquals(remainingObjects(cluster), { volumes: 1, intents: 1, objects: 1 });
    });
  }
}

Deno.test("for a claim that is deleted while its volume is uncertain, the request is repeated, and the volume deleted", async () => {
  await using cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  const gate = Promise.withResolvers<void>();
  for (let n = 0; n < 3; n++) {
    const error = new CallError(Code.DeadlineExceeded, "no answer");
    cluster.driver.injectFault("createVolume", { error, done: true, waitFor: gate.promise });
  }
  const called = cluster.driver.waitForCall("createVolume");
  cluster.addClaim();
  await called;
  await cluster.remove(persistentVolumeClaims, CLAIM);
  gate.resolve();
  await waitUntil(() => cluster.driver.callCount("deleteVolume") > 0, "the removal");
  await waitUntil(() => remainingObjects(cluster).volumes === 0);
  assertEquals(cluster.driver.calls.map(({ call }) => call), [...Array(4).fill("createVolume"), "deleteVolume"]);
  assertEquals(remainingObjects(cluster), NOTHING_LEFT);
});

Deno.test("a claim that is deleted while its volume is uncertain is complete when the request fails finally", async () => {
  await using cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  const gate = Promise.withResolvers<void>();
  cluster.driver.injectFault("createVolume", { error: new CallError(Code.Aborted, "pending"), waitFor: gate.promise });
  cluster.driver.injectFault("createVolume", { error: new CallError(Code.InvalidArgument, "no") });
  const called = cluster.driver.waitForCall("createVolume");
  cluster.addClaim();
  await called;
  await cluster.remove(persistentVolumeClaims, CLAIM);
  gate.resolve();
  await waitUntil(() => cluster.driver.callCount("createVolume") === 2, "the repetition");
  cluster.addClaim("other");
  await cluster.waitForBound("other");
  await stop();
  assertEquals(cluster.driver.calls.map(({ call }) => call), Array(3).fill("createVolume"));
});

for (const kept of [true, false]) {
  const what = kept ? "a PersistentVolume was made for it by another" : "it was handed over before";
  Deno.test(`a volume is not taken back from a claim that is gone when ${what}`, async () => {
    await using cluster = await FakeControlPlane.start({ withBinder: false });
    const { driver } = cluster;
    const provisioner = new Provisioner(cluster.controllerOptions());
    const stop = cluster.run((signal) => provisioner.run(signal));
    const gate = Promise.withResolvers<void>();
    driver.injectFault("createVolume", { waitFor: gate.promise });
    const called = driver.waitForCall("createVolume");
    const name = `pvc-${cluster.addClaim().metadata.uid}`;
    await called;
    const spec = { persistentVolumeReclaimPolicy: "Retain" };
    if (kept) cluster.api.put(persistentVolumes, { metadata: { name }, spec });
    else await driver.clearPending(name);
    await cluster.remove(persistentVolumeClaims, CLAIM);
    gate.resolve();
    cluster.addClaim("other");
    await waitUntil(() => driver.volumes.size === 2, "the other volume");
    await stop();
    assertEquals([driver.callCount("deleteVolume"), driver.volumes.size], [0, 2]);
  });
}

Deno.test("a removal that fails is repeated until nothing is left", async () => {
  await using cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  const gate = Promise.withResolvers<void>();
  cluster.driver.injectFault("createVolume", { waitFor: gate.promise });
  for (let n = 0; n < 3; n++) {
    cluster.driver.injectFault("deleteVolume", { error: new CallError(Code.Internal, "busy") });
  }
  const called = cluster.driver.waitForCall("createVolume");
  cluster.addClaim();
  await called;
  await cluster.remove(persistentVolumeClaims, CLAIM);
  gate.resolve();
  await waitUntil(() => cluster.driver.callCount("deleteVolume") === 4, "the removal");
  await waitUntil(() => remainingObjects(cluster).volumes === 0);
  assertEquals(remainingObjects(cluster), NOTHING_LEFT);
});

Deno.test("two provisioners at once make one volume and one PersistentVolume for each claim, and remove them once", async () => {
  await using cluster = await FakeControlPlane.start();
  for (const name of ["first", "second"]) {
    const provisioner = new Provisioner(cluster.controllerOptions(name));
    cluster.run((signal) => provisioner.run(signal));
  }
  const names = Array.from({ length: 8 }, (_, n) => `data-${n}`);
  for (const name of names) cluster.addClaim(name);
  for (const name of names) await cluster.waitForBound(name);
  assertEquals(remainingObjects(cluster), { volumes: 8, intents: 8, objects: 8 });
  for (const name of names) await cluster.remove(persistentVolumeClaims, { namespace: "default", name });
  await waitUntil(() => cluster.storedVolumes.length === 0, "the end of all");
  assertEquals(remainingObjects(cluster), NOTHING_LEFT);
});

Deno.test("a restart between the volume and its PersistentVolume goes on with the volume that is there", async () => {
  await using cluster = await FakeControlPlane.start();
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const first = new Provisioner(
    cluster.controllerOptions("first", (client) =>
      interceptClient(client, async (request) => {
        if (request !== "create persistentvolumes") return;
        reached.resolve();
        await gate.promise;
        throw new Error("killed here");
      })),
  );
  const stop = cluster.run((signal) => first.run(signal));
  cluster.addClaim();
  await reached.promise;
  const second = new Provisioner(cluster.controllerOptions("second"));
  cluster.run((signal) => second.run(signal));
  await cluster.waitForBound();
  assertEquals(remainingObjects(cluster), { volumes: 1, intents: 1, objects: 1 });
  gate.resolve();
  await stop();
});

Deno.test("a provisioner of a later term of leadership goes on", async () => {
  await using cluster = await FakeControlPlane.start();
  const options = cluster.controllerOptions();
  const stop = cluster.run((signal) => new Provisioner(options).run(signal));
  cluster.addClaim("one");
  await cluster.waitForBound("one");
  await stop();
  cluster.addClaim("two");
  cluster.run((signal) => new Provisioner(options).run(signal));
  await cluster.waitForBound("two");
  assertEquals(cluster.driver.callCount("createVolume"), 2);
});

Deno.test("a claim that no node may have is tried again within a second of a label that its class asks for", async () => {
  await using cluster = await FakeControlPlane.start();
  const clock = new FakeClock();
  const options = { ...cluster.controllerOptions(), clock, backoff: { startMs: 1_000, capMs: 300_000 } };
  const provisioner = new Provisioner(options);
  cluster.run((signal) => provisioner.run(signal));
  const matchLabelExpressions = [{ key: "zone", values: ["x"] }];
  cluster.addStorageClass("zoned", { volumeBindingMode: "Immediate", allowedTopologies: [{ matchLabelExpressions }] });
  cluster.addClaim("data", { storageClassName: "zoned" });
  assertMatch(await cluster.waitForEvent("ProvisioningFailed"), /registered on no node of the allowedTopologies/);
  await clock.advance(60_000);
  await cluster.client.patch(nodes, { name: "a" }, { merge: { metadata: { labels: { zone: "x" } } } });
  await options.nodes.waitFor("a", (node) => node?.metadata.labels?.["zone"] === "x");
  await clock.advance(1_000);
  await cluster.waitForBound();
});

Deno.test("a volume whose deletion has begun gets no PersistentVolume any more, although it would be accepted now", async () => {
  await using cluster = await FakeControlPlane.start();
  const { driver } = cluster;
  driver.injectFault("deleteVolume", { error: new CallError(Code.Unavailable, "the node has not answered") });
  const accepted: number[] = [];
  const provisioner = new Provisioner(
    cluster.controllerOptions("loop", (client) =>
      interceptClient(client, (request, when) => {
        if (request !== "create persistentvolumes") return Promise.resolve();
        if (when === "after") accepted.push(driver.callCount("createVolume"));
        if (driver.callCount("deleteVolume") > 0) return Promise.resolve();
        return Promise.reject(new ApiError("refused by a webhook", { status: 403, reason: "Forbidden" }));
      })),
  );
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim();
  await cluster.waitForBound();
  const calls = driver.calls.map(({ call }) => call);
  assertEquals(calls, ["createVolume", "deleteVolume", "deleteVolume", "createVolume"]);
  assertEquals(accepted, [2], "only the second volume gets a PersistentVolume");
});
