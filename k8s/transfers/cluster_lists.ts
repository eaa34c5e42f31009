/**
 * Lists of changed blocks in a cluster: the controller asks the agent of the node of the snapshots.
 *
 * Each connection has a key and a certificate of its own, which the controller allows by an annotation of the LVMSnapshot, and
 * withdraws when the agent has begun to answer. A connection that breaks, as by a new version of the agent, is followed by
 * another one, which continues the list.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, systemClock } from "../../base/clock.ts";
import type { Extent, ExtentList, ListRequest } from "../../lvm/differences/differences.ts";
import { receiveList } from "../../lvm/differences/remote_list.ts";
import { StorageError } from "../../base/error.ts";
import type { Connection } from "../../lvm/transfers/connection.ts";
import type { SnapshotService } from "../../lvm/volume_service.ts";
import { type LvmNode, type LvmSnapshot, lvmSnapshots } from "../api/lvm_objects.ts";
import { canTransfer, formatListGrant, listGrantAnnotation, listGrantsOf } from "../api/transfers.ts";
import { orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { makeCredentials } from "./certificate.ts";
import { dial } from "./dial.ts";
import { fingerprintOfPem } from "./proof.ts";
import { findRemoteAgent, type RemoteAgentFinder } from "./remote_agent.ts";

/** Options of {@linkcode ClusterLists}. */
export interface ClusterListsOptions extends RemoteAgentFinder {
  /** Finds snapshots. */
  readonly found: Pick<SnapshotService, "get">;
  /** All LVMSnapshots. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "get">;
  /** All LVMNodes. */
  readonly nodes: Pick<Informer<LvmNode>, "get" | "waitFor">;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** How long a permission is valid, in milliseconds: a connection begins at once. */
const GRANT_MS = 60_000;

/** The time in which an agent that is gone must be there again to continue a list, in milliseconds. */
const RESTART_MS = 120_000;

/** The number of connections in a row that may break before a range comes. */
const MAX_BROKEN = 5;

const log = getLogger(["denolith", "transfer"]);

/** The lists of changed blocks of a cluster. */
export class ClusterLists {
  readonly #options: ClusterListsOptions;
  readonly #clock: Clock;

  /** Creates the service; it keeps no state. */
  constructor(options: ClusterListsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  /**
   * Lists what changed between two snapshots, or what one has. See {@linkcode Differences.list}.
   *
   * @throws {StorageError} what the node said; `NotFound`; `InvalidArgument` for snapshots of two volumes;
   * `FailedPrecondition` for those on two nodes; `Unavailable` when the agent of their node does not answer
   */
  async list(request: ListRequest): Promise<ExtentList> {
    const node = await this.#nodeOf(request);
    const first = await this.#receive(node, request);
    return { ...first, extents: this.#continued(node, request, first) };
  }

  async #nodeOf({ base, target }: ListRequest): Promise<string> {
    const { found } = this.#options;
    const newer = await found.get(target);
    const older = base === undefined ? newer : await found.get(base);
    const comparing = `comparing ${base} and ${target}`;
    if (older.source !== newer.source) {
      throw new StorageError(
        "InvalidArgument",
        `${comparing}: they are of volumes ${older.source} and ${newer.source}`,
      );
    }
    if (older.nodeId !== newer.nodeId) {
      throw new StorageError(
        "FailedPrecondition",
        `${comparing}: they are on nodes ${older.nodeId} and ${newer.nodeId}; make a full backup`,
      );
    }
    return newer.nodeId;
  }

  /** Yields the ranges of a list, by further connections where one breaks. */
  async *#continued(
    node: string,
    request: ListRequest,
    first: ExtentList,
  ): AsyncGenerator<readonly Extent[], void> {
    let [from, broken] = [request.from, 0];
    for (let current = first;;) {
      try {
        for await (const group of current.extents) {
          broken = 0;
          yield group;
          const { offset, length } = group.at(-1)!;
          from = offset + length;
        }
        return;
      } catch (error) {
        if (!isBroken(error) || request.signal?.aborted || ++broken === MAX_BROKEN) throw error;
        log.warn("a list of changed blocks is continued by another connection", { node, error });
      }
      current = await this.#receiveAgain(node, { ...request, from }, first);
    }
  }

