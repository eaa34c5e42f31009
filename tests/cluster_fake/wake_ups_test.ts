import { assertRejects } from "@std/assert";
import { persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { Controller, type ReconcileOutcome } from "../../k8s/runtime/controller.ts";
import { DRIVER, FakeControlPlane } from "../fake/cluster/control_plane.ts";
import { requireWakeUps } from "../fake/cluster/wake_ups.ts";

/** Runs a provisioner whose attempts for a claim have an outcome, and may write an event. @returns its end */
async function provisionerWith(outcome: () => Promise<ReconcileOutcome>, { hasEvent = false } = {}) {
  const cluster = await FakeControlPlane.start();
  const { claims, client } = cluster;
  const events = new EventRecorder(client, { component: DRIVER, instance: "test" });
  let attempts = 0;
  const controller = new Controller({
    name: "provisioner",
    reconcile: (key) => {
      if (hasEvent && attempts++ === 0) {
        events.record(claims.get(key.split("/").slice(0, 2).join("/"))!, "Warning", "ProvisioningFailed", "no space");
      }
      return outcome();
    },
  });
  controller.watch(claims, ({ metadata: { namespace, name, uid } }) => [`${namespace}/${name}/${uid}`]);
  cluster.run(async (signal) => {
    await controller.run(signal);
    await events.stop(100);
  });
  cluster.addClaim();
  await claims.waitFor("default/data", (claim) => claim !== undefined);
  return {
    cluster,
    [Symbol.asyncDispose]: async () => {
      await cluster.remove(persistentVolumeClaims, { namespace: "default", name: "data" });
      await cluster[Symbol.asyncDispose]();
    },
  };
}

Deno.test.each<[string, () => Promise<ReconcileOutcome>, boolean, string | undefined]>([
  ["ends without a word", () => Promise.resolve(), true, "nothing tries it again"],
  ["fails, and says nothing", () => Promise.reject(new Error("no")), false, "nothing says that it waits for delay"],
  [
    "waits, and says nothing",
    () => Promise.resolve({ waitsFor: "space" }),
    false,
    "nothing says that it waits for space",
  ],
  ["fails, and says so", () => Promise.reject(new Error("no")), true, undefined],
  ["waits, and says so", () => Promise.resolve({ waitsFor: "space" }), true, undefined],
  ["waits for the scheduler", () => Promise.resolve({ waitsFor: "the scheduler" }), false, undefined],
])(
  "the fakes of a cluster notice a claim that waits in silence: its provisioner %s",
  async (_, outcome, hasEvent, words) => {
    await using s = await provisionerWith(outcome, { hasEvent });
    if (words === undefined) return await requireWakeUps(s.cluster.api);
    await assertRejects(() => requireWakeUps(s.cluster.api, { timeoutMs: 200 }), Error, words);
  },
);
