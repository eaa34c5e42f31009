/**
 * Finds the agent of another node.
 *
 * @module
 */

import { StorageError } from "../../lvm/error.ts";
import { lvmNodes } from "../api/lvm_objects.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import type { RemoteAgent } from "./dial.ts";
import { fingerprintOfPem } from "./fingerprint.ts";

/**
 * Returns how the agent of a node is reached, as its LVMNode says now.
 *
 * @throws {StorageError} `Unavailable`
 */
export async function findRemoteAgent(
  { client, driver }: { readonly client: ApiClient; readonly driver: string },
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
  const [, host, port] = /^((?:\d{1,3}\.){3}\d{1,3}):(\d{1,5})$/.exec(address) ?? [];
  if (host === undefined || await fingerprintOfPem(certificate ?? "") === undefined) {
    throw unavailable(`LVMNode ${node} has no address or no certificate that can be read`);
  }
  return { node, host, port: Number(port), certificate: certificate! };
}
