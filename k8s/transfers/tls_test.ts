import { assert, assertEquals, assertRejects } from "@std/assert";
import { connect } from "node:net";
import type { Connection } from "../../lvm/transfers/connection.ts";
import { StorageError } from "../../base/error.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { type Credentials, makeCredentials, VALIDITY_MS } from "./certificate.ts";
import { dial } from "./dial.ts";
import { CHALLENGE_BYTES, fingerprintOfPem, PROOF_BYTES } from "./proof.ts";
import { listen, type ListenerOptions, type Peer } from "./listener.ts";

const HOST = "127.0.0.1";

/** Listens, and echoes the first bytes. */
async function echo(credentials: Credentials, more: Partial<ListenerOptions> = {}) {
  const peers: Peer[] = [];
  const listener = await listen({
    ...{ address: { host: HOST, port: 0 }, credentials },
    onConnection: async (connection: Connection, peer) => {
      peers.push(peer);
      const buffer = new Uint8Array(1 << 20);
      for (;;) {
        const count = await connection.read(buffer).catch(() => null);
        if (count === null) return connection.close();
        await connection.write(buffer.subarray(0, count)).catch(() => {});
      }
    },
    ...more,
  });
  return { peers, port: listener.port, [Symbol.asyncDispose]: () => listener.close() };
}

Deno.test("both ends prove who they are: each sees the certificate of the other", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  await using server = await echo(a);
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b });
  await connection.write(new Uint8Array([1, 2, 3]));
  const buffer = new Uint8Array(8);
  assertEquals([await connection.read(buffer), ...buffer.subarray(0, 3)], [3, 1, 2, 3]);
  connection.close();
  connection.close();
  assertEquals(server.peers.map(({ fingerprint }) => fingerprint), [await fingerprintOfPem(b.certificate)]);
  assertEquals(server.peers[0]!.validUntil, Math.floor(b.validUntil / 1000) * 1000);
});

Deno.test("a pod whose name the DNS does not have is named, with what the DNS must have", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  const remote = { node: "a", host: "fd00--7.denolith.invalid", port: 1, certificate: a.certificate };
  const error = await assertRejects(() => dial(remote, { credentials: b }), StorageError, "pods insecure");
  assertEquals(error.kind, "Unavailable");
});

Deno.test("megabytes pass both ways unchanged", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  await using server = await echo(a);
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b });
  const sent = Uint8Array.from({ length: 3 << 20 }, (_, index) => index * 7 % 251);
  const writing = connection.write(sent);
  const [received, buffer] = [new Uint8Array(sent.length), new Uint8Array(100_000)];
  for (let at = 0; at < received.length;) {
    const count = (await connection.read(buffer))!;
    received.set(buffer.subarray(0, count), at);
    at += count;
  }
  await writing;
  connection.close();
  assert(received.every((byte, index) => byte === sent[index]));
});

Deno.test("an agent with another certificate than its LVMNode has is not believed: another key, or one that is over", async () => {
  const now = Date.now();
  const [a, other, b, past] = await Promise.all([
    makeCredentials("a", new Date(now)),
    makeCredentials("a", new Date(now)),
    makeCredentials("b", new Date(now)),
    makeCredentials("a", new Date(now - VALIDITY_MS - 1000)),
  ]);
  for (const [has, isBelieved] of [[other, a], [past, past]] as const) {
    await using server = await echo(has);
    const remote = { node: "a", host: HOST, port: server.port, certificate: isBelieved.certificate };
    const error = await assertRejects(() => dial(remote, { credentials: b }), StorageError, "agent of node a");
    assertEquals([error.kind, server.peers], ["Unavailable", []]);
  }
});

Deno.test("a certificate that TLS trusts beside that of the LVMNode is not believed", async () => {
  const [a, other, b] = await Promise.all(["a", "a", "b"].map((name) => makeCredentials(name, new Date())));
  await using server = await echo(other!);
  // as Deno trusts each certificate that a public authority signed
  const certificate = `${a!.certificate}${other!.certificate}`;
  const remote = { node: "a", host: HOST, port: server.port, certificate };
  const error = await assertRejects(() => dial(remote, { credentials: b! }), StorageError, "does not have the key");
  assertEquals(error.kind, "Unavailable");
});

Deno.test("a connection to an end that proves nothing is closed after the time limit", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  using listener = Deno.listenTls({ hostname: HOST, port: 0, cert: a.certificate, key: a.key });
  const clock = new FakeClock();
  const remote = { node: "a", host: HOST, port: listener.addr.port, certificate: a.certificate };
  const dialing = assertRejects(() => dial(remote, { credentials: b, clock }), StorageError, "no answer in 20 s");
  using silent = await listener.accept();
  assertEquals(await silent.read(new Uint8Array(64)), CHALLENGE_BYTES);
  await clock.advance(20_000);
  await dialing;
  assertEquals(await silent.read(new Uint8Array(64)).catch(() => null), null, "it is closed");
});

