/**
 * Breaks connections between agents in every way at random moments: `broken_connections.ts SEED COUNT`. Both ends are this
 * process, which `broken_connections_test.ts` starts, because a mistake of the runtime would end it (a panic). It breaks more
 * connections than COUNT until a tenth of that number were encrypted.
 *
 * It prints how many connections were encrypted, and how many ended as they should not.
 *
 * @module
 */

import { makeCredentials } from "../../k8s/transfers/certificate.ts";
import { dial } from "../../k8s/transfers/dial.ts";
import { listen } from "../../k8s/transfers/listener.ts";
import type { Connection } from "../../lvm/transfers/connection.ts";
import { seededRandom } from "../rig/seeded_random.ts";

const HOST = "127.0.0.1";

/** The connections at a time, in one life of a listener. */
const PER_ROUND = 20;

/** The bytes that the listening end writes at a time. */
const BLOCK = new Uint8Array(1 << 20);

const [seed, count] = Deno.args.map(Number) as [number, number];
const random = seededRandom(seed);
const [ours, theirs] = await Promise.all(["a", "b"].map((name) => makeCredentials(name, new Date())));
let encrypted = 0;

/** Resolves a little later. It is what lets the moments differ. */
function pause(maxMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, random() * maxMs));
}

/** Writes to a connection until it breaks, or breaks it. */
async function write(connection: Connection): Promise<void> {
  encrypted++;
  await connection.read(new Uint8Array(1));
  const blocks = random() < .2 ? 0 : random() * 12;
  for (let block = 0; block < blocks; block++) {
    const writing = connection.write(BLOCK);
    if (random() < .1) connection.close();
    await writing;
  }
}

/** The ways in which a client connects, and breaks the connection. */
const CLIENTS: readonly ((port: number) => Promise<void>)[] = [
  async function noise(port) {
    using connection = await Deno.connect({ hostname: HOST, port });
    await connection.write(new Uint8Array([22, 3, 1, 2, 0, 1, 0, 1]).subarray(0, Math.ceil(random() * 8)));
    await pause(20);
  },
  async function handshakeBrokenOff(port) {
    const { certificate: cert, key } = theirs!;
    const options = { caCerts: [ours!.certificate], unsafelyDisableHostnameVerification: true, cert, key };
    using connection = await Deno.connectTls({ hostname: HOST, port, ...options });
    connection.handshake().catch(() => {});
    await pause(10);
  },
  async function readAll(port) {
    await read(port, Infinity, 0);
  },
  async function readSome(port) {
    await read(port, random() * 6e6, 0);
  },
  async function closedWhileReading(port) {
    await read(port, Infinity, 30);
  },
];

async function read(port: number, end: number, closedWithinMs: number): Promise<void> {
  const remote = { node: "a", host: HOST, port, certificate: ours!.certificate };
  const connection = await dial(remote, { credentials: theirs! });
  if (closedWithinMs > 0) pause(closedWithinMs).then(connection.close);
  try {
    await connection.write(new Uint8Array(1));
    const buffer = new Uint8Array(100_000);
    let got = 0;
    for (let part: number | null = 0; part !== null && got < end; got += part ?? 0) {
      part = await connection.read(buffer);
    }
  } finally {
    connection.close();
  }
}

/** Reports whether enough was tried. On a busy machine, few connections are encrypted before the listener is closed. */
function isEnough(done: number): boolean {
  return done >= count && (encrypted > count / 10 || done >= 10 * count);
}

for (let done = 0; !isEnough(done); done += PER_ROUND) {
  const listener = await listen({
    address: { host: HOST, port: 0 },
    credentials: ours!,
    maxConnections: { total: PER_ROUND, ofAddress: random() < .8 ? PER_ROUND : 4 },
    idleMs: 300,
    onConnection: (connection) => void write(connection).catch(() => {}).finally(connection.close),
  });
  const clients = Promise.all(Array.from({ length: PER_ROUND }, async () => {
    await pause(60);
    await CLIENTS[Math.floor(random() * CLIENTS.length)]!(listener.port).catch(() => {}); // they are broken on purpose
  }));
  if (random() < .8) await Promise.race([clients, pause(120)]); // then the listener breaks the others
  else await clients;
  await listener.close();
  await clients;
}
console.log(`encrypted: ${encrypted}`);
Deno.exit(0); // what waits for nothing more would wait for its time limits
