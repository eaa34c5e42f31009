/**
 * The part of an agent that sends snapshots to other agents, and fetches theirs.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, sleep, systemClock, timestamp, withinDeadline } from "../../base/clock.ts";
import type { RemoteRange, RemoteSources } from "../../lvm/copies/fetch.ts";
import { isListRequest } from "../../lvm/differences/list_protocol.ts";
import { serveList } from "../../lvm/differences/remote_list.ts";
import { StorageError } from "../../base/error.ts";
import type { Machine } from "../../lvm/machine.ts";
import type { Exec } from "../../lvm/exec.ts";
import { Bandwidth, readJson } from "../../lvm/transfers/connection.ts";
import type { DestinationDevice, ReceivedRange } from "../../lvm/transfers/receiver.ts";
import { receiveRange } from "../../lvm/transfers/receiver.ts";
import { type SenderOptions, serveTransfer } from "../../lvm/transfers/sender.ts";
import type { LvmSnapshot } from "../api/lvm_objects.ts";
import type { TransferEndpoint } from "../api/transfers.ts";
import type { Informer } from "../runtime/informer.ts";
import { type Credentials, makeCredentials, VALIDITY_MS } from "./certificate.ts";
import { type AgentAddress, findRemoteAgent, formatAgentAddress, podName } from "./remote_agent.ts";
import { dial, withDnsHint } from "./dial.ts";
import {
  type AcceptedConnection,
  CONNECT_MS,
  listen,
  type Listener,
  type Peer,
  type TransferAddress,
} from "./listener.ts";
import { openSnapshot, requireListAllowed } from "./access.ts";
import type { NodeClient } from "../client/client.ts";

/** How agents reach each other. */
export interface TransferNetwork {
  readonly listen: typeof listen;
  readonly dial: typeof dial;
}

/** Options of {@linkcode TransferAgent}. */
export interface TransferAgentOptions extends NodeClient {
  /** How agents reach each other; by TLS, when absent. */
  readonly network?: TransferNetwork;
  /** Runs commands. */
  readonly exec: Exec;
  /** The address to listen on. */
  readonly address: TransferAddress;
  /** The IP address at which other agents reach this one. */
  readonly advertised: string;
  /** The domain with the names of pods, by which IPv6 addresses are reached. */
  readonly domain?: string;
  /** The bound of what is sent and received, in bytes per second; by default none. */
  readonly bytesPerSecond?: bigint;
  /** The LVMSnapshots of this node. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "waitFor">;
  /** Called when the endpoint changed, which the LVMNode must show. */
  readonly onChange: () => void;
  /** Called after bytes passed. */
  readonly onBytes?: (direction: "sent" | "received", bytes: number) => void;
}

/** The time after which an agent makes another key, in milliseconds. */
const RENEW_MS = VALIDITY_MS / 2;

/** The time until listening is tried again, in milliseconds. */
const RETRY_MS = 10_000;

/** The maximum number of transfers at a time: each needs two blocks of memory, and reads a disk. */
const MAX_TRANSFERS = 8;

/** The maximum number of lists of changed blocks at a time. */
const MAX_LISTS = 4;

/** What connections need of the machine. */
type MachineParts = Pick<Machine, "lvm" | "snapshotFinder" | "differences">;

const log = getLogger(["denolith", "transfer"]);

/** Sends and fetches snapshots. */
export class TransferAgent implements RemoteSources {
  readonly #options: TransferAgentOptions;
  readonly #clock: Clock;
  readonly #network: TransferNetwork;
  readonly #bandwidth: Bandwidth;
  #credentials: Credentials | undefined;
  #endpoint: TransferEndpoint | null | undefined;
  /** The numbers of requests that are being answered. */
  readonly #answers = { transfers: 0, lists: 0 };
  /** Aborted when it does not run any more. */
  readonly #ended = new AbortController();

  /** Creates it. It neither sends nor fetches before {@linkcode TransferAgent.run}. */
  constructor(options: TransferAgentOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#network = options.network ?? { listen, dial };
    this.#bandwidth = new Bandwidth(options.bytesPerSecond, options.clock);
  }

  /** Returns where other agents reach this one; `null` if they cannot, `undefined` while it makes another key. */
  endpoint(): TransferEndpoint | null | undefined {
    return this.#endpoint;
  }

