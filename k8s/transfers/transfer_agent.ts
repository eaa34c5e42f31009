/**
 * The part of an agent that sends snapshots to other agents, and fetches theirs.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, sleep, systemClock, timestamp } from "../../lvm/clock.ts";
import type { RemoteRange, RemoteSources } from "../../lvm/copies/fetch.ts";
import { StorageError } from "../../lvm/error.ts";
import type { Machine } from "../../lvm/machine.ts";
import type { Exec } from "../../lvm/exec.ts";
import { Bandwidth } from "../../lvm/transfers/bandwidth.ts";
import type { Connection } from "../../lvm/transfers/connection.ts";
import type { DestinationDevice, ReceivedRange } from "../../lvm/transfers/receiver.ts";
import { receiveRange } from "../../lvm/transfers/receiver.ts";
import { serveTransfer } from "../../lvm/transfers/sender.ts";
import { lvmNodes, type LvmSnapshot } from "../api/lvm_objects.ts";
import type { TransferEndpoint } from "../api/transfers.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { type Credentials, makeCredentials, VALIDITY_MS } from "./certificate.ts";
import { dial, type RemoteAgent } from "./dial.ts";
import { fingerprintOfPem } from "./fingerprint.ts";
import { listen, type Listener, type Peer, type TransferAddress } from "./listener.ts";
import { openSnapshot } from "./snapshot_access.ts";

/** Options of {@linkcode TransferAgent}. */
export interface TransferAgentOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** Runs commands. */
  readonly exec: Exec;
  /** The driver's name. */
  readonly driver: string;
  /** The name of this node. */
  readonly nodeName: string;
  /** The address to listen on. */
  readonly address: TransferAddress;
  /** The IP address at which other agents reach this one. */
  readonly advertised: string;
  /** The bound of what is sent and received, in bytes per second; by default none. */
  readonly bytesPerSecond?: bigint;
  /** The LVMSnapshots of this node. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "get">;
  /** Called when the endpoint changed, which the LVMNode must show. */
  readonly onChange: () => void;
  /** Called after bytes passed. */
  readonly onBytes?: (direction: "sent" | "received", bytes: number) => void;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** The time after which an agent makes another key, in milliseconds. */
const RENEW_MS = VALIDITY_MS / 2;

/** The time until listening is tried again, in milliseconds. */
const RETRY_MS = 10_000;

const log = getLogger(["denolith", "transfer"]);

/** Sends and fetches snapshots. */
export class TransferAgent implements RemoteSources {
  readonly #options: TransferAgentOptions;
  readonly #clock: Clock;
  readonly #bandwidth: Bandwidth;
  #credentials: Credentials | undefined;
  #endpoint: TransferEndpoint | undefined;
  /** Aborted when it does not run any more. */
  readonly #ended = new AbortController();

  /** Creates it. It neither sends nor fetches before {@linkcode TransferAgent.run}. */
  constructor(options: TransferAgentOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#bandwidth = new Bandwidth(options.bytesPerSecond, options.clock);
  }

  /** Returns where other agents reach this one; `undefined` while they cannot. */
  endpoint(): TransferEndpoint | undefined {
    return this.#endpoint;
  }

  /** Listens until the signal is aborted, each day with another key; never fails. */
  async run(machine: Pick<Machine, "lvm" | "snapshotFinder">, end: AbortSignal): Promise<void> {
    while (!end.aborted) {
      let listener: Listener | undefined;
      try {
        listener = await this.#listen(machine);
        await sleep(this.#clock, RENEW_MS, end);
      } catch (error) {
        log.warn("other agents cannot read snapshots of this node", { error });
        await sleep(this.#clock, RETRY_MS, end);
      } finally {
        this.#endpoint = undefined;
        await listener?.close(); // a transfer that it breaks goes on by the next connection
      }
    }
    this.#ended.abort();
  }

  async #listen(machine: Pick<Machine, "lvm" | "snapshotFinder">): Promise<Listener> {
    const { nodeName, address, advertised, onChange } = this.#options;
    const credentials = await makeCredentials(nodeName, this.#clock.date());
    const listener = await listen({
      ...{ address, credentials, clock: this.#clock },
      onConnection: (connection, peer) => void this.#serve(connection, peer, machine),
    });
    this.#credentials = credentials;
    this.#endpoint = {
      address: `${advertised}:${listener.port}`,
      certificate: credentials.certificate,
      validUntil: timestamp(new Date(credentials.validUntil)),
    };
    onChange();
    return listener;
  }

  async #serve(
    connection: Connection,
    peer: Peer,
    { lvm, snapshotFinder }: Pick<Machine, "lvm" | "snapshotFinder">,
  ): Promise<void> {
    const { exec, onBytes = () => {} } = this.#options;
    const access = { ...this.#options, lvm, snapshotFinder, clock: this.#clock };
    try {
      await serveTransfer(connection, {
        ...{ exec, bandwidth: this.#bandwidth },
        open: (request) => openSnapshot(request, peer, access),
        onSent: (bytes) => onBytes("sent", bytes),
      });
    } catch (error) {
      log.warn("another agent could not read", { address: peer.address, error });
    }
  }

  /** Fetches a range; see {@linkcode RemoteSources.fetch}. */
  async fetch(range: RemoteRange, destination: DestinationDevice, signal: AbortSignal): Promise<ReceivedRange> {
    const { exec, driver, nodeName, onBytes = () => {} } = this.#options;
    const credentials = this.#credentials;
    if (credentials === undefined || this.#endpoint === undefined) {
      throw new StorageError("Unavailable", "reading from another agent: this agent has no certificate yet");
    }
    const { node, ...rest } = range;
    const remote = await this.#remoteAgent(node);
    const connection = await dial(remote, { credentials, clock: this.#clock });
    const close = () => connection.close();
    const signals = [signal, this.#ended.signal];
    for (const one of signals) one.addEventListener("abort", close);
    if (signals.some(({ aborted }) => aborted)) close();
    try {
      const request = { driver, node: nodeName, ...rest };
      const onReceived = (bytes: number) => onBytes("received", bytes);
      return await receiveRange(connection, request, { exec, bandwidth: this.#bandwidth, destination, onReceived });
    } finally {
      for (const one of signals) one.removeEventListener("abort", close);
    }
  }

  /** Returns how the agent of a node is reached. @throws {StorageError} `Unavailable` */
  async #remoteAgent(node: string): Promise<RemoteAgent> {
    const unavailable = (why: string, cause?: unknown) =>
      new StorageError("Unavailable", `connection to the agent of node ${node}: ${why}`, { cause });
    const object = await orAbsent(this.#options.client.get(lvmNodes, { name: node })).catch((error) => {
      throw unavailable((error as Error).message, error);
    });
    const { address, certificate } = object?.status?.transfer ?? {};
    if (object === undefined || object.spec.driverName !== this.#options.driver || address === undefined) {
      throw unavailable(`LVMNode ${node} says nothing of transfers`);
    }
    const [, host, port] = /^((?:\d{1,3}\.){3}\d{1,3}):(\d{1,5})$/.exec(address) ?? [];
    if (host === undefined || await fingerprintOfPem(certificate ?? "") === undefined) {
      throw unavailable(`LVMNode ${node} has no address or no certificate that can be read`);
    }
    return { node, host, port: Number(port), certificate: certificate! };
  }
}
