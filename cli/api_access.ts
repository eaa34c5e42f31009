/**
 * The access that a process of the cluster needs, computed from its flags. The process that parses the command line
 * loads this module, so it stays small.
 *
 * @module
 */

import { type Flags, UsageError } from "./command_line.ts";
import {
  accessOf,
  type ApiServer,
  IN_CLUSTER_ENVIRONMENT,
  inClusterServer,
  SERVICE_ACCOUNT_DIRECTORY,
} from "../k8s/client/config.ts";
import type { AccessScope } from "./permissions.ts";

/** All addresses of a machine: `::` includes those of IPv4, but some machines have no IPv6. */
const ALL_ADDRESSES = ["::", "0.0.0.0"];

/** An address to listen on. */
export interface HttpAddress {
  /** Names or IP addresses, of which the first that the machine has is used. */
  readonly hosts: readonly string[];
  /** Port; 0 for a free one. */
  readonly port: number;
}

/**
 * Parses `--http-address`, such as `:9808`, `127.0.0.1:9808` or `[::1]:9808`. Without a host, it stands for all
 * addresses of the machine, IPv4 and IPv6.
 *
 * @returns the address, or `undefined` for `off`
 * @throws {UsageError} when it cannot be parsed
 */
export function httpAddress(flags: Flags): HttpAddress | undefined {
  const text = flags["http-address"]!;
  if (text === "off") return undefined;
  const [, host, port] = /^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]*):(\d{1,5})$/.exec(text) ?? [];
  if (host === undefined || port === undefined || Number(port) > 65_535) {
    throw new UsageError(`--http-address ${JSON.stringify(text)}: must be HOST:PORT, :PORT or off`);
  }
  return { hosts: host === "" ? ALL_ADDRESSES : [host.replace(/^\[(.*)\]$/, "$1")], port: Number(port) };
}

/**
 * Returns the API server of `--kubeconfig`, or without it, that of the cluster that this pod runs in.
 *
 * @throws {Error} for an invalid kubeconfig, or outside of a pod without one
 */
export async function apiServer(flags: Flags): Promise<ApiServer> {
  const path = flags.kubeconfig;
  if (path === undefined) return inClusterServer((name) => Deno.env.get(name));
  return await (await import("../k8s/client/kubeconfig.ts")).kubeconfigServer(path);
}

/** Returns what a client of the API server accesses: the server, and the credentials. */
export async function apiAccess(flags: Flags): Promise<Pick<AccessScope, "hosts" | "files" | "variables">> {
  const { hosts, files } = accessOf(await apiServer(flags));
  if (flags.kubeconfig !== undefined) return { hosts, files: [flags.kubeconfig, ...files], variables: [] };
  // Kubernetes replaces a token by a new symbolic link to another directory
  const serviceAccountPaths = [SERVICE_ACCOUNT_DIRECTORY, SERVICE_ACCOUNT_DIRECTORY.replace(/^\/var\/run\//, "/run/")];
  return { hosts, files: serviceAccountPaths, variables: IN_CLUSTER_ENVIRONMENT };
}

/** Returns what a process of the cluster accesses beside its sockets: API server, credentials, and HTTP address. */
export async function clusterAccess(flags: Flags): Promise<Pick<AccessScope, "hosts" | "files" | "variables">> {
  const { hosts = [], ...access } = await apiAccess(flags);
  const http = httpAddress(flags);
  if (http === undefined) return { ...access, hosts };
  const listening = http.hosts.map((host) => `${host.includes(":") ? `[${host}]` : host}:${http.port}`);
  return { ...access, hosts: [...hosts, ...listening] };
}
