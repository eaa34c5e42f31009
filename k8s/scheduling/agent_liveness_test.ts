import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { StorageError } from "../../base/error.ts";
import { agentLeaseFor, agentLeaseName, agentLeaseSelector, DRIVER_NAME_LABEL } from "../api/agent_leases.ts";
import { keyOfName, leases } from "../api/objects.ts";
import { lvmNodes } from "../api/lvm_objects.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "../runtime/informer.ts";
import { AgentLiveness, requireResponsiveAgent } from "./agent_liveness.ts";

const MINUTE = 60_000;
const AGENT_LEASES = { namespace: "driver", labelSelector: agentLeaseSelector("d") };
const LABELS = { [DRIVER_NAME_LABEL]: "d" };

/**
 * Starts an API server with the LVMNodes `a` and `b`, and observes their agents.
 *
 * @param refusal the status with which the API server refuses to list Leases; it does not, when absent
 */
async function observe(refusal?: number) {
  const api = FakeApiServer.start({ resources: [lvmNodes] });
  const client = new HttpClient({ url: api.url }, { userAgent: "test" });
  const clock = new FakeClock();
  const nodes = new Informer(client, lvmNodes, { clock });
  const listPages = () => {
    throw new ApiError("listing leases: refused", { status: refusal!, reason: "Refused" });
  };
  const refusing = { listPages, watch: client.watch.bind(client) } as Partial<ApiClient> as ApiClient;
  const agentLeases = new Informer(refusal === undefined ? client : refusing, leases, {
    ...{ ...AGENT_LEASES, clock, backoff: { startMs: MINUTE, capMs: MINUTE } },
  });
  const agents = new AgentLiveness({ nodes, agentLeases, clock });
  const changes: string[] = [];
  agents.subscribe((name) => changes.push(`${name} ${agents.isSilent(name) ? "silent" : "reports"}`));
  const stop = new AbortController();
  let count = 0;
  const report = async (name: string) => {
    const lastUpdateTime = `report ${++count}`;
    const status = { lastUpdateTime };
    if (nodes.get(name) === undefined) api.put(lvmNodes, { metadata: { name }, spec: { driverName: "d" }, status });
    else await client.patch(lvmNodes, { name }, { merge: { status }, subresource: "status" });
    await nodes.waitFor(name, (now) => now?.status?.lastUpdateTime === lastUpdateTime);
  };
  const renew = async (name: string) => {
    const [at, renewTime] = [{ name: agentLeaseName(name), namespace: "driver" }, `sign ${++count}`];
    await client.patch(leases, at, { merge: { spec: { renewTime } } });
    await agentLeases.waitFor(keyOfName(at), (now) => now?.spec?.renewTime === renewTime);
  };
  const running = [nodes.start(stop.signal)];
  for (const name of ["a", "b"]) await report(name);
  const startLeases = async (...names: string[]) => {
    for (const name of names) api.put(leases, agentLeaseFor(nodes.get(name)!, "driver"));
    running.push(agentLeases.start(stop.signal));
    if (refusal === undefined) await waitUntil(() => api.watchCount === 2, "the watches");
  };
  const bookmark = async () => {
    // a bookmark comes only with a revision that the watch does not have; others write all the time
    api.put(leases, { metadata: { name: `other-${++count}`, namespace: "driver" } });
    api.sendBookmarks();
    await new Promise((resolve) => setTimeout(resolve, 5));
  };
  /** Lets minutes pass, after each of which `b` reports. */
  const minutes = async (count: number) => {
    for (let minute = 1; minute <= count; minute++) {
      await clock.advance(MINUTE);
      await bookmark();
      await report("b");
    }
  };
  return {
    ...{ minutes, bookmark, api, client, agents, clock, changes, report, renew, startLeases },
    [Symbol.asyncDispose]: async () => {
      agents.stop();
      stop.abort();
      await Promise.all(running);
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("AgentLiveness: an agent is silent after five minutes without a report, and not after its next report", async () => {
  await using s = await observe();
  await s.startLeases();
  await s.minutes(4);
  assertEquals(s.changes, []);
  await s.clock.advance(MINUTE);
  assertEquals([s.changes, s.agents.isSilent("a"), s.agents.isSilent("b")], [["a silent"], true, false]);
  const error = assertThrows(() => requireResponsiveAgent("placing", { allowed: ["a"] }, s.agents), StorageError);
  assertEquals([error.kind, error.message.includes("the agent of node a has not reported")], ["NoSpace", true]);
  requireResponsiveAgent("placing", { allowed: ["a", "b"] }, s.agents);
  requireResponsiveAgent("placing", {}, s.agents);
  await s.report("a");
  assertEquals([s.changes, s.agents.isSilent("a")], [["a silent", "a reports"], false]);
});

Deno.test("AgentLiveness: a renewal of the agent's Lease is a sign of life, as is a report of an agent without one", async () => {
  await using s = await observe();
  await s.startLeases("a", "b");
  for (let minute = 1; minute <= 12; minute++) {
    await s.clock.advance(MINUTE);
    if (minute % 2 === 0) await s.renew("a");
    await s.report("b"); // version 0.1.0 does not know Leases
  }
  assertEquals(s.changes, []);
  await s.minutes(6);
  assertEquals(s.changes, ["a silent"]);
  await s.renew("a");
  assertEquals(s.changes, ["a silent", "a reports"]);
});

Deno.test("AgentLiveness: while nothing comes from the watch of the Leases, no agent is silent", async () => {
  await using s = await observe();
  await s.startLeases("a");
  for (let minute = 1; minute <= 20; minute++) {
    await s.clock.advance(MINUTE);
    await s.report("b"); // the LVMNodes are watched
  }
  assertEquals(s.changes, []);
});

Deno.test("AgentLiveness: before the Leases are known, no agent is silent, unless this process may not list them", async () => {
  for (const [status, expected] of [[500, []], [429, []], [0, []], [403, ["a silent"]]] as const) {
    await using s = await observe(status);
    await s.startLeases();
    for (let minute = 1; minute <= 12; minute++) {
      await s.clock.advance(MINUTE);
      await s.report("b"); // and a renews a Lease
    }
    assertEquals(s.changes, [...expected], `${status}`);
  }
});

Deno.test("AgentLiveness: an agent that renews as late as it may is not silent after an outage of two minutes", async () => {
  await using s = await observe();
  await s.startLeases("a", "b");
  await s.renew("a");
  for (const ms of [60_000, 60_000, 55_000]) {
    await s.clock.advance(ms);
    await s.report("b");
    await s.renew("b");
  }
  await s.clock.advance(135_000); // without the API server; a would have renewed after another 5 s
  await s.renew("a");
  await s.renew("b");
  await s.clock.advance(1_000);
  assertEquals(s.changes, []);
});

Deno.test("AgentLiveness: a Lease of a node without an LVMNode, or of something else, is ignored", async () => {
  await using s = await observe();
  for (const name of ["agent.c", "c"]) {
    s.api.put(leases, { metadata: { name, namespace: "driver", labels: LABELS }, spec: { renewTime: "once" } });
  }
  await s.startLeases();
  for (let minute = 1; minute <= 6; minute++) {
    await s.clock.advance(MINUTE);
    await s.bookmark();
    for (const name of ["a", "b"]) await s.report(name);
  }
  assertEquals(s.changes, []);
});

Deno.test("AgentLiveness: a change of another field is no report", async () => {
  await using s = await observe();
  await s.startLeases();
  await s.minutes(2);
  await s.client.patch(lvmNodes, { name: "a" }, { merge: { metadata: { annotations: { note: "x" } } } });
  await s.minutes(2);
  await s.clock.advance(MINUTE);
  assertEquals(s.changes, ["a silent"]);
});

Deno.test("AgentLiveness: while the API server does not answer, and for five minutes afterwards, no agent is silent", async () => {
  await using s = await observe();
  await s.startLeases();
  await s.clock.advance(20 * MINUTE);
  assertEquals(s.changes, [], "no message came, not even a bookmark");
  await s.bookmark();
  await s.report("b");
  await s.minutes(4);
  assertEquals(s.changes, []);
  await s.minutes(1);
  await waitUntil(() => s.changes.length > 0, "the silence of a");
  assertEquals(s.changes, ["a silent"]);
});

Deno.test("AgentLiveness: an agent whose LVMNode is deleted is forgotten", async () => {
  await using s = await observe();
  await s.startLeases();
  await s.client.delete(lvmNodes, { name: "a" });
  await s.minutes(6);
  assertEquals([s.changes, s.agents.isSilent("a")], [[], false]);
});

Deno.test("requireResponsiveAgent() names only some of very many nodes", () => {
  const allowed = Array.from({ length: 5_000 }, (_, index) => `node-${index}`);
  const error = assertThrows(
    () => requireResponsiveAgent("placing", { allowed }, { isSilent: () => true }),
    StorageError,
  );
  assertStringIncludes(
    error.message,
    "the agents of nodes node-0, node-1, node-2, node-3, node-4 and 4995 more have not",
  );
});
