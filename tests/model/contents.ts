/**
 * What a user may see of data: a claim has what it began with, and what was written to it since, in the order in which it was
 * written. A snapshot has what its source had at a moment between the call and its end, and so has a copy.
 *
 * @module
 */

import { count } from "./tally.ts";

/** The most writes to a claim. */
const MAX_WRITES = 60;

/** The content of a snapshot or of the source of a copy: that of a claim at some moment. */
export interface Moment {
  readonly of: History;
  /** The least and the most writes of the claim that are in it; the most are unknown as long as the moment may be to come. */
  readonly least: number;
  most: number | undefined;
  /** What is in it, once somebody has read that. */
  content: readonly string[] | undefined;
  /** The passphrase of the claim then, if it is encrypted. */
  readonly passphrase: string | undefined;
}

/** What was written to a claim. */
interface History {
  /** What it began with; unknown before somebody has read what came from the source. */
  initial: readonly string[] | undefined;
  readonly source: Moment | undefined;
  readonly own: string[];
  next: number;
}

/** The contents of claims, by their uids. */
export class Contents {
  readonly #histories = new Map<string, History>();

  /** Adds a claim. @param source the moment of which it has the content */
  addClaim(uid: string, source?: Moment): void {
    this.#histories.set(uid, { initial: source === undefined ? [] : undefined, source, own: [], next: 0 });
  }

  /** Begins the moment of a snapshot or a copy of a claim: it is now or later. */
  beginMoment(uid: string, passphrase: string | undefined): Moment {
    const of = this.#histories.get(uid)!;
    return { of, least: of.own.length, most: undefined, content: undefined, passphrase };
  }

  /** Ends a moment: it was now or earlier. */
  endMoment(moment: Moment): void {
    moment.most ??= moment.of.own.length;
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
    this.#histories.get(uid)!.own.push(text);
  }

  /** Compares what a claim has, and learns what it began with. @throws {Error} when it is not what a user may see */
  observe(uid: string, data: ReadonlySet<string>, what: string): void {
    const history = this.#histories.get(uid)!;
    const possible = contentsOf(history);
    const found = possible.find((content) => content.length === data.size && content.every((each) => data.has(each)));
    if (found === undefined) {
      const [shortest = []] = possible;
      const longest = possible.at(-1) ?? [];
      const lost = shortest.filter((write) => !data.has(write));
      const others = [...data].filter((write) => !longest.includes(write));
      throw new Error(
        `${what}: ${lost.length > 0 ? `${lost} is lost` : `there is ${others}, which is not of it`}; it has ${[
          ...data,
        ]}`,
      );
    }
    if (history.initial !== undefined) return;
    count(found.length > 0 ? "copy with data" : "copy without data");
    history.initial = found.slice(0, found.length - history.own.length);
    history.source!.content = history.initial;
  }
}

/** Returns what a claim may have, the shortest first. */
function contentsOf({ initial, source, own }: History): (readonly string[])[] {
  const beginnings = initial === undefined ? contentsAt(source!) : [initial];
  return beginnings.map((beginning) => [...beginning, ...own]);
}

/** Returns what may be in a moment, the shortest first. */
function contentsAt({ content, of, least, most = of.own.length }: Moment): (readonly string[])[] {
  if (content !== undefined) return [content];
  const beginnings = of.initial === undefined ? contentsAt(of.source!) : [of.initial];
  const counts = Array.from({ length: most - least + 1 }, (_, index) => least + index);
  return beginnings.flatMap((beginning) => counts.map((count) => [...beginning, ...of.own.slice(0, count)]));
}
