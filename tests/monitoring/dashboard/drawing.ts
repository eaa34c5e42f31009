/**
 * Drawings of the dashboard's panels, as SVG that follows the reader's colour scheme.
 *
 * @module
 */

import type { Panel, Row } from "./panels.ts";

/** A series of values over time. */
export interface Series {
  readonly name: string;
  /** Time in seconds since the start, and the value. The last one is the present one. */
  readonly points: readonly (readonly [seconds: number, value: number])[];
}

/** The width of a column of the grid and the height of a row of it, in pixels. */
const [COLUMN, LINE] = [50, 27];

/** The space between panels, and within them to their edges. */
const [GAP, PADDING] = [8, 12];

/** The space at the top for the title of the row. */
const TOP = 34;

/** The lines of a legend. A panel with more series says how many there are. */
const MAX_LEGEND = 3;

/** The bars of a panel. */
const MAX_BARS = 4;

/** The number of colours of series. */
const COLORS = 6;

/** Colours for light and dark. The series' colours differ in lightness, too. */
const STYLE = `
svg{font:12px system-ui,sans-serif;--back:#fff;--panel:#f6f8fa;--line:#d0d7de;--text:#1f2328;--dim:#59636e;
--red:#c1222f;--orange:#9a6700;--green:#1a7f37;--blue:#0b57b4;
--s0:#0b57b4;--s1:#b3530a;--s2:#11735f;--s3:#8250df;--s4:#a3195b;--s5:#57606a}
@media (prefers-color-scheme:dark){svg{--back:#0d1117;--panel:#161b22;--line:#30363d;--text:#e6edf3;--dim:#9198a1;
--red:#ff7b72;--orange:#d29922;--green:#3fb950;--blue:#58a6ff;
--s0:#58a6ff;--s1:#f0883e;--s2:#2dba9f;--s3:#bc8cff;--s4:#ff7eb6;--s5:#9198a1}}
text{fill:var(--text)}.dim{fill:var(--dim)}.end{text-anchor:end}.mid{text-anchor:middle}.title{font-weight:600}
.big{font-size:44px;font-weight:600}.grid{stroke:var(--line)}.series{fill:none;stroke-width:2;stroke-linejoin:round}
`.replaceAll("\n", "");

/** A rectangle, in pixels. */
interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** What a row shows. */
export interface RowData {
  /** The span of time of the panels, in seconds. */
  readonly seconds: number;
  /** Returns the series of a panel; none where its queries have no data, as for what does not happen. */
  readonly seriesOf: (panel: Panel) => readonly Series[];
}

