/**
 * What the subcommands of the cluster have in common: the API server that their flags name, and the process over HTTP.
 *
 * @module
 */

import manifest from "./deno.json" with { type: "json" };
import type { Flags } from "./command_line.ts";
import { parseHttpAddress, serveHttp } from "./http.ts";
import { type ApiServer, IN_CLUSTER_ENVIRONMENT, inClusterServer, reachOf, SERVICE_ACCOUNT } from "./k8s/config.ts";
import { HttpClient } from "./k8s/http_client.ts";
import { Metrics } from "./metrics.ts";
import type { Reach } from "./permissions.ts";

/** The API server that the flags name: that of a kubeconfig, or else that of the cluster that this pod runs in. */
export async function apiServer(flags: Flags): Promise<ApiServer> {
  const path = flags.kubeconfig;
  if (path === undefined) return inClusterServer((name) => Deno.env.get(name));
  return await (await import("./k8s/kubeconfig.ts")).kubeconfigServer(path);
}

/** What a process of the cluster touches beside its sockets: the API server, with who it is there, and its HTTP address. */
export async function clusterReach(flags: Flags): Promise<Pick<Reach, "hosts" | "files" | "variables">> {
  const { hosts, files } = reachOf(await apiServer(flags));
  const http = parseHttpAddress(flags["http-address"]!);
  const inCluster = flags.kubeconfig === undefined;
  return {
    hosts: http === undefined
      ? hosts
      : [...hosts, `${http.host.includes(":") ? `[${http.host}]` : http.host}:${http.port}`],
    variables: inCluster ? IN_CLUSTER_ENVIRONMENT : [],
    // Kubernetes replaces a token by another link to another directory
    files: inCluster
      ? [SERVICE_ACCOUNT, SERVICE_ACCOUNT.replace(/^\/var\/run\//, "/run/")]
      : [flags.kubeconfig!, ...files],
  };
}

/** A process of the cluster. */
export interface ClusterProcess extends AsyncDisposable {
  /** The API server. */
  readonly client: HttpClient;
  /** The process's figures. */
  readonly metrics: Metrics;
}

/**
 * Connects to the API server, and answers over HTTP.
 *
 * @param notReady why the process cannot do its work now
 */
export async function openCluster(
  flags: Flags,
  role: string,
  notReady: () => readonly string[],
): Promise<ClusterProcess> {
  const metrics = new Metrics({ process: flags["disable-process-metrics"] === undefined });
  const client = new HttpClient(await apiServer(flags), {
    userAgent: `denolith/${manifest.version} (${role})`,
    onRequest: metrics.onRequest,
  });
  const address = parseHttpAddress(flags["http-address"]!);
  const http = address && await serveHttp(address, { notReady, metrics: () => metrics.text() });
  return {
    client,
    metrics,
    [Symbol.asyncDispose]: async () => {
      await http?.[Symbol.asyncDispose]();
      client[Symbol.dispose]();
    },
  };
}
