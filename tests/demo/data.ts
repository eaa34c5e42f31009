import { createHash, randomBytes } from "node:crypto";

/** The bytes to read or write at a time. */
const CHUNK_BYTES = 1 << 20;

/** Writes a file of random bytes, whatever was in it, down to the disk; answers their SHA-256. */
export async function writeRandom(path: string, bytes: number): Promise<string> {
  const hash = createHash("sha256");
  using file = await Deno.open(path, { create: true, truncate: true, write: true });
  for (let written = 0; written < bytes;) {
    const chunk = randomBytes(Math.min(CHUNK_BYTES, bytes - written));
    hash.update(chunk);
    await writeAll(file, chunk);
    written += chunk.length;
  }
  await file.sync();
  return hash.digest("hex");
}

/** Returns the SHA-256 of a file. */
export async function checksum(path: string): Promise<string> {
  const hash = createHash("sha256");
  using file = await Deno.open(path);
  const chunk = new Uint8Array(CHUNK_BYTES);
  for (let count = await file.read(chunk); count !== null; count = await file.read(chunk)) {
    hash.update(chunk.subarray(0, count));
  }
  return hash.digest("hex");
}

/** The result of a {@linkcode Writer}. */
export interface WriterResult {
  /** The number of lines that it wrote. */
  readonly lines: number;
  /** The longest time for one line, in milliseconds. */
  readonly longestMs: number;
}

/** A program that keeps appending lines to a file, each down to the disk before the next. */
export class Writer {
  #lines = 0;
  #longestMs = 0;
  #stopped = false;
  readonly #done: Promise<void>;

  /** Starts to write. */
  constructor(path: string) {
    this.#done = this.#write(path);
    this.#done.catch(() => this.#stopped = true); // stop() throws it
  }

  /** Waits until it has written so many lines more, or has failed. */
  async waitForLines(lines: number): Promise<void> {
    for (const goal = this.#lines + lines; this.#lines < goal && !this.#stopped;) await pause(5);
  }

  /**
   * Ends it.
   *
   * @throws {Error} the error of a write
   */
  async stop(): Promise<WriterResult> {
    this.#stopped = true;
    await this.#done;
    return { lines: this.#lines, longestMs: this.#longestMs };
  }

  async #write(path: string): Promise<void> {
    using file = await Deno.open(path, { create: true, append: true });
    while (!this.#stopped) {
      const text = `${this.#lines} ${randomBytes(64).toString("hex")}`;
      const start = performance.now();
      await writeAll(file, new TextEncoder().encode(`${text} ${checksumOf(text)}\n`));
      await file.syncData();
      this.#longestMs = Math.max(this.#longestMs, performance.now() - start);
      this.#lines++;
      await pause(10);
    }
  }
}

/**
 * Returns how many lines of a {@linkcode Writer} the file has, from the first one, without a gap and with correct
 * checksums.
 */
export async function goodLines(path: string): Promise<number> {
  const lines = (await Deno.readTextFile(path)).split("\n");
  const bad = lines.findIndex((line, number) => {
    const [, text = "", sum] = /^(.*) ([0-9a-f]{64})$/.exec(line) ?? [];
    return !text.startsWith(`${number} `) || sum !== checksumOf(text);
  });
  return bad === -1 ? lines.length : bad;
}

function checksumOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) written += await file.write(bytes.subarray(written));
}

/** Resolves after so many milliseconds. */
export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
