/**
 * Creates the client of the API server that the flags name.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };
import { apiServer } from "./api_access.ts";
import type { Flags } from "./command_line.ts";
import { HttpClient, type HttpClientOptions } from "../k8s/client/http_client.ts";

/**
 * Creates a client. It sends nothing before it is used.
 *
 * @param role the subcommand, for the user agent in the log of the API server
 * @throws {Error} for an invalid kubeconfig, or outside of a pod without one
 */
export async function apiClient(
  flags: Flags,
  role: string,
  options: Omit<HttpClientOptions, "userAgent"> = {},
): Promise<HttpClient> {
  return new HttpClient(await apiServer(flags), { userAgent: `denolith/${manifest.version} (${role})`, ...options });
}
