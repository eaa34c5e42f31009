/**
 * Listens for other agents, by TLS on both sides. `Deno.listenTls` asks for no certificate of the client; node:tls does.
 *
 * The client proves that it has the key of its certificate. No authority has signed it: who the client is, its certificate
 * in the LVMNode of its node says.
 *
 * @module
 */

import type { TlsOptions, TLSSocket } from "node:tls";
import type { Socket } from "node:net";
import type { Buffer } from "node:buffer";
import { type Connection, readAll } from "../../lvm/transfers/connection.ts";
import { StorageError } from "../../base/error.ts";
import { type Clock, systemClock, withinDeadline } from "../../base/clock.ts";
import type { Credentials } from "./certificate.ts";
import { CHALLENGE_BYTES, fingerprintOf, makeProof } from "./proof.ts";

/** An address to listen on. */
export interface TransferAddress {
  /** The IP address. */
  readonly host: string;
  /** The port. */
  readonly port: number;
}

/** What another agent has shown of itself. */
export interface Peer {
  /** Its address, for messages. */
  readonly address: string;
  /** The fingerprint of its certificate. */
  readonly fingerprint: string;
  /** The time until which the certificate is valid, in milliseconds since 1970. */
  readonly validUntil: number;
}

/** A connection of another agent, or of the controller. */
export interface AcceptedConnection extends Connection {
  /** Resolves when the other end has closed it. Nothing may be read meanwhile. */
  closed(): Promise<void>;
  /** Closes it at once: what was not sent yet is lost. */
  abort(): void;
}

/** Options of {@linkcode listen}. */
export interface ListenerOptions {
  /** The address. */
  readonly address: TransferAddress;
  /** The certificate and the key. */
  readonly credentials: Credentials;
  /** Called with each connection of a client that has shown a certificate, and to which this end has proved who it is. */
  readonly onConnection: (connection: AcceptedConnection, peer: Peer) => void;
  /** The maximum number of connections, encrypted or not, in all and of one address; others are closed. */
  readonly maxConnections?: { readonly total: number; readonly ofAddress: number };
  /** The time that a connection may take to continue to read or write, and to be closed, in milliseconds. */
  readonly idleMs?: number;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** Listens until it is closed. */
export interface Listener {
  /** The port. */
  readonly port: number;
  /** Closes it, and all connections. */
  close(): Promise<void>;
}

/** The time in which a connection is encrypted, and its end that was dialed has proved who it is, in milliseconds. */
export const CONNECT_MS = 20_000;

/** The time without progress after which a connection is closed, in milliseconds. */
export const IDLE_MS = 60_000;

/** The maximum number of connections: a stranger, who is refused only by its request, must not keep out others. */
const MAX_CONNECTIONS = { total: 32, ofAddress: 8 };

/** Begins to listen. @throws {Error} when the address is in use */
export async function listen(
  { address, credentials, onConnection, maxConnections = MAX_CONNECTIONS, idleMs = IDLE_MS, clock = systemClock }:
    ListenerOptions,
): Promise<Listener> {
  const connectMs = Math.min(CONNECT_MS, idleMs);
  const { createServer } = await import("node:tls"); // needed only where transfers are on
  const connections = new Set<Socket>();
  /** What ends the time limits of those that are not encrypted yet, by the port of the other end. */
  const handshakes = new Map<string, () => void>();
  const options: TlsOptions = {
    ...{ key: credentials.key, cert: credentials.certificate, minVersion: "TLSv1.3" },
    ...{ requestCert: true, rejectUnauthorized: false },
  };
  /** Proves to a client that this is the agent. */
  const isProved = async (connection: AcceptedConnection, fingerprint: string) => {
    const prove = async () => {
      const challenge = await readAll(connection, new Uint8Array(CHALLENGE_BYTES));
      await connection.write(await makeProof(credentials.key, challenge, fingerprint));
      return true;
    };
    return await withinDeadline(prove(), connectMs, { clock }).catch(() => false) ?? false;
  };
  const server = createServer(options, async (socket: TLSSocket) => {
    handshakes.get(keyOf(socket))?.(); // from now on, its reads and writes have time limits
    socket.on("error", () => {}); // its reads and writes fail
    // the certificate of a client without one is an empty object
    const { raw, valid_to: validTo } = socket.getPeerCertificate() as { raw?: Buffer; valid_to?: string };
    const connection = socketConnection(socket, idleMs, clock); // before anything comes
    const address = String(socket.remoteAddress);
    if (raw === undefined) return connection.abort();
    const fingerprint = await fingerprintOf(new Uint8Array(raw));
    if (!await isProved(connection, fingerprint)) return connection.abort();
    onConnection(connection, { address, fingerprint, validUntil: Date.parse(validTo ?? "") });
  });
  server.on("connection", (socket: Socket) => {
    const ofAddress = [...connections].filter(({ remoteAddress }) => remoteAddress === socket.remoteAddress).length;
    if (connections.size >= maxConnections.total || ofAddress >= maxConnections.ofAddress) return void socket.destroy();
    connections.add(socket);
    const key = keyOf(socket); // it has none when it is closed
    // node:tls reads the bytes of the socket: it has no event for them
    const cancel = clock.after(connectMs, () => socket.destroy());
    handshakes.set(key, cancel);
    socket.once("close", () => {
      cancel();
      handshakes.delete(key);
      connections.delete(socket);
    });
    socket.on("error", () => {}); // it is closed
  });
  server.on("tlsClientError", (_error: unknown, socket: TLSSocket) => socket.destroy());
  const listening = Promise.withResolvers<void>();
  server.once("error", listening.reject);
  server.listen(address.port, address.host, () => listening.resolve());
  await listening.promise;
  return {
    port: (server.address() as { port: number }).port,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of connections) socket.destroy();
      await closed;
    },
  };
}

