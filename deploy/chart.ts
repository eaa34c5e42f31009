/**
 * The chart as it stands in deploy/chart, rendered without Helm.
 *
 * @module
 */

import { join } from "@std/path";
import { parse } from "@std/yaml";
import { renderTemplate } from "./template.ts";

/** Where the chart is. */
export const CHART = join(import.meta.dirname!, "chart");

/** A tree of values. */
export type Values = { readonly [name: string]: unknown };

/** What `helm template` is given beside the chart. */
export interface RenderOptions {
  /** Values over those of the chart. */
  readonly values?: Values;
  /** The namespace of the release; that of the documents by default. */
  readonly namespace?: string;
  /** The API versions that the cluster has beside Kubernetes' own (`--api-versions`); none by default. */
  readonly apiVersions?: readonly string[];
}

/** The namespace of the plain manifests and of all documents. */
export const NAMESPACE = "denolith-system";

/** The chart's own values. */
export function chartValues(): Values {
  return parse(Deno.readTextFileSync(join(CHART, "values.yaml"))) as Values;
}

/** The chart's templates: their text, by the file's name. */
export function chartTemplates(): Map<string, string> {
  const folder = join(CHART, "templates");
  const names = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => name.endsWith(".yaml")).sort();
  return new Map(names.map((name) => [name, Deno.readTextFileSync(join(folder, name))]));
}

/**
 * What the templates become, by the file's name; those that become nothing are left out.
 *
 * @throws {Error} when a template holds something that is not known here
 */
export function renderChart({ values = {}, namespace = NAMESPACE, apiVersions = [] }: RenderOptions = {}): Map<
  string,
  string
> {
  const { name, version, appVersion } = parse(Deno.readTextFileSync(join(CHART, "Chart.yaml"))) as Values;
  const data = {
    Values: mergeValues(chartValues(), values),
    Chart: { Name: name, Version: version, AppVersion: appVersion },
    Release: { Namespace: namespace },
    Capabilities: { APIVersions: { Has: (version: string) => apiVersions.includes(version) } },
    Files: { Get: (path: string) => Deno.readTextFileSync(join(CHART, path)) },
  };
  const rendered = [...chartTemplates()].map(([file, template]) => {
    try {
      return [file, renderTemplate(template, data)] as const;
    } catch (cause) {
      throw new Error(`render ${file}: ${(cause as Error).message}`, { cause });
    }
  });
  return new Map(rendered.filter(([, text]) => text.trim() !== ""));
}

/** Values over others, as Helm merges them: maps by their keys, and `null` takes away what was there. */
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
