/**
 * What a user may see of data: a claim has what it began with, and what was written to it since, in the order in which it was
 * written. A snapshot has what its source had at a moment between the call and its end, and so has a copy.
 *
 * @module
 */

import { count } from "./tally.ts";

/** The most writes to a claim: each has a place of its own on the smallest volume. */
const MAX_WRITES = 50;

/** The content of a snapshot or of the source of a copy: that of a claim at some moment. */
export interface Moment {
  readonly of: History;
  /** The least and the most writes of the claim that are in it; the most are unknown as long as the moment may be to come. */
  readonly least: number;
  most: number | undefined;
  /** What is in it, once somebody has read that. */
  content: readonly string[] | undefined;
  /** What the secret of the claim has then, if it is encrypted. */
  readonly secret: Readonly<Record<string, string>> | undefined;
  /** The moments of a group snapshot: they are one, whatever was written to which claim first. */
  group: readonly Moment[] | undefined;
}

/** A write to a claim. */
interface Write {
  readonly text: string;
  /** Its number among the writes to all claims. */
  readonly at: number;
}

/** What was written to a claim. */
interface History {
  /** What it began with; unknown before somebody has read what came from the source. */
  initial: readonly string[] | undefined;
  readonly source: Moment | undefined;
  readonly own: Write[];
  next: number;
}

/** The contents of claims, by their uids. */
export class Contents {
  #writes = 0;
  readonly #histories = new Map<string, History>();

  /** Adds a claim. @param source the moment of which it has the content */
  addClaim(uid: string, source?: Moment): void {
    this.#histories.set(uid, { initial: source === undefined ? [] : undefined, source, own: [], next: 0 });
  }

  /** Begins the moment of a snapshot or a copy of a claim: it is now or later. */
  beginMoment(uid: string, secret: Moment["secret"]): Moment {
    const of = this.#histories.get(uid)!;
    return { of, least: of.own.length, most: undefined, content: undefined, secret, group: undefined };
  }

  /** Reports whether a moment of a claim may still be to come. */
  isOpen(moment: Moment, uid: string): boolean {
    return moment.most === undefined && moment.of === this.#histories.get(uid);
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
    this.#histories.get(uid)!.own.push({ text, at: this.#writes++ });
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
    requireOneMoment(history.source!, what);
  }
}

/** Returns what a claim may have, the shortest first. */
function contentsOf({ initial, source, own }: History): (readonly string[])[] {
  const beginnings = initial === undefined ? contentsAt(source!) : [initial];
  return beginnings.map((beginning) => [...beginning, ...textsOf(own)]);
}

/** Returns what may be in a moment, the shortest first. */
function contentsAt({ content, of, least, most = of.own.length }: Moment): (readonly string[])[] {
  if (content !== undefined) return [content];
  const beginnings = of.initial === undefined ? contentsAt(of.source!) : [of.initial];
  const counts = Array.from({ length: most - least + 1 }, (_, index) => least + index);
  return beginnings.flatMap((beginning) => counts.map((count) => [...beginning, ...textsOf(of.own.slice(0, count))]));
}

function textsOf(writes: readonly Write[]): string[] {
  return writes.map(({ text }) => text);
}

/** Requires that no snapshot of a group has a write that is later than one which another one has not. */
function requireOneMoment({ group = [] }: Moment, what: string): void {
  const known = group.filter(({ content, of }) => content !== undefined && of.initial !== undefined);
  const counts = known.map(({ content, of }) => ({ own: of.own, count: content!.length - of.initial!.length }));
  const latest = Math.max(...counts.map(({ own, count }) => own[count - 1]?.at ?? -1));
  const missing = counts.map(({ own, count }) => own[count]).filter((write) =>
    write !== undefined && write.at < latest
  );
  if (missing.length > 0) {
    throw new Error(`${what}: another one of its group snapshot lacks ${textsOf(missing as Write[])}`);
  }
  if (known.length > 1) count("group snapshot of one moment");
}