  /** Listens until the signal is aborted, each day with another key; never fails. */
  async run(machine: MachineParts, end: AbortSignal): Promise<void> {
    while (!end.aborted) {
      let listener: Listener | undefined;
      try {
        listener = await this.#listen(machine, end);
        await sleep(this.#clock, RENEW_MS, end);
        this.#endpoint = undefined;
      } catch (error) {
        this.#endpoint = null;
        if (!end.aborted) log.warn("other agents cannot read snapshots of this node", { error });
        await sleep(this.#clock, RETRY_MS, end);
      } finally {
        await listener?.close(); // a transfer that it breaks goes on by the next connection
      }
    }
    this.#ended.abort();
  }

  async #listen(machine: MachineParts, end: AbortSignal): Promise<Listener> {
    const { nodeName, address, advertised, domain, onChange } = this.#options;
    const credentials = await makeCredentials(nodeName, this.#clock.date());
    const listener = await this.#network.listen({
      ...{ address, credentials, clock: this.#clock },
      onConnection: (connection, peer) => void this.#serve(connection, peer, machine),
    });
    const own = { ip: advertised, port: listener.port };
    try {
      await requireReachable(own, domain, { signal: end, clock: this.#clock });
    } catch (error) {
      await listener.close();
      throw error;
    }
    this.#credentials = credentials;
    this.#endpoint = {
      address: formatAgentAddress(own),
      certificate: credentials.certificate,
      validUntil: timestamp(new Date(credentials.validUntil)),
    };
    onChange();
    return listener;
  }

  async #serve(connection: AcceptedConnection, peer: Peer, machine: MachineParts): Promise<void> {
    let isList = false;
    try {
      const request = await this.#readRequest(connection);
      isList = isListRequest(request);
      if (isList) await this.#serveList(connection, request, peer, machine);
      else await this.#serveTransfer(connection, request, peer, machine);
    } catch (error) {
      connection.close();
      const message = isList ? "the controller could not list changed blocks" : "another agent could not read";
      log.warn(message, { address: peer.address, error });
    }
  }

  /** Reads a request, or ends the connection at once. */
  async #readRequest(connection: AcceptedConnection): Promise<Uint8Array> {
    try {
      return await readJson(connection, this.#clock);
    } catch (error) {
      connection.abort();
      throw error;
    }
  }

  async #serveTransfer(
    connection: AcceptedConnection,
    request: Uint8Array,
    peer: Peer,
    { lvm, snapshotFinder, differences }: MachineParts,
  ): Promise<void> {
    const { exec, onBytes = () => {} } = this.#options;
    const access = { ...this.#options, lvm, snapshotFinder, differences, clock: this.#clock };
    await this.#counted("transfers", MAX_TRANSFERS, async (begin) => {
      const options: SenderOptions = {
        ...{ exec, bandwidth: this.#bandwidth, clock: this.#clock },
        open: async (request) => {
          const device = await openSnapshot(request, peer, access);
          begin(`reading snapshot ${request.snapshot}: ${MAX_TRANSFERS} transfers run`);
          return device;
        },
        onSent: (bytes) => onBytes("sent", bytes),
      };
      await serveTransfer(connection, options, request);
    });
  }

  /**
   * Runs a body that answers a request.
   *
   * @param body which calls `begin` when the request is allowed, with what it says if there are too many such answers
   */
  async #counted(
    kind: "transfers" | "lists",
    most: number,
    body: (begin: (refusal: string) => void) => Promise<void>,
  ): Promise<void> {
    let isCounted = false;
    try {
      await body((refusal) => {
        if (this.#answers[kind] === most) {
          throw new StorageError("Unavailable", `${refusal} on node ${this.#options.nodeName}; try again`);
        }
        this.#answers[kind]++;
        isCounted = true;
      });
    } finally {
      if (isCounted) this.#answers[kind]--;
    }
  }

  async #serveList(
    connection: AcceptedConnection,
    request: Uint8Array,
    peer: Peer,
    { differences }: MachineParts,
  ): Promise<void> {
    await this.#counted("lists", MAX_LISTS, async (begin) =>
      await serveList(connection, request, {
        ...{ differences, clock: this.#clock },
        allow: async (request) => {
          await requireListAllowed(request, peer, { ...this.#options, clock: this.#clock });
          begin(`listing changed blocks of snapshot ${request.target}: ${MAX_LISTS} lists of changed blocks are made`);
        },
      }));
  }

  /** Fetches a range; see {@linkcode RemoteSources.fetch}. */
  async fetch(range: RemoteRange, destination: DestinationDevice, signal: AbortSignal): Promise<ReceivedRange> {
    const { exec, driver, nodeName, onBytes = () => {} } = this.#options;
    const credentials = this.#credentials;
    if (credentials === undefined || !this.#endpoint) {
      throw new StorageError("Unavailable", "reading from another agent: this agent has no certificate yet");
    }
    const { node, ...rest } = range;
    const remote = await findRemoteAgent(this.#options, node);
    const connection = await this.#network.dial(remote, { credentials, clock: this.#clock });
    const close = () => connection.close();
    const signals = [signal, this.#ended.signal];
    for (const one of signals) one.addEventListener("abort", close);
    if (signals.some(({ aborted }) => aborted)) close();
    try {
      const request = { driver, node: nodeName, ...rest };
      const onReceived = (bytes: number) => onBytes("received", bytes);
      const options = { exec, bandwidth: this.#bandwidth, destination, onReceived, clock: this.#clock };
      return await receiveRange(connection, request, options);
    } finally {
      for (const one of signals) one.removeEventListener("abort", close);
    }
  }
}

/** Requires that the name exists by which an IPv6 address is reached. Otherwise volumes would wait for this agent in vain. */
async function requireReachable(
  { ip, port }: AgentAddress,
  domain: string | undefined,
  options: { readonly signal: AbortSignal; readonly clock: Clock },
): Promise<void> {
  if (!ip.includes(":")) return;
  const hostname = podName(ip, domain ?? "");
  if (domain === undefined || hostname === undefined) throw new Error(`${ip} has no name in the cluster's DNS`);
  const fail = (why: string) => new StorageError("Unavailable", `connecting to ${hostname}, as agents do: ${why}`);
  const connecting = Deno.connect({ hostname, port }).then((connection) => {
    connection.close();
    return true;
  }, (error) => {
    throw fail(withDnsHint(error));
  });
  if (await withinDeadline(connecting, CONNECT_MS, options)) return;
  throw fail(options.signal.aborted ? "this process ends" : `no answer in ${CONNECT_MS / 1000} s`);
}
