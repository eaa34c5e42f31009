/**
 * Lists of the reference: the metrics, as they are registered; the reasons of failures, from the table that
 * `kubectl denolith why` uses; and the situations that tests show.
 *
 * @module
 */

import { type MetricDescription, Metrics } from "../../cli/metrics/metrics.ts";
import { code, listItem, sentence, termList } from "./markdown.ts";
import { SYMPTOM_CHAPTERS, SYMPTOMS } from "../../plugin/diagnosis/symptoms.ts";
import { chapters } from "../../plugin/runbooks.ts";
import { SITUATIONS } from "../../tests/situations/all.ts";

/** Returns the list of all metrics, in alphabetical order. */
export function metricsList(): string {
  const [shared, controller] = [new Metrics(), controllerMetrics()].map((metrics) =>
    new Set(metrics.describe().map(({ name }) => name))
  );
  const rows = allMetrics().sort((left, right) => left.name < right.name ? -1 : 1);
  return termList(rows.map(({ name, type, labels, help }) => [
    code(name),
    [
      [...(type === "gauge" ? [] : [type]), ...labels.map(code)].join(", "),
      shared!.has(name) ? "both processes" : controller!.has(name) ? "controller" : "",
    ],
    sentence(help),
  ]));
}

/** Returns the descriptions of the metrics of a controller and of a node agent, each once. */
export function allMetrics(): MetricDescription[] {
  const all = [...controllerMetrics().describe(), ...agentMetrics().describe()];
  return [...new Map(all.map((metric) => [metric.name, metric])).values()];
}

function controllerMetrics(): Metrics {
  const metrics = new Metrics();
  metrics.registerLeaders([]);
  metrics.registerAgents(() => []);
  metrics.registerHandovers({ move: () => [], import: () => [] });
  return metrics;
}

function agentMetrics(): Metrics {
  const metrics = new Metrics();
  metrics.registerGroups(() => [], "lvm.denolith.dev");
  metrics.registerPools(() => [], 100n);
  metrics.registerOrphans(() => 0);
  metrics.registerProblems({ lost: () => [], held: () => [], keysOutdated: () => [] });
  metrics.registerLimits(() => []);
  metrics.registerReadOnlyFilesystems(() => []);
  metrics.registerCopies(() => []);
  metrics.registerCowExtensions();
  metrics.registerTrimming(() => []);
  metrics.registerTransfers();
  return metrics;
}

/** Returns a list of the chapters of the runbooks, with the reasons that each describes. */
export function reasonsList(): string {
  return Object.entries(SYMPTOM_CHAPTERS).map(([name, heading]) => {
    const reasons = Object.entries(SYMPTOMS).filter(([, { chapters }]) => chapters.includes(name as never));
    const title = heading.replaceAll("-", " ");
    return listItem(
      `[${title}](../${chapters().get(heading)!.page}#${heading}): ${
        reasons.map(([reason]) => code(reason)).join(", ")
      }`,
    );
  }).join("\n");
}

/** Returns a section for each subject, with an item for each situation. */
export function situationSections(): string {
  return Object.entries(SITUATIONS).map(([subject, rows]) =>
    [
      `## ${subject}\n`,
      ...rows.map(({ seen, happened, here }) => listItem(`${numbers(seen)}: ${happened.slice(0, -1)} → ${here}`)),
    ].join("\n")
  ).join("\n\n");
}

/** Returns the public numbers of a situation, each project named once where its numbers follow each other. */
function numbers(seen: readonly string[]): string {
  const projectOf = (number: string | undefined) => number?.split("#")[0];
  return seen.map((number, index) =>
    number.includes("#") && projectOf(number) === projectOf(seen[index - 1])
      ? number.slice(projectOf(number)!.length)
      : number
  ).join(", ");
}