Deno.test("a client with a certificate that chooses no bytes for the proof is closed after the time limit", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  await using server = await echo(a, { idleMs: 200 });
  using client = await Deno.connectTls({
    ...{ hostname: HOST, port: server.port, caCerts: [a.certificate], cert: b.certificate, key: b.key },
    unsafelyDisableHostnameVerification: true,
  });
  await client.write(new Uint8Array(CHALLENGE_BYTES - 1));
  assertEquals([await client.read(new Uint8Array(1)).catch(() => null), server.peers], [null, []]);
});

Deno.test("who shows no certificate is closed at once", async () => {
  const a = await makeCredentials("a", new Date());
  await using server = await echo(a, { clock: new FakeClock() });
  using anonymous = await Deno.connectTls({
    ...{ hostname: HOST, port: server.port, caCerts: [a.certificate], unsafelyDisableHostnameVerification: true },
  });
  assertEquals(await anonymous.read(new Uint8Array(1)).catch(() => null), null);
  assertEquals(server.peers, []);
});

Deno.test("who opens connections from one address leaves some for others", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  await using server = await echo(a, { clock: new FakeClock(), maxConnections: { total: 4, ofAddress: 3 } });
  const open = () => connect({ host: HOST, port: server.port, localAddress: "127.0.0.9" }).on("error", () => {});
  const strangers = Array.from({ length: 5 }, open);
  const closed = new Set<unknown>();
  for (const stranger of strangers) stranger.on("close", () => closed.add(stranger));
  await waitUntil(() => closed.size === 2, "two to be closed");
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b });
  connection.close();
  for (const stranger of strangers) stranger.destroy();
  await waitUntil(() => closed.size === strangers.length, "the others to be closed");
});

Deno.test("what is no TLS, comes too often, or stops is closed, and the next one is served", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  await using server = await echo(a, { maxConnections: { total: 2, ofAddress: 2 }, idleMs: 200 });
  const silent = await Promise.all([1, 2, 3].map(() => Deno.connect({ hostname: HOST, port: server.port })));
  const ended = await Promise.all(silent.map((one) => one.read(new Uint8Array(1)).catch(() => null)));
  assertEquals(ended, [null, null, null], "one at once, as too many; two for their silence");
  silent.forEach((one) => one.close());
  const noise = await Deno.connect({ hostname: HOST, port: server.port });
  await noise.write(new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"));
  while (await noise.read(new Uint8Array(64)).catch(() => null) !== null);
  noise.close();
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b });
  assertEquals(await connection.read(new Uint8Array(1)).catch(() => null), null, "it is silent, too");
  connection.close();
});

Deno.test("an end that is gone is an error of the connection, not of the process", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  const server = await echo(a);
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b });
  await server[Symbol.asyncDispose]();
  const count = await connection.read(new Uint8Array(1)).catch((error: StorageError) => error.kind);
  assert(count === null || count === "Unavailable", String(count));
  connection.close();
  const error = await assertRejects(() => dial(remote, { credentials: b }), StorageError, "refused");
  assertEquals(error.kind, "Unavailable");
});

Deno.test("an end that falls silent is given up after the time limit, and the error says so", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  const held: Connection[] = [];
  await using server = await echo(a, { onConnection: (connection) => void held.push(connection) });
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b, idleMs: 100 });
  const error = await assertRejects(() => connection.read(new Uint8Array(1)), StorageError, "no progress in 0.1 s");
  assertEquals(error.kind, "Unavailable");
  for (const one of held) one.close();
});

Deno.test("a connection with progress lasts longer than the time limit of one without", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  const limits = { idleMs: 300 };
  await using server = await echo(a, limits);
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  const connection = await dial(remote, { credentials: b, ...limits });
  const buffer = new Uint8Array(8);
  const end = performance.now() + 4 * limits.idleMs;
  for (let byte = 0; performance.now() < end; byte = (byte + 1) % 256) {
    await connection.write(new Uint8Array([byte]));
    assertEquals([await connection.read(buffer), buffer[0]], [1, byte]);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  connection.close();
});

Deno.test("an end that does not close is closed after the time limit", async () => {
  const [a, b] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("b", new Date())]);
  await using server = await echo(a, {
    ...{ maxConnections: { total: 1, ofAddress: 1 }, idleMs: 300 },
    onConnection: (one) => one.close(),
  });
  const stubborn = await Deno.connectTls({
    ...{ hostname: HOST, port: server.port, caCerts: [a.certificate], cert: b.certificate, key: b.key },
    unsafelyDisableHostnameVerification: true,
  });
  await stubborn.write(new Uint8Array(CHALLENGE_BYTES));
  assertEquals(await stubborn.read(new Uint8Array(PROOF_BYTES)), PROOF_BYTES);
  assertEquals(await stubborn.read(new Uint8Array(1)).catch(() => null), null, "it sees the end");
  const remote = { node: "a", host: HOST, port: server.port, certificate: a.certificate };
  await assertRejects(() => dial(remote, { credentials: b }), StorageError);
  await new Promise((resolve) => setTimeout(resolve, 600));
  const next = await dial(remote, { credentials: b });
  next.close();
  stubborn.close();
});
