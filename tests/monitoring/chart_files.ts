/**
 * The alerts and the dashboard of the chart.
 *
 * @module
 */

import { join } from "@std/path";
import { parse } from "@std/yaml";
import { CHART } from "../../deploy/chart.ts";
import type { Rule } from "./rule_tests.ts";

/** The file of rules, as Prometheus loads it. */
export const RULES_TEXT: string = Deno.readTextFileSync(join(CHART, "files/alerts.yaml"));

/** The alerting rules. */
export const RULES: readonly Rule[] = (parse(RULES_TEXT) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  ({ rules }) => rules,
);

/** A query of the dashboard. */
export interface PanelQuery {
  /** The title of the panel. */
  readonly title: string;
  /** The expression, with the variables of Grafana. */
  readonly expr: string;
}

const dashboard = JSON.parse(Deno.readTextFileSync(join(CHART, "files/dashboard.json"))) as {
  readonly panels: readonly { readonly title: string; readonly targets?: readonly { readonly expr: string }[] }[];
};

/** The queries of the dashboard's panels. */
export const PANEL_QUERIES: readonly PanelQuery[] = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => ({ title, expr }))
);

/**
 * Returns an expression without the variables of Grafana: all nodes, and a window for rates.
 *
 * @throws {Error} when it has another variable
 */
export function withoutVariables(expr: string, rateInterval: string): string {
  const text = expr.replaceAll("$node", ".*").replaceAll("$__rate_interval", rateInterval);
  if (/\$\w/.test(text)) throw new Error(`substitute variables: ${text} has one that is not known`);
  return text;
}

/** Returns the selectors of series in the expression of a rule, which has no data as long as all is well. */
export function selectorsOf(expr: string): string[] {
  return [...expr.matchAll(/\bdenolith_\w+(?:\{[^}]*\})?/g)].map(([selector]) => selector);
}
