/**
 * The parts that the processes of a cluster have in common: the client of the API server, metrics, and HTTP.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { apiClient } from "./api_client.ts";
import { httpAddress } from "./api_access.ts";
import type { Flags } from "./command_line.ts";
import { serveHttp } from "./http_server.ts";
import type { Clock } from "../base/clock.ts";
import type { HttpClient } from "../k8s/client/http_client.ts";
import { Metrics } from "./metrics/metrics.ts";

/** A process of the cluster. */
export interface ClusterProcess extends AsyncDisposable {
  /** Client of the API server. */
  readonly client: HttpClient;
  /** Metrics of the process. */
  readonly metrics: Metrics;
}

/**
 * Creates the client of the API server and the metrics, and serves HTTP.
 *
 * @param role the subcommand
 * @param notReadyReasons returns why the process is not ready, beside the API server; nothing when it is
 * @param clock time; that of the machine, when absent
 */
export async function startClusterProcess(
  flags: Flags,
  role: string,
  notReadyReasons: () => readonly string[],
  clock?: Clock,
): Promise<ClusterProcess> {
  const metrics = new Metrics({ process: flags["disable-process-metrics"] === undefined });
  const onReconnect = (reason: string) => getLogger(["denolith", "api"]).warn("connecting anew", { reason });
  const client = await apiClient(flags, role, { onRequest: metrics.onRequest, onReconnect, clock });
  const address = httpAddress(flags);
  const allNotReadyReasons = () => {
    const apiReason = client.unavailableReason();
    return apiReason === undefined ? notReadyReasons() : [apiReason, ...notReadyReasons()];
  };
  const http = address && serveHttp(address, {
    notReadyReasons: allNotReadyReasons,
    metrics: () => metrics.text(),
  });
  if (http !== undefined) {
    getLogger(["denolith", "http"]).info("serving HTTP", { host: http.host, port: http.port });
  }
  return {
    client,
    metrics,
    [Symbol.asyncDispose]: async () => {
      await http?.[Symbol.asyncDispose]();
      client[Symbol.dispose]();
    },
  };
}
