import { assertEquals, assertRejects } from "@std/assert";
import { lvmNodes, type LvmSnapshot, lvmSnapshots } from "../api/lvm_objects.ts";
import { formatGrant, grantAnnotation } from "../api/transfers.ts";
import { HttpClient } from "../client/http_client.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { SnapshotFinder } from "../../lvm/inventory/snapshot_finder.ts";
import type { TransferRequest } from "../../lvm/transfers/protocol.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { makeCredentials, VALIDITY_MS } from "./certificate.ts";
import { fingerprintOfPem } from "./proof.ts";
import type { Peer } from "./listener.ts";
import { openSnapshot } from "./access.ts";

const DRIVER = "lvm.denolith.dev";
const [snapshot, volume] = [snapshotIdOf("s"), volumeIdOf("v")];
const request: TransferRequest = { driver: DRIVER, node: "b", snapshot, volume, offset: 0n, length: 4n << 20n };

/** Sets up an agent of node a that has the snapshot, and what the agents of the nodes b and c can show. */
async function setUp() {
  await using stack = new AsyncDisposableStack();
  const clock = new FakeClock();
  const now = clock.date().getTime();
  const api = stack.use(FakeApiServer.start({ resources: [lvmSnapshots, lvmNodes] }));
  const client = stack.use(new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" }));
  const credentials = { b: await makeCredentials("b", clock.date()), c: await makeCredentials("c", clock.date()) };
  for (const [name, { certificate, validUntil }] of Object.entries(credentials)) {
    const transfer = { address: "127.0.0.1:1", certificate, validUntil: new Date(validUntil).toISOString() };
    api.put(lvmNodes, { metadata: { name }, spec: { driverName: DRIVER }, status: { transfer } });
  }
  const object = {
    metadata: {
      name: snapshot,
      annotations: { [grantAnnotation(volume)]: formatGrant({ node: "b", until: now + 60_000 }) },
    },
    spec: { driverName: DRIVER, requestName: "s", nodeName: "a", sourceVolume: volumeIdOf("o") },
  } as unknown as LvmSnapshot;
  const exec = new FakeMachine();
  exec.addGroup("data", 1n << 30n);
  const written = new Set<() => void>();
  /** The LVMSnapshots as the agent sees them: it waits until one is written, or for as long as `waitsFor` takes. */
  const snapshots = {
    waitFor: async (key: string, isSo: (seen: LvmSnapshot | undefined) => boolean, { timeoutMs = NaN } = {}) => {
      const seen = () => key === snapshot ? object : undefined;
      if (isSo(seen())) return seen();
      const [change, timeout] = [Promise.withResolvers<true>(), Promise.withResolvers<false>()];
      const check = () => isSo(seen()) && change.resolve(true);
      written.add(check);
      using _timer = { [Symbol.dispose]: clock.after(timeoutMs, () => timeout.resolve(false)) };
      if (!waits.patiently) void clock.advance(timeoutMs);
      if (await Promise.race([change.promise, timeout.promise])) return seen();
      throw new Error("not so in time");
    },
  };
  const waits = { patiently: false };
  const fingerprints = {
    b: await fingerprintOfPem(credentials.b.certificate),
    c: await fingerprintOfPem(credentials.c.certificate),
  };
  const peerOf = (name: keyof typeof credentials): Peer => ({
    address: "10.0.0.1",
    fingerprint: fingerprints[name]!,
    validUntil: now + VALIDITY_MS,
  });
  const options = {
    ...{ client, driver: DRIVER, snapshots, exec, lvm: new Lvm(exec), clock },
    snapshotFinder: new SnapshotFinder({ driver: DRIVER }),
    differences: { list: () => Promise.reject(new Error("nothing is compared")) },
  };
  const kept = stack.move();
  return {
    api,
    clock,
    object,
    peerOf,
    waits,
    /** Writes the annotations of the LVMSnapshot, which the agent sees then. */
    write: (annotations: Record<string, string>) => {
      object.metadata.annotations = annotations;
      for (const check of written) check();
    },
    /** Returns the reason of a refusal. */
    refusal: async (more: Partial<TransferRequest> = {}, peer = peerOf("b")) => {
      const error = await assertRejects(() => openSnapshot({ ...request, ...more }, peer, options), StorageError);
      return `${error.kind}: ${error.message.replace(/^.*?: /, "")}`;
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

/** The answer to who may read a snapshot whose LV does not exist: nothing more was asked of the machine before. */
const ALLOWED = "NotFound: it does not exist";

Deno.test("the agent of the node that the controller named may read, and nobody else", async () => {
  await using s = await setUp();
  assertEquals(await s.refusal(), ALLOWED);
  const stranger = { address: "10.0.0.9", validUntil: Infinity };
  const refusals = [
    await s.refusal({}, { ...stranger, fingerprint: "00".repeat(32) }),
    await s.refusal({}, s.peerOf("c")),
    await s.refusal({ node: "c" }, s.peerOf("c")),
    await s.refusal({ node: "d" }),
    await s.refusal({ volume: volumeIdOf("other") }),
    await s.refusal({ snapshot: snapshotIdOf("other") }),
    await s.refusal({ driver: "other.driver" }),
  ];
  const wrong = "Unavailable: the agent has not the certificate that LVMNode b has";
  assertEquals(refusals, [
    wrong,
    wrong,
    "Unavailable: there is no permission for node c yet",
    "Unavailable: there is no permission for node d yet",
    "Unavailable: there is no permission for node b yet",
    "Unavailable: there is no permission for node b yet",
    "Unavailable: it is of another driver",
  ]);
});

Deno.test("a permission and a certificate end with their time", async () => {
  await using s = await setUp();
  s.clock.stall(59_999);
  assertEquals(await s.refusal(), ALLOWED);
  s.clock.stall(1);
  assertEquals(await s.refusal(), "Unavailable: the permission is over");
  const peer = { ...s.peerOf("b"), validUntil: s.clock.date().getTime() };
  assertEquals(await s.refusal({}, peer), "Unavailable: the certificate of the agent is no longer valid");
  assertEquals(
    await s.refusal({}, { ...peer, validUntil: NaN }),
    "Unavailable: the certificate of the agent is no longer valid",
  );
});

Deno.test("a third node with a stolen token can write its own LVMNode alone, and so is not taken for another", async () => {
  await using s = await setUp();
  // what it could write: its certificate into its LVMNode, and a permission into LVMVolumes or LVMSnapshots of its own node
  const requests = () => s.api.requests.filter(({ path }) => path.includes("/lvmnodes/")).length;
  assertEquals(
    await s.refusal({ node: "b" }, s.peerOf("c")),
    "Unavailable: the agent has not the certificate that LVMNode b has",
  );
  const before = requests();
  assertEquals(await s.refusal({ node: "c" }, s.peerOf("c")), "Unavailable: there is no permission for node c yet");
  assertEquals(requests(), before, "an agent that may read nothing causes no request");
});

Deno.test("what is no permission allows nothing", async () => {
  await using s = await setUp();
  const later = new Date(s.clock.date().getTime() + 60_000).toISOString();
  for (const value of ["b", `b ${later} x`, "b tomorrow", `B ${later}`, ` ${later}`, ""]) {
    s.object.metadata.annotations = { [grantAnnotation(volume)]: value };
    assertEquals(await s.refusal(), "Unavailable: there is no permission for node b yet", value);
  }
});

Deno.test("a permission that the agent has not seen yet is waited for, for three seconds", async () => {
  await using s = await setUp();
  s.waits.patiently = true;
  const { annotations } = s.object.metadata;
  s.write({});
  const early = s.refusal();
  await waitUntil(() => s.clock.pendingTimers === 1, "the wait");
  assertEquals(s.clock.msUntilNextTimer, 3_000);
  s.write({ [grantAnnotation(volume)]: formatGrant({ node: "c", until: s.clock.date().getTime() + 60_000 }) });
  assertEquals(s.clock.pendingTimers, 1, "a permission for another node");
  s.write(annotations!);
  assertEquals([await early, s.clock.pendingTimers], [ALLOWED, 0]);
  s.write({});
  const late = s.refusal();
  await waitUntil(() => s.clock.pendingTimers === 1, "the wait");
  await s.clock.advance(3_000);
  assertEquals(await late, "Unavailable: there is no permission for node b yet");
});

Deno.test("who shows no valid certificate is not waited for", async () => {
  await using s = await setUp();
  s.waits.patiently = true;
  s.write({});
  const peer = s.peerOf("b");
  await s.refusal({}, { ...peer, validUntil: NaN });
  await s.refusal({ driver: "other.driver" });
  assertEquals(s.clock.pendingTimers, 0);
});
