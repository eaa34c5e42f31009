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
import { flushesAfter } from "../power_cuts/power_cut.ts";
import { drawTrials, type Selection, START, stepAt, type Trial } from "../power_cuts/trials.ts";
import { isSkipped } from "./helpers/skipped_tests.ts";

const LOG_DISK = Deno.env.get("DATA_DISK") ?? "";
const SELECTION: Selection = {
  seed: Deno.env.get("SAMPLE") || "0",
  isFull: Deno.env.get("FULL") === "1",
  step: Deno.env.get("STEP") ?? "",
};

/** The number of power cuts until a line shows the progress: the runner stops a guest that prints nothing for minutes. */
const CUTS_PER_LINE = 20;

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

async function runTrial(steps: readonly Step[], { disk, uuids }: Recording, trial: Trial): Promise<void> {
  const { marks, lost } = await disk.cutPower(trial.cut);
  const acknowledged = marks.length - 1; // all but the first
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
    const step = stepAt(steps, disk.log, trial.cut);
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
    const trials = await drawTrials(life, steps, recording.disk.log, SELECTION);
    assert(trials.length > 0, "no power cuts");
    const flushes = flushesAfter(recording.disk.log, START).length;
    console.log(`${life}: ${flushes} flushes, ${trials.length} power cuts, SAMPLE=${SELECTION.seed}`);
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
