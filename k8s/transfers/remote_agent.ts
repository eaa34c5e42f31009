/**
 * Finds the agent of another node. Flags and LVMNodes have the addresses of agents.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { lvmNodes } from "../api/lvm_objects.ts";
import { type DriverClient, orAbsent } from "../client/client.ts";
import type { RemoteAgent } from "./dial.ts";
import { fingerprintOfPem } from "./proof.ts";

/** What finds agents. */
export interface RemoteAgentFinder extends DriverClient {
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

/** Where an agent is reached. */
export interface AgentAddress {
  /** The IP address. */
  readonly ip: string;
  /** The port. */
  readonly port: number;
}

/** Reports whether a text is an IPv4 address. */
export function isIpv4(text: string): boolean {
  return /^(?:(?:0|[1-9]\d{0,2})\.){3}(?:0|[1-9]\d{0,2})$/.test(text) &&
    text.split(".").every((part) => Number(part) < 256);
}

/** Reports whether a text is an IPv6 address, without a zone. */
export function isIpv6(text: string): boolean {
  return /^[\da-f]*:[\da-f:.]+$/i.test(text) && URL.canParse(`http://[${text}]`);
}

/** Formats an address. */
export function formatAgentAddress({ ip, port }: AgentAddress): string {
  return `${ip.includes(":") ? `[${ip}]` : ip}:${port}`;
}

/** Parses an address; `undefined` when it is not valid. */
export function parseAgentAddress(text: string): AgentAddress | undefined {
  const [, ipv4, ipv6, digits] = /^(?:([\d.]+)|\[([\da-f:.]+)\]):([1-9]\d{0,4})$/i.exec(text) ?? [];
  const [ip, port] = [ipv4 ?? ipv6, Number(digits)];
  const isIp = ipv4 === undefined ? ipv6 !== undefined && isIpv6(ipv6) : isIpv4(ipv4);
  return ip !== undefined && isIp && port <= 65_535 ? { ip, port } : undefined;
}

/**
 * Returns the name of a pod by its IPv6 address (Kubernetes DNS-Based Service Discovery); `undefined` for one of a link, and
 * for one of which no name can be made: no label begins or ends with a hyphen.
 *
 * @param domain the domain with the names of pods
 */
export function podName(ipv6: string, domain: string): string | undefined {
  const shortest = new URL(`http://[${ipv6}]`).hostname.slice(1, -1); // as Kubernetes writes it
  const isOfLink = /^fe[89ab]/.test(shortest);
  return isOfLink || /^:|:$/.test(shortest) ? undefined : `${shortest.replaceAll(":", "-")}.${domain}`;
}
