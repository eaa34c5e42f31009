import { FIGURE_FILE, type Figures, formatFigure } from "../../tests/bench/figures.ts";
import { code, table } from "./markdown.ts";

/** Returns the table of the figures that were measured. */
export function figuresTable(figures: Figures = FIGURE_FILE.read()): string {
  const measured = Object.values(figures).filter(({ value }) => value !== undefined);
  return table(
    ["What", "Figure", "Task"],
    measured.map(({ what, value, unit, task }) => [what, formatFigure(value, unit), code(task)]),
  );
}
