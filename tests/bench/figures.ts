/**
 * The figures that users need: figures.json has what each was when its task measured it last. A task compares them with what it
 * measured, and writes them with `--update`.
 *
 * @module
 */

import type { RecordedRun } from "../record/record.ts";
import { run as runProgram } from "../rig/process.ts";
import json from "./figures.json" with { type: "json" };
import { round } from "./statistics.ts";
import { columns } from "./table.ts";

/** The units of figures: how many times the value before a new one may be, and how it is shown. Times of one machine have no limit. */
export const UNITS = {
  ratio: { times: 1.5, decimals: 2, suffix: "" },
  MiB: { times: 1.25, decimals: 0, suffix: " MiB" },
  KiB: { times: 1.1, decimals: 2, suffix: " KiB" },
  count: { times: 1.1, decimals: 1, suffix: "" },
  s: { times: Infinity, decimals: 2, suffix: " s" },
} as const;

/** The name of a figure. */
export type FigureName = keyof typeof json;

/** A figure. The smaller, the better. */
export interface Figure {
  /** What it is, as a part of a sentence in Markdown. */
  readonly what: string;
  /** The task that measures it. */
  readonly task: string;
  readonly unit: keyof typeof UNITS;
  /** What it should be at most. */
  readonly goal?: number;
  /** Absent until it is measured. */
  readonly value?: number;
  /** The commit that was measured, and the day; absent for a value from before they were written. */
  readonly commit?: string;
  readonly date?: string;
}

/** All figures, in the order of the page. */
export type Figures = Readonly<Record<FigureName, Figure>>;

/** What a task measured. Figures that it left out stay as they are. */
export type Measured = Partial<Readonly<Record<FigureName, number>>>;

/** A figure and what was measured now. */
export interface Comparison extends Figure {
  readonly now: number;
  /** The most that it may be. */
  readonly limit: number;
  readonly isBeyond: boolean;
}

const ROOT = new URL("../..", import.meta.url).pathname;

/** The file of the figures, from the root of the repository. */
const FILE = "tests/bench/figures.json";

/** Reads and writes the figures. */
export const FIGURE_FILE = {
  /** Returns the figures as they were when this process began. */
  read: (): Figures => json as Figures,

  /** Changes the figures that are there now, and the page that has them. */
  change: async (body: (figures: Figures) => Figures): Promise<void> => {
    using lock = await Deno.open(ROOT + FILE, { read: true, write: true });
    await lock.lock(true);
    const text = JSON.stringify(body(JSON.parse(await Deno.readTextFile(ROOT + FILE))), undefined, 2);
    await Deno.writeTextFile(ROOT + FILE, `${text}\n`);
    const generate = ["run", "-A", "--no-check", `${ROOT}deploy/reference/generate.ts`];
    await runProgram("write the page of the figures", Deno.execPath(), generate, { cwd: ROOT });
  },
};

/** Compares what was measured with the figures. What is no number is beyond any limit. */
export function compareFigures(figures: Figures, measured: Measured): Comparison[] {
  return entriesOf(measured).map(([name, now]) => {
    const figure = figures[name];
    const limit = (figure.value ?? Infinity) * UNITS[figure.unit].times;
    return { ...figure, now, limit, isBeyond: !(Number.isFinite(now) && now <= limit) };
  });
}

/** Returns the figures with what was measured at a commit. @throws {Error} when something is no number */
export function updateFigures(figures: Figures, measured: Measured, at: { commit: string; date: string }): Figures {
  const changed = entriesOf(measured).map(([name, now]) => {
    if (!Number.isFinite(now)) throw new Error(`update the figure ${name}: it was not measured: ${now}`);
    return [name, { ...figures[name], value: round(now, UNITS[figures[name].unit].decimals), ...at }];
  });
  return { ...figures, ...Object.fromEntries(changed) };
}

/** Formats a value of a figure. */
export function formatFigure(value: number | undefined, unit: Figure["unit"]): string {
  if (value === undefined || value === Infinity) return "none";
  return `${round(value, UNITS[unit].decimals)}${UNITS[unit].suffix}`;
}

/** Formats comparisons for people. */
export function comparisonTable(comparisons: readonly Comparison[]): string {
  const rows = comparisons.map(({ what, unit, value, now, limit, goal }) => [
    ...[what, ...[value, now, limit].map((each) => formatFigure(each, unit))],
    goal === undefined ? "" : `${formatFigure(goal, unit)}${now <= goal ? "" : ", missed"}`,
  ]);
  return columns([["Figure", "before", "now", "limit", "goal"], ...rows]).join("\n");
}

/** What {@linkcode settleFigures} takes beside what was measured. */
export interface SettleOptions {
  /** The run of the task, which began before it measured. */
  readonly run: Pick<RecordedRun, "commit" | "pass">;
  /** The command of the row of the record that passes; none by default. */
  readonly command?: string | undefined;
  /** Whether what was measured is written, however it compares. */
  readonly update: boolean;
  readonly print: (text: string) => void;
  readonly file?: Pick<typeof FIGURE_FILE, "read" | "change">;
}

/**
 * Ends a task that measured figures: prints them beside those of before, writes them if asked to, and records the pass of a run
 * that is within the limits.
 *
 * @returns whether it passed
 */
export async function settleFigures(
  measured: Measured,
  { run, command, update, print, file = FIGURE_FILE }: SettleOptions,
): Promise<boolean> {
  const comparisons = compareFigures(file.read(), measured);
  print(comparisonTable(comparisons));
  if (update) {
    const [commit, date] = [await run.commit(), new Date().toISOString().slice(0, 10)];
    if (commit === undefined) throw new Error("write the figures: files differ from the commit");
    await file.change((figures) => updateFigures(figures, measured, { commit, date }));
  } else {
    const beyond = comparisons.filter(({ isBeyond }) => isBeyond);
    for (const { what, unit, now, limit } of beyond) {
      print(`FAILED: ${what}: ${formatFigure(now, unit)} is beyond the limit of ${formatFigure(limit, unit)}`);
    }
    if (beyond.length > 0) return false;
  }
  if (command !== undefined) await run.pass(command);
  return true;
}

function entriesOf(measured: Measured): [FigureName, number][] {
  return Object.entries(measured) as [FigureName, number][];
}
