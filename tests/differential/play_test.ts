import { assert, assertRejects } from "@std/assert";
import fc from "fast-check";
import { FakeMachine } from "../fake/machine/machine.ts";
import { type Action, GROUP, type Kind, KINDS, plays } from "./actions.ts";
import { type Counts, type OtherMachine, play, type Targets } from "./play.ts";

const SEED = 20261122;

/** Another fake machine. @param change changes it before each play */
function anotherFake(change: (machine: FakeMachine) => void = () => {}): OtherMachine {
  let machine = new FakeMachine();
  return {
    exec: { run: (command) => machine.run(command), idle: () => Promise.resolve() },
    host: {},
    settleMs: 0,
    tickMs: 0,
    reset: () => {
      machine = new FakeMachine();
      machine.addGroup(GROUP, 3n << 30n, 4n << 20n, 3);
      change(machine);
      return Promise.resolve();
    },
  };
}

async function makeTargets(): Promise<Targets & AsyncDisposable> {
  const root = await Deno.makeTempDir();
  const folders = [`${root}/one`, `${root}/two`];
  for (const folder of folders) await Deno.mkdir(folder);
  await Deno.writeTextFile(`${root}/file`, "");
  return { folders, file: `${root}/file`, [Symbol.asyncDispose]: () => Deno.remove(root, { recursive: true }) };
}

const newCounts = (): Counts => ({ commands: 0, succeeded: 0, refused: new Map() });

Deno.test("play() finds no difference between two fake machines, and most commands of each kind run", async () => {
  await using targets = await makeTargets();
  const counts = newCounts();
  const kinds = new Set<string>();
  const property = fc.asyncProperty(plays(16), async (actions) => {
    for (const { kind } of actions) kinds.add(kind);
    await play(actions, anotherFake(), targets, counts);
  });
  await fc.assert(property, { seed: SEED, numRuns: 40, endOnFailure: true });
  const refused = [...counts.refused.values()].reduce((sum, each) => sum + each, 0);
  assert(counts.succeeded > counts.commands / 3, `${counts.succeeded} of ${counts.commands} succeeded`);
  assert(refused < counts.commands / 4, [...counts.refused.keys()].join("\n"));
  assert(kinds.size === KINDS.length);
});

Deno.test("play() fails when a command has another outcome, or another state is left", async () => {
  await using targets = await makeTargets();
  const actions = ([["createLinear", 4], ["extend", 8]] as const).map(
    ([kind, extents]): Action => ({ kind, pick: 0, other: 0, extents }),
  );
  const run = (other: OtherMachine) => play(actions, other, targets, newCounts());
  await run(anotherFake());
  await assertRejects(
    () => run(anotherFake((machine) => machine.fault = ({ args }) => args[0] === "lvextend" ? FAILED : undefined)),
    Error,
    "lvextend",
  );
  await assertRejects(
    () => run(anotherFake((machine) => machine.fault = ({ args }) => args[0] === "lvextend" ? DONE : undefined)),
    Error,
    "the fake's state",
  );
});

Deno.test("play() takes over that a snapshot overflowed only when a program has written", async () => {
  await using targets = await makeTargets();
  const overflowing = () =>
    anotherFake((machine) => {
      machine.fault = () => {
        for (const lv of machine.groups[0]!.lvs) lv.invalid = lv.origin !== undefined;
        return undefined;
      };
    });
  const run = (...kinds: Kind[]) => {
    const actions = kinds.map((kind): Action => ({ kind, pick: 0, other: 1, extents: 4 }));
    return play(actions, overflowing(), targets, newCounts());
  };
  await assertRejects(() => run("createLinear", "snapshot"), Error, "invalidSnapshot");
  await run("createLinear", "mkfsExt4", "snapshot", "tag");
});

const FAILED = { code: 5, stdout: "", stderr: "  Insufficient free space" };

/** The outcome of a command that claims to have done something. */
const DONE = { code: 0, stdout: "", stderr: "" };
