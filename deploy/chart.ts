/**
 * Rendering of the chart in deploy/chart without Helm.
 *
 * @module
 */

import { join } from "@std/path";
import { parse } from "@std/yaml";
import { namedTemplates, renderTemplate } from "./template.ts";

/** Path of the chart. */
export const CHART = join(import.meta.dirname!, "chart");

/** A tree of values. */
export type Values = { readonly [name: string]: unknown };

/** Options of {@linkcode renderChart}, as of `helm template`. */
export interface RenderOptions {
  /** Values that override those of the chart. */
  readonly values?: Values;
  /** Namespace of the release; by default {@linkcode NAMESPACE}. */
  readonly namespace?: string;
  /** What manages the objects; by default Helm, and nothing when it is empty. */
  readonly service?: string;
  /** Version of the chart and of the driver; by default its own. */
  readonly version?: string;
  /** API versions of the cluster in addition to Kubernetes' own (`--api-versions`); none by default. */
  readonly apiVersions?: readonly string[];
}

/** Namespace of the plain manifests and of all documents. */
export const NAMESPACE = "denolith-system";

/** Returns the default values of the chart. */
export function chartValues(): Values {
  return parse(Deno.readTextFileSync(join(CHART, "values.yaml"))) as Values;
}

/** Returns the templates of the chart: their text, by their paths, such as `node.yaml`. Those in `crds/` are the definitions. */
export function chartTemplates(): Map<string, string> {
  const folder = join(CHART, "templates");
  const names = ["", "crds/"].flatMap((below) =>
    [...Deno.readDirSync(join(folder, below))].map(({ name }) => below + name)
  ).filter((name) => name.endsWith(".yaml")).sort();
  return new Map(names.map((name) => [name, Deno.readTextFileSync(join(folder, name))]));
}

/**
 * Renders the templates.
 *
 * @returns the rendered texts by the paths of the templates, without those that are empty
 * @throws {Error} when a template contains an action that template.ts does not support
 */
export function renderChart(
  { values = {}, namespace = NAMESPACE, apiVersions = [], service = "Helm", version: other }: RenderOptions = {},
): Map<string, string> {
  const { name, ...own } = parse(Deno.readTextFileSync(join(CHART, "Chart.yaml"))) as Values;
  const { version, appVersion } = other === undefined ? own : { version: other, appVersion: other };
  const data = {
    Values: mergeValues(chartValues(), values),
    Chart: { Name: name, Version: version, AppVersion: appVersion },
    Release: { Namespace: namespace, Name: name, Service: service },
    Capabilities: { APIVersions: { Has: (version: string) => apiVersions.includes(version) } },
    Files: { Get: (path: string) => Deno.readTextFileSync(join(CHART, path)) },
  };
  const named = namedTemplates(Deno.readTextFileSync(join(CHART, "templates/_helpers.tpl")));
  const rendered = [...chartTemplates()].map(([file, template]) => {
    try {
      return [file, renderTemplate(template, data, named)] as const;
    } catch (cause) {
      throw new Error(`render ${file}: ${(cause as Error).message}`, { cause });
    }
  });
  return new Map(rendered.filter(([, text]) => text.trim() !== ""));
}

/** Merges values as Helm does: maps by their keys, and `null` removes a key. */
function mergeValues(defaults: Values, overrides: Values): Values {
  const all: Record<string, unknown> = { ...defaults };
  for (const [name, value] of Object.entries(overrides)) {
    if (value === null) delete all[name];
    else all[name] = isMap(value) && isMap(all[name]) ? mergeValues(all[name], value) : value;
  }
  return all;
}

function isMap(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
