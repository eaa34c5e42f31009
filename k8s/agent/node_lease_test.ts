/**
 * What an agent writes while nothing changes (docs/adr/0020).
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import type { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { interceptClient } from "../../tests/fake/cluster/intercepted_client.ts";
import { failure } from "../../tests/fake/machine/machine.ts";
import { GiB, harness, lvcreate, machine } from "../../tests/fake/cluster/node_report.ts";
import { agentLeaseFor } from "../api/agent_leases.ts";
import { type LvmNode, lvmNodes } from "../api/lvm_objects.ts";
import { leases, nodes } from "../api/objects.ts";
import type { ApiClient } from "../client/client.ts";
import { waitForAbort } from "../../base/clock.ts";
import { Informer } from "../runtime/informer.ts";
import type { NodeReconcilerOptions } from "./node_reconciler.ts";

/** Returns a function that returns the requests since its last call, as `PATCH leases/agent.n1`. */
function requestsOf(api: FakeApiServer): () => string[] {
  return () =>
    api.requests.splice(0).filter(({ query }) => query.size === 0)
      .map(({ method, path }) => `${method} ${path.split("/").slice(-2).join("/")}`);
}

/** Creates the LVMNode of a node with a Lease, and reports twice, so that nothing is left to write. */
async function setUpLease(options: Partial<NodeReconcilerOptions> = {}) {
  const clock = new FakeClock();
  const fake = machine();
  const s = await harness(fake, { clock, ...options });
  s.api.put(nodes, { metadata: { name: "n1" } });
  await s.agent.refresh();
  const node = s.api.objects(lvmNodes)[0]!;
  s.api.put(leases, agentLeaseFor(node, "driver"));
  await s.objects.waitFor("n1", (object) => object?.status?.volumeGroups !== undefined);
  const requests = requestsOf(s.api);
  requests();
  return { ...s, fake, clock, requests, [Symbol.asyncDispose]: () => s[Symbol.asyncDispose]() };
}

Deno.test("NodeReconciler writes nothing while nothing changes, but renews the agent's Lease every other minute", async () => {
  await using s = await setUpLease();
  const before = s.api.objects(lvmNodes);
  const seen: string[][] = [];
  for (let minute = 1; minute <= 6; minute++) {
    await s.clock.advance(60_000);
    await s.agent.refresh();
    seen.push(s.requests());
  }
  assertEquals(seen, [[], ["PATCH leases/agent.n1"], [], ["PATCH leases/agent.n1"], [], ["PATCH leases/agent.n1"]]);
  assertEquals(s.api.objects(lvmNodes), before);
  const { spec, metadata } = s.api.objects(leases)[0]!;
  assertEquals(spec, {
    ...{ holderIdentity: "n1", leaseDurationSeconds: 300, renewTime: "2026-01-01T00:06:00.000000Z" },
  });
  assertEquals(metadata.ownerReferences?.[0]?.uid, before[0]!.metadata.uid);
  await lvcreate(s.fake, "--size", `${GiB}b`, "--name", "one", "data");
  await s.agent.refresh();
  assertEquals(s.requests(), ["PATCH n1/status"]);
  assertEquals(s.api.objects(lvmNodes)[0]?.status?.lastUpdateTime, "2026-01-01T00:06:00Z");
  await s.clock.advance(60_000);
  await s.agent.refresh();
  assertEquals(s.requests(), [], "the write was a sign of life");
});

Deno.test("NodeReconciler renews no Lease while LVM does not answer", async () => {
  await using s = await setUpLease();
  s.fake.fault = () => failure(5, "  Locking failed");
  await s.clock.advance(600_000);
  await assertRejects(() => s.agent.refresh());
  assertEquals(s.requests(), []);
});

Deno.test("NodeReconciler without a Lease, or whose renewals are refused, writes the LVMNode as a sign of life", async () => {
  for (const refusal of [undefined, 403, 400, 422, 500] as const) {
    await using s = await setUpLease();
    await s.client.delete(leases, { name: "agent.n1", namespace: "driver" });
    const refuse = () => s.api.faults.refuse = { status: refusal ?? 0, times: refusal === undefined ? 0 : 1 };
    s.requests();
    const times: (string | undefined)[] = [];
    for (let minute = 1; minute <= 4; minute++) {
      await s.clock.advance(60_000);
      if (minute % 2 === 0) refuse();
      await s.agent.refresh();
      times.push(s.api.objects(lvmNodes)[0]?.status?.lastUpdateTime?.slice(14));
    }
    assertEquals(times, ["00:00Z", "02:00Z", "02:00Z", "04:00Z"], "a controller of version 0.1.0 waits for 5 minutes");
    assertEquals(s.requests(), Array(2).fill(["PATCH leases/agent.n1", "PATCH n1/status"]).flat());
  }
});

