/**
 * The curve of a run as a drawing.
 *
 * @module
 */

import type { ScaleReport, ScaleResult } from "./result.ts";

/** A line of a panel. */
interface Series {
  readonly label: string;
  readonly value: (result: ScaleResult) => number;
}

/** A panel: what it shows, in which unit, and the goal, if there is one. */
interface Panel {
  readonly title: string;
  readonly goal?: number;
  readonly series: readonly Series[];
}

const PANELS: readonly Panel[] = [
  {
    title: "memory, MiB",
    goal: 250,
    series: [
      { label: "heap", value: ({ memory }) => memory.heapMiB },
      { label: "RSS", value: ({ memory }) => memory.rssMiB },
    ],
  },
  {
    title: "CPU, seconds",
    goal: 3,
    series: [
      { label: "takes over", value: ({ takeover }) => takeover.cpuMs / 1000 },
      { label: "starts", value: ({ start }) => start.cpuMs / 1000 },
    ],
  },
  {
    title: "longest stall, ms",
    goal: 100,
    series: [
      { label: "takes over", value: ({ takeover }) => takeover.stall.longestMs },
      { label: "starts", value: ({ start }) => start.stall.longestMs },
    ],
  },
];

const [WIDTH, HEIGHT, LEFT, TOP, GAP] = [220, 150, 40, 30, 70];
const COLORS = ["#1f6feb", "#bc4c00"];

/** Draws the memory, the CPU time and the stalls of the controller by the number of nodes. */
export function drawCurve({ results }: ScaleReport): string {
  const width = PANELS.length * (WIDTH + GAP);
  const panels = PANELS.map((panel, index) =>
    `<g transform="translate(${LEFT + index * (WIDTH + GAP)} ${TOP})">${drawPanel(panel, results)}</g>`
  );
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${TOP + HEIGHT + 40}" font-family="sans-serif"`,
    ` font-size="11"><rect width="100%" height="100%" fill="#fff"/>\n${panels.join("\n")}\n</svg>\n`,
  ].join("");
}

function drawPanel({ title, goal, series }: Panel, results: readonly ScaleResult[]): string {
  const largest = Math.max(goal ?? 0, ...series.flatMap(({ value }) => results.map(value))) * 1.1;
  const logs = results.map(({ nodes }) => Math.log(nodes));
  const x = (nodes: number) => round(WIDTH * (Math.log(nodes) - logs[0]!) / (logs.at(-1)! - logs[0]! || 1));
  const y = (value: number) => round(HEIGHT * (1 - value / largest));
  const text = (left: number, top: number, content: string | number, more = "") =>
    `<text x="${left}" y="${top}" ${more}>${content}</text>`;
  const lines = series.flatMap(({ label, value }, index) => {
    const points = results.map((result) => `${x(result.nodes)},${y(value(result))}`);
    const last = results.at(-1)!;
    return [
      `<polyline fill="none" stroke="${COLORS[index]}" stroke-width="2" points="${points.join(" ")}"/>`,
      text(WIDTH - 4, y(value(last)) - 5, label, `text-anchor="end" fill="${COLORS[index]}"`),
    ];
  });
  return [
    text(0, -12, title, `font-weight="bold"`),
    `<path d="M0 0V${HEIGHT}H${WIDTH}" fill="none" stroke="#57606a"/>`,
    ...(goal === undefined ? [] : [
      `<path d="M0 ${y(goal)}H${WIDTH}" stroke="#57606a" stroke-dasharray="4 3"/>`,
      text(-4, y(goal) + 4, goal, `text-anchor="end"`),
    ]),
    ...results.map(({ nodes }) => text(x(nodes), HEIGHT + 15, nodes, `text-anchor="middle"`)),
    text(WIDTH / 2, HEIGHT + 30, "nodes", `text-anchor="middle"`),
    ...lines,
  ].join("\n");
}

function round(value: number): number {
  return Number(value.toFixed(1));
}
