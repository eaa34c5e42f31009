/**
 * `deno task manifests`: makes of the chart what `kubectl apply` takes: deploy/crds, deploy/manifests and deploy/monitoring. Of
 * these only the namespace is written by hand, since Helm makes that itself.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { CHART, renderChart, type Values } from "./chart.ts";

const ROOT = join(import.meta.dirname!, "..");

/** The file of deploy/manifests that is written by hand. */
export const NAMESPACE_FILE = "00-namespace.yaml";

/** The first line of a file that is made. */
const GENERATED_NOTICE = "# Made from deploy/chart by `deno task manifests`: change it there.";

/** What stands in deploy/monitoring: what takes other people's definitions, and so is not there by default. */
const MONITORING: Values = {
  metrics: Object.fromEntries(["podMonitor", "prometheusRule", "dashboard"].map((name) => [name, { create: true }])),
};

/** The files that the chart becomes: their text, by their path from the root. */
export function generatedFiles(): Map<string, string> {
  const byDefault = renderChart();
  const monitoring = [...renderChart({ values: MONITORING })].filter(([file]) => !byDefault.has(file));
  const definitions = [...Deno.readDirSync(join(CHART, "crds"))].map(({ name }) =>
    [name, Deno.readTextFileSync(join(CHART, "crds", name))] as const
  );
  return new Map([
    ...definitions.map(([file, text]) => [`deploy/crds/${file}`, toManifest(text)] as const),
    ...[...byDefault].map(([file, text]) => [`deploy/manifests/${file}`, toManifest(text)] as const),
    ...monitoring.map(([file, text]) => [`deploy/monitoring/${file}`, toManifest(text)] as const),
  ]);
}

/** A text of the chart as a file of its own. */
function toManifest(text: string): string {
  return `${GENERATED_NOTICE}\n${text.trim().replace(/^---\n/, "")}\n`;
}

if (import.meta.main) {
  for (const [path, text] of generatedFiles()) {
    await Deno.mkdir(dirname(join(ROOT, path)), { recursive: true });
    await Deno.writeTextFile(join(ROOT, path), text);
  }
}
