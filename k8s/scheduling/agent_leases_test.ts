import { assertEquals } from "@std/assert";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { agentLeaseSelector, DRIVER_NAME_LABEL } from "../api/agent_leases.ts";
import { defined } from "../../base/defined.ts";
import { type LvmNode, lvmNodes } from "../api/lvm_objects.ts";
import { type Lease, leases } from "../api/objects.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "../runtime/informer.ts";
import { AgentLeases, nextAgentState } from "./agent_leases.ts";

const [DRIVER, NAMESPACE] = ["lvm.denolith.dev", "driver"];

/** Starts an API server, and what creates Leases. */
function harness() {
  const api = FakeApiServer.start({ resources: [lvmNodes] });
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (controller)" });
  const administrator = new HttpClient({ url: api.url }, { userAgent: "administrator" });
  const nodes = new Informer(client, lvmNodes);
  const agentLeases = new Informer(client, leases, {
    ...{ namespace: NAMESPACE, labelSelector: agentLeaseSelector(DRIVER) },
  });
  const stop = new AbortController();
  const silent = new Set<string>();
  const listeners: ((name: string) => void)[] = [];
  const agents = {
    isSilent: (name: string) => silent.has(name),
    subscribe: (listener: (name: string) => void) => void listeners.push(listener),
  };
  const options = { client, driverName: DRIVER, namespace: NAMESPACE, nodes, agentLeases, agents };
  const backoff = { startMs: 5, capMs: 20 };
  const running = [
    ...[nodes, agentLeases].map((informer) => informer.start(stop.signal)),
    ...[1, 2].map(() => new AgentLeases({ ...options, backoff }).run(stop.signal)),
  ];
  return {
    ...{ api, administrator },
    setSilent: (name: string, isSilent: boolean) => {
      if (isSilent) silent.add(name);
      else silent.delete(name);
      for (const listener of listeners) listener(name);
    },
    addNode: (name: string, driverName = DRIVER) => api.put(lvmNodes, { metadata: { name }, spec: { driverName } }),
    names: () => api.objects(leases).map(({ metadata: { name, namespace } }) => `${namespace}/${name}`).sort(),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await Promise.all(running);
      for (const one of [client, administrator]) one[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("AgentLeases creates the Lease of each LVMNode of the driver, owned by it, and again when it is deleted", async () => {
  await using s = harness();
  const { metadata: { uid } } = s.addNode("a");
  s.addNode("others", "csi.example.com");
  s.addNode("b");
  await waitUntil(() => s.names().length === 2, "the Leases");
  assertEquals(s.names(), ["driver/agent.a", "driver/agent.b"]);
  const { metadata, spec } = s.api.objects(leases).find(({ metadata }) => metadata.name === "agent.a")!;
  assertEquals(metadata.ownerReferences, [{
    apiVersion: "lvm.denolith.dev/v1alpha1",
    kind: "LVMNode",
    name: "a",
    uid: uid!,
  }]);
  assertEquals(spec, { leaseDurationSeconds: 300 });
  await s.administrator.delete(leases, { name: "agent.a", namespace: NAMESPACE });
  await waitUntil(() => s.names().length === 2, "another Lease");
});

Deno.test("AgentLeases tries again after a failure, and leaves a Lease that exists as it is", async () => {
  await using s = harness();
  s.addNode("a");
  await waitUntil(() => s.names().length === 1, "the Lease");
  const at = { name: "agent.a", namespace: NAMESPACE };
  await s.administrator.patch(leases, at, { merge: { spec: { renewTime: "2026-01-01T00:00:00.000000Z" } } });
  s.api.faults.refuse = { status: 500, times: 2 };
  s.addNode("b");
  await waitUntil(() => s.names().length === 2, "the other Lease");
  assertEquals(s.api.objects(leases)[0]?.spec?.renewTime, "2026-01-01T00:00:00.000000Z");
});

Deno.test("AgentLeases makes a Lease that it does not see one of the driver, whatever it was", async () => {
  await using s = harness();
  const owner = { apiVersion: "lvm.denolith.dev/v1alpha1", kind: "LVMNode", name: "a", uid: "gone" };
  const spec = { renewTime: "2026-01-01T00:00:00.000000Z" };
  for (const [name, labels] of [["a", { [DRIVER_NAME_LABEL]: "other", more: "kept" }], ["b", undefined]] as const) {
    s.api.put(leases, {
      metadata: { name: `agent.${name}`, namespace: NAMESPACE, ...defined({ labels }), ownerReferences: [owner] },
      spec,
    });
    const { metadata: { uid } } = s.addNode(name);
    const lease = () => s.api.objects(leases).find(({ metadata }) => metadata.name === `agent.${name}`);
    await waitUntil(() => lease()?.metadata.labels?.[DRIVER_NAME_LABEL] === DRIVER, "the label");
    const { metadata } = lease()!;
    assertEquals([metadata.ownerReferences?.[0]?.uid, metadata.ownerReferences?.length], [uid, 1]);
    assertEquals([metadata.labels?.["more"], lease()?.spec], [labels?.more, spec]);
  }
});

Deno.test("AgentLeases writes into the LVMNode whether its agent is silent", async () => {
  await using s = harness();
  s.addNode("a");
  await waitUntil(() => s.names().length === 1, "the Lease");
  const renew = (renewTime: string) =>
    s.administrator.patch(leases, { name: "agent.a", namespace: NAMESPACE }, { merge: { spec: { renewTime } } });
  const isState = (state: string, lastSeen?: string) =>
    waitUntil(() => {
      const { agent } = s.api.objects(lvmNodes)[0]?.status ?? {};
      return agent?.state === state && agent.lastSeen === lastSeen;
    }, `${state} since ${lastSeen}`);
  const [first, second] = ["2026-01-01T00:00:00.000000Z", "2026-01-01T00:09:00.000000Z"];
  await renew(first);
  await isState("Alive");
  s.setSilent("a", true);
  await isState("Silent", "2026-01-01T00:00:00Z");
  s.setSilent("a", false); // as after a restart of the controller
  await renew(second);
  await isState("Alive");
});

Deno.test("nextAgentState() takes an agent that was silent for alive only after another sign of life", () => {
  const node = (agent?: { state: "Alive" | "Silent"; lastSeen?: string }, lastUpdateTime?: string) =>
    ({ metadata: { name: "a" }, status: { agent, lastUpdateTime } }) as LvmNode;
  const lease = (renewTime?: string) => ({ metadata: { name: "agent.a" }, spec: { renewTime } }) as Lease;
  const [early, late] = ["2026-01-01T00:00:00Z", "2026-01-01T00:09:00Z"];
  const renewed = (time: string) => lease(time.replace("Z", ".000000Z"));
  const [alive, silent] = [{ state: "Alive" }, { state: "Silent", lastSeen: late }] as const;
  assertEquals(nextAgentState(node(), lease(), false), undefined);
  assertEquals(nextAgentState(node(), renewed(early), false), alive);
  assertEquals(nextAgentState(node(alive), renewed(late), false), undefined);
  assertEquals(nextAgentState(node(alive), renewed(late), true), silent);
  assertEquals(nextAgentState(node(silent), renewed(late), false), undefined);
  assertEquals(nextAgentState(node({ state: "Silent", lastSeen: early }), renewed(late), false), alive);
  // one that cannot renew its Lease writes its LVMNode
  assertEquals(nextAgentState(node({ state: "Silent", lastSeen: early }, late), renewed(early), false), alive);
  assertEquals(nextAgentState(node(alive, late), renewed(early), true), silent);
});
