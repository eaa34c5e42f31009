import { assertEquals } from "@std/assert";
import { DRIVER, FakeControlPlane, PROVISIONER_ANNOTATION, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { secrets } from "../sidecars/secrets.ts";
import { type PersistentVolume, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { Provisioner } from "./provisioner.ts";
import { nextReclaimStep, VOLUME_FINALIZER } from "./persistent_volume.ts";

const CLAIM = { namespace: "default", name: "data" };

/** Starts a cluster and a provisioner, with a bound claim of a class with the reclaim policy. */
async function harness(reclaimPolicy = "Delete") {
  const cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  cluster.addStorageClass("policy", { volumeBindingMode: "Immediate", reclaimPolicy });
  const { metadata } = cluster.addClaim("data", { storageClassName: "policy" });
  await cluster.waitForBound();
  const setPolicy = (persistentVolumeReclaimPolicy: string) =>
    cluster.client.patch(persistentVolumes, { name: `pvc-${metadata.uid}` }, {
      merge: { spec: { persistentVolumeReclaimPolicy } },
    });
  return {
    cluster,
    driver: cluster.driver,
    name: `pvc-${metadata.uid}`,
    setPolicy,
    release: () => cluster.remove(persistentVolumeClaims, CLAIM),
    finalizers: () => cluster.storedVolumes[0]?.metadata.finalizers ?? [],
    /** Settles when everything that happened before was seen by the loops. */
    settled: async () => {
      cluster.addClaim("other");
      await cluster.waitForBound("other");
    },
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("a released volume is removed, then its PersistentVolume, by three requests", async () => {
  await using s = await harness();
  const before = s.cluster.requestsOf().length;
  await s.release();
  await waitUntil(() => s.cluster.storedVolumes.length === 0, "the end");
  assertEquals([s.driver.volumes.size, s.driver.callCount("deleteVolume")], [0, 1]);
  const path = "/api/v1/persistentvolumes/pvc-UID";
  await waitUntil(() => s.cluster.requestsOf().length >= before + 3);
  assertEquals(s.cluster.requestsOf().slice(before), [`GET ${path}`, `PATCH ${path}`, `DELETE ${path}`]);
});

Deno.test("a volume that cannot be removed yet keeps its PersistentVolume, which says why", async () => {
  await using s = await harness();
  const mounted = new CallError(Code.FailedPrecondition, "mounted on a");
  s.driver.injectFault("deleteVolume", { error: mounted });
  await s.release();
  assertEquals(await s.cluster.waitForEvent("VolumeFailedDelete"), "mounted on a");
  assertEquals(s.cluster.storedVolumes.length, 1);
  s.cluster.wakeUps.wake("deletion", s.cluster.storedVolumes[0]!.spec!.csi!.volumeHandle);
  await waitUntil(() => s.cluster.storedVolumes.length === 0, "the end");
  assertEquals(s.driver.callCount("deleteVolume"), 2);
});

for (const status of [403, 404]) {
  Deno.test(`a volume is deleted without its secret, which cannot be read any more: ${status}`, async () => {
    await using cluster = await FakeControlPlane.start();
    const key = { name: "key", namespace: "default" };
    cluster.addClassWithSecret(key);
    const provisioner = new Provisioner(cluster.controllerOptions());
    cluster.run((signal) => provisioner.run(signal));
    cluster.addClaim("data", { storageClassName: "locked" });
    await cluster.waitForBound();
    if (status === 403) cluster.api.faults.forbidden.add("secrets");
    else await cluster.remove(secrets, key);
    await cluster.remove(persistentVolumeClaims, CLAIM);
    await waitUntil(() => cluster.storedVolumes.length === 0, "the end");
    assertEquals(cluster.eventReasons().includes("VolumeFailedDelete"), false);
  });
}

Deno.test("a volume with the policy Retain is kept, with its PersistentVolume, which nothing holds", async () => {
  await using s = await harness("Retain");
  assertEquals(s.finalizers(), []);
  await s.release();
  await s.cluster.volumes.waitFor(s.name, (volume) => volume?.status?.phase === "Released", { timeoutMs: 5_000 });
  await s.settled();
  assertEquals([s.driver.volumes.size, s.driver.callCount("deleteVolume")], [2, 0]);
  await s.cluster.remove(persistentVolumes, { name: s.name });
  await s.cluster.volumes.waitFor(s.name, (volume) => volume === undefined, { timeoutMs: 5_000 });
  assertEquals(s.driver.volumes.size, 2);
});

Deno.test("a change of the policy to Retain frees the finalizer, and one back sets it again", async () => {
  await using s = await harness();
  assertEquals(s.finalizers(), [VOLUME_FINALIZER]);
  await s.setPolicy("Retain");
  await waitUntil(() => s.finalizers().length === 0, "no finalizer");
  await s.setPolicy("Delete");
  await waitUntil(() => s.finalizers().length === 1, "the finalizer");
  assertEquals(s.driver.callCount("deleteVolume"), 0);
});

Deno.test("a released volume whose policy becomes Delete is removed", async () => {
  await using s = await harness("Retain");
  await s.release();
  await s.cluster.volumes.waitFor(s.name, (volume) => volume?.status?.phase === "Released", { timeoutMs: 5_000 });
  await s.setPolicy("Delete");
  await waitUntil(() => s.cluster.storedVolumes.length === 0, "the end");
  assertEquals(s.driver.volumes.size, 0);
});

Deno.test("a PersistentVolume that is deleted before its claim waits for the claim, and its volume goes before it", async () => {
  await using s = await harness();
  await s.cluster.remove(persistentVolumes, { name: s.name });
  await s.settled();
  assertEquals(s.driver.callCount("deleteVolume"), 0);
  await s.release();
  // The binder of this cluster leaves what is being deleted alone; the real one releases it.
  const merge = { status: { phase: "Released" } };
  await s.cluster.client.patch(persistentVolumes, { name: s.name }, { merge, subresource: "status" });
  await s.cluster.volumes.waitFor(s.name, (volume) => volume === undefined, { timeoutMs: 5_000 });
  assertEquals(s.driver.callCount("deleteVolume"), 1);
});

Deno.test("the last look before a removal is at the original: a policy that just became Retain keeps the volume", async () => {
  await using cluster = await FakeControlPlane.start();
  let name = "";
  const provisioner = new Provisioner(
    cluster.controllerOptions("loop", (client) =>
      interceptClient(client, async (request, when) => {
        if (request !== "get persistentvolumes" || when !== "before") return;
        const merge = { spec: { persistentVolumeReclaimPolicy: "Retain" } };
        await cluster.client.patch(persistentVolumes, { name }, { merge });
      })),
  );
  cluster.run((signal) => provisioner.run(signal));
  name = `pvc-${cluster.addClaim().metadata.uid}`;
  await cluster.waitForBound();
  await cluster.remove(persistentVolumeClaims, CLAIM);
  await cluster.volumes.waitFor(
    name,
    (volume) => volume?.metadata.finalizers === undefined || volume.metadata.finalizers.length === 0,
    {
      timeoutMs: 5_000,
    },
  );
  assertEquals([cluster.driver.volumes.size, cluster.driver.callCount("deleteVolume")], [1, 0]);
});

Deno.test("a PersistentVolume that took the name of a removed one is not deleted", async () => {
  await using cluster = await FakeControlPlane.start();
  const replaced = Promise.withResolvers<void>();
  let name = "";
  const provisioner = new Provisioner(
    cluster.controllerOptions("loop", (client) =>
      interceptClient(client, async (request, when) => {
        if (request !== "delete persistentvolumes") return;
        if (when === "after") return replaced.resolve();
        await cluster.client.delete(persistentVolumes, { name });
        const csi = { driver: "other.example", volumeHandle: "other" };
        cluster.api.put(persistentVolumes, { metadata: { name }, spec: { csi } });
        setTimeout(replaced.resolve, 200); // a refused deletion has no "after"
      })),
  );
  cluster.run((signal) => provisioner.run(signal));
  name = `pvc-${cluster.addClaim().metadata.uid}`;
  await cluster.waitForBound();
  await cluster.remove(persistentVolumeClaims, CLAIM);
  await replaced.promise;
  cluster.addClaim("other");
  await cluster.waitForBound("other");
  const kept = cluster.storedVolumes.find(({ metadata }) => metadata.name === name);
  assertEquals(kept?.spec?.csi?.driver, "other.example");
});

Deno.test("a PersistentVolume that was written by hand is guarded, and removed by its policy; one of another driver is not", async () => {
  await using s = await harness();
  const claim = (name: string) =>
    s.cluster.addClaim(name, { volumeName: name }, { annotations: { [PROVISIONER_ANNOTATION]: "" } });
  const write = (name: string, driver: string) =>
    s.cluster.api.put(persistentVolumes, {
      metadata: { name },
      spec: {
        persistentVolumeReclaimPolicy: "Delete",
        csi: { driver, volumeHandle: name },
        claimRef: { namespace: "default", name, uid: claim(name).metadata.uid! },
      },
    });
  write("by-hand", DRIVER);
  write("foreign", "other.example");
  const hasFinalizer = (volume?: PersistentVolume) => volume?.metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false;
  await s.cluster.volumes.waitFor("by-hand", hasFinalizer, { timeoutMs: 5_000 });
  for (const name of ["foreign", "by-hand"]) {
    await s.cluster.remove(persistentVolumeClaims, { namespace: "default", name });
  }
  await s.cluster.volumes.waitFor("by-hand", (volume) => volume === undefined, { timeoutMs: 5_000 });
  const removed = s.driver.calls.flatMap(({ request }) => "volumeId" in request ? [request.volumeId] : []);
  assertEquals(removed, ["by-hand"]);
});

Deno.test("nextReclaimStep() removes a volume only if it is released, or deleted and unbound, under the policy Delete", () => {
  const volume = (policy: string, phase: string, { guarded = true, deleting = false } = {}): PersistentVolume => ({
    metadata: {
      name: "v",
      ...(guarded ? { finalizers: [VOLUME_FINALIZER] } : {}),
      ...(deleting ? { deletionTimestamp: "2026-01-01T00:00:00Z" } : {}),
    },
    spec: { persistentVolumeReclaimPolicy: policy },
    status: { phase },
  });
  const cases: [PersistentVolume, string][] = [
    [volume("Delete", "Bound"), "nothing"],
    [volume("Delete", "Bound", { guarded: false }), "add finalizer"],
    [volume("Delete", "Bound", { guarded: false, deleting: true }), "nothing"],
    [volume("Delete", "Bound", { deleting: true }), "nothing"],
    [volume("Delete", "Available"), "nothing"],
    [volume("Delete", "Available", { deleting: true }), "delete volume"],
    [volume("Delete", "Released"), "delete volume"],
    [volume("Delete", "Released", { guarded: false }), "delete volume"],
    [volume("Delete", "Released", { guarded: false, deleting: true }), "nothing"],
    [volume("Delete", "Failed"), "delete volume"],
    [volume("Delete", "Failed", { guarded: false }), "delete volume"],
    [volume("Delete", "Failed", { guarded: false, deleting: true }), "nothing"],
    [volume("Retain", "Failed", { guarded: false }), "nothing"],
    [volume("Delete", "Pending"), "nothing"],
    [volume("Retain", "Released"), "remove finalizer"],
    [volume("Retain", "Released", { guarded: false }), "nothing"],
    [volume("Retain", "Released", { deleting: true }), "remove finalizer"],
    [volume("Recycle", "Bound"), "remove finalizer"],
  ];
  for (const [given, step] of cases) assertEquals(nextReclaimStep(given), step, JSON.stringify(given));
});

Deno.test("a PersistentVolume that kube-controller-manager marks as Failed first is deleted with its volume", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  // It has no annotation of the provisioner, so kube-controller-manager tries to delete its volume itself.
  cluster.api.put(persistentVolumes, {
    metadata: { name: "by-hand" },
    spec: { persistentVolumeReclaimPolicy: "Delete", csi: { driver: DRIVER, volumeHandle: "by-hand" } },
    status: { phase: "Failed" },
  });
  await waitUntil(() => cluster.storedVolumes.length === 0, "the end");
  assertEquals(cluster.driver.callCount("deleteVolume"), 1);
});

Deno.test("a deletion that was refused is woken for each PersistentVolume of the volume", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  const names = ["one", "two"];
  for (const name of names) {
    cluster.driver.injectFault("deleteVolume", { error: new CallError(Code.FailedPrecondition, "it is in use") });
    cluster.api.put(persistentVolumes, {
      metadata: { name },
      spec: { persistentVolumeReclaimPolicy: "Delete", csi: { driver: DRIVER, volumeHandle: "v" } },
      status: { phase: "Released" },
    });
  }
  await waitUntil(() => cluster.driver.callCount("deleteVolume") === 2, "the refusals");
  cluster.wakeUps.wake("deletion", "v");
  await waitUntil(() => cluster.storedVolumes.length === 0, "the end of both");
});

Deno.test("a deletion that may succeed while its refusal is on the way is tried again", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  const answer = Promise.withResolvers<void>();
  const error = new CallError(Code.FailedPrecondition, "it is in use");
  cluster.driver.injectFault("deleteVolume", { error, waitFor: answer.promise });
  const called = cluster.driver.waitForCall("deleteVolume");
  cluster.api.put(persistentVolumes, {
    metadata: { name: "one" },
    spec: { persistentVolumeReclaimPolicy: "Delete", csi: { driver: DRIVER, volumeHandle: "v" } },
    status: { phase: "Released" },
  });
  await called;
  cluster.wakeUps.wake("deletion", "v");
  answer.resolve();
  await waitUntil(() => cluster.storedVolumes.length === 0, "the end");
});
