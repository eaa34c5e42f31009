/**
 * Markdown as `deno fmt` formats it.
 *
 * @module
 */

/** Line width of the documents, in characters. */
const WIDTH = 120;

/** Returns a table with padded columns. Pipes in cells are escaped. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows].map((cells) => cells.map((cell) => cell.replaceAll("|", "\\|").trim()));
  const widths = head.map((_, column) => Math.max(3, ...lines.map((cells) => cells[column]!.length)));
  const toLine = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!)).join(" | ")} |`;
  const rule = `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`;
  return [toLine(lines[0]!), rule, ...lines.slice(1).map(toLine)].join("\n");
}

/**
 * Returns a list item, wrapped at the line width.
 *
 * @param depth number of items that it is nested in
 */
export function listItem(text: string, depth = 0): string {
  const indent = "  ".repeat(depth);
  return wrap(text, WIDTH - indent.length - 2).map((line, index) => `${indent}${index === 0 ? "- " : "  "}${line}`)
    .join("\n");
}

/** Returns a list of terms with their meanings. Notes stand in parentheses after the term; empty ones are left out. */
export function termList(
  terms: readonly (readonly [term: string, notes: readonly string[], meaning: string])[],
): string {
  return terms.map(([term, notes, meaning]) => {
    const said = notes.filter((note) => note !== "");
    return listItem(`${term}${said.length === 0 ? "" : ` (${said.join("; ")})`}: ${meaning}`);
  }).join("\n");
}

/** Returns a paragraph, wrapped at the line width. */
export function paragraph(text: string): string {
  return wrap(text, WIDTH).join("\n");
}

/** Returns words as code. */
export function code(text: string): string {
  return `\`${text}\``;
}

/** Returns a text with a capital letter at its start and a full stop at its end. */
export function sentence(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

/** Splits a text into lines. Code and links stay in one piece. */
function wrap(text: string, width: number): string[] {
  const lines: string[] = [""];
  for (const [word] of text.matchAll(/(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|\S)+/g)) {
    const line = lines.at(-1)!;
    if (line === "") lines[lines.length - 1] = word;
    else if (line.length + 1 + word.length <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  return lines;
}
