import { assertEquals, assertMatch } from "@std/assert";
import { Cluster, DRIVER, KEY, until } from "../tests/fake/cluster.ts";
import { Provisioner } from "./provisioner.ts";

/** A cluster and a provisioner that runs. */
async function scene() {
  const cluster = await Cluster.start();
  const provisioner = new Provisioner(cluster.loopOptions());
  const stop = cluster.run((signal) => provisioner.run(signal));
  return { cluster, provisioner, stop, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() };
}

Deno.test("a claim gets a volume, and the volume a PersistentVolume that says all about it", async () => {
  await using s = await scene();
  const { cluster, cluster: { driver } } = s;
  cluster.addClass("full", {
    volumeBindingMode: "Immediate",
    mountOptions: ["noatime"],
    parameters: { volumeGroup: "vg", "csi.storage.k8s.io/fstype": "xfs" },
  });
  const claim = cluster.addClaim("data", { storageClassName: "full", resources: { requests: { storage: "1.5Gi" } } });
  await cluster.bound();
  const [volume] = cluster.kept;
  const { uid, resourceVersion } = claim.metadata;
  assertEquals(volume!.metadata.name, `pvc-${uid}`);
  assertEquals(volume!.metadata.annotations?.["pv.kubernetes.io/provisioned-by"], DRIVER);
  assertEquals(volume!.metadata.finalizers, ["external-provisioner.volume.kubernetes.io/finalizer"]);
  const { nodeAffinity, ...spec } = volume!.spec!;
  const [term] = nodeAffinity!.required!.nodeSelectorTerms;
  assertEquals(term!.matchExpressions!.map(({ key, operator }) => [key, operator]), [[KEY, "In"]]);
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
  await cluster.event("ProvisioningSucceeded");
  assertEquals(cluster.reasons(), ["Provisioning", "ProvisioningSucceeded"]);
});

Deno.test("a claim costs one request beside its events, and nothing is asked while nothing happens", async () => {
  await using s = await scene();
  for (let n = 0; n < 5; n++) s.cluster.addClaim(`data-${n}`);
  for (let n = 0; n < 5; n++) await s.cluster.bound(`data-${n}`);
  assertEquals(s.cluster.asked(), Array(5).fill("POST /api/v1/persistentvolumes"));
  await until(() => s.cluster.reasons().length === 10, "all events");
  assertEquals(s.cluster.asked("loop-events").length, 10);
  assertEquals(s.cluster.driver.count("createVolume"), 5);
});

Deno.test("claims that wait for a consumer, have a volume, or are for others are left alone", async () => {
  await using s = await scene();
  const { cluster } = s;
  cluster.addClaim("waits", { storageClassName: "later" });
  cluster.addClaim("bound", { volumeName: "some-volume" });
  cluster.addClaim("foreign", {}, { annotations: { "volume.kubernetes.io/storage-provisioner": "other.example" } });
  cluster.addClass("turned", { provisioner: "other.example" });
  cluster.addClaim("turned", { storageClassName: "turned" });
  cluster.addClaim("ours");
  await cluster.bound("ours");
  assertEquals(cluster.driver.count("createVolume"), 1);
  assertMatch(await cluster.event("Provisioning"), /ours/);
});
