/**
 * Draws the power cuts of a life: when the power fails, what survives of the writes under way, and what the host and the
 * orchestrator do then.
 *
 * @module
 */

import { seededRandom, seedOf } from "../rig/seeded_random.ts";
import { describeStep, type Step } from "./life.ts";
import { flushesAfter, marksBefore, type PowerCut } from "./power_cut.ts";
import type { WriteLog } from "./write_log.ts";

/** The mark before the first step. */
export const START = "start";

/** A power cut, with its reaction: the orchestrator repeats what was not acknowledged, or deletes everything. */
export interface Trial {
  readonly title: string;
  readonly cut: PowerCut;
  readonly givesUp: boolean;
  /** True if the host activates all LVs at its start. */
  readonly activates: boolean;
}

/** Which power cuts of a life are drawn. */
export interface Selection {
  /** The seed of the choice. */
  readonly seed: string;
  /** True for one at each flush, and some more; otherwise a few. */
  readonly isFull: boolean;
  /**
   * A part of the description of steps. Each flush in them gets two power cuts, with and without a random outcome, and each
   * of these all reactions. Empty for all steps.
   */
  readonly step: string;
}

/** The power cuts of each life with a random outcome, and those right after a flush. */
const CUTS = { random: 2, flushed: 1 };
const FULL_CUTS = { random: 50, flushed: Infinity };

/** All reactions to a power cut. */
const REACTIONS = [false, true].flatMap((givesUp) => [false, true].map((activates) => ({ givesUp, activates })));

/** Draws the power cuts of a life, in the order of the log. The same seed draws the same ones. */
export async function drawTrials(
  life: string,
  steps: readonly Step[],
  log: WriteLog,
  { seed, isFull, step }: Selection,
): Promise<Trial[]> {
  const flushes = flushesAfter(log, START);
  const random = seededRandom(await seedOf(`${seed} ${life}`));
  const cutAt = (flush: number, cutSeed?: number) => ({
    title: `flush ${flushes.indexOf(flush)}, ${cutSeed === undefined ? "all writes" : `writes by ${cutSeed}`}`,
    cut: { flush, random: cutSeed === undefined ? undefined : seededRandom(cutSeed) },
  });
  const newSeed = () => Math.floor(random() * 2 ** 32);
  if (step !== "") {
    return flushes.filter((flush) => stepAt(steps, log, { flush }).includes(step)).flatMap((flush) =>
      [undefined, newSeed()].flatMap((cutSeed) =>
        REACTIONS.map((reaction) => ({ ...cutAt(flush, cutSeed), ...reaction }))
      )
    );
  }
  const counts = isFull ? FULL_CUTS : CUTS;
  const trials: Trial[] = [];
  const add = (flush: number, cutSeed?: number) =>
    trials.push({ ...cutAt(flush, cutSeed), givesUp: random() < 0.5, activates: random() < 0.5 });
  const pick = () => flushes[Math.floor(random() * flushes.length)]!;
  if (counts.flushed === Infinity) { for (const flush of flushes) add(flush); }
  else for (let i = 0; i < counts.flushed; i++) add(pick());
  for (let i = 0; i < counts.random; i++) add(pick(), newSeed());
  return trials.sort((one, other) => one.cut.flush - other.cut.flush);
}

/** Returns the description of the step during which a power cut comes. */
export function stepAt(steps: readonly Step[], log: WriteLog, cut: PowerCut): string {
  const acknowledged = marksBefore(log, cut).length - 1; // all but the first
  const step = steps[acknowledged];
  return step === undefined ? "the end" : describeStep(step, acknowledged);
}
