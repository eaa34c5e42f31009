/**
 * Asks a Prometheus for what a dashboard shows.
 *
 * @module
 */

import type { Prometheus } from "../rig/prometheus.ts";

/** Returns the queries that have no data, or no number among them. @throws {Error} when one cannot be evaluated */
export async function queriesWithoutData(prometheus: Prometheus, queries: readonly string[]): Promise<string[]> {
  const missing: string[] = [];
  for (const query of queries) {
    const samples = await prometheus.query(query);
    if (!samples.some(({ value }) => !Number.isNaN(value))) missing.push(query);
  }
  return missing;
}
