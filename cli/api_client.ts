/**
 * The client of the API server that the flags name.
 *
 * @module
 */

import manifest from "../deno.json" with { type: "json" };
import { apiServer } from "./api_access.ts";
import type { Flags } from "./command_line.ts";
import { HttpClient, type HttpClientOptions } from "../k8s/client/http_client.ts";

/**
 * Makes a client; it asks nothing before it is used.
 *
 * @param role who asks, for the API server's log
 * @throws {Error} when there is no kubeconfig, and this is no pod
 */
export async function apiClient(
  flags: Flags,
  role: string,
  options: Omit<HttpClientOptions, "userAgent"> = {},
): Promise<HttpClient> {
  return new HttpClient(await apiServer(flags), { userAgent: `denolith/${manifest.version} (${role})`, ...options });
}
