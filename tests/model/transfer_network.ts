/**
 * The network between the agents of a world: connections in memory, which end with their processes, and show certificates, but
 * encrypt nothing.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import type { dial } from "../../k8s/transfers/dial.ts";
import type { AcceptedConnection, listen, ListenerOptions } from "../../k8s/transfers/listener.ts";
import { fingerprintOfPem } from "../../k8s/transfers/proof.ts";
import type { TransferNetwork } from "../../k8s/transfers/transfer_agent.ts";
import type { Connection } from "../../lvm/transfers/connection.ts";
import { connectionPair } from "../fake/machine/byte_devices.ts";
import type { Network } from "./network.ts";
import { count } from "./tally.ts";
import { currentProcess, type Process } from "./world.ts";

/** The time without progress after which a connection is closed, in milliseconds. */
const IDLE_MS = 60_000;

/** An agent that listens. */
interface Listening {
  readonly process: Process;
  readonly options: ListenerOptions;
  readonly connections: Set<Connection>;
}

/** The network. */
export class MemoryNetwork implements TransferNetwork {
  readonly #network: Network;
  readonly #listening = new Map<string, Listening>();

  constructor(network: Network) {
    this.#network = network;
  }

  /** See {@linkcode TransferNetwork}. */
  readonly listen: typeof listen = (options) => {
    const process = currentProcess()!;
    const { host, port } = options.address;
    const key = `${host}:${port}`;
    const own: Listening = { process, options, connections: new Set() };
    this.#listening.set(key, own);
    const close = () => {
      if (this.#listening.get(key) === own) this.#listening.delete(key);
      for (const connection of own.connections) connection.close();
      return Promise.resolve();
    };
    process.end.signal.addEventListener("abort", close);
    return Promise.resolve({ port, close });
  };

  /** See {@linkcode TransferNetwork}. */
  readonly dial: typeof dial = async ({ node, host, port, certificate }, { credentials }) => {
    const process = currentProcess()!;
    const fail = (why: string) => new StorageError("Unavailable", `connection to the agent of node ${node}: ${why}`);
    await process.world.sleep(process.world.between(1, 50));
    const other = this.#listening.get(`${host}:${port}`);
    const isCut = [process, other?.process].some((one) => this.#network.cutOf(one) !== undefined);
    if (other === undefined || isCut) throw fail("it cannot be reached");
    if (other.options.credentials.certificate !== certificate) throw fail("it does not have the key");
    const [client, server] = connectionPair();
    const gone = Promise.withResolvers<void>();
    const close = () => {
      client.close();
      gone.resolve();
      other.connections.delete(client);
    };
    other.connections.add({ ...client, close });
    process.end.signal.addEventListener("abort", close);
    const accepted: AcceptedConnection = { ...withIdleLimit(server), closed: () => gone.promise, abort: close };
    const peer = {
      address: process.name,
      fingerprint: (await fingerprintOfPem(credentials.certificate))!,
      validUntil: Infinity,
    };
    other.process.run(() => other.options.onConnection(accepted, peer));
    count("transfer");
    return { ...withIdleLimit(client), close };
  };
}

/** Closes a connection on which nothing comes for long. */
function withIdleLimit(connection: Connection): Connection {
  const limited = async <T>(body: Promise<T>): Promise<T> => {
    const timer = setTimeout(() => connection.close(), IDLE_MS);
    try {
      return await body;
    } finally {
      clearTimeout(timer);
    }
  };
  return {
    read: (buffer) => limited(connection.read(buffer)),
    write: (bytes) => limited(connection.write(bytes)),
    close: () => connection.close(),
  };
}
