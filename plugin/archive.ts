/**
 * The archive of a support case: a compressed tar file (POSIX, pax(1), "ustar Interchange Format"), in which names of others can
 * be replaced.
 *
 * @module
 */

/** The size of a block of a tar file, in bytes. */
const BLOCK = 512;

/** The most bytes of the name of a file, without its folders. */
const MAX_NAME = 100;

/** Returns a compressed tar file. @param files the texts of the files, by their names @param time the time of all of them */
export function archive(files: ReadonlyMap<string, string>, time: Date): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const parts = [...files].flatMap(([name, text]) => {
    const bytes = encoder.encode(text);
    return [header(name, bytes.length, time), bytes, padding(bytes.length)];
  });
  return new Blob([...parts, new Uint8Array(2 * BLOCK)]).stream().pipeThrough(new CompressionStream("gzip"));
}

/** Returns the header of a file. Of a name that is too long, its beginning is left out. */
function header(path: string, size: number, time: Date): Uint8Array<ArrayBuffer> {
  const [, folders = "", name = path] = /^(.*)\/([^/]+)$/s.exec(path) ?? [];
  const block = new Uint8Array(BLOCK);
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, "0");
  const fields: [offset: number, text: string][] = [
    [0, name.slice(-MAX_NAME)],
    [100, octal(0o644, 7)],
    ...[108, 116].map((owner): [number, string] => [owner, octal(0, 7)]),
    [124, octal(size, 11)],
    [136, octal(Math.floor(time.getTime() / 1000), 11)],
    [148, " ".repeat(8)], // the checksum counts as blanks
    [156, "0"],
    [257, "ustar\0" + "00"],
    [345, folders],
  ];
  const write = (offset: number, text: string) => block.set(new TextEncoder().encode(text), offset);
  for (const [offset, text] of fields) write(offset, text);
  write(148, `${octal(block.reduce((sum, byte) => sum + byte, 0), 6)}\0`);
  return block;
}

function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - size % BLOCK) % BLOCK);
}

/** A group of an IPv6 address, and several of them. */
const [GROUP, GROUPS] = ["[0-9a-f]{1,4}", "[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*"];

/** IPv4 and IPv6 addresses, which also logs have, as a part of a regular expression. A time has no two colons in a row. */
const ADDRESS = String.raw`(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)|` +
  String.raw`(?<![\w:])(?:(?:${GROUP}:){7}${GROUP}|(?:${GROUPS})?::(?:${GROUPS})?)(?![\w:])`;

/** Replaces names by others, the same each time. */
export class Mask {
  readonly #names = new Map<string, string>();
  readonly #counts = new Map<string, number>();
  #pattern = new RegExp(ADDRESS, "g");

  /**
   * @param names the names to replace, by what they are names of
   * @param kept the words that stay, also where a name is a part of them
   */
  constructor(names: Readonly<Record<string, Iterable<string | undefined>>>, kept: readonly string[] = []) {
    for (const word of kept) this.#names.set(word, word);
    for (const [kind, all] of Object.entries(names)) {
      for (const name of all) if (name) this.#add(kind, name);
    }
    const longestFirst = [...this.#names.keys()].sort((a, b) => b.length - a.length);
    if (longestFirst.length === 0) return;
    const words = longestFirst.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    this.#pattern = new RegExp(`${ADDRESS}|(?<![A-Za-z0-9])(?:${words})(?![A-Za-z0-9])`, "g");
  }

  /** Replaces the names in a text, where they are words, and the addresses. */
  text(text: string): string {
    return text.replace(this.#pattern, (found) => this.#names.get(found) ?? this.#add("address", found));
  }

  /** Returns JSON with the names in its texts replaced; its keys stay. */
  json(value: unknown): string {
    return JSON.stringify(value, (_, part) => typeof part === "string" ? this.text(part) : part, 2);
  }

  #add(kind: string, name: string): string {
    const known = this.#names.get(name);
    if (known !== undefined) return known;
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    this.#names.set(name, `${kind}-${count}`);
    return `${kind}-${count}`;
  }
}
