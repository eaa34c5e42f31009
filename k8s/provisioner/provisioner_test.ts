import { assertEquals, assertMatch } from "@std/assert";
import { DRIVER, FakeControlPlane, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { SELECTED_NODE_ANNOTATION } from "./claim.ts";
import { persistentVolumes } from "../api/objects.ts";
import { Provisioner } from "./provisioner.ts";
import { secrets } from "../sidecars/secrets.ts";

/** Starts a cluster and a provisioner. */
async function harness() {
  const cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  return { cluster, provisioner, stop, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() };
}

Deno.test("a claim gets a volume, and the volume a PersistentVolume that says all about it", async () => {
  await using s = await harness();
  const { cluster, cluster: { driver } } = s;
  cluster.addStorageClass("full", {
    volumeBindingMode: "Immediate",
    mountOptions: ["noatime"],
    parameters: { volumeGroup: "vg", "csi.storage.k8s.io/fstype": "xfs" },
  });
  const claim = cluster.addClaim("data", { storageClassName: "full", resources: { requests: { storage: "1.5Gi" } } });
  await cluster.waitForBound();
  const [volume] = cluster.storedVolumes;
  const { uid, resourceVersion } = claim.metadata;
  assertEquals(volume!.metadata.name, `pvc-${uid}`);
  assertEquals(volume!.metadata.annotations?.["pv.kubernetes.io/provisioned-by"], DRIVER);
  assertEquals(volume!.metadata.finalizers, ["external-provisioner.volume.kubernetes.io/finalizer"]);
  const { nodeAffinity, ...spec } = volume!.spec!;
  const [term] = nodeAffinity!.required!.nodeSelectorTerms;
  assertEquals(term!.matchExpressions!.map(({ key, operator }) => [key, operator]), [[TOPOLOGY_KEY, "In"]]);
  assertEquals(spec, {
    accessModes: ["ReadWriteOnce"],
    mountOptions: ["noatime"],
    volumeMode: "Filesystem",
    capacity: { storage: "1536Mi" },
    persistentVolumeReclaimPolicy: "Delete",
    storageClassName: "full",
    claimRef: {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      namespace: "default",
      name: "data",
      uid: uid!,
      resourceVersion: resourceVersion!,
    },
    csi: {
      driver: DRIVER,
      volumeHandle: [...driver.volumes.keys()][0]!,
      fsType: "xfs",
      volumeAttributes: { made: "once" },
    },
  });
  const { request } = [...driver.volumes.values()][0]!;
  assertEquals(request.parameters, { volumeGroup: "vg" });
  assertEquals(request.capabilities, [{
    mode: "SINGLE_NODE_MULTI_WRITER",
    access: { kind: "mount", fsType: "xfs", flags: ["noatime"] },
  }]);
  await cluster.waitForEvent("ProvisioningSucceeded");
  assertEquals(cluster.eventReasons(), ["ProvisioningSucceeded"]);
});

Deno.test("a claim costs one request and one event, and no requests are sent while nothing happens", async () => {
  await using s = await harness();
  for (let n = 0; n < 5; n++) s.cluster.addClaim(`data-${n}`);
  for (let n = 0; n < 5; n++) await s.cluster.waitForBound(`data-${n}`);
  assertEquals(s.cluster.requestsOf(), Array(5).fill("POST /api/v1/persistentvolumes"));
  await waitUntil(() => s.cluster.eventReasons().length === 5, "all events");
  assertEquals(s.cluster.requestsOf("loop-events").length, 5);
  assertEquals(s.cluster.driver.callCount("createVolume"), 5);
});

Deno.test("the replicas of a StatefulSet are spread over the nodes under Immediate", async () => {
  await using cluster = await FakeControlPlane.start();
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  for (const name of ["data-web-0", "data-web-1"]) cluster.addClaim(name);
  for (const name of ["data-web-0", "data-web-1"]) await cluster.waitForBound(name);
  const preferred = [...cluster.driver.volumes.values()].map(({ request }) => request.topology.preferred);
  assertEquals(preferred.map(({ length }) => length), [2, 2]);
  assertEquals(new Set(preferred.map(([first]) => first![TOPOLOGY_KEY])), new Set(["a", "b"]));
});

Deno.test("claims that wait for a consumer, have a volume, or are for others are left alone", async () => {
  await using s = await harness();
  const { cluster } = s;
  cluster.addClaim("waits", { storageClassName: "later" });
  cluster.addClaim("bound", { volumeName: "some-volume" });
  cluster.addClaim("foreign", {}, { annotations: { "volume.kubernetes.io/storage-provisioner": "other.example" } });
  cluster.addStorageClass("turned", { provisioner: "other.example" });
  cluster.addClaim("turned", { storageClassName: "turned" });
  cluster.addClaim("ours");
  await cluster.waitForBound("ours");
  assertEquals(cluster.driver.callCount("createVolume"), 1);
  await cluster.waitForEvent("ProvisioningSucceeded");
  assertEquals(cluster.eventReasons(), ["ProvisioningSucceeded"]);
});

Deno.test("a claim that waits for a consumer gets its volume on the node that the scheduler chose, and nowhere else", async () => {
  await using s = await harness();
  const { cluster, cluster: { driver } } = s;
  cluster.addClaim("data", { storageClassName: "later" }, { annotations: { [SELECTED_NODE_ANNOTATION]: "b" } });
  await cluster.waitForBound();
  const { request } = [...driver.volumes.values()][0]!;
  assertEquals(request.topology, { requisite: [{ [TOPOLOGY_KEY]: "b" }], preferred: [{ [TOPOLOGY_KEY]: "b" }] });
  const [term] = cluster.storedVolumes[0]!.spec!.nodeAffinity!.required!.nodeSelectorTerms;
  assertEquals(term!.matchExpressions, [{ key: TOPOLOGY_KEY, operator: "In", values: ["b"] }]);
});

Deno.test("a claim of a class that names secrets and an attributes class gets its volume with what they say", async () => {
  await using s = await harness();
  const { cluster, cluster: { driver } } = s;
  cluster.api.put(secrets, { metadata: { name: "key-data", namespace: "default" }, data: { pass: btoa("word") } });
  cluster.addAttributesClass("fast", { iops: "100" });
  cluster.addStorageClass("locked", {
    volumeBindingMode: "Immediate",
    parameters: {
      "csi.storage.k8s.io/provisioner-secret-name": "key-${pvc.name}",
      "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
      "csi.storage.k8s.io/controller-expand-secret-name": "expand",
      "csi.storage.k8s.io/controller-expand-secret-namespace": "default",
    },
  });
  cluster.addClaim("data", { storageClassName: "locked", volumeAttributesClassName: "fast" });
  await cluster.waitForBound();
  const { request } = [...driver.volumes.values()][0]!;
  assertEquals([request.secrets, request.mutableParameters, request.parameters], [
    { pass: "word" },
    { iops: "100" },
    {},
  ]);
  const { metadata, spec } = cluster.storedVolumes[0]!;
  assertEquals(metadata.annotations?.["volume.kubernetes.io/provisioner-deletion-secret-name"], "key-data");
  assertEquals(spec?.csi?.controllerExpandSecretRef, { name: "expand", namespace: "default" });
  assertEquals(spec?.volumeAttributesClassName, "fast");
});

Deno.test("a claim for a block device gets one, without a filesystem", async () => {
  await using s = await harness();
  s.cluster.addClaim("data", { volumeMode: "Block", accessModes: ["ReadWriteOncePod"] });
  await s.cluster.waitForBound();
  const { request } = [...s.cluster.driver.volumes.values()][0]!;
  assertEquals(request.capabilities, [{ mode: "SINGLE_NODE_SINGLE_WRITER", access: { kind: "block" } }]);
  assertEquals([s.cluster.storedVolumes[0]!.spec!.volumeMode, s.cluster.storedVolumes[0]!.spec!.csi!.fsType], [
    "Block",
    undefined,
  ]);
});

Deno.test("a claim to be filled by another program is left to it, and says so", async () => {
  await using s = await harness();
  s.cluster.addClaim("data", { dataSourceRef: { apiGroup: "books.example", kind: "Book", name: "one" } });
  assertMatch(await s.cluster.waitForEvent("Provisioning"), /Book of books.example: waiting for/);
  s.cluster.addClaim("other");
  await s.cluster.waitForBound("other");
  assertEquals(s.cluster.driver.callCount("createVolume"), 1);
});

Deno.test("a claim whose PersistentVolume exists is done: nothing is called, and nothing said", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const { uid } = cluster.addClaim().metadata;
  cluster.api.put(persistentVolumes, { metadata: { name: `pvc-${uid}` }, spec: { claimRef: { uid: uid! } } });
  const provisioner = new Provisioner(cluster.controllerOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim("other");
  await waitUntil(() => cluster.storedVolumes.length === 2, "the other volume");
  await stop();
  assertEquals(cluster.driver.calls.map(({ request }) => "claim" in request && request.claim.name), ["other"]);
});

Deno.test("a claim whose PersistentVolume was deleted before it was bound gets another volume", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const provisioner = new Provisioner(cluster.controllerOptions());
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim();
  await waitUntil(() => cluster.storedVolumes.length === 1, "the volume");
  const { name, uid } = cluster.storedVolumes[0]!.metadata;
  await cluster.remove(persistentVolumes, { name });
  await waitUntil(
    () => cluster.storedVolumes[0] !== undefined && cluster.storedVolumes[0].metadata.uid !== uid,
    "another one",
  );
  assertEquals(cluster.driver.calls.map(({ call }) => call), ["createVolume", "deleteVolume", "createVolume"]);
});
