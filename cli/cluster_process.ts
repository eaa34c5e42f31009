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
import { type Clock, systemClock } from "../base/clock.ts";
import { Definitions } from "../k8s/client/definitions.ts";
import type { HttpClient } from "../k8s/client/http_client.ts";
import { Metrics } from "./metrics/metrics.ts";

/** A process of the cluster. */
export interface ClusterProcess extends AsyncDisposable {
  /** Client of the API server. */
  readonly client: HttpClient;
  /** The definitions of our kinds. */
  readonly definitions: Definitions;
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
  clock: Clock = systemClock,
): Promise<ClusterProcess> {
  const metrics = new Metrics({ process: flags["disable-process-metrics"] === undefined });
  const onReconnect = (reason: string) => getLogger(["denolith", "api"]).warn("connecting anew", { reason });
  const client = await apiClient(flags, role, {
    onRequest: metrics.onRequest,
    onReconnect,
    beforeWrite: (write) => definitions.requireFor(write),
    onWatchEnd: (resource) => definitions.onWatchEnd(resource),
    clock,
  });
  const definitions = new Definitions(client, clock);
  const end = new AbortController();
  const checked = definitions.run(end.signal);
  const address = httpAddress(flags);
  const allNotReadyReasons = () => {
    const shared = [client.unavailableReason(), definitions.outdated].filter((reason) => reason !== undefined);
    return [...shared, ...notReadyReasons()];
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
    definitions,
    metrics,
    [Symbol.asyncDispose]: async () => {
      end.abort();
      await http?.[Symbol.asyncDispose]();
      client[Symbol.dispose]();
      await checked;
    },
  };
}
