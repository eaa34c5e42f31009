/**
 * Formatting text for a terminal of 100 columns.
 *
 * @module
 */

/** A column of a table: its title and its alignment. */
export type Column = readonly [title: string, align: "left" | "right"];

/** A row of a table, with notes below it. */
export interface Row {
  /** The texts of the cells, one for each column. */
  readonly cells: readonly string[];
  /** Notes, each on lines of its own, indented further. */
  readonly notes: readonly string[];
}

const WIDTH = 100;

const INDENT = "  ";

/**
 * Formats rows under the titles of their columns, all indented.
 *
 * @returns the lines; none when there are no rows
 */
export function formatTable(columns: readonly Column[], rows: readonly Row[]): string[] {
  if (rows.length === 0) return [];
  const [titles, ...lines] = alignCells(
    [columns.map(([title]) => title), ...rows.map(({ cells }) => cells)],
    INDENT,
    columns.map(([, alignment]) => alignment),
  );
  return [
    INDENT + titles,
    ...rows.flatMap(({ notes }, index) => [
      INDENT + lines[index],
      ...notes.flatMap((note) => wrapText(INDENT.repeat(3), note)),
    ]),
  ];
}

/** Returns lines of cells, each as wide as the widest of its column. @param gap what is between two of them */
export function alignCells(
  lines: readonly (readonly string[])[],
  gap: string,
  alignments: readonly Column[1][] = [],
): string[] {
  const widths = lines[0]!.map((_, index) => lines.reduce((width, cells) => Math.max(width, cells[index]!.length), 0));
  return lines.map((cells) =>
    cells.map((cell, index) =>
      alignments[index] === "right" ? cell.padStart(widths[index]!) : cell.padEnd(widths[index]!)
    ).join(gap).trimEnd()
  );
}

/**
 * Wraps words into lines of at most 100 columns, except for a longer word, such as a path. Further lines are indented
 * to the first word.
 *
 * @param prefix beginning of the first line
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

/**
 * The control characters that JSON allows in texts (ECMA-48, C1), and those for the direction of a text (Unicode, UAX 9), as a part
 * of a regular expression.
 */
export const UNQUOTED_CONTROLS = "\\u007f-\\u009f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069";

/**
 * Replaces control characters, line feeds included: otherwise a mount or file name, or what a pod writes on its volume, could
 * inject terminal escape sequences, or reverse what is shown after it.
 */
export function withoutControls(text: string): string {
  return text.replace(new RegExp(`[\\u0000-\\u001f${UNQUOTED_CONTROLS}]`, "g"), "\ufffd");
}

/** Escapes the control characters that JSON allows in texts. */
export function escapeControls(json: string): string {
  return json.replace(
    new RegExp(`[${UNQUOTED_CONTROLS}]`, "g"),
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Returns a text as one word for a shell, so that a command with it can be copied. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
