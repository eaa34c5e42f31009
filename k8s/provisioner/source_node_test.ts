import { assertEquals, assertMatch } from "@std/assert";
import { FakeControlPlane, TOPOLOGY_KEY, waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { CallError, Code } from "../sidecars/csi_client.ts";
import { persistentVolumeClaims } from "../api/objects.ts";
import { SELECTED_NODE_ANNOTATION, selectedNodeOf } from "./claim.ts";
import { Provisioner } from "./provisioner.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";

/** Starts a cluster with a bound claim `source`, whose volume is on a node. */
async function startWithSource(sourceNode: string, options: Partial<ProvisionerOptions> = {}) {
  const cluster = await FakeControlPlane.start();
  const nodeOfSource = () => sourceNode;
  const provisioner = new Provisioner({ ...cluster.controllerOptions(), nodeOfSource, ...options });
  const stop = cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim("source");
  await cluster.waitForBound("source");
  const selections: (string | undefined)[] = [];
  cluster.claims.subscribe((key, now) => {
    const selected = now && selectedNodeOf(now);
    if (key === "default/data" && selected !== selections.at(-1)) selections.push(selected);
  });
  return {
    ...{ cluster, stop },
    /** The nodes that were selected for the clone, in order. */
    selections,
    addClone: (selectedNode: string, storageClassName = "later") =>
      cluster.addClaim(
        "data",
        { storageClassName, dataSource: { kind: "PersistentVolumeClaim", name: "source" } },
        { annotations: { [SELECTED_NODE_ANNOTATION]: selectedNode } },
      ),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("a clone is sent to the node of its source at once, without a request for another node", async () => {
  await using s = await startWithSource("b");
  s.addClone("a");
  await s.cluster.waitForBound();
  assertEquals(s.selections, ["a", "b"]);
  assertMatch(
    await s.cluster.waitForEvent("ProvisioningFailed"),
    /^node a: the source of the volume is on node b, and the volume is created there \[SourceOnOtherNode\]$/,
  );
  const [, clone] = [...s.cluster.driver.volumes.values()];
  assertEquals(clone!.request.topology.requisite, [{ [TOPOLOGY_KEY]: "b" }]);
  assertEquals(s.cluster.driver.callCount("createVolume"), 2);
});

Deno.test("a clone on the node of its source keeps its node", async () => {
  await using s = await startWithSource("b");
  s.addClone("b");
  await s.cluster.waitForBound();
  assertEquals([s.selections, s.cluster.eventReasons().includes("ProvisioningFailed")], [["b"], false]);
});

Deno.test("a clone for which the node of its source has no space keeps that node, and waits for space there", async () => {
  const clock = new FakeClock();
  await using s = await startWithSource("b", { clock, backoff: { startMs: 1_000, capMs: 300_000 } });
  const { driver } = s.cluster;
  driver.maxVolumeBytes = 1n;
  s.addClone("b");
  while (driver.callCount("createVolume") < 8) {
    await clock.advance(500);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await waitUntil(() => clock.msUntilNextTimer > 10_000, "a long delay");
  assertEquals(s.selections, ["b"]);
  driver.maxVolumeBytes = 1n << 40n;
  s.cluster.wakeUps.wake("space", { nodeName: "a", largestBytes: 1n << 40n });
  await clock.advance(5_000);
  assertEquals(driver.callCount("createVolume"), 8);
  s.cluster.wakeUps.wake("space", { nodeName: "b", largestBytes: 1n << 40n });
  await clock.advance(1_000);
  await s.cluster.waitForBound();
});

Deno.test("a clone whose class does not allow the node of its source is refused with the name of that node", async () => {
  await using s = await startWithSource("b");
  const matchLabelExpressions = [{ key: TOPOLOGY_KEY, values: ["a"] }];
  s.cluster.addStorageClass("only-a", {
    volumeBindingMode: "WaitForFirstConsumer",
    allowedTopologies: [{ matchLabelExpressions }],
  });
  s.addClone("a", "only-a");
  assertMatch(
    await s.cluster.waitForEvent("ProvisioningFailed"),
    /the source of the volume is on node b.*node b: not in the allowedTopologies of the class/,
  );
  await waitUntil(() => s.selections.length > 0);
  assertEquals([s.selections, s.cluster.driver.callCount("createVolume")], [["a"], 1]);
  await s.cluster.remove(persistentVolumeClaims, { namespace: "default", name: "data" });
});

Deno.test("after a restart, an uncertain clone continues as recorded when its source is gone", async () => {
  await using s = await startWithSource("b");
  const { cluster } = s;
  for (let n = 0; n < 1_000; n++) {
    cluster.driver.injectFault("createVolume", { error: new CallError(Code.DeadlineExceeded, "?") });
  }
  s.addClone("b");
  await waitUntil(() => cluster.driver.callCount("createVolume") > 1, "the first request");
  await s.stop();
  const source = { namespace: "default", name: "source" };
  await cluster.remove(persistentVolumeClaims, source);
  const merge = { metadata: { finalizers: [] } }; // by force: the provisioner protects the source of a clone
  await cluster.client.patch(persistentVolumeClaims, source, { merge });
  await cluster.claims.waitFor("default/source", (now) => now === undefined, { timeoutMs: 5_000 });
  cluster.driver.clearFaults();
  const next = new Provisioner({ ...cluster.controllerOptions(), nodeOfSource: () => undefined });
  cluster.run((signal) => next.run(signal));
  await cluster.waitForBound();
});

Deno.test("a clone that waits for its source is created at once when the source is bound", async () => {
  await using cluster = await FakeControlPlane.start();
  const clock = new FakeClock();
  const provisioner = new Provisioner({ ...cluster.controllerOptions(), clock });
  cluster.run((signal) => provisioner.run(signal));
  cluster.addClaim("source", { storageClassName: "later" });
  cluster.addClaim("data", { dataSource: { kind: "PersistentVolumeClaim", name: "source" } });
  assertEquals(
    await cluster.waitForEvent("ProvisioningFailed"),
    "dataSource: PersistentVolumeClaim source is not bound yet [SourceNotReady]",
  );
  // the time stands still, so there is no other attempt
  const merge = { metadata: { annotations: { [SELECTED_NODE_ANNOTATION]: "a" } } };
  await cluster.client.patch(persistentVolumeClaims, { namespace: "default", name: "source" }, { merge });
  await cluster.waitForBound();
});
