/**
 * The record of proof: of each row, the last run that passed. Tasks write it, and people commit it.
 *
 * @module
 */

import { DENO_VERSION } from "../../deploy/runtime.ts";
import { run } from "../rig/process.ts";
import { ROWS } from "./rows.ts";

/** A run that passed. */
export interface Pass {
  /** The commit whose files were tested. */
  readonly commit: string;
  /** The day, such as `2026-11-27`. */
  readonly date: string;
  readonly seconds: number;
  /** The number of tests that passed; absent for a task that counts none. */
  readonly passed?: number;
  /** The processors and the memory, such as `2 processors, 24 GiB`. */
  readonly machine: string;
}

/** The passes by the commands of rows. */
export type Passes = Readonly<Record<string, Pass>>;

const ROOT = new URL("../..", import.meta.url).pathname;

/** The file, from the root of the repository. */
const FILE = "tests/record/README.md";

/** What tasks write, which they do not test: the record, the figures, and the page of these. */
const WRITTEN = [FILE, "tests/bench/figures.json", "docs/explanation/performance.md"];

/** The paths of the product: a commit that changes none of them does not make a pass older. */
const PRODUCT = ["base", "cli", "csi", "deploy", "k8s", "lvm", "plugin", "main.ts", "mod.ts", "deno.lock"];

const TITLE = `# What was run, and when it passed last

Tasks write this table when they pass on a commit (see [Testing](../../docs/testing.md#the-record)).

`;

const HEADINGS = ["Task", "Commit", "Day", "Seconds", "Tests", "Machine"];

/** Reads the record. */
export async function readPasses(): Promise<Passes> {
  return passesOf(await Deno.readTextFile(ROOT + FILE));
}

/** A run of a task, whose passes are recorded. */
export class RecordedRun {
  readonly #commit: string | undefined;
  readonly #start = performance.now();

  private constructor(commit: string | undefined) {
    this.#commit = commit;
  }

  /**
   * Begins a run, which tests the files that are there now.
   *
   * @throws {Error} when they must be those of a commit, and are not
   */
  static async begin({ needsCommit = false } = {}): Promise<RecordedRun> {
    const commit = await testedCommit();
    if (needsCommit && commit === undefined) {
      throw new Error("begin a run with --update: files differ from the commit; commit them first");
    }
    return new RecordedRun(commit);
  }

  /** Returns the commit whose files were there all the time; `undefined` when some were changed, or git does not tell. */
  async commit(): Promise<string | undefined> {
    const commit = await testedCommit();
    return commit === this.#commit ? commit : undefined;
  }