/** Draws a row of the dashboard. */
export function drawRow({ title, panels }: Row, { seconds, seriesOf }: RowData): string {
  const first = Math.min(...panels.map(({ gridPos }) => gridPos.y));
  const last = Math.max(...panels.map(({ gridPos: { y, h } }) => y + h));
  const [width, height] = [24 * COLUMN, TOP + (last - first) * LINE + GAP];
  const drawn = panels.map((panel) => drawPanel(panel, { firstRow: first, seconds, series: seriesOf(panel) }));
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`,
    `<title>${escaped(`Dashboard: ${title}`)}</title><style>${STYLE}</style>`,
    `<rect width="${width}" height="${height}" fill="var(--back)"/>`,
    text(GAP, 22, title, "title"),
    ...drawn,
    "</svg>\n",
  ].join("\n");
}

/** What a panel shows, and the first line of the grid in its row. */
interface PanelData {
  readonly firstRow: number;
  readonly seconds: number;
  readonly series: readonly Series[];
}

function drawPanel(panel: Panel, { firstRow, seconds, series }: PanelData): string {
  const { x, y, w, h } = panel.gridPos;
  const box = {
    x: x * COLUMN + GAP / 2,
    y: TOP + (y - firstRow) * LINE,
    width: w * COLUMN - GAP,
    height: h * LINE - GAP,
  };
  const inner = {
    x: box.x + PADDING,
    y: box.y + 36,
    width: box.width - 2 * PADDING,
    height: box.height - 36 - PADDING,
  };
  const draw = { stat: drawStat, bargauge: drawBars, timeseries: drawLines }[panel.type];
  const body = series.length === 0
    ? text(inner.x + inner.width / 2, inner.y + inner.height / 2, "No data", "dim mid")
    : draw(panel, inner, series, seconds);
  const { x: left, y: top, width, height } = box;
  return [
    `<rect x="${left}" y="${top}" width="${width}" height="${height}" rx="4" fill="var(--panel)" stroke="var(--line)"/>`,
    text(left + PADDING, top + 21, panel.title, "title"),
    body,
  ].join("\n");
}

function drawStat(panel: Panel, { x, y, width, height }: Box, [series]: readonly Series[]): string {
  const value = present(series!);
  const label = formatValue(value, panel.fieldConfig.defaults.unit);
  return text(x + width / 2, y + height / 2 + 14, label, "big mid", thresholdColor(panel, value));
}

function drawBars(panel: Panel, { x, y, width, height }: Box, series: readonly Series[]): string {
  const { unit, max = Math.max(...series.map(present)) } = panel.fieldConfig.defaults;
  const shown = series.slice(0, MAX_BARS);
  const step = Math.min(46, height / shown.length);
  const bars = shown.map((one, index) => {
    const [value, top] = [present(one), y + index * step];
    const length = round(width * Math.min(1, value / (max || 1)));
    const bar = `y="${round(top + 18)}" height="10" rx="2"`;
    return [
      text(x, top + 12, shorten(one.name, width / 9), "dim"),
      text(x + width, top + 12, formatValue(value, unit), "end"),
      `<rect x="${x}" ${bar} width="${width}" fill="var(--line)"/>`,
      `<rect x="${x}" ${bar} width="${length}" fill="${thresholdColor(panel, value)}"/>`,
    ].join("");
  });
  return bars.join("\n");
}

function drawLines(panel: Panel, { x, y, width, height }: Box, series: readonly Series[], seconds: number): string {
  const { unit, min, max } = panel.fieldConfig.defaults;
  const points = series.flatMap(({ points }) => points);
  const legendLines = Math.min(series.length, MAX_LEGEND);
  const plot = { left: x + 62, top: y + 4, width: width - 62, height: height - 22 - legendLines * 16 };
  const values = points.map(([, value]) => value);
  const ticks = ticksBetween(min ?? Math.min(0, ...values), max ?? Math.max(...values), unit);
  const [low, high] = [ticks[0]!, ticks.at(-1)!];
  const toX = (time: number) => round(plot.left + plot.width * time / seconds);
  const toY = (value: number) => round(plot.top + plot.height * (1 - (value - low) / (high - low || 1)));
  const lines = series.map(({ points }, index) => {
    const path = points.map(([time, value]) => `${toX(time)},${toY(value)}`).join(" ");
    return `<polyline class="series" stroke="var(--s${index % COLORS})" points="${path}"/>`;
  });
  const bottom = plot.top + plot.height;
  const legend = series.slice(0, MAX_LEGEND).map(({ name }, index) => {
    const more = index === MAX_LEGEND - 1 && series.length > MAX_LEGEND
      ? ` and ${series.length - MAX_LEGEND} more`
      : "";
    const top = bottom + 34 + index * 16;
    return `<rect x="${x}" y="${round(top - 8)}" width="12" height="4" fill="var(--s${index % COLORS})"/>` +
      text(x + 18, top, shorten(name, width / 8 - more.length) + more, "dim");
  });
  return [
    ...ticks.map((tick) =>
      `<path class="grid" d="M${plot.left} ${toY(tick)}h${plot.width}"/>` +
      text(plot.left - 6, toY(tick) + 4, formatValue(tick, unit), "dim end")
    ),
    ...[0, seconds / 2, seconds].map((time, index) =>
      text(toX(time), bottom + 16, `${time} s`, `dim ${["", "mid", "end"][index]}`)
    ),
    ...lines,
    ...legend,
  ].join("\n");
}

/** Returns round values from one below the smallest to one above the largest, three to six of them. */
export function ticksBetween(min: number, max: number, unit: string): number[] {
  if (max <= min) return [min, min + 1];
  const base = unit === "bytes" || unit === "Bps" ? 1024 ** Math.floor(Math.log2(Math.max(1, max - min)) / 10) : 1;
  const rough = (max - min) / 3 / base;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = base * power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999)!;
  const count = Math.ceil((max - min) / step - 1e-9);
  const start = Math.floor(min / step + 1e-9) * step;
  return Array.from({ length: count + (start + count * step < max - step * 1e-9 ? 2 : 1) }, (_, i) => start + i * step);
}

/** Formats a value in a unit of Grafana. */
export function formatValue(value: number, unit: string): string {
  if (unit === "percentunit") return `${trimmed(value * 100)}%`;
  if (unit === "bytes" || unit === "Bps") return formatBytes(value) + (unit === "Bps" ? "/s" : "");
  if (unit === "s") return value >= 1 || value === 0 ? `${trimmed(value)} s` : `${trimmed(value * 1000)} ms`;
  if (unit === "iops") return `${trimmed(value)} io/s`;
  return unit === "reqps" ? `${trimmed(value)} req/s` : trimmed(value);
}

function formatBytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10 + 1e-9));
  return `${trimmed(value / 1024 ** power)} ${units[power]}`;
}

/** Formats a number with at most three digits that matter. */
function trimmed(value: number): string {
  return String(Number(value.toPrecision(3)));
}

/** Returns the colour of a value: that of the last threshold that it reaches; the first series' colour without thresholds. */
function thresholdColor({ fieldConfig: { defaults: { thresholds } } }: Panel, value: number): string {
  const reached = thresholds?.steps.filter((step) => step.value === null || value >= step.value).at(-1);
  return `var(--${reached?.color ?? "s0"})`;
}

function present({ points }: Series): number {
  return points.at(-1)![1];
}

/** Shortens a name in its middle. */
function shorten(name: string, length: number): string {
  const half = Math.floor((length - 1) / 2);
  return name.length <= length ? name : `${name.slice(0, half)}…${name.slice(-half)}`;
}

function text(x: number, y: number, content: string, className: string, fill?: string): string {
  const style = fill === undefined ? "" : ` style="fill:${fill}"`;
  return `<text x="${round(x)}" y="${round(y)}" class="${className.trim()}"${style}>${escaped(content)}</text>`;
}

function round(value: number): number {
  return Number(value.toFixed(1));
}

function escaped(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
