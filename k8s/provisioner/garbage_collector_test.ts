import { assertEquals } from "@std/assert";
import { FakeControlPlane, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { ApiError } from "../client/client.ts";
import { CallError, Code, type CreateVolumeRequest } from "../sidecars/csi_client.ts";
import { type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { GarbageCollector } from "./garbage_collector.ts";

const MINUTE = 60_000;

/** Starts a cluster with a garbage collector that runs only when it is called. */
async function harness() {
  const cluster = await FakeControlPlane.start({ withBinder: false });
  const clock = new FakeClock();
  const options = { ...cluster.controllerOptions(), clock };
  const inProgress = new Set<string>();
  const collector = new GarbageCollector(options, () => inProgress);
  await Promise.all([options.claims.synced, options.volumes.synced]);
  const { signal } = new AbortController();
  const begin = (name: string) => {
    const request = { name, parameters: {}, topology: { requisite: [], preferred: [] }, requiredBytes: 1n };
    return cluster.driver.createVolume(request as unknown as CreateVolumeRequest, { signal });
  };
  return {
    cluster,
    driver: cluster.driver,
    options,
    begin,
    /** The requests that the provisioner works on. */
    inProgress,
    /** Collects garbage, and again after the grace period. */
    collectTwice: async () => {
      await collector.collect(signal);
      await clock.advance(3 * MINUTE);
      await collector.collect(signal);
    },
    collect: () => collector.collect(signal),
    clock,
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

const orphan = () => `pvc-${crypto.randomUUID()}`;

Deno.test("the garbage collector removes a pending volume of a deleted claim in its second pass, after the grace period", async () => {
  await using s = await harness();
  await s.begin(orphan());
  await s.collect();
  assertEquals(s.driver.volumes.size, 1);
  await s.clock.advance(1.5 * MINUTE);
  await s.collect();
  assertEquals(s.driver.volumes.size, 1);
  await s.clock.advance(1 * MINUTE);
  await s.collect();
  assertEquals([s.driver.volumes.size, s.driver.intents.size], [0, 0]);
});

Deno.test("the garbage collector waits again for a volume that the provisioner worked on meanwhile", async () => {
  await using s = await harness();
  const name = orphan();
  await s.begin(name);
  await s.collect();
  await s.clock.advance(1.5 * MINUTE);
  s.inProgress.add(name);
  await s.collect();
  s.inProgress.clear();
  await s.clock.advance(1.5 * MINUTE);
  await s.collect();
  assertEquals(s.driver.volumes.size, 1);
  await s.clock.advance(3 * MINUTE);
  await s.collect();
  assertEquals(s.driver.volumes.size, 0);
});

Deno.test("garbage collection keeps the volume of a claim, even of one that the cache does not have", async () => {
  await using s = await harness();
  const claim = s.cluster.addClaim();
  await s.options.claims.waitFor("default/data", (now) => now !== undefined);
  await s.begin(`pvc-${claim.metadata.uid}`);
  s.options.claims.list = () => [];
  await s.collectTwice();
  assertEquals(s.driver.volumes.size, 1);
  await s.cluster.remove(persistentVolumeClaims, { namespace: "default", name: "data" });
  await s.collectTwice();
  assertEquals(s.driver.volumes.size, 0);
});

Deno.test("garbage collection removes a pending volume whose claim was bound to another PersistentVolume", async () => {
  await using s = await harness();
  const [own, other] = ["own", "other"].map((name) => s.cluster.addClaim(name).metadata.uid!);
  for (const uid of [own, other]) await s.begin(`pvc-${uid}`);
  const bind = async (name: string, volumeName: string) => {
    await s.cluster.client.patch(persistentVolumeClaims, { namespace: "default", name }, {
      merge: { spec: { volumeName } },
    });
    await s.options.claims.waitFor(`default/${name}`, (now) => now?.spec?.volumeName === volumeName);
  };
  await bind("own", `pvc-${own}`);
  await bind("other", "by-hand");
  await s.collectTwice();
  assertEquals([...s.driver.intents.keys()], [`pvc-${own}`]);
});

Deno.test("garbage collection clears the pending mark of a volume with a PersistentVolume, and then keeps the volume", async () => {
  await using s = await harness();
  const name = orphan();
  await s.begin(name);
  s.cluster.api.put(persistentVolumes, { metadata: { name }, spec: { persistentVolumeReclaimPolicy: "Retain" } });
  await s.options.volumes.waitFor(name, (volume) => volume !== undefined);
  await s.collectTwice();
  assertEquals(s.driver.find(name)?.pending, false);
  await s.cluster.remove(persistentVolumes, { name });
  await s.options.volumes.waitFor(name, (volume) => volume === undefined);
  await s.collectTwice();
  assertEquals(s.driver.volumes.size, 1);
});

Deno.test("garbage collection deletes the other volumes when the pending mark of one cannot be cleared", async () => {
  await using s = await harness();
  const [name, other] = [orphan(), orphan()];
  await s.begin(name);
  await s.begin(other);
  s.cluster.api.put(persistentVolumes, { metadata: { name } });
  await s.options.volumes.waitFor(name, (volume) => volume !== undefined);
  s.driver.clearPending = () => Promise.reject(new ApiError("no", { status: 422, reason: "Invalid" }));
  await s.collectTwice();
  assertEquals([s.driver.find(name) !== undefined, s.driver.find(other)], [true, undefined]);
});

Deno.test("garbage collection keeps a volume whose PersistentVolume the cache does not have", async () => {
  await using s = await harness();
  const name = orphan();
  await s.begin(name);
  s.cluster.api.put(persistentVolumes, { metadata: { name } });
  s.options.volumes.get = () => undefined;
  await s.collectTwice();
  assertEquals(s.driver.volumes.size, 1);
});

Deno.test("garbage collection keeps volumes that others requested, under other names or not through this controller", async () => {
  await using s = await harness();
  await s.begin("my-own-volume");
  const name = orphan();
  await s.begin(name);
  s.driver.intents.set(name, { requestName: name, volumeId: volumeIdOf(name), pending: false, spec: {} });
  await s.collectTwice();
  assertEquals(s.driver.volumes.size, 2);
});

Deno.test("garbage collection sends no requests as long as every intent has its claim or its volume", async () => {
  await using s = await harness();
  const claim: PersistentVolumeClaim = s.cluster.addClaim();
  await s.options.claims.waitFor("default/data", (now) => now !== undefined);
  await s.begin(`pvc-${claim.metadata.uid}`);
  const before = s.cluster.api.requests.length;
  await s.collectTwice();
  assertEquals(s.cluster.api.requests.length, before);
});

Deno.test("the garbage collector goes through the claims only when a pending volume has no PersistentVolume", async () => {
  await using s = await harness();
  const { list } = s.options.claims;
  let lists = 0;
  s.options.claims.list = () => {
    lists++;
    return list.call(s.options.claims);
  };
  const name = orphan();
  await s.begin(name);
  s.cluster.api.put(persistentVolumes, { metadata: { name } });
  await s.options.volumes.waitFor(name, (volume) => volume !== undefined);
  await s.collectTwice();
  assertEquals(lists, 0);
  await s.begin(orphan());
  await s.collect();
  assertEquals(lists, 1);
});

Deno.test("garbage collection deletes the other volumes when the node of one does not answer", async () => {
  await using s = await harness();
  const names = [orphan(), orphan()];
  for (const name of names) await s.begin(name);
  s.driver.injectFault("deleteVolume", { error: new CallError(Code.Unavailable, "the node does not answer") });
  await s.collectTwice();
  assertEquals([s.driver.callCount("deleteVolume"), s.driver.volumes.size], [2, 1]);
  await s.collect();
  assertEquals(s.driver.volumes.size, 0);
});

Deno.test("the garbage collector collects until it is stopped, and goes on after a failure", async () => {
  await using s = await harness();
  await s.begin(orphan());
  const options = { ...s.options, clock: undefined, garbageCollectionIntervalMs: 1, garbageCollectionGraceMs: 0 };
  const { listPending } = s.driver;
  let passes = 0;
  s.driver.listPending = () => {
    if (passes++ === 1) throw new Error("a failed pass");
    return listPending.call(s.driver);
  };
  const inProgress = new Set<string>();
  const collector = new GarbageCollector(options, () => inProgress);
  const stop = s.cluster.run((signal) => collector.run(signal));
  await waitUntil(() => s.driver.volumes.size === 0, "the removal");
  await stop();
  const before = passes;
  await new Promise((resolve) => setTimeout(resolve, 10));
  assertEquals(passes, before);
});
