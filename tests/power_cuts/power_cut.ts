/**
 * Decides which writes of a log a power cut leaves on the disk.
 *
 * A disk may keep writes in its cache until it is asked to flush it, and may write them in any order. Then a power cut
 * leaves all writes before the last flush, all with FUA, and any part of the others. A write may also be torn: some of
 * its sectors are new, the others old.
 *
 * @module
 */

import type { LogEntry, WriteEntry, WriteLog } from "./write_log.ts";

/** A power cut. */
export interface PowerCut {
  /** The index of the flush in the log that was under way. */
  readonly flush: number;
  /** Chooses what survives; `undefined` when the flush had just ended. */
  readonly random?: (() => number) | undefined;
}

/** A part of a write that is on the disk. */
export interface Surviving {
  readonly entry: WriteEntry;
  /** The first byte of the part in the write, and its length. */
  readonly start: number;
  readonly length: number;
}

/** Returns the indexes of the flushes of a log after a mark, without those before which nothing happened. */
export function flushesAfter({ entries }: WriteLog, mark: string): number[] {
  const start = entries.findIndex((entry) => entry.kind === "mark" && entry.text === mark);
  if (start < 0) throw new Error(`find the flushes of a write log: it has no mark ${mark}`);
  const flushes = entries.flatMap(({ kind }, index) => kind === "flush" && index > start ? [index] : []);
  return flushes.filter((flush, i) => i === 0 || hasEvents(entries, flushes[i - 1]!, flush));
}

/** Reports whether something was written or marked between two flushes. */
function hasEvents(entries: readonly LogEntry[], from: number, to: number): boolean {
  return entries.slice(from + 1, to).some(({ kind }) => kind === "write" || kind === "mark");
}

/** Returns the texts of the marks before a power cut: what was acknowledged. */
export function marksBefore({ entries }: WriteLog, { flush }: PowerCut): string[] {
  return entries.slice(0, flush).flatMap((entry) => entry.kind === "mark" ? [entry.text] : []);
}

/** The shares of the writes under way that survive; a power cut draws one of them. */
const SHARES = [0, 0.1, 0.5, 0.9, 1];

/** The share of the surviving writes of several sectors that are torn. */
const TORN = 0.2;

/**
 * Returns the writes since the flush before a power cut that are on the disk after it, in the order of the log. Discards
 * have no effect: a disk may ignore them.
 *
 * Writes below `orderedBytes` keep their order, so that those that survive are the first ones, of which the last may be
 * torn. This is for LVM's metadata: LVM does not flush between new metadata and the header that leads to it.
 */
export function survivingWrites(log: WriteLog, { flush, random }: PowerCut, orderedBytes: number): Surviving[] {
  const { entries, sectorBytes } = log;
  const before = entries.slice(0, flush).findLastIndex(({ kind }) => kind === "flush");
  const writes = entries.slice(before + 1, flush).filter((entry) => entry.kind === "write");
  if (random === undefined) return writes.map(whole);
  const share = SHARES[Math.floor(random() * SHARES.length)]!;
  let isOrderedLost = false;
  return writes.flatMap((entry) => {
    if (entry.fua) return [whole(entry)];
    const survives = random() < share;
    const isTorn = survives && random() < TORN;
    if (entry.offset >= orderedBytes) return survives ? [isTorn ? torn(entry, sectorBytes, random) : whole(entry)] : [];
    if (isOrderedLost) return [];
    isOrderedLost = !survives || isTorn;
    return survives ? [isTorn ? torn(entry, sectorBytes, random) : whole(entry)] : [];
  });
}

function whole(entry: WriteEntry): Surviving {
  return { entry, start: 0, length: entry.length };
}

/** Returns some consecutive sectors of a write. */
function torn(entry: WriteEntry, sectorBytes: number, random: () => number): Surviving {
  const sectors = entry.length / sectorBytes;
  const start = Math.floor(random() * sectors);
  const end = start + 1 + Math.floor(random() * (sectors - start));
  return { entry, start: start * sectorBytes, length: (end - start) * sectorBytes };
}
