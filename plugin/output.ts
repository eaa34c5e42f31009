/**
 * What the plugin prints: tables with colours on a terminal, JSON, or YAML.
 *
 * @module
 */

import { stringify } from "@std/yaml";
import { fillTemplate, parseColumns, parseTemplate, type Path, valuesAt } from "./json_path.ts";
import type { Severity } from "./problem.ts";
import { alignCells, escapeControls, UNQUOTED_CONTROLS } from "../base/text_table.ts";

/** Where the plugin prints, and whom it asks. */
export interface Terminal {
  /** True if a person reads it, with colours. */
  readonly isInteractive: boolean;
  /** True if colours are wanted. */
  readonly hasColours: boolean;
  /** Prints a text, with a line feed. */
  print(text: string): void;
  /** Writes bytes as they are. */
  write(bytes: Uint8Array): void;
  /** Tells a person who waits what for; is no part of the answer. */
  note(text: string): void;
  /** Prints a text in place of what was printed before. */
  replace(text: string): void;
  /** Asks a question. @returns true for yes */
  confirm(question: string): boolean;
}

/** Colours, as functions of text. */
export interface Colours {
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly severity: (severity: Severity, text: string) => string;
  readonly state: (state: string) => string;
}

/** Clears the screen and goes to its beginning (ECMA-48, ED and CUP). */
const CLEAR = "\x1b[2J\x1b[3J\x1b[H";

/** The terminal of this process. */
export const processTerminal: Terminal = {
  isInteractive: Deno.stdout.isTerminal(),
  hasColours: Deno.stdout.isTerminal() && !Deno.noColor,
  print: (text) => console.log(text),
  write: (bytes) => {
    for (let written = 0; written < bytes.length;) written += Deno.stdout.writeSync(bytes.subarray(written));
  },
  note: (text) => Deno.stderr.isTerminal() && console.error(text),
  replace: (text) => console.log(Deno.stdout.isTerminal() ? CLEAR + text : `${text}\n`),
  confirm: (question) => Deno.stdin.isTerminal() && confirm(question),
};

/** SGR codes (ECMA-48). */
const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const;

const SEVERITY_COLOURS = { error: "red", warning: "yellow", info: "cyan" } as const;

/** The colours of states; others have none. */
const STATE_COLOURS: Readonly<Record<string, keyof typeof CODES>> = {
  ...{ Ready: "green", Alive: "green" },
  ...{ Pending: "yellow", Deleting: "yellow", NotReported: "yellow", Unknown: "yellow" },
  ...{ Failed: "red", Lost: "red", Overflowed: "red", Silent: "red" },
};

/** Returns colours, or functions that change nothing. */
export function coloursOf({ hasColours }: Pick<Terminal, "hasColours">): Colours {
  const paint = (colour: keyof typeof CODES) => (text: string) =>
    hasColours && text !== "" ? `\x1b[${CODES[colour]}m${text}\x1b[0m` : text;
  return {
    bold: paint("bold"),
    dim: paint("dim"),
    severity: (severity, text) => paint(SEVERITY_COLOURS[severity])(text),
    state: (state) => {
      const colour = STATE_COLOURS[state];
      return colour === undefined ? state : paint(colour)(state);
    },
  };
}

/** The cluster that an answer is about. */
export interface Subject {
  /** The context of the kubeconfig; empty in a pod. */
  readonly context: string;
  /** The namespace. */
  readonly namespace: string;
}

/** What an answer has in each format. */
export interface Answer {
  /** For JSON and YAML. */
  readonly data: object;
  /** Formats it for people. */
  readonly text: (options: { readonly wide: boolean; readonly colours: Colours }) => string;
  /** Of a list: the rows of the data, and the objects that they stand for, as kubectl names them. */
  readonly rows?: readonly { readonly row: object; readonly name: string }[];
}

/**
 * Formats an answer. The first line for people, and two fields for programs, name the cluster that it is about.
 *
 * @param options.format what `--output` says; empty for a table
 */
export function formatAnswer(
  { data, text, rows = [] }: Answer,
  { context, namespace }: Subject,
  options: { readonly format: string; readonly colours: Colours },
): string {
  const { format, colours } = options;
  const [kind, argument = ""] = format.split(/=(.*)/s);
  const all = { context, namespace, ...data };
  switch (kind) {
    case "json":
      return escapeControls(JSON.stringify(all, toJson, 2));
    case "yaml":
      return stringify(toPlain(all), { lineWidth: -1 }).trimEnd();
    case "name":
      return rows.map(({ name }) => name).join("\n");
    case "jsonpath":
      return fillTemplate(parseTemplate(argument), toPlain(all), valueText);
    case "custom-columns": {
      const columns = parseColumns(argument);
      const textOf = (path: Path, row: object) => valuesAt(path, toPlain(row)).map(valueText).join(",") || "<none>";
      const cells = [
        columns.map(({ title }) => title),
        ...rows.map(({ row }) => columns.map(({ path }) => textOf(path, row))),
      ];
      return alignCells(cells, "   ").join("\n");
    }
  }
  const cluster = context === "" ? "" : `context ${context}, `;
  const answer = `${colours.dim(`${cluster}namespace ${namespace}`)}\n\n${text({ wide: format === "wide", colours })}`;
  return withoutControls(answer);
}

/** Returns a value as kubectl prints it. */
function valueText(value: unknown): string {
  return withoutControls(typeof value === "string" ? value : JSON.stringify(value));
}

/**
 * Control characters other than line feeds, those for the direction of a text (Unicode, UAX 9), and the escape sequences of
 * {@linkcode coloursOf}, which come first.
 */
const CONTROLS = new RegExp(
  `(\\u001b\\[(?:0|${Object.values(CODES).join("|")})m)|[\\u0000-\\u0009\\u000b-\\u001f${UNQUOTED_CONTROLS}]`,
  "g",
);

/** Replaces control characters: whoever may write an event could else write anything on the terminal of its reader. */
export function withoutControls(text: string): string {
  return text.replace(CONTROLS, (_, colour?: string) => colour ?? "\ufffd");
}

/** Returns a value as its JSON has it. */
export function toPlain(value: object): Record<string, unknown> {
  return JSON.parse(JSON.stringify(value, toJson));
}

/** Sizes are numbers of bytes. */
function toJson(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? Number(value) : value;
}
