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
import { customResourceDefinitions, SCHEMA_VERSION } from "../../k8s/client/definitions.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { machineWith, MiB } from "../fake/cluster/volume_cluster.ts";
import { WholeCluster } from "../fake/cluster/whole_cluster.ts";

/** Under this clock, definitions are read again soon, and nothing that failed once is tried again. */
const clock: Clock = {
  ...systemClock,
  random: () => 0.5,
  after(ms, callback) {
    if (ms === backoffMs(backoffOf("provisioner"), 1, clock)) return () => {};
    return systemClock.after(ms === 7_500 ? 100 : ms, callback);
  },
};

Deno.test("a claim waits while definitions are too old, with an event that names them, and is tried at once afterwards", async () => {
  const options = { controllerClock: clock, hasOldDefinitions: true };
  await using cluster = await WholeCluster.start({ n1: machineWith({ data: 256n * MiB }) }, options);
  const { api } = cluster;
  const failures = (claim: string) =>
    api.objects(events).filter(({ reason, involvedObject: { name } }) =>
      reason === "ProvisioningFailed" && name === claim
    );
  const isBound = (claim: string) =>
    api.objects(persistentVolumeClaims).find(({ metadata: { name } }) => name === claim)!.status?.phase === "Bound";
  cluster.addClaim();
  await waitUntil(() => failures("data").length > 0, "an event");
  assertMatch(
    failures("data")[0]!.message!,
    /lvmvolumes\.lvm\.denolith\.dev \(0\).*kubectl apply.* \[DefinitionsOutdated\]$/,
  );
  await new Promise((resolve) => setTimeout(resolve, 500)); // definitions are read again, and nothing changes
  assertEquals(api.objects(lvmVolumes), []);
  cluster.replaceDefinitions();
  await waitUntil(() => isBound("data"), "the binding");

  // as after a rollback of the CRDs alone
  const reads = () => api.requests.filter(({ path }) => path.includes(customResourceDefinitions.plural)).length;
  const before = reads();
  cluster.replaceDefinitions(SCHEMA_VERSION - 1);
  await waitUntil(() => reads() > before, "the old definitions");
  cluster.addClaim({ name: "late" });
  await waitUntil(() => failures("late").length > 0, "another event");
  assertEquals(api.objects(lvmVolumes).length, 1);
  cluster.replaceDefinitions();
  await waitUntil(() => isBound("late"), "another binding");
});
