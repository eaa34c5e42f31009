/**
 * Processes and their memory, from /proc.
 *
 * @module
 */

import { round } from "./statistics.ts";
import type { Memory } from "./result.ts";

/**
 * Returns the number of KiB in the line `name` of a file of /proc such as status; `undefined` when there is no such
 * line.
 */
export function kibOf(text: string, name: string): number | undefined {
  const line = text.split("\n").find((line) => line.startsWith(`${name}:`));
  const [, kib] = /^\S+:\s+(\d+) kB$/.exec(line ?? "") ?? [];
  return kib === undefined ? undefined : Number(kib);
}

/**
 * Returns the parent in a process's file stat. The name of the program, in parentheses, can itself hold any of them.
 */
export function parentOf(stat: string): number | undefined {
  const [, parent] = /^.*\) \S (\d+) /s.exec(stat) ?? [];
  return parent === undefined ? undefined : Number(parent);
}

/** Clock ticks of a second in the file stat (proc_pid_stat(5)): USER_HZ of Linux. */
const TICKS_PER_SECOND = 100;

/**
 * Returns the processor time in a process's file stat, in milliseconds: its own, and that of the processes that it started
 * and that have ended.
 *
 * @throws {Error} when it has no such times
 */
export function cpuOf(stat: string): { own: number; commands: number } {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ").map(Number);
  const [user, system, childUser, childSystem] = fields.slice(11, 15); // the fields 14 to 17; the first one here is the third
  const total = (a = NaN, b = NaN) => (a + b) * 1_000 / TICKS_PER_SECOND;
  const times = { own: total(user, system), commands: total(childUser, childSystem) };
  if (Number.isNaN(times.own + times.commands)) throw new Error(`read the processor time of a process: ${stat}`);
  return times;
}

/** Returns a process and all its descendants. @param parents the parent of each process */
export function treeOf(pid: number, parents: ReadonlyMap<number, number>): number[] {
  const children = [...parents].filter(([, parent]) => parent === pid).map(([child]) => child);
  return [pid, ...children.flatMap((child) => treeOf(child, parents))];
}

/** Returns a process and all its descendants on this machine. */
export async function processTree(pid: number): Promise<number[]> {
  const parents = new Map<number, number>();
  for await (const { name } of Deno.readDir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const parent = parentOf(await textOf(`/proc/${name}/stat`));
    if (parent !== undefined) parents.set(Number(name), parent);
  }
  return treeOf(pid, parents);
}

/** Reports whether a process is there, so that it runs a command for the process above it. */
export async function isCommand(pid: number): Promise<boolean> {
  return await textOf(`/proc/${pid}/cmdline`) !== "";
}

/** Returns the memory of a process and all its descendants. */
export async function memoryOf(pid: number): Promise<Memory> {
  const pids = await processTree(pid);
  const sum = async (file: string, name: string) => {
    const values = await Promise.all(pids.map(async (pid) => kibOf(await textOf(`/proc/${pid}/${file}`), name) ?? 0));
    return round(values.reduce((total, kib) => total + kib, 0) / 1024, 1);
  };
  const pssMiB = await sum("smaps_rollup", "Pss");
  const [rssMiB, anonymousMiB] = [await sum("status", "VmRSS"), await sum("status", "RssAnon")];
  return { rssMiB, anonymousMiB, ...(pssMiB > 0 ? { pssMiB } : {}) };
}

/** Reads a file of /proc. @returns its text; empty when its process has ended, or the kernel has no such file */
async function textOf(path: string): Promise<string> {
  return await Deno.readTextFile(path).catch(() => "");
}
