/**
 * What a user may see of data: each claim has what was written to it, in the order in which it was written.
 *
 * @module
 */

/** The most writes to a claim. */
const MAX_WRITES = 60;

/** What a claim, or a snapshot, began with: the writes to another one up to a moment that is known as far as the bounds. */
interface Source {
  readonly of: History;
  readonly atLeast: number;
  /** Absent as long as the moment may still be to come. */
  atMost?: number;
}

/** What was written to a claim or is in a snapshot. */
interface History {
  /** All writes, in order; unknown before somebody has read what came from the source. */
  writes: string[] | undefined;
  source: Source | undefined;
  next: number;
}

/** The contents of claims and snapshots, by their uids. */
export class Contents {
  readonly #histories = new Map<string, History>();

  addClaim(uid: string): void {
    this.#histories.set(uid, { writes: [], source: undefined, next: 0 });
  }

  /** Returns what is written next to a claim; `undefined` if it has enough. */
  nextWrite(uid: string, name: string): { text: string; number: number } | undefined {
    const history = this.#histories.get(uid)!;
    if (history.next >= MAX_WRITES) return undefined;
    const number = history.next++;
    return { text: `${name}#${number}`, number };
  }

  /** Records that a write was acknowledged. */
  written(uid: string, text: string): void {
    this.#histories.get(uid)!.writes!.push(text);
  }

  /** Compares what a device has. @throws {Error} when it is not what a user may see */
  observe(uid: string, data: ReadonlySet<string>, what: string): void {
    const { writes } = this.#histories.get(uid)!;
    const lost = writes!.filter((write) => !data.has(write));
    if (lost.length > 0) throw new Error(`${what}: ${lost} is lost`);
    const others = [...data].filter((write) => !writes!.includes(write));
    if (others.length > 0) throw new Error(`${what}: there is ${others}, which nobody wrote to it`);
  }
}
