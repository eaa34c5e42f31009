import { assertEquals, assertRejects } from "@std/assert";
import { DRIVER, FakeControlPlane } from "../../tests/fake/cluster/control_plane.ts";
import { ClaimError } from "../sidecars/class_parameters.ts";
import { ALLOW_MODE_CHANGE_ANNOTATION, CLONING_FINALIZER, findContentSource } from "./content_source.ts";
import { type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";

const NAMESPACE = "default";

/** Returns a claim whose content source is called `source`. */
function claimFrom(kind: "VolumeSnapshot" | "PersistentVolumeClaim", volumeMode = "Filesystem"): PersistentVolumeClaim {
  const apiGroup = kind === "VolumeSnapshot" ? { apiGroup: "snapshot.storage.k8s.io" } : {};
  return {
    metadata: { name: "copy", namespace: NAMESPACE, uid: "u" },
    spec: { volumeMode, dataSource: { ...apiGroup, kind, name: "source" } },
  };
}

Deno.test("findContentSource() takes a snapshot that is bound, ready, ours and of the same mode, and says what it lacks", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const { api, client } = cluster;
  const find = (mode?: string) =>
    findContentSource(claimFrom("VolumeSnapshot", mode), {
      client,
      driverName: DRIVER,
      signal: AbortSignal.timeout(5_000),
    });
  const assertRefused = (why: string, mode?: string) => assertRejects(() => find(mode), ClaimError, why);
  await assertRefused("does not exist");
  api.addResource(volumeSnapshots);
  api.addResource(volumeSnapshotContents);
  const { metadata: { uid } } = api.put(volumeSnapshots, { metadata: { name: "source", namespace: NAMESPACE } });
  const snapshot = { name: "source", namespace: NAMESPACE };
  await assertRefused("not bound yet");
  const status = { boundVolumeSnapshotContentName: "content", readyToUse: false };
  await client.patch(volumeSnapshots, snapshot, { merge: { status }, subresource: "status" });
  await assertRefused("VolumeSnapshotContent content: does not exist");
  const volumeSnapshotRef = { ...snapshot, uid: "another" };
  const spec = {
    driver: "other",
    deletionPolicy: "Delete",
    source: {},
    volumeSnapshotRef,
    sourceVolumeMode: "Block",
  } as const;
  api.put(volumeSnapshotContents, { metadata: { name: "content" }, spec });
  const patch = (merge: Record<string, unknown>) =>
    client.patch(volumeSnapshotContents, { name: "content" }, { merge });
  await assertRefused("belongs to another");
  await patch({ spec: { volumeSnapshotRef: { uid } } });
  await assertRefused("of the driver other");
  await patch({ spec: { driver: DRIVER } });
  await assertRefused("not ready yet");
  await client.patch(volumeSnapshots, snapshot, { merge: { status: { readyToUse: true } }, subresource: "status" });
  await assertRefused("no handle yet");
  const taken = { merge: { status: { snapshotHandle: "s1" } }, subresource: "status" } as const;
  await client.patch(volumeSnapshotContents, { name: "content" }, taken);
  await assertRefused(ALLOW_MODE_CHANGE_ANNOTATION);
  assertEquals(await find("Block"), { kind: "snapshot", handle: "s1" });
  await patch({ metadata: { annotations: { [ALLOW_MODE_CHANGE_ANNOTATION]: "false" } } });
  await assertRefused(ALLOW_MODE_CHANGE_ANNOTATION);
  await patch({ metadata: { annotations: { [ALLOW_MODE_CHANGE_ANNOTATION]: "true" } } });
  assertEquals(await find(), { kind: "snapshot", handle: "s1" });
});

Deno.test("findContentSource() takes a claim that is bound and ours, protects it, and says what it lacks", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const { api, client } = cluster;
  const find = (mode?: string) =>
    findContentSource(claimFrom("PersistentVolumeClaim", mode), {
      client,
      driverName: DRIVER,
      signal: AbortSignal.timeout(5_000),
    });
  const assertRefused = (why: string, mode?: string) => assertRejects(() => find(mode), ClaimError, why);
  await assertRefused("does not exist");
  const at = { name: "source", namespace: NAMESPACE };
  const other = "example.com/other";
  const metadata = { ...at, finalizers: [other] };
  const { metadata: { uid } } = api.put(persistentVolumeClaims, { metadata, spec: { volumeName: "pv" } });
  await assertRefused("not bound yet");
  await client.patch(persistentVolumeClaims, at, { merge: { status: { phase: "Bound" } }, subresource: "status" });
  await assertRefused("PersistentVolume pv: does not exist");
  const csi = { driver: "other", volumeHandle: "v1" };
  api.put(persistentVolumes, { metadata: { name: "pv" }, spec: { csi, claimRef: { uid: "another" } } });
  const patch = (merge: Record<string, unknown>) => client.patch(persistentVolumes, { name: "pv" }, { merge });
  await assertRefused("of the driver other");
  await patch({ spec: { csi: { driver: DRIVER } } });
  const setPhase = (phase: string) =>
    client.patch(persistentVolumes, { name: "pv" }, { merge: { status: { phase } }, subresource: "status" });
  await setPhase("Bound");
  await assertRefused("not bound to it"); // but to another claim
  await patch({ spec: { claimRef: { uid } } });
  await setPhase("Released");
  await assertRefused("not bound to it");
  await setPhase("Bound");
  await assertRefused("is a Filesystem volume (requested: Block)", "Block");
  assertEquals(await find(), { kind: "volume", handle: "v1" });
  const [sourceClaim] = api.objects(persistentVolumeClaims);
  assertEquals(sourceClaim?.metadata.finalizers, [other, CLONING_FINALIZER]);
  await client.delete(persistentVolumeClaims, at);
  assertEquals(await find(), { kind: "volume", handle: "v1" }); // it waits for its clones
  await client.patch(persistentVolumeClaims, at, { merge: { metadata: { finalizers: [other] } } });
  await assertRefused("is being deleted");
});