  /** Continues a list, with the agent that answers now or is started next. */
  async #receiveAgain(node: string, request: ListRequest, first: ExtentList): Promise<ExtentList> {
    const { nodes } = this.#options;
    const { signal } = request;
    const end = this.#clock.now() + RESTART_MS;
    for (;;) {
      const before = nodes.get(node)?.metadata.resourceVersion;
      try {
        return await this.#receive(node, request, first);
      } catch (error) {
        if (!isBroken(error) || signal?.aborted) throw error;
        const isChanged = (object: LvmNode | undefined) =>
          this.#takesPart(object) && object?.metadata.resourceVersion !== before;
        const options = { signal, timeoutMs: Math.max(0, end - this.#clock.now()) };
        if (!await nodes.waitFor(node, isChanged, options).then(() => true, () => false)) throw error;
      }
    }
  }

  #takesPart(node: LvmNode | undefined): boolean {
    return node?.spec.driverName === this.#options.driver && canTransfer(node, this.#clock.date().getTime());
  }

  /** Begins a list. @param first that which it continues, which must be about the same snapshots */
  async #receive(node: string, { signal, ...request }: ListRequest, first?: ExtentList): Promise<ExtentList> {
    const { nodes, driver } = this.#options;
    if (!this.#takesPart(nodes.get(node))) {
      throw new StorageError(
        "Unavailable",
        `listing changed blocks of snapshot ${request.target}: the agent of its node, ${node}, answers no requests of the ` +
          "controller; it needs --transfer-address, which the chart sets with transfer.enabled",
      );
    }
    const credentials = await makeCredentials("controller", this.#clock.date());
    const remote = await findRemoteAgent(this.#options, node);
    const withdraw = await this.#allow(request.target, (await fingerprintOfPem(credentials.certificate))!);
    try {
      const connection = await dial(remote, { credentials, clock: this.#clock });
      const release = closeOnAbort(connection, signal);
      const list = await receiveList(connection, { driver, ...request }, this.#clock).catch((error) => {
        release();
        throw error;
      });
      if (first !== undefined && (list.size !== first.size || list.identity !== first.identity)) {
        release();
        connection.close();
        const why = "it or its base is another one now; start again";
        throw new StorageError("FailedPrecondition", `listing changed blocks of snapshot ${request.target}: ${why}`);
      }
      return { ...list, extents: releasedAtEnd(list.extents, release) };
    } finally {
      await withdraw();
    }
  }

  /** Allows a connection. @returns a function that withdraws the permission */
  async #allow(target: LvmSnapshot["metadata"]["name"], fingerprint: string): Promise<() => Promise<void>> {
    const { client, snapshots } = this.#options;
    const now = this.#clock.date().getTime();
    const name = listGrantAnnotation({ fingerprint });
    const known = snapshots.get(target);
    // those of controllers that have died
    const over = known === undefined ? [] : [...listGrantsOf(known)].filter(([, { until }]) => until < now);
    const write = async (annotations: Record<string, string | null>) =>
      await orAbsent(client.patch(lvmSnapshots, { name: target }, { merge: { metadata: { annotations } } }));
    const value = formatListGrant({ fingerprint, until: now + GRANT_MS });
    const written = await write({ ...Object.fromEntries(over.map(([name]) => [name, null])), [name]: value })
      .catch((error) => {
        const why = (error as Error).message;
        throw new StorageError("Unavailable", `listing changed blocks of snapshot ${target}: ${why}`, { cause: error });
      });
    if (written === undefined) {
      throw new StorageError("NotFound", `listing changed blocks of snapshot ${target}: its LVMSnapshot was deleted`);
    }
    return async () => {
      await write({ [name]: null }).catch((error) => log.warn("a permission ends by itself", { target, error }));
    };
  }
}

/** Reports whether a connection, or the agent at its other end, is gone. */
function isBroken(error: unknown): boolean {
  return error instanceof StorageError && error.kind === "Unavailable";
}

/** Closes a connection when the signal is aborted. @returns a function that ends that */
function closeOnAbort(connection: Connection, signal: AbortSignal | undefined): () => void {
  const close = () => connection.close();
  signal?.addEventListener("abort", close);
  if (signal?.aborted) close();
  return () => signal?.removeEventListener("abort", close);
}

async function* releasedAtEnd<T>(parts: AsyncGenerator<T, void>, release: () => void): AsyncGenerator<T, void> {
  try {
    yield* parts;
  } finally {
    release();
  }
}
