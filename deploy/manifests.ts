/**
 * `deno task manifests`: generates the manifests for `kubectl apply` from the chart: deploy/crds, deploy/manifests and
 * deploy/monitoring. Only the namespace is written by hand, because Helm creates it itself.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { renderChart, type Values } from "./chart.ts";

const ROOT = join(import.meta.dirname!, "..");

/** Name of the file in deploy/manifests that is written by hand. */
export const NAMESPACE_FILE = "00-namespace.yaml";

/** First line of a generated file. */
const GENERATED_NOTICE = "# Made from deploy/chart by `deno task manifests`: change it there.";

/** Values for deploy/monitoring, whose objects need CRDs or tools that a cluster may not have. */
const MONITORING: Values = {
  metrics: Object.fromEntries(["podMonitor", "prometheusRule", "dashboard"].map((name) => [name, { create: true }])),
};

/** Returns the generated files: their text, by path from the root. */
export function generatedFiles(): Map<string, string> {
  const byDefault = renderChart({ service: "" });
  const monitoring = [...renderChart({ values: MONITORING, service: "" })].filter(([file]) => !byDefault.has(file));
  const folderOf = (file: string) => file.startsWith("crds/") ? "deploy" : "deploy/manifests";
  return new Map([
    ...[...byDefault].map(([file, text]) => [`${folderOf(file)}/${file}`, toManifest(text)] as const),
    ...monitoring.map(([file, text]) => [`deploy/monitoring/${file}`, toManifest(text)] as const),
  ]);
}

/** Returns all that `kubectl apply` needs to install the driver with other values of the chart, in one text. */
export function plainManifests(values: Values): string {
  const namespace = Deno.readTextFileSync(join(ROOT, "deploy/manifests", NAMESPACE_FILE));
  const rendered = [...renderChart({ values, service: "kubectl" })];
  const isDefinition = ([file]: readonly [string, string]) => file.startsWith("crds/");
  const sorted = [...rendered.filter(isDefinition), ...rendered.filter((entry) => !isDefinition(entry))];
  return [namespace, ...sorted.map(([, text]) => text)].map((text) => text.trim().replace(/^---\n/, "")).join(
    "\n---\n",
  ) +
    "\n";
}

/** Returns a rendered text with the notice that it is generated. */
function toManifest(text: string): string {
  return `${GENERATED_NOTICE}\n${text.trim().replace(/^---\n/, "")}\n`;
}

if (import.meta.main) {
  for (const [path, text] of generatedFiles()) {
    await Deno.mkdir(dirname(join(ROOT, path)), { recursive: true });
    await Deno.writeTextFile(join(ROOT, path), text);
  }
}
