/**
 * The flags of transfers between agents. The process that parses the command line loads this module, so it stays small.
 *
 * @module
 */

import { defined } from "../base/defined.ts";
import { type Flag, type Flags, UsageError } from "./command_line.ts";
import { quote } from "../base/error.ts";
import { formatAgentAddress, isIpv4, isIpv6, parseAgentAddress, podName } from "../k8s/transfers/remote_agent.ts";
import { formatBytes, parseQuantity } from "../base/size.ts";

/** The smallest bandwidth, in bytes per second: a block of 4 MiB passes long before a connection counts as stalled. */
const MIN_BYTES_PER_SECOND = 1n << 20n;

/** The flag by which agents with IPv6 addresses alone are reached. Deno knows no right on a port of all of these. */
const DOMAIN_FLAG = {
  value: "DOMAIN",
  help:
    "Domain in which the cluster's DNS has names of pods by addresses, such as NAMESPACE.pod, to reach agents with IPv6 " +
    "alone (default: they take no part)",
  check: transferDomain,
} as const;

/** The flags of transfers. */
export const TRANSFER_FLAGS = {
  "transfer-address": {
    value: "ADDRESS",
    help:
      "Address on which agents of other nodes read snapshots, HOST:PORT, or :PORT for all addresses; all agents need the " +
      "same port (default: no transfers)",
    check: transferAddress,
  },
  "transfer-advertise": {
    value: "IPS",
    help:
      "Addresses of this agent, separated by commas; others reach it at the first IPv4 address, or with --transfer-domain " +
      "at the first IPv6 one (required for transfers)",
    needs: "transfer-address",
    check: advertisedAddresses,
  },
  "transfer-domain": { ...DOMAIN_FLAG, needs: "transfer-address" },
  "transfer-bandwidth": {
    value: "RATE",
    help: "Bytes that may be sent, and the same number received, in a second, such as 100Mi (default: no limit)",
    needs: "transfer-address",
    check: bandwidth,
  },
} as const satisfies Record<string, Flag>;

/** The flags of the controller, which asks agents. */
export const ASKING_FLAGS = {
  "transfer-port": {
    value: "PORT",
    help: "Port of the agents, as of their --transfer-address, to ask them for changed blocks of snapshots " +
      "(default: the CSI service SnapshotMetadata is off)",
    check: transferPort,
  },
  "transfer-domain": { ...DOMAIN_FLAG, needs: "transfer-port" },
} as const satisfies Record<string, Flag>;

/** The values of the flags of transfers. */
export interface TransferFlagValues {
  /** The address to listen on. */
  readonly address: { readonly host: string; readonly port: number };
  /** The address at which other agents reach this one. */
  readonly advertised: string;
  /** The domain with the names of pods. */
  readonly domain?: string;
  /** The bound of what is sent or received, in bytes per second. */
  readonly bytesPerSecond?: bigint;
}

/**
 * Parses the flags of transfers.
 *
 * @returns the values, or `undefined` where transfers are off, or others cannot reach the node
 * @throws {UsageError} when one of them cannot be parsed, or is missing
 */
export function transferOptions(flags: Flags): TransferFlagValues | undefined {
  const [address, advertised, rate] = ["address", "advertise", "bandwidth"].map((name) => flags[`transfer-${name}`]);
  if (address === undefined) return undefined;
  if (advertised === undefined) throw new UsageError("--transfer-address: it needs --transfer-advertise");
  const domain = domainOf(flags);
  const addresses = advertisedAddresses(advertised, "--transfer-advertise");
  const { host, port } = transferAddress(address, "--transfer-address");
  const ipv4 = isIpv6(host) && host !== "::" ? undefined : addresses.find(isIpv4);
  const own = ipv4 ?? (domain === undefined || isIpv4(host) ? undefined : addresses.find(isNamed));
  const bytesPerSecond = rate === undefined ? undefined : bandwidth(rate, "--transfer-bandwidth");
  const values = {
    address: { host: host || (own === ipv4 ? "0.0.0.0" : "::"), port },
    ...defined({ domain, bytesPerSecond }),
  };
  return own === undefined ? undefined : { ...values, advertised: own };
}

/** Returns the hosts that transfers need: this agent's address, and the same port of any other. */
export function transferHosts(flags: Flags): string[] {
  const options = transferOptions(flags);
  if (options === undefined) return [];
  const { address: { host, port }, domain } = options;
  return [...hostsAt(port, domain), ...(host.includes(":") ? [formatAgentAddress({ ip: host, port })] : [])];
}

/** Returns the hosts that the controller needs to ask agents. */
export function askedHosts(flags: Flags): string[] {
  const port = flags["transfer-port"];
  return port === undefined ? [] : hostsAt(transferPort(port, "--transfer-port"), domainOf(flags));
}

/** Returns the domain with the names of pods; `undefined` if none is given. */
export function domainOf({ "transfer-domain": domain }: Flags): string | undefined {
  return domain === undefined ? undefined : transferDomain(domain, "--transfer-domain");
}

/** Returns what a process needs to connect to a port of any agent. */
function hostsAt(port: number, domain: string | undefined): string[] {
  return [`0.0.0.0/0:${port}`, ...(domain === undefined ? [] : [`*.${domain}:${port}`])];
}

function transferPort(text: string, field: string): number {
  if (/^[1-9]\d{0,4}$/.test(text) && Number(text) <= 65_535) return Number(text);
  throw new UsageError(`${field} ${quote(text)}: must be a port`);
}

/** Parses an address to listen on. @returns an empty host for all addresses */
function transferAddress(text: string, field: string): TransferFlagValues["address"] {
  const parsed = parseAgentAddress(text.startsWith(":") ? `0.0.0.0${text}` : text);
  if (parsed !== undefined) return { host: text.startsWith(":") ? "" : parsed.ip, port: parsed.port };
  throw new UsageError(`${field} ${quote(text)}: must be IPV4:PORT, [IPV6]:PORT or :PORT`);
}

function advertisedAddresses(text: string, field: string): string[] {
  const addresses = text.split(",");
  if (addresses.every((address) => isIpv4(address) || isIpv6(address))) return addresses;
  throw new UsageError(`${field} ${quote(text)}: must be IP addresses, separated by commas`);
}

/** Reports whether an IP address is one by whose name a pod is reached. */
function isNamed(address: string): boolean {
  return isIpv6(address) && podName(address, "pod") !== undefined;
}

function transferDomain(text: string, field: string): string {
  const label = "[a-z\\d](?:[a-z\\d-]{0,61}[a-z\\d])?";
  if (text.length <= 200 && new RegExp(`^${label}(?:\\.${label})+$`).test(text)) return text;
  throw new UsageError(`${field} ${quote(text)}: must be a domain, such as NAMESPACE.pod`);
}

function bandwidth(text: string, field: string): bigint {
  const bytes = parseQuantity(text);
  if (bytes !== undefined && bytes >= MIN_BYTES_PER_SECOND) return bytes;
  throw new UsageError(`${field} ${quote(text)}: must be a quantity of at least ${formatBytes(MIN_BYTES_PER_SECOND)}`);
}
