/**
 * Reads the log that device-mapper's log-writes target makes of the writes to a disk. The kernel's
 * Documentation/admin-guide/device-mapper/log-writes.rst describes its order, drivers/md/dm-log-writes.c its format.
 *
 * The log has a superblock and entries. Each of them begins a sector, and the data of an entry follows it. All numbers are
 * little-endian. A write is logged when it is proved to be durable: one with FUA at its end, the others at the end of the
 * next flush, in the order in which they ended. So the writes between two flushes are those that a power cut may lose.
 *
 * @module
 */

/** The first number of a log. */
const MAGIC = 0x6a736677736872n;

const VERSION = 1n;

/** The number of bytes at the start of the superblock, and of each entry, that have a meaning. */
const SUPERBLOCK_BYTES = 28;
const ENTRY_BYTES = 32;

/** The flags of an entry (`LOG_*_FLAG`). The log also marks filesystem metadata, by 16. */
const FLAGS = { flush: 1n, fua: 2n, discard: 4n, mark: 8n };

/** Something that happened to the disk. */
export type LogEntry = WriteEntry | DiscardEntry | FlushEntry | MarkEntry;

/** A write. Byte numbers are those of the disk, and, for `dataOffset`, those of the log. */
export interface WriteEntry {
  readonly kind: "write";
  readonly offset: number;
  readonly length: number;
  readonly dataOffset: number;
  /** True if the write was durable at its end (FUA). */
  readonly fua: boolean;
}

/** A discard. */
export interface DiscardEntry {
  readonly kind: "discard";
  readonly offset: number;
  readonly length: number;
}

/** A flush of the disk's cache: all writes before it are durable. */
export interface FlushEntry {
  readonly kind: "flush";
}

/** A mark that `dmsetup message DEVICE 0 mark TEXT` set. */
export interface MarkEntry {
  readonly kind: "mark";
  readonly text: string;
}

/** A log. */
export interface WriteLog {
  /** The size of a sector, the unit of what a power cut may tear, in bytes. */
  readonly sectorBytes: number;
  readonly entries: readonly LogEntry[];
}

/** Reads bytes of a log. It returns fewer at the end. */
export type ReadBytes = (offset: number, length: number) => Promise<Uint8Array>;

/**
 * Reads a log, without the data of its writes.
 *
 * @throws {Error} when it is no log, of another version, or ends before its last entry
 */
export async function readWriteLog(read: ReadBytes): Promise<WriteLog> {
  const superblock = await readNumbers(read, 0, SUPERBLOCK_BYTES);
  if (superblock.getBigUint64(0, true) !== MAGIC) throw new Error("read a write log: it has no superblock");
  const version = superblock.getBigUint64(8, true);
  if (version !== VERSION) throw new Error(`read a write log: its version is ${version}, not ${VERSION}`);
  const count = Number(superblock.getBigUint64(16, true));
  const sectorBytes = superblock.getUint32(24, true);
  const entries: LogEntry[] = [];
  let position = sectorBytes;
  for (let index = 0; index < count; index++) {
    const { found, dataBytes } = await readEntry(read, position, sectorBytes);
    entries.push(...found);
    position += sectorBytes + dataBytes;
  }
  return { sectorBytes, entries };
}

/** Reads an entry. A flush may carry a write, and becomes two. @returns what it is, and the length of its data */
async function readEntry(
  read: ReadBytes,
  position: number,
  sectorBytes: number,
): Promise<{ found: LogEntry[]; dataBytes: number }> {
  const numbers = await readNumbers(read, position, ENTRY_BYTES);
  const flags = numbers.getBigUint64(16, true);
  const has = (flag: bigint) => (flags & flag) !== 0n;
  if (has(FLAGS.mark)) {
    const length = Number(numbers.getBigUint64(24, true));
    const text = new TextDecoder().decode(await read(position + ENTRY_BYTES, length));
    return { found: [{ kind: "mark", text }], dataBytes: 0 };
  }
  const offset = Number(numbers.getBigUint64(0, true)) * sectorBytes;
  const length = Number(numbers.getBigUint64(8, true)) * sectorBytes;
  if (has(FLAGS.discard)) return { found: [{ kind: "discard", offset, length }], dataBytes: 0 };
  const found: LogEntry[] = has(FLAGS.flush) ? [{ kind: "flush" }] : [];
  if (length > 0) {
    found.push({ kind: "write", offset, length, dataOffset: position + sectorBytes, fua: has(FLAGS.fua) });
  }
  return { found, dataBytes: length };
}

async function readNumbers(read: ReadBytes, offset: number, length: number): Promise<DataView> {
  const bytes = await read(offset, length);
  if (bytes.length < length) throw new Error(`read a write log: it ends at byte ${offset + bytes.length}`);
  return new DataView(bytes.buffer, bytes.byteOffset, length);
}
