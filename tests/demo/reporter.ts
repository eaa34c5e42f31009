/** The output of the demo. */
export interface Output {
  /** Writes a text. */
  readonly write: (text: string) => void;
  /** True if it is a terminal, where a line can be overwritten. */
  readonly terminal: boolean;
  /** True if it uses colours. */
  readonly colors: boolean;
}

/** Writes a text to standard output. @throws {Deno.errors.BrokenPipe} when its reader closed it */
export function writeToStdout(text: string): void {
  const bytes = new TextEncoder().encode(text);
  for (let written = 0; written < bytes.length;) written += Deno.stdout.writeSync(bytes.subarray(written));
}

/** The width of the demo's output, in characters. */
const WIDTH = 80;

/** The column of the explanations after the names of calls. */
const NAME_WIDTH = 26;

/** The width of a time at the end of a line. */
const TIME_WIDTH = 9;

const INDENT = "   ";

/** Prints the output of the demo: titles, calls with their times, results and checks. */
export class Reporter {
  readonly #output: Output;
  #pending = false;

  /** Creates a reporter that writes to the output. */
  constructor(output: Output) {
    this.#output = output;
  }

  /** Prints a title after an empty line. */
  title(text: string): void {
    this.#line("");
    this.#line(this.#paint(BOLD, text));
  }

  /** Says something, in lines that are not too long. */
  say(text: string): void {
    for (const line of wrap(text, WIDTH - INDENT.length - 2)) this.#line(`${INDENT}  ${line}`);
  }

  /** Shows a line as it is, such as a command or what a tool printed. */
  show(text: string): void {
    this.#line(`${INDENT}  ${this.#paint(DIM, text)}`);
  }

  /** Says what was proved. */
  verified(text: string): void {
    const [first = "", ...rest] = wrap(text, WIDTH - INDENT.length - 2);
    this.#line(`${INDENT}${this.#paint(GREEN, "✓")} ${first}`);
    for (const line of rest) this.#line(`${INDENT}  ${line}`);
  }

  /** Says what went wrong, as it is. */
  failed(text: string): void {
    this.#line("");
    this.#line(`${this.#paint(RED, "✗")} ${text}`);
  }

  /** Announces something that takes a while; on a terminal only, where the next line is written over it. */
  pending(text: string): void {
    if (!this.#output.terminal) return;
    this.clear();
    this.#output.write(this.#paint(DIM, `${INDENT}… ${text}`.slice(0, 79)));
    this.#pending = true;
  }

  /** Prints a call that has ended, and its duration. */
  call(name: string, description: string, ms: number): void {
    const aboutWidth = WIDTH - INDENT.length - 2 - NAME_WIDTH - TIME_WIDTH;
    const [first = "", ...rest] = wrap(description, aboutWidth);
    const time = this.#paint(DIM, seconds(ms).padStart(TIME_WIDTH));
    this.#line(`${INDENT}→ ${name.padEnd(NAME_WIDTH)}${first.padEnd(aboutWidth)}${time}`);
    for (const line of rest) this.#line(`${INDENT}  ${" ".repeat(NAME_WIDTH)}${line}`);
  }

  /** Rows in columns, the first aligned to the left and the others to the right; the first row is the heading. */
  table(rows: readonly (readonly string[])[]): void {
    const widths = rows[0]?.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0))) ?? [];
    for (const [number, row] of rows.entries()) {
      const cells = row.map((cell, i) => i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0));
      this.#line(INDENT + this.#paint(number === 0 ? DIM : PLAIN, cells.join(INDENT)));
    }
  }

  /** Takes what was announced away. */
  clear(): void {
    if (this.#pending) this.#output.write("\r\x1b[K");
    this.#pending = false;
  }

  #line(text: string): void {
    this.clear();
    this.#output.write(text.trimEnd() + "\n");
  }

  #paint(color: string, text: string): string {
    return this.#output.colors && color !== PLAIN && text !== "" ? `\x1b[${color}m${text}\x1b[0m` : text;
  }
}

const PLAIN = "0";
const BOLD = "1";
const DIM = "2";
const RED = "31";
const GREEN = "32";

/** Milliseconds as seconds for people: `1.3 s`. */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

/** Wraps a text into lines of at most so many characters, if its words allow. */
function wrap(text: string, width: number): string[] {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.at(-1) ?? "";
    if (last === "") lines[lines.length - 1] = word;
    else if (last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}
