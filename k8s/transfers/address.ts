/**
 * The addresses of agents, as flags and LVMNodes have them.
 *
 * @module
 */

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

/** Parses an address; `undefined` when it is none. */
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
