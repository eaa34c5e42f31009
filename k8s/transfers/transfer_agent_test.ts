import { assertEquals, assertRejects } from "@std/assert";
import { stub } from "@std/testing/mock";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { openMachine } from "../../lvm/machine.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { lvmNodes } from "../api/lvm_objects.ts";
import { HttpClient } from "../client/http_client.ts";
import { makeCredentials } from "./certificate.ts";
import { CHALLENGE_BYTES, PROOF_BYTES } from "./proof.ts";
import { findRemoteAgent } from "./remote_agent.ts";
import { TransferAgent } from "./transfer_agent.ts";

const [DRIVER, HOST] = ["lvm.denolith.dev", "127.0.0.1"];
const RANGE = { snapshot: snapshotIdOf("s"), volume: volumeIdOf("v"), offset: 0n, length: 4n << 20n };
const DESTINATION = { path: "/dev/destination", size: 4n << 20n, skipsZeros: false };

/** Sets up the agent of a node. */
function setUp(port = 0, clock = new FakeClock(), { host = HOST, advertised = HOST, domain = "ns.pod" } = {}) {
  const exec = new FakeMachine();
  const machine = openMachine({ exec, driver: DRIVER, groups: ANY_GROUP, mountRoots: ["/pods"], scratch: "/tmp" });
  const api = FakeApiServer.start({ resources: [lvmNodes] });
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
  let changes = 0;
  const agent = new TransferAgent({
    ...{ client, exec, driver: DRIVER, nodeName: "a", address: { host, port }, advertised, domain, clock },
    ...{ snapshots: { waitFor: () => Promise.resolve(undefined) }, onChange: () => changes++ },
  });
  const end = new AbortController();
  const running = agent.run(machine, end.signal);
  return {
    ...{ agent, api, clock, changes: () => changes },
    fetch: (node: string) => agent.fetch({ ...RANGE, node }, DESTINATION, new AbortController().signal),
    async [Symbol.asyncDispose]() {
      end.abort();
      await running;
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("an agent whose port is taken tries again after ten seconds, and fetches nothing meanwhile", async () => {
  const taken = Deno.listen({ hostname: HOST, port: 0 });
  await using s = setUp(taken.addr.port);
  await waitUntil(() => s.clock.pendingTimers === 1, "the next try");
  assertEquals([s.clock.msUntilNextTimer, s.agent.endpoint(), s.changes()], [10_000, null, 0]);
  assertEquals((await assertRejects(() => s.fetch("b"), StorageError, "no certificate yet")).kind, "Unavailable");
  taken.close();
  await s.clock.advance(10_000);
  await waitUntil(() => Boolean(s.agent.endpoint()), "the endpoint");
  assertEquals([s.agent.endpoint()!.address, s.changes()], [`${HOST}:${taken.addr.port}`, 1]);
});

Deno.test("an LVMNode that does not say how its agent is reached is named by the error", async () => {
  await using s = setUp();
  await waitUntil(() => Boolean(s.agent.endpoint()), "the endpoint");
  const { certificate } = await makeCredentials("b", s.clock.date());
  const transfer = { address: `${HOST}:1`, certificate, validUntil: "2026-01-03T00:00:00Z" };
  const cases: [name: string, driverName: string, status: object | undefined, expected: string][] = [
    ["no-status", DRIVER, undefined, "LVMNode no-status says nothing of transfers"],
    ["off", DRIVER, {}, "LVMNode off says nothing of transfers"],
    ["other", "other.driver", { transfer }, "LVMNode other says nothing of transfers"],
    ["by-name", DRIVER, { transfer: { ...transfer, address: "b.example.com:1" } }, "has no address or no certificate"],
    ["odd", DRIVER, { transfer: { ...transfer, certificate: "none" } }, "has no address or no certificate"],
    ["gone", DRIVER, { transfer }, "connection to the agent of node gone (127.0.0.1:1): "],
  ];
  for (const [name, driverName, status] of cases) {
    s.api.put(lvmNodes, { metadata: { name }, spec: { driverName }, ...(status && { status }) });
  }
  const fetches = [...cases.map(([name, , , expected]) => [name, expected]), ["none", "LVMNode none says nothing"]];
  for (const [node, expected] of fetches) {
    const error = await assertRejects(() => s.fetch(node!), StorageError, expected!);
    assertEquals(error.kind, "Unavailable");
  }
});

Deno.test("an agent with an IPv6 address alone is reached by the name of its pod", async () => {
  const api = FakeApiServer.start({ resources: [lvmNodes] });
  await using _ = api;
  using client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
  const { certificate } = await makeCredentials("b", new Date());
  const transfer = { address: "[fd00:10:244::a7]:9810", certificate, validUntil: "2026-01-03T00:00:00Z" };
  api.put(lvmNodes, { metadata: { name: "b" }, spec: { driverName: DRIVER }, status: { transfer } });
  const found = await findRemoteAgent({ client, driver: DRIVER, domain: "denolith-system.pod" }, "b");
  assertEquals(found, { node: "b", host: "fd00-10-244--a7.denolith-system.pod", port: 9810, certificate });
  const unnamed = findRemoteAgent({ client, driver: DRIVER }, "b");
  await assertRejects(() => unnamed, StorageError, "fd00:10:244::a7, which is reached with --transfer-domain");
});

Deno.test("an agent with an IPv6 address alone takes part when its name can be looked up, and tries again", async () => {
  const listenTo = (port: number) => {
    using listener = Deno.listen({ hostname: "::1", port });
    return listener.addr.port;
  };
  const port = listenTo(0);
  await using s = setUp(port, new FakeClock(), { host: "::1", advertised: "fd00::7", domain: "denolith.invalid" });
  for (let tries = 0; tries < 2; tries++) {
    if (tries > 0) await s.clock.advance(10_000); // not at the end, where it would begin another try
    await waitUntil(() => s.clock.msUntilNextTimer === 10_000, "the next try");
    assertEquals([s.agent.endpoint(), s.changes()], [null, 0]);
    assertEquals(listenTo(port), port, "nobody listens meanwhile");
  }
});

Deno.test("an agent whose name is not answered for tries again after 20 seconds, and ends at once", async () => {
  using connect = stub(Deno, "connect", () => new Promise<never>(() => {}));
  await using s = setUp(0, new FakeClock(), { host: "::1", advertised: "fd00::7" });
  for (const [pauseMs, endpoint] of [[20_000, undefined], [10_000, null]] as const) {
    await waitUntil(() => s.clock.pendingTimers === 1, "the next try");
    assertEquals([s.clock.msUntilNextTimer, s.agent.endpoint()], [pauseMs, endpoint]);
    await s.clock.advance(pauseMs);
  }
  await waitUntil(() => connect.calls.length === 2, "the second try");
});

/** Returns what a read returns, or "open" when the connection is not closed within two seconds. */
async function readOrOpen(connection: Deno.Conn): Promise<number | null | "open"> {
  const { promise, resolve } = Promise.withResolvers<"open">();
  const timer = setTimeout(() => resolve("open"), 2_000);
  try {
    return await Promise.race([connection.read(new Uint8Array(4_096)).catch(() => null), promise]);
  } finally {
    clearTimeout(timer);
  }
}

Deno.test("a client that sends its request byte by byte is closed after the time limit, not after that of each byte", async () => {
  const clock = new FakeClock();
  clock.date = () => new Date(); // by which the client verifies the certificate
  await using s = setUp(0, clock);
  await waitUntil(() => Boolean(s.agent.endpoint()), "the endpoint");
  const { address, certificate } = s.agent.endpoint()!;
  const { certificate: cert, key } = await makeCredentials("b", new Date());
  using stranger = await Deno.connectTls({
    ...{ hostname: HOST, port: Number(address.split(":").at(-1)), caCerts: [certificate], cert, key },
    unsafelyDisableHostnameVerification: true,
  });
  await stranger.write(new Uint8Array(CHALLENGE_BYTES));
  assertEquals(await stranger.read(new Uint8Array(PROOF_BYTES)), PROOF_BYTES);
  const [head, ...parts] = [new Uint8Array([0, 0, 1, 0]), ...Array.from({ length: 3 }, () => new Uint8Array(1))];
  await stranger.write(head!);
  for (const part of parts) {
    await new Promise((resolve) => setTimeout(resolve, 50)); // the byte before has come
    await clock.advance(25_000);
    await stranger.write(part).catch(() => {});
  }
  assertEquals(await readOrOpen(stranger), null);
});
