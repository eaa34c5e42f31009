/**
 * Laying out text for a terminal of 100 columns.
 *
 * @module
 */

/** A column of a table: its title, and whether its cells end at the same place, as numbers do. */
export type Column = readonly [title: string, align: "left" | "right"];

/** A row of a table, and what is to be said below it. */
export interface Row {
  /** One text for each column. */
  readonly cells: readonly string[];
  /** In lines of their own, further in. */
  readonly notes: readonly string[];
}

const WIDTH = 100;

const INDENT = "  ";

/** The rows under the titles of the columns; nothing when there are no rows. All of it is indented. */
export function formatTable(columns: readonly Column[], rows: readonly Row[]): string[] {
  if (rows.length === 0) return [];
  const widths = columns.map(([title], index) =>
    Math.max(title.length, ...rows.map(({ cells }) => cells[index]!.length))
  );
  const formatLine = (cells: readonly string[]) => {
    const padded = cells.map((cell, index) =>
      columns[index]![1] === "right" ? cell.padStart(widths[index]!) : cell.padEnd(widths[index]!)
    );
    return (INDENT + padded.join(INDENT)).trimEnd();
  };
  return [
    formatLine(columns.map(([title]) => title)),
    ...rows.flatMap((
      { cells, notes },
    ) => [formatLine(cells), ...notes.flatMap((note) => wrapText(INDENT.repeat(3), note))]),
  ];
}

/**
 * The words after the beginning, in lines that are not too long; further lines begin below the first word. A word that is
 * too long for a line, such as a path, is left whole.
 */
export function wrapText(prefix: string, text: string): string[] {
  const lines: string[] = [];
  let line = prefix;
  for (const word of text.split(" ")) {
    const isLineEmpty = line.length <= prefix.length;
    if (!isLineEmpty && line.length + 1 + word.length > WIDTH) {
      lines.push(line);
      line = " ".repeat(prefix.length) + word;
    } else line += isLineEmpty ? word : ` ${word}`;
  }
  return [...lines, line];
}
