/**
 * The commit that a release is made of.
 *
 * @module
 */

import { run } from "../process.ts";

/** The root of the checkout. */
const ROOT = new URL("../..", import.meta.url).pathname;

/** A state of a checkout. */
export interface Source {
  /** The checkout's folder. */
  readonly root: string;
  /** The commit, in hexadecimal. */
  readonly commit: string;
  /** The time of the commit, in UTC, such as 2026-11-24T12:00:00Z. It is the time of all that the release contains. */
  readonly time: string;
  /** Whether there are changes that are not in the commit. */
  readonly isChanged: boolean;
}

/** Reads the state of a checkout, by default this one. @throws {Error} when it is not a checkout of git */
export async function readSource(root = ROOT): Promise<Source> {
  const [commit, seconds] = (await git(root, "log", "-1", "--format=%H %ct")).split(" ");
  const time = new Date(Number(seconds) * 1000).toISOString().replace(/\.\d+/, "");
  return { root, commit: commit!, time, isChanged: await git(root, "status", "--porcelain") !== "" };
}

/**
 * Checks that the release can have its tag: no changes beside the commit, and no such tag.
 *
 * @throws {Error} when it cannot
 */
export async function requireTaggable(source: Source, tag: string): Promise<void> {
  if (source.isChanged) throw new Error(`tag ${tag}: the checkout has changes that are not committed`);
  const tagged = await git(source.root, "tag", "--list", tag);
  if (tagged !== "") throw new Error(`tag ${tag}: it exists already`);
}

/** Tags the commit. @throws {Error} when git refuses */
export async function addTag({ root, commit }: Source, tag: string, message: string): Promise<void> {
  await git(root, "tag", "--annotate", "--message", message, tag, commit);
}

async function git(root: string, ...args: string[]): Promise<string> {
  return (await run(`git ${args[0]}`, "git", args, { cwd: root })).trim();
}
