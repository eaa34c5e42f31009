/**
 * The flags of transfers between agents. The process that parses the command line loads this module, so it stays small.
 *
 * @module
 */

import { type Flag, type Flags, UsageError } from "./command_line.ts";
import { quote } from "../lvm/error.ts";
import { formatBytes, parseQuantity } from "../lvm/size.ts";

/** The smallest bandwidth, in bytes per second: a block of 4 MiB passes long before a connection counts as stalled. */
const MIN_BYTES_PER_SECOND = 1n << 20n;

/** The flags of transfers. */
export const TRANSFER_FLAGS = {
  "transfer-address": {
    value: "ADDRESS",
    help:
      "Address on which agents of other nodes read snapshots, HOST:PORT, or :PORT for all IPv4 addresses; all agents " +
      "need the same port (default: no transfers)",
    check: transferAddress,
  },
  "transfer-advertise": {
    value: "IPS",
    help:
      "Addresses of this agent, separated by commas; agents of other nodes reach it at the first IPv4 address. Without " +
      "one, the node takes no part (required for transfers)",
    needs: "transfer-address",
    check: advertisedAddress,
  },
  "transfer-bandwidth": {
    value: "RATE",
    help: "Bytes that may be sent, and the same number received, in a second, such as 100Mi (default: no limit)",
    needs: "transfer-address",
    check: bandwidth,
  },
} as const satisfies Record<string, Flag>;

/** The flag of the controller, which asks agents. */
export const TRANSFER_PORT_FLAG = {
  value: "PORT",
  help: "Port of the agents, as of their --transfer-address, at which they are asked for changed blocks of snapshots " +
    "(default: the CSI service SnapshotMetadata is off)",
  check: transferPort,
} as const satisfies Flag;

/** The values of the flags of transfers. */
export interface TransferFlagValues {
  /** The address to listen on. */
  readonly address: { readonly host: string; readonly port: number };
  /** The address at which other agents reach this one. */
  readonly advertised: string;
  /** The bound of what is sent or received, in bytes per second. */
  readonly bytesPerSecond?: bigint;
}

/**
 * Parses the flags of transfers.
 *
 * @returns the values, or `undefined` where transfers are off, or the node has no IPv4 address
 * @throws {UsageError} when one of them cannot be parsed, or is missing
 */
export function transferOptions(flags: Flags): TransferFlagValues | undefined {
  const [address, advertised, rate] = ["address", "advertise", "bandwidth"].map((name) => flags[`transfer-${name}`]);
  if (address === undefined) return undefined;
  if (advertised === undefined) throw new UsageError("--transfer-address: it needs --transfer-advertise");
  const ipv4 = advertisedAddress(advertised, "--transfer-advertise");
  const values = {
    address: transferAddress(address, "--transfer-address"),
    ...(rate === undefined ? {} : { bytesPerSecond: bandwidth(rate, "--transfer-bandwidth") }),
  };
  return ipv4 === undefined ? undefined : { ...values, advertised: ipv4 };
}

/** Returns the hosts that transfers need: this agent's address, and the same port of any other. */
export function transferHosts(flags: Flags): string[] {
  const options = transferOptions(flags);
  return options === undefined ? [] : [`0.0.0.0/0:${options.address.port}`];
}

/** Returns the hosts that the controller needs to ask agents. */
export function askedHosts({ "transfer-port": port }: Flags): string[] {
  return port === undefined ? [] : [`0.0.0.0/0:${transferPort(port, "--transfer-port")}`];
}

function transferPort(text: string, field: string): number {
  if (/^[1-9]\d{0,4}$/.test(text) && Number(text) <= 65_535) return Number(text);
  throw new UsageError(`${field} ${quote(text)}: must be a port`);
}

function transferAddress(text: string, field: string): TransferFlagValues["address"] {
  const [, host, port] = /^([\d.]*):([1-9]\d{0,4})$/.exec(text) ?? [];
  if (host !== undefined && (host === "" || isIpv4(host)) && Number(port) <= 65_535) {
    return { host: host === "" ? "0.0.0.0" : host, port: Number(port) };
  }
  throw new UsageError(`${field} ${quote(text)}: must be IPV4:PORT or :PORT`);
}

/** Returns the first IPv4 address of a list; `undefined` when it has IPv6 addresses alone. */
function advertisedAddress(text: string, field: string): string | undefined {
  const addresses = text.split(",");
  if (addresses.every((address) => isIpv4(address) || /^[\da-f.]*:[\da-f:.]+$/i.test(address))) {
    return addresses.find(isIpv4);
  }
  throw new UsageError(`${field} ${quote(text)}: must be IP addresses, separated by commas`);
}

function isIpv4(text: string): boolean {
  return /^(?:\d{1,3}\.){3}\d{1,3}$/.test(text) && text.split(".").every((part) => Number(part) < 256);
}

function bandwidth(text: string, field: string): bigint {
  const bytes = parseQuantity(text);
  if (bytes !== undefined && bytes >= MIN_BYTES_PER_SECOND) return bytes;
  throw new UsageError(`${field} ${quote(text)}: must be a quantity of at least ${formatBytes(MIN_BYTES_PER_SECOND)}`);
}