function keyOf({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">): string {
  return `${remoteAddress} ${remotePort}`;
}

/** Makes a connection of a socket. It reads no further than somebody wants to read. */
function socketConnection(socket: TLSSocket, idleMs: number, clock: Clock): AcceptedConnection {
  let received: Uint8Array = new Uint8Array(0);
  let changed = Promise.withResolvers<void>();
  let [isOver, isClosing] = [false, false];
  const wake = () => {
    changed.resolve();
    changed = Promise.withResolvers<void>();
  };
  const end = () => {
    isOver = true;
    wake();
  };
  socket.on("data", (bytes: Uint8Array) => {
    socket.pause();
    received = received.length === 0 ? bytes : joined(received, bytes);
    wake();
  });
  for (const event of ["end", "close", "error"]) socket.on(event, end);
  const hurry = async <T>(progress: Promise<T>) => {
    if (await withinDeadline(progress.then(() => true), idleMs, { clock })) return;
    socket.destroy();
    throw new StorageError("Unavailable", `connection to another agent: no progress in ${idleMs / 1000} s`);
  };
  return {
    read: async (buffer) => {
      while (received.length === 0) {
        if (isOver) return null;
        socket.resume();
        await hurry(changed.promise);
      }
      const count = Math.min(buffer.length, received.length);
      buffer.set(received.subarray(0, count));
      received = received.subarray(count);
      return count;
    },
    write: async (bytes) => {
      if (isOver) throw new StorageError("Unavailable", "connection to another agent: it is closed");
      const written = new Promise<void>((resolve, reject) => {
        socket.once("close", reject);
        socket.write(bytes, (error) => {
          socket.off("close", reject);
          if (error) reject(error);
          else resolve();
        });
      });
      await hurry(written.catch(() => {
        throw new StorageError("Unavailable", "connection to another agent: it was closed");
      }));
    },
    close: () => {
      socket.end(); // sends what was written before, and waits for the other end, which may never close it
      if (isClosing || socket.destroyed) return;
      isClosing = true;
      socket.once("close", clock.after(idleMs, () => socket.destroy()));
    },
    abort: () => void socket.destroy(),
    closed: async () => {
      socket.resume(); // a socket that reads nothing does not notice its end
      while (!isOver) await changed.promise;
    },
  };
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}
