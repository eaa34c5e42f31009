import { assert, assertEquals } from "@std/assert";
import { seededRandom } from "../rig/seeded_random.ts";
import { type Candidate, drawRows } from "./draw.ts";
import { changeSince, passesOf, passesText, readPasses } from "./record.ts";
import { type Row, ROWS } from "./rows.ts";

function candidate(command: string, options: Partial<Row & { commits: number; covered: number }> = {}): Candidate {
  const { ci = "drawn", seconds = 60, commits = 10, covered = 0 } = options;
  return { row: { command, covers: [], ci }, seconds, change: { commits, covered } };
}

function names(drawn: readonly Candidate[]): string[] {
  return drawn.map(({ row: { command } }) => command);
}

Deno.test("what CI always runs is drawn, then what never passed or is old, the oldest first, and nothing that people run", () => {
  const all = [
    candidate("fresh", { commits: 0 }),
    candidate("old", { commits: 90 }),
    candidate("never", { commits: Infinity }),
    candidate("older", { commits: 120 }),
    candidate("soak", { ci: "by hand", commits: Infinity }),
    candidate("test", { ci: "always", commits: 0 }),
  ];
  assertEquals(names(drawRows(all, 4 * 60, seededRandom(1))), ["test", "never", "older", "old"]);
});

Deno.test("a row that does not fit in the time is left out for one that does", () => {
  const all = [candidate("long", { seconds: 600, commits: Infinity }), candidate("short", { seconds: 30 })];
  assertEquals(names(drawRows(all, 60, seededRandom(1))), ["short"]);
});

Deno.test("rows are drawn more often the older their pass is, and when their code has changed", () => {
  const counts = new Map<string, number>();
  for (let seed = 0; seed < 2_000; seed++) {
    const all = [
      candidate("fresh", { commits: 1 }),
      candidate("old", { commits: 60 }),
      candidate("changed", { commits: 60, covered: 1 }),
    ];
    for (const name of names(drawRows(all, 60, seededRandom(seed)))) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const share = (name: string) => (counts.get(name) ?? 0) / 2_000;
  assert(share("changed") > 0.7 && share("changed") < 0.85, JSON.stringify([...counts]));
  assert(share("old") > 0.12 && share("old") < 0.25, JSON.stringify([...counts]));
  assert(share("fresh") > 0, JSON.stringify([...counts]));
});

Deno.test("two seeds draw different rows", () => {
  const all = ROWS.map(({ command, ci }) => candidate(command, { ci }));
  const drawn = [1, 2].map((seed) => names(drawRows(all, 1_800, seededRandom(seed))).filter((name) => name !== "test"));
  assert(drawn[0]!.length > 5 && drawn[0]!.join() !== drawn[1]!.join());
});

Deno.test("each suite in a guest and in a cluster has one row, and each row is of a task that records its passes", async () => {
  const commands = ROWS.map(({ command }) => command);
  assertEquals(commands.filter((command, index) => commands.indexOf(command) !== index), []);
  const { tasks } = JSON.parse(await Deno.readTextFile(new URL("../../deno.json", import.meta.url)));
  const writers = await Promise.all(commands.map(async (command) => {
    const [file] = /tests\/[\w/]+\.ts/.exec(tasks[command.split(" ")[0]!].command) ?? [];
    return file !== undefined &&
      /\.pass\(|settleFigures\(/.test(await Deno.readTextFile(new URL(`../../${file}`, import.meta.url)));
  }));
  assertEquals(commands.filter((_, index) => !writers[index]), []);
  const files = [...Deno.readDirSync(new URL("../cluster/suite/", import.meta.url))].map(({ name }) => name);
  const suites = files.filter((name) => name.endsWith("_suite.ts")).map((name) =>
    `test:cluster ${name.slice(0, -"_suite.ts".length)}`
  );
  assertEquals(suites.filter((suite) => !commands.includes(suite)), []);
  const inCluster = commands.filter((command) => /^test:cluster [a-z_]+$/.test(command));
  assertEquals(inCluster.filter((command) => !suites.includes(command)), []);
});

Deno.test("the record has a line for each row, and is read as it was written", async () => {
  const pass = { commit: "0123456789ab", date: "2026-01-02", seconds: 3, machine: "2 processors, 24 GiB" };
  const passes = { "test:lvm faults": { ...pass, passed: 7 }, test: pass };
  const text = passesText(passes);
  assertEquals(passesOf(text), passes);
  assertEquals(text.match(/^\| `.*/gm)?.length, ROWS.length);
  assert(Object.keys(await readPasses()).length > 0);
});

Deno.test("a pass at a commit that is not in the history counts as none", async () => {
  const pass = { commit: "0123456789ab", date: "2026-01-02", seconds: 3, machine: "2 processors, 24 GiB" };
  assertEquals(await changeSince(pass, []), { commits: Infinity, covered: Infinity });
});
