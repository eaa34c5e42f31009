import { assertEquals } from "@std/assert";
import { DRIVER, FakeControlPlane, waitUntil } from "../../tests/fake/control_plane.ts";
import { persistentVolumeClaims } from "../api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";
import { SNAPSHOT_SOURCE_FINALIZER, SnapshotProtection } from "./snapshot_protection.ts";

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
