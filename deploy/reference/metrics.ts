/**
 * The metrics, as they are registered.
 *
 * @module
 */

import { type MetricDescription, Metrics } from "../../cli/metrics/metrics.ts";
import { code, sentence, termList } from "./markdown.ts";

/** Returns the list of all metrics, in alphabetical order. */
export function metricsList(): string {
  const shared = new Set(new Metrics().describe().map(({ name }) => name));
  const rows = allMetrics().sort((left, right) => left.name < right.name ? -1 : 1);
  return termList(rows.map(({ name, type, labels, help }) => [
    code(name),
    [[type, ...labels.map(code)].join(", "), shared.has(name) ? "both processes" : ""],
    sentence(help),
  ]));
}

/** Returns the descriptions of the metrics of a node agent, which has all that there are. */
export function allMetrics(): MetricDescription[] {
  const metrics = new Metrics();
  metrics.registerGroups(() => [], "lvm.denolith.dev");
  metrics.registerPools(() => [], 100n);
  metrics.registerProblems({ orphans: () => 0, lost: () => 0, held: () => 0 });
  metrics.registerLimits(() => []);
  metrics.registerReadOnlyFilesystems(() => []);
  metrics.registerCopies(() => []);
  metrics.registerCowExtensions();
  metrics.registerTrimming(() => []);
  metrics.registerTransfers();
  return metrics.describe();
}
