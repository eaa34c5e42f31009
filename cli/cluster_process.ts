/**
 * What the subcommands of the cluster have in common: their client of the API server, their figures, and HTTP.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { apiClient } from "./api_client.ts";
import { httpAddress } from "./api_access.ts";
import type { Flags } from "./command_line.ts";
import { serveHttp } from "./http_server.ts";
import type { HttpClient } from "../k8s/client/http_client.ts";
import { Metrics } from "./metrics.ts";

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
 * @param notReadyReasons why the process cannot do its work now
 */
export async function startClusterProcess(
  flags: Flags,
  role: string,
  notReadyReasons: () => readonly string[],
): Promise<ClusterProcess> {
  const metrics = new Metrics({ process: flags["disable-process-metrics"] === undefined });
  const client = await apiClient(flags, role, { onRequest: metrics.onRequest });
  const address = httpAddress(flags);
  const http = address && await serveHttp(address, { notReadyReasons, metrics: () => metrics.text() });
  if (http !== undefined) getLogger(["denolith", "http"]).info("answering", { host: address!.host, port: http.port });
  return {
    client,
    metrics,
    [Symbol.asyncDispose]: async () => {
      await http?.[Symbol.asyncDispose]();
      client[Symbol.dispose]();
    },
  };
}
