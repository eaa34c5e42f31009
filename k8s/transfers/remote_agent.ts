/**
 * Finds the agent of another node.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { lvmNodes } from "../api/lvm_objects.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import { parseAgentAddress, podName } from "./address.ts";
import type { RemoteAgent } from "./dial.ts";
import { fingerprintOfPem } from "./fingerprint.ts";

/** What finds agents. */
export interface RemoteAgentFinder {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driver: string;
  /** The domain in which the cluster's DNS has names of pods by their IP addresses; without it, IPv6 addresses are not reached. */
  readonly domain?: string | undefined;
}

/**
 * Returns how the agent of a node is reached, as its LVMNode says now. An IPv6 address is reached by the name of the pod: Deno
 * knows no right on one port of all of them.
 *
 * @throws {StorageError} `Unavailable`
 */
export async function findRemoteAgent(
  { client, driver, domain }: RemoteAgentFinder,
  node: string,
): Promise<RemoteAgent> {
  const unavailable = (why: string, cause?: unknown) =>
    new StorageError("Unavailable", `connection to the agent of node ${node}: ${why}`, { cause });
  const object = await orAbsent(client.get(lvmNodes, { name: node })).catch((error) => {
    throw unavailable((error as Error).message, error);
  });
  const { address, certificate } = object?.status?.transfer ?? {};
  if (object === undefined || object.spec.driverName !== driver || address === undefined) {
    throw unavailable(`LVMNode ${node} says nothing of transfers`);
  }
  const { ip, port } = parseAgentAddress(address) ?? {};
  const isNamed = ip?.includes(":");
  if (isNamed && domain === undefined) {
    throw unavailable(`it has an IPv6 address alone, ${ip}, which is reached with --transfer-domain`);
  }
  const host = isNamed ? podName(ip!, domain!) : ip;
  if (host === undefined || port === undefined || await fingerprintOfPem(certificate ?? "") === undefined) {
    throw unavailable(`LVMNode ${node} has no address or no certificate that can be read`);
  }
  return { node, host, port, certificate: certificate! };
}
