import { assertEquals } from "@std/assert";
import { DRIVER, FakeControlPlane, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { persistentVolumeClaims } from "../api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";
import { CloningProtection, SNAPSHOT_SOURCE_FINALIZER, SnapshotProtection } from "./cloning_protection.ts";
import { CLONING_FINALIZER } from "./content_source.ts";

Deno.test("CloningProtection keeps a claim until no pending claim of its namespace is cloned from it", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const { client } = cluster;
  const dataSource = { kind: "PersistentVolumeClaim", name: "source" };
  const finalizers = ["example.com/other", CLONING_FINALIZER];
  cluster.addClaim("source", {}, { finalizers });
  cluster.addClaim("clone", { dataSource });
  cluster.addClaim("unrelated", { dataSource: { ...dataSource, name: "other" } });
  cluster.addClaim("elsewhere", { dataSource }, { namespace: "elsewhere" });
  await client.delete(persistentVolumeClaims, { namespace: "default", name: "source" });

  const attempts: string[] = [];
  const options = { ...cluster.controllerOptions(), onReconciled: ({ key }: { key: string }) => attempts.push(key) };
  await options.claims.synced;
  cluster.run((signal) => new CloningProtection(options).run(signal));
  const isDone = () => attempts.includes("default/source");
  await waitUntil(isDone, "a reconcile attempt");
  assertEquals(cluster.storedClaim("source")?.metadata.finalizers, finalizers);

  const bound = { merge: { status: { phase: "Bound" } }, subresource: "status" } as const;
  await client.patch(persistentVolumeClaims, { namespace: "default", name: "clone" }, bound);
  await waitUntil(() => cluster.storedClaim("source")?.metadata.finalizers?.length === 1, "the finalizer's removal");
  assertEquals(cluster.storedClaim("source")?.metadata.finalizers, ["example.com/other"]);
});

Deno.test("SnapshotProtection removes csi-provisioner's finalizer when no pending claim is created from the snapshot", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const { api, client } = cluster;
  for (const resource of [volumeSnapshots, volumeSnapshotContents]) api.addResource(resource);
  const addSnapshot = (name: string, driver: string) => {
    const volumeSnapshotRef = { namespace: "default", name, uid: name };
    const spec = { driver, deletionPolicy: "Delete", source: {}, volumeSnapshotRef } as const;
    api.put(volumeSnapshotContents, { metadata: { name }, spec });
    api.put(volumeSnapshots, {
      metadata: { name, namespace: "default", finalizers: ["example.com/other", SNAPSHOT_SOURCE_FINALIZER] },
      status: { boundVolumeSnapshotContentName: name, readyToUse: true },
    });
  };
  const finalizers = () =>
    Object.fromEntries(
      api.objects(volumeSnapshots).map(({ metadata: { name, finalizers } }) => [name, finalizers!.length]),
    );
  addSnapshot("left", DRIVER);
  addSnapshot("source", DRIVER);
  addSnapshot("foreign", "other.example");
  const apiGroup = "snapshot.storage.k8s.io";
  cluster.addClaim("copy", { dataSource: { apiGroup, kind: "VolumeSnapshot", name: "source" } });
  const options = cluster.controllerOptions();
  await options.claims.waitFor("default/copy", (claim) => claim !== undefined);
  cluster.run((signal) => new SnapshotProtection(options).run(signal));
  await waitUntil(() => finalizers()["left"] === 1, "the finalizer's removal");
  assertEquals(finalizers(), { foreign: 2, left: 1, source: 2 });
  const bound = { merge: { status: { phase: "Bound" } }, subresource: "status" } as const;
  await client.patch(persistentVolumeClaims, { namespace: "default", name: "copy" }, bound);
  await waitUntil(() => finalizers()["source"] === 1, "the finalizer's removal");
  assertEquals(finalizers(), { foreign: 2, left: 1, source: 1 });
});
