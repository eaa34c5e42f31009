import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { DRIVER, FakeControlPlane, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import type { Resource } from "../api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../api/snapshot_objects.ts";
import { Provisioner } from "./provisioner.ts";

/** Starts a provisioner with a fake clock, and a claim that has failed for long. @param kinds kinds that the cluster has */
async function harnessOfWaitingClaim(spec: Parameters<FakeControlPlane["addClaim"]>[1], ...kinds: Resource[]) {
  const cluster = await FakeControlPlane.start();
  for (const kind of kinds) cluster.api.addResource(kind);
  const clock = new FakeClock();
  const options = { ...cluster.controllerOptions(), clock, backoff: { startMs: 1_000, capMs: 300_000 } };
  let failures = 0;
  const provisioner = new Provisioner({ ...options, onReconciled: ({ error }) => error && failures++ });
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim("data", spec);
  await waitUntil(async () => {
    await waitUntil(() => clock.msUntilNextTimer < Infinity);
    await clock.advance(500);
    return failures >= 6;
  });
  return { cluster, failures: () => failures, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() };
}

Deno.test("a claim that waits for a VolumeSnapshot is served at once when that is ready, and not for another one", async () => {
  const dataSource = { apiGroup: "snapshot.storage.k8s.io", kind: "VolumeSnapshot", name: "source" };
  await using s = await harnessOfWaitingClaim({ dataSource }, volumeSnapshots, volumeSnapshotContents);
  const { api, client, driver } = s.cluster;
  const failures = s.failures();
  const put = (namespace: string, name: string) => {
    const { metadata: { uid } } = api.put(volumeSnapshots, { metadata: { namespace, name } });
    const content = `content-of-${namespace}-${name}`;
    const volumeSnapshotRef = { namespace, name, uid: uid! };
    const spec = { driver: DRIVER, deletionPolicy: "Delete", source: {}, volumeSnapshotRef } as const;
    api.put(volumeSnapshotContents, { metadata: { name: content }, spec, status: { snapshotHandle: "s1" } });
    return content;
  };
  const makeReady = async (namespace: string, name: string, content: string) => {
    for (const status of [{ boundVolumeSnapshotContentName: content }, { readyToUse: true }]) {
      await client.patch(volumeSnapshots, { namespace, name }, { merge: { status }, subresource: "status" });
    }
  };
  const content = put("default", "source");
  await makeReady("other", "source", put("other", "source"));
  await makeReady("default", "source", content);
  await s.cluster.waitForBound();
  assertEquals([...driver.volumes.values()][0]!.request.source, { kind: "snapshot", handle: "s1" });
  assertEquals(s.failures(), failures, "the other snapshot did not wake it");
});

Deno.test("a claim that names a VolumeAttributesClass is served at once when that is created", async () => {
  await using s = await harnessOfWaitingClaim({ volumeAttributesClassName: "fast" });
  const failures = s.failures();
  s.cluster.addAttributesClass("slow", { readIops: "1" });
  s.cluster.addAttributesClass("fast", { readIops: "1000" });
  await s.cluster.waitForBound();
  assertEquals([...s.cluster.driver.volumes.values()][0]!.request.mutableParameters, { readIops: "1000" });
  assertEquals(s.failures(), failures, "the other class did not wake it");
});