Deno.test("NodeReconciler corrects what somebody else wrote into its status, and keeps what it does not know", async () => {
  await using s = await setUpLease();
  await s.clock.advance(30_000);
  const extra = { ...s.api.objects(lvmNodes)[0]!.status!.volumeGroups![0]!, name: "more" };
  const volumeGroups = [...s.api.objects(lvmNodes)[0]!.status!.volumeGroups!, extra];
  for (const status of [{ volumeGroups }, { total: { free: "1Ei" }, future: "kept" } as object]) {
    const { metadata } = await s.client.patch(lvmNodes, { name: "n1" }, { merge: { status }, subresource: "status" });
    await s.objects.waitFor("n1", (object) => object?.metadata.resourceVersion === metadata.resourceVersion);
    s.requests();
    await s.agent.refresh();
    const { total, volumeGroups, ...rest } = s.api.objects(lvmNodes)[0]!.status!;
    assertEquals([s.requests(), total?.free, volumeGroups?.length], [["PATCH n1/status"], "12Gi", 2]);
    if ("future" in status) assertEquals(rest, { ...rest, future: "kept" } as object);
  }
});

Deno.test("NodeReconciler creates its LVMNode again when it is deleted between a write and its answer", async () => {
  let hasDeleted = false;
  await using s = await setUpLease();
  const client = interceptClient(s.client, async (request, when) => {
    if (when === "before" || request !== "patch lvmnodes" || hasDeleted) return;
    hasDeleted = true;
    await s.client.delete(lvmNodes, { name: "n1" });
    await s.objects.waitFor("n1", (object) => object === undefined);
  });
  const agent = s.newAgent({ client });
  await lvcreate(s.fake, "--size", `${GiB}b`, "--name", "one", "data");
  await agent.refresh();
  assertEquals(s.api.objects(lvmNodes), []);
  await agent.refresh(); // the deletion has requested it
  assertEquals(s.api.objects(lvmNodes)[0]?.status?.total?.free, "11Gi");
});

Deno.test("NodeReconciler writes its status into a restored backup, whose revision is lower", async () => {
  await using s = await setUpLease();
  const stop = new AbortController();
  let [object, change] = [s.api.objects(lvmNodes)[0]!, Promise.withResolvers<void>()];
  const client = {
    listPages: async function* () {
      yield { items: [structuredClone(object)], resourceVersion: "1" };
    },
    // deno-lint-ignore require-yield
    watch: async function* () {
      await Promise.race([change.promise, waitForAbort(stop.signal)]);
      throw new Error("the revision is of another history");
    },
  } as Partial<ApiClient> as ApiClient;
  const objects = new Informer(client, lvmNodes, { backoff: { startMs: 1, capMs: 1 } });
  const show = async (shown: LvmNode) => {
    object = shown;
    change.resolve();
    change = Promise.withResolvers();
    await objects.waitFor("n1", (now) => now?.metadata.resourceVersion === shown.metadata.resourceVersion);
  };
  const running = objects.start(stop.signal);
  await objects.synced;
  const agent = s.newAgent({ objects });
  await lvcreate(s.fake, "--size", `${GiB}b`, "--name", "one", "data");
  await agent.refresh();
  await show(s.api.objects(lvmNodes)[0]!);
  await agent.refresh();
  assertEquals(s.requests(), ["PATCH n1/status"]);
  await show({ ...object, status: {}, metadata: { ...object.metadata, resourceVersion: "1" } });
  await agent.refresh();
  assertEquals(s.requests(), ["PATCH n1/status"]);
  stop.abort();
  await running;
});

Deno.test("NodeReconciler that may not watch its LVMNode, as by roles of an older version, writes it each time", async () => {
  await using s = await setUpLease();
  const unsynced = s.newAgent({ objects: new Informer(s.client, lvmNodes) });
  for (let time = 1; time <= 3; time++) await unsynced.refresh();
  assertEquals(s.requests(), Array(4).fill("PATCH n1/status"));
});

Deno.test("NodeReconciler reports at once when its LVMNode is deleted, or asks for something by an annotation", async () => {
  const seen: (string | undefined)[] = [];
  const onReported = ({ metadata }: LvmNode) => void seen.push(metadata.annotations?.["ask"]);
  await using s = await setUpLease({ onReported, refreshMs: 3_600_000 });
  s.start();
  const advance = async (isDone: () => boolean) => {
    while (!isDone()) {
      await s.clock.advance(1);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  await advance(() => seen.length === 2);
  await s.client.patch(lvmNodes, { name: "n1" }, { merge: { metadata: { annotations: { ask: "x" } } } });
  await advance(() => seen.includes("x"));
  await s.client.delete(lvmNodes, { name: "n1" });
  await advance(() => s.api.objects(lvmNodes)[0]?.status?.total !== undefined);
  await s.clock.advance(60_000);
  assert(seen.length <= 5, `${seen.length} reports`);
});
