import { assert, assertEquals } from "@std/assert";
import { DRIVER, FakeControlPlane, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { hangingClient, interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { secrets } from "../sidecars/secrets.ts";
import type { ReconcileResult } from "../runtime/controller.ts";
import { Modifier, type ModifierOptions } from "./modifier.ts";
import {
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  volumeAttributesClasses,
} from "../api/objects.ts";

const CLAIM = { namespace: "default", name: "data" };

/** Starts a cluster and a modifier, with a claim that is bound to a volume without attributes. */
async function harness(status: Partial<NonNullable<PersistentVolumeClaim["status"]>> = {}) {
  const cluster = await FakeControlPlane.start({ withBinder: false });
  const { driver, client } = cluster;
  cluster.addAttributesClass("gold", { readIops: "500" });
  cluster.addAttributesClass("silver", { readIops: "100" });
  const claim = cluster.addClaim("data", { volumeName: "v" });
  cluster.api.put(persistentVolumes, {
    metadata: { name: "v" },
    spec: {
      capacity: { storage: "1Gi" },
      accessModes: ["ReadWriteOnce"],
      csi: { driver: DRIVER, volumeHandle: "v1", fsType: "ext4" },
      claimRef: { ...CLAIM, uid: claim.metadata.uid! },
    },
    status: { phase: "Bound" },
  });
  driver.volumes.set("v1", {} as never);
  await client.patch(persistentVolumeClaims, CLAIM, {
    merge: { status: { phase: "Bound", ...status } } as never,
    subresource: "status",
  });
  const results: ReconcileResult[] = [];
  const options: ModifierOptions = {
    ...cluster.controllerOptions(),
    slowRetryMs: 3_600_000,
    onReconciled: (result) => results.push(result),
  };
  await Promise.all([options.claims.synced, options.volumes.synced]);
  return {
    cluster,
    driver,
    options,
    /** The results of the reconcile attempts. */
    results,
    start(more: Partial<ModifierOptions> = {}) {
      const modifier = new Modifier({ ...options, ...more });
      return cluster.run((signal) => modifier.run(signal));
    },
    want: (volumeAttributesClassName: string | null) =>
      client.patch(persistentVolumeClaims, CLAIM, { merge: { spec: { volumeAttributesClassName } } as never }),
    /** Settles when the claim's status says so. */
    says: (says: (status: NonNullable<PersistentVolumeClaim["status"]>) => boolean) =>
      cluster.claims.waitFor("default/data", (now) => says(now?.status ?? {}), { timeoutMs: 5_000 }),
    conditions: () =>
      cluster.storedClaim()?.status?.conditions?.map(({ type, reason }) => reason ? `${type} ${reason}` : type),
    asked: () =>
      driver.calls.flatMap(({ request }) => "mutableParameters" in request ? [request.mutableParameters] : []),
    attributed: () => cluster.storedVolumes[0]!.spec?.volumeAttributesClassName,
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("a claim that names a class gets its attributes, and claim and volume say so", async () => {
  await using s = await harness();
  s.start();
  await s.want("gold");
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "gold");
  const { status } = s.cluster.storedClaim()!;
  assertEquals([status?.modifyVolumeStatus, status?.conditions ?? []], [undefined, []]);
  assertEquals(s.attributed(), "gold");
  assertEquals(s.driver.calls.map(({ request }) => request), [{
    volumeId: "v1",
    mutableParameters: { readIops: "500" },
    secrets: {},
  }]);
  await s.cluster.waitForEvent("VolumeModifySuccessful");
  assertEquals(s.cluster.eventReasons(), ["VolumeModify", "VolumeModifySuccessful"]);
  await s.want("silver");
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "silver");
  assertEquals([s.attributed(), s.asked()], ["silver", [{ readIops: "500" }, { readIops: "100" }]]);
});

Deno.test("a change costs three requests beside reading its class", async () => {
  await using s = await harness();
  s.start();
  await s.want("gold");
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "gold");
  await s.cluster.client.patch(persistentVolumeClaims, CLAIM, { merge: { metadata: { labels: { a: "b" } } } });
  const [claim, volume] = [
    "/api/v1/namespaces/default/persistentvolumeclaims/data/status",
    "/api/v1/persistentvolumes/v",
  ];
  assertEquals(s.cluster.requestsOf(), [
    "GET /apis/storage.k8s.io/v1/volumeattributesclasses/gold",
    ...[claim, volume, claim].map((path) => `PATCH ${path}`),
  ]);
});

Deno.test("a class that is not there leaves the claim Pending until it is", async () => {
  await using s = await harness();
  s.start();
  await s.want("platinum");
  await s.says(({ modifyVolumeStatus: status }) => status?.status === "Pending");
  assertEquals([s.conditions() ?? [], s.asked()], [[], []]);
  assert((await s.cluster.waitForEvent("VolumeModifyFailed")).includes("platinum"));
  const classReads = () =>
    s.cluster.requestsOf().filter((one) => one.endsWith("/volumeattributesclasses/platinum")).length;
  await waitUntil(() => classReads() === 2, "a second look, at what was written");
  assertEquals(s.cluster.eventReasons(), ["VolumeModifyFailed"]);
  s.cluster.addAttributesClass("platinum", { readIops: "1000" });
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "platinum");
  assertEquals(s.cluster.storedClaim()?.status?.modifyVolumeStatus, undefined);
});

