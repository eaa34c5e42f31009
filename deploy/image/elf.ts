/**
 * What a program or library for Linux needs to start, read from the file itself (System V ABI, ELF-64, little endian).
 *
 * @module
 */

/** What an ELF file needs. */
export interface Needs {
  /** Path of the loader that starts the program (PT_INTERP); a library usually has none. */
  readonly loader?: string;
  /** Names of the libraries that it is linked with (DT_NEEDED). */
  readonly libraries: readonly string[];
  /** Folders where it looks for them first (DT_RUNPATH or DT_RPATH). */
  readonly folders: readonly string[];
}

/** Types of program headers. */
const SEGMENT = { load: 1, dynamic: 2, loader: 3 } as const;

/** Tags of the dynamic section. */
const TAG = { end: 0n, needed: 1n, strings: 5n, rpath: 15n, runpath: 29n } as const;

/** Size of an entry of the dynamic section. */
const ENTRY_SIZE = 16;

interface Segment {
  readonly type: number;
  readonly offset: number;
  readonly address: bigint;
  readonly size: number;
}

/**
 * Reads what a file needs.
 *
 * @returns undefined when it is no ELF file
 * @throws {Error} when it is one of another kind than 64 bits, little endian
 * @throws {RangeError} when it is cut off
 */
export function readNeeds(bytes: Uint8Array<ArrayBuffer>): Needs | undefined {
  if (!startsWith(bytes, [0x7f, 0x45, 0x4c, 0x46])) return undefined;
  if (bytes[4] !== 2 || bytes[5] !== 1) throw new Error("read an ELF file: it is not one of 64 bits, little endian");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const segments = readSegments(view);
  const loader = segments.find(({ type }) => type === SEGMENT.loader);
  const dynamic = segments.find(({ type }) => type === SEGMENT.dynamic);
  const entries = dynamic === undefined ? [] : readEntries(view, dynamic);
  const strings = entries.find(([tag]) => tag === TAG.strings)?.[1];
  const texts = (...tags: bigint[]) =>
    strings === undefined ? [] : entries.filter(([tag]) => tags.includes(tag))
      .map(([, value]) => readText(bytes, offsetOf(segments, strings) + Number(value)));
  return {
    ...(loader === undefined ? {} : { loader: readText(bytes, loader.offset) }),
    libraries: texts(TAG.needed),
    folders: texts(TAG.runpath, TAG.rpath).flatMap((text) => text.split(":")),
  };
}

function readSegments(view: DataView): Segment[] {
  const start = Number(view.getBigUint64(0x20, true));
  const size = view.getUint16(0x36, true);
  const count = view.getUint16(0x38, true);
  return Array.from({ length: count }, (_, index) => {
    const at = start + index * size;
    return {
      type: view.getUint32(at, true),
      offset: Number(view.getBigUint64(at + 0x08, true)),
      address: view.getBigUint64(at + 0x10, true),
      size: Number(view.getBigUint64(at + 0x20, true)),
    };
  });
}

/** Returns tags and values of the dynamic section. */
function readEntries(view: DataView, { offset, size }: Segment): [bigint, bigint][] {
  const entries: [bigint, bigint][] = [];
  for (let at = offset; at < offset + size; at += ENTRY_SIZE) {
    const tag = view.getBigUint64(at, true);
    if (tag === TAG.end) break;
    entries.push([tag, view.getBigUint64(at + 8, true)]);
  }
  return entries;
}

/** Returns where in the file an address of the loaded program is. */
function offsetOf(segments: readonly Segment[], address: bigint): number {
  const segment = segments.find(({ type, address: from, size }) =>
    type === SEGMENT.load && address >= from && address < from + BigInt(size)
  );
  if (segment === undefined) throw new Error("read an ELF file: its strings are in no segment");
  return segment.offset + Number(address - segment.address);
}

/** Reads a text that ends with a zero. */
function readText(bytes: Uint8Array, start: number): string {
  const end = bytes.indexOf(0, start);
  if (end < 0) throw new RangeError("read an ELF file: it is cut off");
  return new TextDecoder().decode(bytes.subarray(start, end));
}

function startsWith(bytes: Uint8Array, start: readonly number[]): boolean {
  return start.every((byte, index) => bytes[index] === byte);
}
