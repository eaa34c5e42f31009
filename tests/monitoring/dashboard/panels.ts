/**
 * The panels of the dashboard, as far as its pictures need them.
 *
 * @module
 */

import { join } from "@std/path";
import { CHART } from "../../../deploy/chart.ts";

/** The place of a panel: Grafana's grid has 24 columns. */
export interface GridPosition {
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
}

/** A query of a panel. */
export interface Target {
  readonly expr: string;
  /** The name of a series: a text with labels in double braces. */
  readonly legendFormat: string;
}

/** A panel. */
export interface Panel {
  readonly title: string;
  readonly type: "stat" | "bargauge" | "timeseries";
  readonly gridPos: GridPosition;
  readonly targets: readonly Target[];
  readonly fieldConfig: {
    readonly defaults: {
      readonly unit: string;
      readonly min?: number;
      readonly max?: number;
      readonly thresholds?: { readonly steps: readonly { readonly color: string; readonly value: number | null }[] };
    };
  };
}

/** A row of the dashboard: a title, and panels. */
export interface Row {
  readonly title: string;
  readonly panels: readonly Panel[];
}

/** Returns the rows of the chart's dashboard. */
export function dashboardRows(): Row[] {
  const { panels } = JSON.parse(Deno.readTextFileSync(join(CHART, "files/dashboard.json"))) as {
    panels: readonly (Panel | { readonly type: "row"; readonly title: string })[];
  };
  const rows: { title: string; panels: Panel[] }[] = [];
  for (const panel of panels) {
    if (panel.type === "row") rows.push({ title: panel.title, panels: [] });
    else rows.at(-1)!.panels.push(panel);
  }
  return rows;
}

/** Returns the name of a series: a legend with its labels. */
export function seriesName(legendFormat: string, labels: Readonly<Record<string, string>>): string {
  return legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => labels[label] ?? "").trim() || "value";
}

/** Returns the name of the file with the picture of a row, in docs/pictures. */
export function pictureOf({ title }: Row): string {
  return `dashboard-${title.split(/,| and /)[0]!.toLowerCase().replaceAll(" ", "-")}.svg`;
}
