/**
 * Cuts the power at the writes of lives of volumes: `deno test` runs this in the guest, as one bundle. DATA_DISK names an
 * empty disk, for logs of writes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { run } from "../demo/command.ts";
import {
  readGroup,
  requireAcknowledged,
  requireEmpty,
  requireFreeSpaceWithoutSecrets,
  uuidsIn,
} from "../power_cuts/checks.ts";
import { describeStep, LIVES, type Step, stepsToContinue, stepsToGiveUp, worldAfter } from "../power_cuts/life.ts";
import { DISK_PATH, prepareMachine, RecordedDisk, type RepeatedDisk } from "../power_cuts/logged_disk.ts";
import { GROUP, Orchestrator } from "../power_cuts/orchestrator.ts";
import { flushesAfter, type PowerCut } from "../power_cuts/power_cut.ts";
import { seededRandom, seedOf } from "../rig/seeded_random.ts";
import { isSkipped } from "./skipped_tests.ts";

const LOG_DISK = Deno.env.get("DATA_DISK") ?? "";
const SEED = Deno.env.get("SAMPLE") || "0";
/** The power cuts of each life with a random outcome, and those right after a flush; all of the latter by default. */
const CUTS = { random: 2, flushed: 1 };
const ALL_CUTS = { random: 50, flushed: Infinity };

/** The number of power cuts until a line shows the progress: the runner stops a guest that prints nothing for minutes. */
const CUTS_PER_LINE = 20;

/** The mark before the first step. */
const START = "start";

await prepareMachine();

/** A recorded life. */
interface Recording {
  readonly disk: RepeatedDisk;
  /** The UUIDs of the LVs of volumes and snapshots, by tag. */
  readonly uuids: ReadonlyMap<string, string>;
}

async function record(steps: readonly Step[]): Promise<Recording> {
  await using disk = await RecordedDisk.create(LOG_DISK);
  await run("make a group", "lvm", ["vgcreate", "-qq", "--yes", GROUP, DISK_PATH]);
  await run("flush the disk", "sync", [DISK_PATH]);
  await disk.mark(START);
  const uuids = new Map<string, string>();
  {
    await using orchestrator = await Orchestrator.start();
    await orchestrator.runSteps(steps, [], async (index) => {
      await disk.mark(describeStep(steps[index]!, index));
      for (const [tag, uuid] of uuidsIn(await readGroup(), worldAfter(steps.slice(0, index + 1)))) uuids.set(tag, uuid);
    });
  }
  await requireEmpty({ canHavePool: false });
  return { disk: await disk.finish(), uuids };
}

/** A power cut, with its reaction: the orchestrator repeats what was not acknowledged, or deletes everything. */
interface Trial {
  readonly title: string;
  readonly cut: PowerCut;
  readonly givesUp: boolean;
  /** True if the host activates all LVs at its start. */
  readonly activates: boolean;
}

/** Draws the power cuts of a life, in the order of the log. */
async function drawTrials(life: string, { disk }: Recording): Promise<Trial[]> {
  const flushes = flushesAfter(disk.log, START);
  const random = seededRandom(await seedOf(`${SEED} ${life}`));
  const counts = Deno.env.get("FULL") ? ALL_CUTS : CUTS;
  const trials: Trial[] = [];
  const add = (flush: number, seed: number | undefined) => {
    const title = `flush ${flushes.indexOf(flush)}, ${seed === undefined ? "all writes" : `writes by ${seed}`}`;
    const cut = { flush, random: seed === undefined ? undefined : seededRandom(seed) };
    trials.push({ title, cut, givesUp: random() < 0.5, activates: random() < 0.5 });
  };
  const pick = () => flushes[Math.floor(random() * flushes.length)]!;
  if (counts.flushed === Infinity) { for (const flush of flushes) add(flush, undefined); }
  else for (let i = 0; i < counts.flushed; i++) add(pick(), undefined);
  for (let i = 0; i < counts.random; i++) add(pick(), Math.floor(random() * 2 ** 32));
  console.log(`${life}: ${flushes.length} flushes, ${trials.length} power cuts, SAMPLE=${SEED}`);
  return trials.sort((one, other) => one.cut.flush - other.cut.flush);
}

async function runTrial(steps: readonly Step[], { disk, uuids }: Recording, trial: Trial): Promise<void> {
  const { marks, lost } = await disk.cutPower(trial.cut);
  const acknowledged = marks.length - 1; // all but the first
  const next = steps[acknowledged];
  try {
    await requireAcknowledged(steps, acknowledged, uuids);
    await requireFreeSpaceWithoutSecrets();
    // LVM fails for a thin LV whose creation the power cut interrupted, and activates the others
    if (trial.activates) await run("start the host", "lvm", ["vgchange", "-qq", "-aay", GROUP]).catch(() => {});
    {
      await using orchestrator = await Orchestrator.start();
      const before = steps.slice(0, acknowledged);
      await orchestrator.runSteps((trial.givesUp ? stepsToGiveUp : stepsToContinue)(steps, acknowledged), before);
    }
    await requireEmpty({ canHavePool: true });
  } catch (error) {
    const reaction = trial.givesUp ? "gives up" : "repeats";
    const step = next === undefined ? "the end" : describeStep(next, acknowledged);
    const activation = trial.activates ? ", with all LVs active" : "";
    const what = `${trial.title}, during ${step}, ${lost} writes lost, the orchestrator ${reaction}${activation}`;
    throw new Error(`${what}: ${error}`, { cause: error });
  } finally {
    await disk.discardChanges();
  }
}

for (const [life, steps] of Object.entries(LIVES)) {
  const title = `the power may fail at any write: ${life}`;
  Deno.test(`${title} [lvm]`, { ignore: isSkipped(title) }, async () => {
    const recordStart = performance.now();
    const recording = await record(steps);
    await using _disk = recording.disk;
    const trials = await drawTrials(life, recording);
    assert(trials.length > 0, "no power cuts");
    const start = performance.now();
    const failures: string[] = [];
    for (const [index, trial] of trials.entries()) {
      await runTrial(steps, recording, trial).catch((error: Error) => {
        failures.push(error.message);
        console.log(error.message);
      });
      const count = index + 1;
      if (count % CUTS_PER_LINE === 0) {
        console.log(`${life}: ${count} of ${trials.length} power cuts, ${failures.length} failed`);
      }
    }
    const [recorded, taken] = [start - recordStart, performance.now() - start].map((ms) => ms / 1000);
    console.log(
      `${life}: recorded in ${recorded!.toFixed(1)} s, ${(taken! / trials.length).toFixed(1)} s per power cut`,
    );
    assertEquals(failures.length, 0, `${failures.length} of ${trials.length} power cuts failed`);
  });
}
