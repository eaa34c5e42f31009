/**
 * Judges the samples of a soak: what must be flat, and is not.
 *
 * @module
 */

import { median } from "../../bench/statistics.ts";
import type { Role } from "../suite/helpers/driver_pods.ts";
import type { ProcessSample, Sample } from "./sample.ts";

/** The age of a process from which its memory is compared, in seconds: it fills its caches and compiles its code first. */
const WARM_SECONDS = 180;

/** The number of samples of one process from which its memory is judged. */
const MIN_SAMPLES = 9;

/** The growth of memory that is no leak: a share, and MiB. Garbage is collected when the process likes to. */
const MEMORY_GROWTH = { ratio: 1.15, mib: 8 };

/** The descriptors by which two moments of rest may differ: connections to the API server come and go. */
const DESCRIPTOR_MARGIN = 6;

/** The time at the beginning of calm in which a process that was deleted by force may still end, in seconds. */
const SETTLE_SECONDS = 60;

/** Returns what was not flat, or not tested; empty when all was. */
export function findings(samples: readonly Sample[]): string[] {
  const [baseline, ...rests] = samples.filter(({ phase }) => phase === "rest");
  if (baseline === undefined || rests.length === 0) return ["no sample at rest after a cycle"];
  const idle = rests.filter(({ lives }, index) => lives <= (rests[index - 1] ?? baseline).lives);
  return [
    ...idle.map(({ cycle }) => `cycle ${cycle}: no life of a volume ended`),
    ...rests.flatMap((rest) => leftovers(baseline, rest)),
    ...(["node", "controller"] as const).flatMap((role) => [...ends(role, samples), ...growth(role, samples)]),
  ];
}

/** Returns the cycles in which a process ended while it was calm: nobody killed it, except the kernel for its memory. */
function ends(role: Role, samples: readonly Sample[]): string[] {
  const byCycle = Map.groupBy(samples.filter(({ phase }) => phase === "calm"), ({ cycle }) => cycle);
  return [...byCycle].flatMap(([cycle, calm]) => {
    const settled = calm.filter(({ seconds }) => seconds - calm[0]!.seconds >= SETTLE_SECONDS);
    const pids = settled.flatMap(({ processes }) => processes[role]?.pid ?? []);
    const count = pids.filter((pid, index) => index > 0 && pid !== pids[index - 1]).length;
    const absent = settled.length - pids.length;
    return [
      ...(count > 0 ? [`cycle ${cycle}: the ${role} ended ${count} times while it was calm`] : []),
      ...(absent > 0
        ? [`cycle ${cycle}: the ${role} did not run in ${absent} of ${settled.length} samples while it was calm`]
        : []),
    ];
  });
}

/** Compares two moments of rest: LVs, objects, queues and descriptors. */
function leftovers(baseline: Sample, rest: Sample): string[] {
  const when = `at the end of cycle ${rest.cycle}`;
  const found: string[] = [];
  if (rest.lvs !== baseline.lvs) found.push(`${when}: ${rest.lvs} LVs, at first ${baseline.lvs}`);
  for (const [kind, count] of Object.entries(rest.objects)) {
    if (count !== baseline.objects[kind]) found.push(`${when}: ${count} ${kind}, at first ${baseline.objects[kind]}`);
  }
  for (const role of ["node", "controller"] as const) {
    const [before, now] = [baseline.processes[role], rest.processes[role]];
    if (before === undefined || now === undefined) {
      found.push(`${when}: the ${role} did not run`);
      continue;
    }
    if (now.queued !== 0) found.push(`${when}: ${now.queued ?? "unknown"} keys in the queues of the ${role}`);
    if (now.descriptors > before.descriptors + DESCRIPTOR_MARGIN) {
      const more = Object.entries(now.descriptorKinds).flatMap(([kind, count]) => {
        const difference = count - (before.descriptorKinds[kind] ?? 0);
        return difference > 0 ? [`${difference} ${kind}`] : [];
      });
      found.push(
        `${when}: ${now.descriptors} descriptors of the ${role}, at first ${before.descriptors}; more: ${
          more.join(", ")
        }`,
      );
    }
  }
  return found;
}

/** Compares the memory of each process early and late in its calm time, and of the last process with the first. */
function growth(role: Role, samples: readonly Sample[]): string[] {
  const found: string[] = [];
  const levels: { cycle: number; late: number }[] = [];
  for (const { cycle, values } of calmLives(role, samples)) {
    const third = Math.floor(values.length / 3);
    const [early, late] = [values.slice(0, third), values.slice(-third)].map((part) =>
      median(part.map(({ anonMiB }) => anonMiB))
    ) as [number, number];
    if (isLeak(early, late)) found.push(`cycle ${cycle}: the ${role}'s memory grew from ${early} to ${late} MiB`);
    levels.push({ cycle, late });
  }
  const [first, last] = [levels[0], levels.at(-1)];
  if (first !== undefined && last !== undefined && isLeak(first.late, last.late)) {
    found.push(`the ${role} had ${first.late} MiB in cycle ${first.cycle}, ${last.late} in cycle ${last.cycle}`);
  }
  if (levels.length === 0) found.push(`the ${role} never ran long enough to judge its memory`);
  return found;
}

const isLeak = (before: number, after: number) => after > before * MEMORY_GROWTH.ratio + MEMORY_GROWTH.mib;

/** Returns the samples of each calm phase in which one process of a role ran, without its first minutes. */
function calmLives(role: Role, samples: readonly Sample[]): { cycle: number; values: ProcessSample[] }[] {
  const starts = new Map<number, number>();
  const lives = new Map<string, { cycle: number; values: ProcessSample[] }>();
  for (const { seconds, cycle, phase, processes } of samples) {
    const process = processes[role];
    if (process === undefined) continue;
    if (!starts.has(process.pid)) starts.set(process.pid, seconds);
    if (phase !== "calm" || seconds - starts.get(process.pid)! < WARM_SECONDS) continue;
    const key = `${cycle} ${process.pid}`;
    const life = lives.get(key) ?? { cycle, values: [] };
    life.values.push(process);
    lives.set(key, life);
  }
  return [...lives.values()].filter(({ values }) => values.length >= MIN_SAMPLES);
}
