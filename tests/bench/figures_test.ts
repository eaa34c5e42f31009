import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { figuresTable } from "../../deploy/reference/figures.ts";
import {
  compareFigures,
  comparisonTable,
  type Figure,
  FIGURE_FILE,
  type Figures,
  settleFigures,
  UNITS,
  updateFigures,
} from "./figures.ts";

const AT = { commit: "0123456789ab", date: "2026-01-02" };

/** Figures of which these are known. */
function figuresWith(known: Partial<Record<keyof Figures, Partial<Figure>>>): Figures {
  const figures = FIGURE_FILE.read();
  const entries = Object.entries(figures).map(([name, { value: _, ...figure }]) => [
    name,
    { ...figure, ...known[name as keyof Figures] },
  ]);
  return Object.fromEntries(entries);
}

Deno.test("each figure has a unit and a task, and the commit at which it was measured, if that is known", async () => {
  const { tasks } = JSON.parse(await Deno.readTextFile(new URL("../../deno.json", import.meta.url)));
  const figures: Figure[] = Object.values(FIGURE_FILE.read());
  assert(figures.length > 20, "the test sees them");
  for (const { what, task, unit, value, commit, date } of figures) {
    assert(unit in UNITS && task in tasks, what);
    assert(value === undefined || Number.isFinite(value), what);
    assert(commit === undefined && date === undefined || /^\w{12} \d{4}-\d\d-\d\d$/.test(`${commit} ${date}`), what);
  }
  assertEquals(new Set(figures.map(({ what }) => what)).size, figures.length);
});

Deno.test("a ratio may be half as high again, memory a quarter, a count a tenth, and times of one machine have no limit", () => {
  const figures = figuresWith({
    createVolume: { value: 2 },
    agentRss: { value: 80 },
    claimRequests: { value: 4 },
    scaleStartCpu: { value: 8 },
  });
  const beyond = (measured: Parameters<typeof compareFigures>[1]) =>
    compareFigures(figures, measured).filter(({ isBeyond }) => isBeyond).map(({ what }) => what);
  assertEquals(beyond({ createVolume: 3, agentRss: 100, claimRequests: 4.4, scaleStartCpu: 1_000 }), []);
  const { createVolume, agentRss, claimRequests } = figures;
  assertEquals(
    beyond({ createVolume: 3.01, agentRss: 100.1, claimRequests: 4.5 }),
    [createVolume, agentRss, claimRequests].map(({ what }) => what),
  );
});

Deno.test("a figure without a value before has no limit, and what is no number is beyond any", () => {
  const isBeyond = (clone: number) => compareFigures(figuresWith({}), { clone })[0]!.isBeyond;
  assertEquals([1e9, NaN, Infinity].map(isBeyond), [false, true, true]);
});

Deno.test("updateFigures() writes what was measured, and leaves the other figures as they were", () => {
  const figures = figuresWith({
    createVolume: { value: 2 },
    clone: { value: 0.5, commit: "ba9876543210", date: "2025-01-02" },
  });
  const updated = updateFigures(figures, { createVolume: 1.2345, agentRss: 80.4 }, AT);
  assertEquals(updated.createVolume, { ...figures.createVolume, value: 1.23, ...AT });
  assertEquals(updated.agentRss, { ...figures.agentRss, value: 80, ...AT });
  assertEquals({ ...updated, createVolume: 0, agentRss: 0 }, { ...figures, createVolume: 0, agentRss: 0 } as never);
  assertEquals(Object.keys(updated), Object.keys(figures));
  assertThrows(() => updateFigures(figures, { clone: NaN }, AT), Error, "clone");
});

Deno.test("the table of a comparison has before, now, limit and goal", () => {
  const figures = figuresWith({
    podRunning: { value: 2.4, goal: 1.8 },
    claimsBound: { goal: 0.85 },
    agentRss: { value: 80 },
  });
  const text = comparisonTable(compareFigures(figures, { agentRss: 90.4, claimsBound: 0.8, podRunning: 2.345 }));
  assertEquals(text.split("\n").map((line) => line.split(/ {2,}/).slice(1)), [
    ["before", "now", "limit", "goal"],
    ["80 MiB", "90 MiB", "100 MiB"],
    ["none", "0.8", "none", "0.85"],
    ["2.4", "2.35", "3.6", "1.8, missed"],
  ]);
});

Deno.test("the page has the figures that were measured", () => {
  const figures = figuresWith({ clone: { value: 0.86 }, reportSize: { value: 0.9 } });
  const rows = figuresTable(figures).split("\n").slice(2).map((line) => line.split(/ *\| */).slice(1, -1));
  assertEquals(rows, [
    [figures.clone.what, "0.86", "`bench`"],
    [figures.reportSize.what, "0.9 KiB", "`bench:scale`"],
  ]);
});

/** A run whose figures are in memory. */
function fakeRun(known: Parameters<typeof figuresWith>[0], commit?: string) {
  const passed: string[] = [];
  const printed: string[] = [];
  let figures = figuresWith(known);
  const file = {
    read: () => figures,
    change: (body: (figures: Figures) => Figures) => Promise.resolve(void (figures = body(figures))),
  };
  const run = {
    commit: () => Promise.resolve(commit),
    pass: (command: string) => Promise.resolve(void passed.push(command)),
  };
  const options = { run, command: "bench", print: (text: string) => printed.push(text), file };
  return { passed, printed, file, options };
}

Deno.test("a run within the limits is recorded, and changes no figure", async () => {
  const { passed, file, options } = fakeRun({ clone: { value: 1 } }, AT.commit);
  const before = file.read();
  assert(await settleFigures({ clone: 1.4 }, { ...options, update: false }));
  assertEquals(passed, ["bench"]);
  assertEquals(file.read(), before);
});

Deno.test("a run with a figure beyond its limit fails, says which, and is not recorded", async () => {
  const { passed, printed, options } = fakeRun({ clone: { value: 1 }, createVolume: { value: 1 } }, AT.commit);
  assertEquals(await settleFigures({ clone: 1.6, createVolume: 1.4 }, { ...options, update: false }), false);
  assertEquals(passed, []);
  assertEquals(printed.slice(1), [
    "FAILED: clone of 128 MiB, as a ratio to plain commands: 1.6 is beyond the limit of 1.5",
  ]);
});

Deno.test("a run that has no row in the record is compared, and not recorded", async () => {
  const { passed, options: { command: _, ...options } } = fakeRun({ reportSize: { value: 1 } }, AT.commit);
  assert(await settleFigures({ reportSize: 1.05 }, { ...options, update: false }));
  assertEquals(await settleFigures({ reportSize: 1.2 }, { ...options, update: false }), false);
  assertEquals(passed, []);
});

Deno.test("--update writes what was measured at the commit, also beyond the limits, and the run is recorded", async () => {
  const { passed, file, options } = fakeRun({ clone: { value: 1 } }, AT.commit);
  assert(await settleFigures({ clone: 1.6 }, { ...options, update: true }));
  assertEquals(passed, ["bench"]);
  const { value, commit } = file.read().clone;
  assertEquals({ value, commit }, { value: 1.6, commit: AT.commit });
});

Deno.test("--update writes nothing when files differ from the commit", async () => {
  const { passed, file, options } = fakeRun({ clone: { value: 1 } });
  await assertRejects(() => settleFigures({ clone: 1.2 }, { ...options, update: true }), Error, "differ");
  assertEquals([passed, file.read().clone.value], [[], 1]);
});
