/**
 * Definitions of an older version, as after an upgrade of the driver alone.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import { backoffMs, type Clock, systemClock } from "../../base/clock.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events, persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { backoffOf } from "../../k8s/runtime/backoffs.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { machineWith, MiB } from "../fake/cluster/volume_cluster.ts";
import { WholeCluster } from "../fake/cluster/whole_cluster.ts";

/** Under this clock, definitions are read again soon, and nothing that failed once is tried again. */
const clock: Clock = {
  ...systemClock,
  random: () => 0.5,
  after(ms, callback) {
    if (ms === backoffMs(backoffOf("provisioner"), 1, clock)) return () => {};
    return systemClock.after(ms === 10_000 ? 100 : ms, callback);
  },
};

Deno.test("a claim waits while definitions are too old, with an event that names them, and is tried at once afterwards", async () => {
  const options = { controllerClock: clock, hasOldDefinitions: true };
  await using cluster = await WholeCluster.start({ n1: machineWith({ data: 256n * MiB }) }, options);
  const { api } = cluster;
  cluster.addClaim();
  const failures = () => api.objects(events).filter(({ reason }) => reason === "ProvisioningFailed");
  await waitUntil(() => failures().length > 0, "an event");
  assertMatch(
    failures()[0]!.message!,
    /lvmvolumes\.lvm\.denolith\.dev \(0\).*kubectl apply.* \[DefinitionsOutdated\]$/,
  );
  await new Promise((resolve) => setTimeout(resolve, 500)); // definitions are read again, and nothing changes
  assertEquals(api.objects(lvmVolumes), []);
  cluster.upgradeDefinitions();
  await waitUntil(() => api.objects(persistentVolumeClaims)[0]!.status?.phase === "Bound", "the binding");
});