Deno.test("what is refused is Infeasible, is not repeated, and is mended by another class", async () => {
  await using s = await harness();
  s.start();
  s.driver.injectFault("modifyVolume", { error: new CallError(Code.InvalidArgument, "no such limit") });
  await s.want("gold");
  await s.says(({ modifyVolumeStatus: status }) => status?.status === "Infeasible");
  assertEquals(s.conditions(), ["ModifyVolumeError InvalidArgument", "ModifyingVolume"]);
  assertEquals(await s.cluster.waitForEvent("VolumeModifyFailed"), "no such limit");
  await s.want("silver");
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "silver");
  assertEquals([s.conditions(), s.asked().length], [[], 2]);
});

Deno.test("a refused modification that is no longer requested is canceled, and stays reported", async () => {
  await using s = await harness();
  s.start();
  s.driver.injectFault("modifyVolume", { error: new CallError(Code.InvalidArgument, "no such limit") });
  await s.want("gold");
  await s.says(({ modifyVolumeStatus: status }) => status?.status === "Infeasible");
  await s.want(null);
  await s.says(({ conditions }) => conditions?.length === 1);
  assertEquals(s.conditions(), ["ModifyVolumeError InvalidArgument"]);
  await s.cluster.waitForEvent("VolumeModifyCanceled");
  assertEquals(s.asked().length, 1);
});

Deno.test("a class of another driver is Infeasible, and no call is made", async () => {
  await using s = await harness();
  s.cluster.addAttributesClass("foreign", { iops: "1" }, "other.driver");
  s.start();
  await s.want("foreign");
  await s.says(({ modifyVolumeStatus: status }) => status?.status === "Infeasible");
  assertEquals(s.asked(), []);
});

Deno.test("a failure that may pass is repeated; another class has to wait as long as the outcome is not known", async () => {
  await using s = await harness();
  s.start();
  const { promise: gate, resolve: openGate } = Promise.withResolvers<void>();
  s.driver.injectFault("modifyVolume", { error: new CallError(Code.Unavailable, "no answer") });
  s.driver.injectFault("modifyVolume", { waitFor: gate });
  await s.want("gold");
  await s.says(({ conditions }) => conditions?.some(({ reason }) => reason === "Unavailable") ?? false);
  await waitUntil(() => s.asked().length === 2, "a second call");
  await s.want("silver");
  openGate();
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "silver");
  assertEquals(s.asked().map(({ readIops }) => readIops), ["500", "500", "100"]);
});

Deno.test("a final failure that may be corrected is retried with the class that is requested then", async () => {
  await using s = await harness();
  s.start();
  s.driver.injectFault("modifyVolume", { error: new CallError(Code.Internal, "lvchange failed") });
  await s.want("gold");
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "gold");
  assertEquals(s.asked().length, 2);
  assertEquals(s.conditions(), []);
});

Deno.test("a modification that another process began is completed first", async () => {
  const modifyVolumeStatus = { status: "InProgress", targetVolumeAttributesClassName: "gold" };
  await using s = await harness({ modifyVolumeStatus });
  await s.want("silver");
  s.start();
  await s.says(({ currentVolumeAttributesClassName: now }) => now === "silver");
  assertEquals(s.asked().map(({ readIops }) => readIops), ["500", "100"]);
});

Deno.test("a modification in progress whose class is missing goes on at once when the class is there again", async () => {
  const modifyVolumeStatus = { status: "InProgress", targetVolumeAttributesClassName: "bronze" };
  await using s = await harness({ modifyVolumeStatus });
  s.start({ backoff: { startMs: 3_600_000, capMs: 3_600_000 } });
  await s.want("bronze");
  assertEquals(
    await s.cluster.waitForEvent("VolumeModifyFailed"),
    "VolumeAttributesClass bronze does not exist [NoSuchAttributesClass]",
  );
  await waitUntil(() => s.results.some(({ error }) => error !== undefined), "the failure");
  s.cluster.addAttributesClass("bronze", { readIops: "10" });
  await s.says(({ currentVolumeAttributesClassName }) => currentVolumeAttributesClassName === "bronze");
});

