/**
 * What a process of the cluster touches, told from its flags. The process that only reads the command line loads this, so it
 * stays small.
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

/** An address to listen on. */
export interface HttpAddress {
  /** Name or number of the host; all addresses of the machine by `0.0.0.0`. */
  readonly host: string;
  /** The port. */
  readonly port: number;
}

/** The address that `--http-address` names: `:9808`, `127.0.0.1:9808` or `[::1]:9808`; `undefined` for `off`. */
export function httpAddress(flags: Flags): HttpAddress | undefined {
  const text = flags["http-address"]!;
  if (text === "off") return undefined;
  const [, host, port] = /^(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]*):(\d{1,5})$/.exec(text) ?? [];
  if (host === undefined || port === undefined || Number(port) > 65_535) {
    throw new UsageError(`--http-address ${JSON.stringify(text)}: must be HOST:PORT, :PORT or off`);
  }
  return { host: host === "" ? "0.0.0.0" : host.replace(/^\[(.*)\]$/, "$1"), port: Number(port) };
}

/** The API server that the flags name: that of a kubeconfig, or else that of the cluster that this pod runs in. */
export async function apiServer(flags: Flags): Promise<ApiServer> {
  const path = flags.kubeconfig;
  if (path === undefined) return inClusterServer((name) => Deno.env.get(name));
  return await (await import("../k8s/client/kubeconfig.ts")).kubeconfigServer(path);
}

/** What a client of the API server touches: the server, and what tells who asks. */
export async function apiAccess(flags: Flags): Promise<Pick<AccessScope, "hosts" | "files" | "variables">> {
  const { hosts, files } = accessOf(await apiServer(flags));
  if (flags.kubeconfig !== undefined) return { hosts, files: [flags.kubeconfig, ...files], variables: [] };
  // Kubernetes replaces a token by another link to another directory
  const serviceAccountPaths = [SERVICE_ACCOUNT_DIRECTORY, SERVICE_ACCOUNT_DIRECTORY.replace(/^\/var\/run\//, "/run/")];
  return { hosts, files: serviceAccountPaths, variables: IN_CLUSTER_ENVIRONMENT };
}

/** What a process of the cluster touches beside its sockets: the API server, with who it is there, and its HTTP address. */
export async function clusterAccess(flags: Flags): Promise<Pick<AccessScope, "hosts" | "files" | "variables">> {
  const { hosts = [], ...access } = await apiAccess(flags);
  const http = httpAddress(flags);
  if (http === undefined) return { ...access, hosts };
  return { ...access, hosts: [...hosts, `${http.host.includes(":") ? `[${http.host}]` : http.host}:${http.port}`] };
}
