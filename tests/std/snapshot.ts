/**
 * The part of `@std/testing/snapshot` that the tests use, for where JSR is not reached. The files have the same format.
 *
 * `__snapshots__/X_test.ts.snap` has the expected values of `X_test.ts` beside it. With `--update` among the arguments
 * of the tests, the file is written again with the values of this run. Run all tests of the file then.
 *
 * @module
 */

import { basename, dirname, join } from "@std/path";

/** Options of {@linkcode assertSnapshot}. */
export interface SnapshotOptions<T = unknown> {
  /** Makes the text to compare of a value. */
  serializer?: (actual: T) => string;
}

/** The snapshots of a file by name. */
interface SnapshotFile {
  readonly expected: ReadonlyMap<string, string>;
  readonly actual: Map<string, string>;
}

const files = new Map<string, SnapshotFile>();

/** How many snapshots each run of a test has asserted. */
const counts = new WeakMap<Deno.TestContext, number>();

const isUpdating = Deno.args.some((arg) => arg === "--update" || arg === "-u");

/**
 * Asserts that a value is as the snapshot of the test says, or writes the snapshot with `--update`.
 *
 * @throws {Error} when there is no snapshot, or another one
 */
export async function assertSnapshot<T>(
  context: Deno.TestContext,
  actual: T,
  { serializer = (value) => Deno.inspect(value, { depth: Infinity, sorted: true, trailingComma: true }) }:
    SnapshotOptions<T> = {},
): Promise<void> {
  const test = new URL(context.origin).pathname;
  const path = join(dirname(test), "__snapshots__", `${basename(test)}.snap`);
  const file = files.get(path) ?? { expected: await readSnapshots(path), actual: new Map() };
  files.set(path, file);
  const title = testTitle(context);
  const count = (counts.get(context) ?? 0) + 1;
  counts.set(context, count);
  const [name, text] = [`${title} ${count}`, serializer(actual)];
  file.actual.set(name, text);
  if (isUpdating) return await writeSnapshots(path, file.actual);
  const expected = file.expected.get(name);
  if (expected === text) return;
  const command = `run the test with --update and review the difference: deno test -A ${test} -- --update`;
  if (expected === undefined) throw new Error(`assert snapshot ${JSON.stringify(name)}: there is none; ${command}`);
  throw new Error(`assert snapshot ${JSON.stringify(name)}: differs; ${command}\n${difference(expected, text)}`);
}

/** Returns the title of a test, after those of the tests whose step it is. */
function testTitle({ name, parent }: Deno.TestContext): string {
  return parent === undefined ? name : `${testTitle(parent)} > ${name}`;
}

async function readSnapshots(path: string): Promise<Map<string, string>> {
  const text = await Deno.readTextFile(path).catch((error) => {
    if (error instanceof Deno.errors.NotFound) return "";
    throw error;
  });
  const literal = "((?:[^`\\\\]|\\\\.)*)";
  const entries = text.matchAll(new RegExp(`^snapshot\\[\`${literal}\`\\] = \`${literal}\`;$`, "gms"));
  return new Map([...entries].map(([, name, value]) => {
    const isMultiline = value!.startsWith("\n") && value!.endsWith("\n") && value!.length > 1;
    return [unescape(name!), unescape(isMultiline ? value!.slice(1, -1) : value!)];
  }));
}

async function writeSnapshots(path: string, snapshots: ReadonlyMap<string, string>): Promise<void> {
  const entries = [...snapshots].map(([name, text]) => {
    const value = escape(text);
    return `snapshot[\`${escape(name)}\`] = \`${value.includes("\n") ? `\n${value}\n` : value}\`;\n`;
  });
  await Deno.mkdir(dirname(path), { recursive: true });
  await Deno.writeTextFile(path, ["export const snapshot = {};\n", ...entries].join("\n"));
}

function escape(text: string): string {
  return text.replace(/[\\`$]/g, "\\$&");
}

function unescape(text: string): string {
  return text.replace(/\\([\\`$])/g, "$1");
}

/** Returns the lines that differ, from the first one to the last one. */
function difference(expected: string, actual: string): string {
  const [before, after] = [expected.split("\n"), actual.split("\n")];
  const first = before.findIndex((line, index) => line !== after[index]);
  const start = first < 0 ? before.length : first;
  while (before.length > start && after.length > start && before.at(-1) === after.at(-1)) {
    before.pop();
    after.pop();
  }
  return [...before.slice(start).map((line) => `- ${line}`), ...after.slice(start).map((line) => `+ ${line}`)].join(
    "\n",
  );
}