  /**
   * Records that a row passed, and prints when it does not: for files that are not those of one commit all the time.
   *
   * @param command the command of the row; one that is no row is not recorded
   * @param options.start when it began, as performance.now() has it; the start of the run by default
   * @param options.full whether it was run with `--full`, so that the row with this flag passed, too
   */
  async pass(
    command: string,
    { start = this.#start, passed, full = false }: { start?: number; passed?: number; full?: boolean } = {},
  ): Promise<void> {
    const commands = (full ? [command, `${command} --full`] : [command]).filter((one) =>
      ROWS.some((row) => row.command === one)
    );
    if (commands.length === 0) return;
    const { deno } = Deno.version;
    if (deno !== DENO_VERSION) return console.error(`task ${command}: not recorded, as this is Deno ${deno}`);
    const commit = await this.commit();
    if (commit === undefined) return console.error(`task ${command}: not recorded, as files differ from the commit`);
    const pass: Pass = {
      commit,
      date: new Date().toISOString().slice(0, 10),
      seconds: Math.round((performance.now() - start) / 1_000),
      ...(passed !== undefined && { passed }),
      machine: `${navigator.hardwareConcurrency} processors, ${
        Math.round(Deno.systemMemoryInfo().total / 2 ** 30)
      } GiB`,
    };
    await addPasses(() => Promise.resolve(Object.fromEntries(commands.map((one) => [one, pass]))));
  }
}

/** Adds passes to the record. @param choose returns them by what it has */
async function addPasses(choose: (present: Passes) => Promise<Passes>): Promise<void> {
  using lock = await Deno.open(ROOT + FILE, { read: true, write: true });
  await lock.lock(true);
  const present = await readPasses();
  await Deno.writeTextFile(ROOT + FILE, passesText({ ...present, ...await choose(present) }));
}

/** Adds the passes in lines of another record that are later than those that this one has. @returns the rows */
export async function mergePasses(text: string): Promise<string[]> {
  const taken: [string, Pass][] = [];
  await addPasses(async (present) => {
    for (const [command, pass] of Object.entries(passesOf(text))) {
      const [age, presentAge] = [
        (await changeSince(pass, [])).commits,
        (await changeSince(present[command], [])).commits,
      ];
      if (age < presentAge || (age === presentAge && age < Infinity && pass.date > present[command]!.date)) {
        taken.push([command, pass]);
      }
    }
    return Object.fromEntries(taken);
  });
  return taken.map(([command]) => command);
}

/** Returns the commit whose files are checked out; `undefined` when some were changed, or git does not tell. */
async function testedCommit(): Promise<string | undefined> {
  try {
    const changed = await git("status", "--porcelain", "--", ".", ...WRITTEN.map((file) => `:!${file}`));
    return changed.trim() === "" ? (await git("rev-parse", "--short=12", "HEAD")).trim() : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the text of the file: a table with a line for each row, also for those that never passed. */
export function passesText(passes: Passes): string {
  const lines = ROWS.map(({ command }) => command).sort().map((command) => {
    const { commit = "", date = "not run", seconds = "", passed = "", machine = "" } = passes[command] ?? {};
    return [`\`${command}\``, commit, date, String(seconds), String(passed), machine];
  });
  const widths = HEADINGS.map((heading, column) =>
    Math.max(...[heading, ...lines.map((cells) => cells[column]!)].map(({ length }) => length))
  );
  const line = (cells: readonly string[], fill = " ") =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!, fill)).join(" | ")} |\n`;
  return TITLE + line(HEADINGS) + line(HEADINGS.map(() => ""), "-") + lines.map((cells) => line(cells)).join("");
}

/** Returns the passes in the text of the file. */
export function passesOf(text: string): Passes {
  const lines = [...text.matchAll(/^\| `(.+?)` +\| (\w{12}) \| ([\d-]+) \| (\d+) +\| (\d*) +\| (.*?) +\|$/gm)];
  return Object.fromEntries(lines.map(([, command, commit, date, seconds, passed, machine]) => {
    const pass = { commit: commit!, date: date!, seconds: Number(seconds), machine: machine! };
    return [command!, passed === "" ? pass : { ...pass, passed: Number(passed) }];
  }));
}

/** What has changed since a pass. */
export interface Change {
  /** The number of commits that change the product; Infinity where the row never passed, or at a commit that is not in the history. */
  readonly commits: number;
  /** The number of those that change what the row covers. */
  readonly covered: number;
}

/** Returns what has changed since the last pass of a row. */
export async function changeSince(pass: Pass | undefined, covers: readonly string[]): Promise<Change> {
  // the commit may have been rebased since, or the clone be shallow
  const isKnown = pass !== undefined &&
    await git("merge-base", "--is-ancestor", pass.commit, "HEAD").then(() => true, () => false);
  if (!isKnown) return { commits: Infinity, covered: Infinity };
  const count = async (paths: readonly string[]) =>
    Number(await git("rev-list", "--count", `${pass.commit}..HEAD`, "--", ...paths));
  const commits = await count(PRODUCT);
  return { commits, covered: covers.length === 0 ? commits : await count(covers) };
}

async function git(...args: readonly string[]): Promise<string> {
  return await run("read the history", "git", ["-C", ROOT, ...args]);
}
