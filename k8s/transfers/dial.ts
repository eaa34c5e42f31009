/**
 * Connects to the agent of another node, by TLS on both sides.
 *
 * The agent proves that it has the key of the certificate in the LVMNode of that node. Bytes are read into a buffer of the
 * caller: node:tls would allocate one for each read, which V8 collects late. The time limit of a connection without progress
 * has one timer: one for each read costs as much as the read, where V8 compiles nothing, as in the driver.
 *
 * @module
 */

import { type Connection, readAll } from "../../lvm/transfers/connection.ts";
import { StorageError } from "../../base/error.ts";
import { type Clock, systemClock, withinDeadline } from "../../base/clock.ts";
import type { Credentials } from "./certificate.ts";
import { CHALLENGE_BYTES, fingerprintOfPem, isProof, PROOF_BYTES } from "./proof.ts";
import { CONNECT_MS, IDLE_MS } from "./listener.ts";

/** The agent of another node. */
export interface RemoteAgent {
  /** The name of its node, for messages. */
  readonly node: string;
  /** Its IPv4 address, or the name of its pod. */
  readonly host: string;
  /** Its port. */
  readonly port: number;
  /** Its certificate, as PEM. */
  readonly certificate: string;
}

/** Options of {@linkcode dial}. */
export interface DialOptions {
  /** The certificate and the key of this agent. */
  readonly credentials: Pick<Credentials, "certificate" | "key">;
  /** The time after which a connection without progress is closed, in milliseconds. */
  readonly idleMs?: number;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/**
 * Connects to an agent.
 *
 * @throws {StorageError} `Unavailable` when it cannot be reached, or is not the agent of that node
 */
export async function dial(
  { node, host, port, certificate }: RemoteAgent,
  { credentials, idleMs = IDLE_MS, clock = systemClock }: DialOptions,
): Promise<Connection> {
  const where = `connection to the agent of node ${node} (${host}:${port})`;
  const attempt: { connection?: Deno.TlsConn; isOver?: true } = {};
  const connecting = connect({ node, host, port, certificate }, credentials, (connection) => {
    attempt.connection = connection;
    if (attempt.isOver) connection.close();
  });
  const connection = await withinDeadline(connecting, CONNECT_MS, { clock }).catch((error) => {
    throw new StorageError("Unavailable", `${where}: ${withDnsHint(error)}`, { cause: error });
  });
  if (connection === undefined) {
    attempt.isOver = true;
    attempt.connection?.close(); // what it waits for may never come
    connecting.catch(() => {});
    throw new StorageError("Unavailable", `${where}: no answer in ${CONNECT_MS / 1000} s`);
  }
  const fail = (why: string, cause?: unknown) => new StorageError("Unavailable", `${where}: ${why}`, { cause });
  const noProgress = `no progress in ${idleMs / 1000} s`;
  let isClosed = false;
  const close = () => {
    limit.close();
    if (!isClosed) connection.close(); // a read fails then
    isClosed = true;
  };
  const limit = new IdleLimit(idleMs, clock, close);
  return {
    read: async (buffer) => {
      limit.begin();
      try {
        return await connection.read(buffer);
      } catch (error) {
        throw fail(limit.isOver ? noProgress : (error as Error).message, error);
      } finally {
        limit.end();
      }
    },
    write: async (bytes) => {
      for (let at = 0; at < bytes.length;) {
        // unlike a read, it hangs on where the connection is closed
        const written = await withinDeadline(connection.write(bytes.subarray(at)), idleMs, { clock }).catch((error) => {
          throw fail((error as Error).message, error);
        });
        if (written === undefined) {
          close();
          throw fail(noProgress);
        }
        at += written;
      }
    },
    close,
  };
}

async function connect(
  { host, port, certificate }: RemoteAgent,
  { certificate: cert, key }: DialOptions["credentials"],
  onOpen: (connection: Deno.TlsConn) => void,
): Promise<Deno.TlsConn> {
  const connection = await Deno.connectTls({
    ...{ hostname: host, port, cert, key, caCerts: [certificate] },
    // what counts is the proof: Deno trusts its usual authorities as well
    unsafelyDisableHostnameVerification: true,
  });
  onOpen(connection);
  try {
    await connection.handshake();
    await requireProof(connection, certificate, cert);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** Returns the message of a failure to connect, with what to do where a name is missing. */
export function withDnsHint({ message }: Error): string {
  const hint = "; the cluster's DNS must have names of pods by their addresses, as CoreDNS has with `pods insecure`";
  return message.includes("lookup address") ? message + hint : message;
}

/** Requires the proof that the other end has the key of a certificate. @param own the certificate of this end */
async function requireProof(connection: Deno.TlsConn, certificate: string, own: string): Promise<void> {
  const challenge = crypto.getRandomValues(new Uint8Array(CHALLENGE_BYTES));
  for (let at = 0; at < challenge.length;) at += await connection.write(challenge.subarray(at));
  const proof = await readAll(connection, new Uint8Array(PROOF_BYTES));
  const fingerprint = await fingerprintOfPem(own) ?? "";
  if (await isProof(certificate, proof, { challenge, fingerprint })) return;
  throw new Error("it does not have the key of the certificate in its LVMNode");
}

/** Calls a function when something takes too long. One thing at a time is waited for. */
export class IdleLimit {
  readonly #ms: number;
  readonly #clock: Clock;
  readonly #onIdle: () => void;
  /** When what is waited for began, by the clock's `now()`; `undefined` while nothing is. */
  #since: number | undefined;
  #cancel: (() => void) | undefined;
  #isOver = false;

  /**
   * Creates a limit. Nothing is waited for yet.
   *
   * @param ms the time, in milliseconds
   * @param onIdle called once when it is over
   */
  constructor(ms: number, clock: Clock, onIdle: () => void) {
    this.#ms = ms;
    this.#clock = clock;
    this.#onIdle = onIdle;
  }

  /** Reports whether something took too long. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Begins to wait. */
  begin(): void {
    this.#since = this.#clock.now();
    if (this.#cancel === undefined) this.#start(this.#ms);
  }

  /** Ends waiting: there was progress. The timer goes on, for what is waited for next. */
  end(): void {
    this.#since = undefined;
  }

  /** Ends the timer. */
  close(): void {
    this.end();
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #start(ms: number): void {
    this.#cancel = this.#clock.after(ms, () => {
      this.#cancel = undefined;
      if (this.#since === undefined) return;
      const left = this.#since + this.#ms - this.#clock.now();
      if (left > 0) return this.#start(left);
      this.#isOver = true;
      this.#onIdle();
    });
  }
}