Deno.test("a cluster without the kind leaves the modifier in peace", async () => {
  await using s = await harness();
  s.cluster.api.removeResource(volumeAttributesClasses);
  s.start();
  const looked = () => s.cluster.api.requests.filter(({ path }) => path.endsWith("/volumeattributesclasses")).length;
  await waitUntil(() => looked() > 0, "a look for the kind");
  assertEquals([looked(), s.driver.calls], [1, []]);
});

Deno.test("a claim whose PersistentVolume is not there is left alone, and that is no failure", async () => {
  await using s = await harness();
  await s.cluster.client.delete(persistentVolumes, { name: "v" });
  await s.options.volumes.waitFor("v", (volume) => volume === undefined, { timeoutMs: 5_000 });
  s.start();
  await s.want("gold");
  await waitUntil(() => s.results.length > 0, "a reconcile attempt");
  assertEquals([s.results.map(({ error }) => error), s.asked()], [[undefined], []]);
});

for (const request of ["get secrets", "patch persistentvolumes"]) {
  Deno.test(`a modifier that ends does not wait for a request to ${request}`, async () => {
    await using s = await harness();
    const [names, at] = [["name", "namespace"], "volume.kubernetes.io/controller-modify-secret"];
    const annotations = Object.fromEntries(names.map((name) => [`${at}-${name}`, "keys"]));
    const { client } = s.cluster;
    s.cluster.api.put(secrets, { metadata: { name: "keys", namespace: "keys" } });
    await client.patch(persistentVolumes, { name: "v" }, { merge: { metadata: { annotations } } });
    const hanging = hangingClient(s.options.client, request);
    const stop = s.start({ client: hanging.client });
    await s.want("gold");
    await hanging.asked;
    const stopped = stop();
    assertEquals(await hanging.ended, "aborted");
    await stopped;
  });
}

Deno.test("a claim with nothing to change is reconciled without a request", async () => {
  await using s = await harness();
  s.start();
  await waitUntil(() => s.options.claims.get("default/data")?.status?.phase === "Bound", "the claim");
  await s.cluster.client.patch(persistentVolumeClaims, CLAIM, {
    merge: { status: { phase: "Lost" } },
    subresource: "status",
  });
  await waitUntil(() => s.results.length > 0, "a reconcile attempt");
  assertEquals([s.cluster.requestsOf(), s.results.map(({ error }) => error)], [[], [undefined]]);
});

Deno.test("a volume that no claim is for is not reconciled", async () => {
  await using s = await harness();
  s.start();
  s.cluster.api.put(persistentVolumes, {
    metadata: { name: "free" },
    spec: { csi: { driver: DRIVER, volumeHandle: "f" } },
  });
  await s.options.volumes.waitFor("free", (volume) => volume !== undefined, { timeoutMs: 5_000 });
  await s.want("gold");
  await waitUntil(() => s.results.length > 0, "a reconcile attempt");
  assertEquals(s.results[0]!.key, "default/data");
});

Deno.test("a volume that is deleted right after its modification is no failure", async () => {
  await using s = await harness();
  const { client } = s.options;
  s.start({
    client: interceptClient(client, async (request, when) => {
      if (`${when} ${request}` === "after patch persistentvolumes") {
        await s.cluster.client.delete(persistentVolumes, { name: "v" });
        await s.options.volumes.waitFor("v", (volume) => volume === undefined, { timeoutMs: 5_000 });
      }
    }),
  });
  await s.want("gold");
  await waitUntil(() => s.results.length > 0, "a reconcile attempt");
  assertEquals(s.results[0]!.error, undefined);
});

Deno.test("after a modification, the modifier waits until its cache shows it", async () => {
  await using s = await harness();
  const { claims } = s.options;
  const before = s.cluster.storedClaim();
  const accepted: boolean[][] = [];
  const waitForCache = claims.waitForCache.bind(claims);
  claims.waitForCache = async (key, isObserved, options) => {
    await waitForCache(key, isObserved, options);
    accepted.push([before, claims.get(key), undefined].map(isObserved));
  };
  const { volumes } = s.options;
  const [volume] = s.cluster.storedVolumes;
  const waitForVolume = volumes.waitForCache.bind(volumes);
  const acceptedVolumes: boolean[][] = [];
  volumes.waitForCache = async (key, isObserved, options) => {
    await waitForVolume(key, isObserved, options);
    acceptedVolumes.push([volume, volumes.get(key), undefined].map(isObserved));
  };
  s.start();
  await s.want("gold");
  await waitUntil(() => accepted.length > 0, "the cache");
  assertEquals([accepted, acceptedVolumes], [[[false, true, true]], [[false, true, true]]]);
});
