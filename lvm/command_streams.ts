/**
 * The standard input and output of a command, also as streams of bytes, with memory that does not grow with their length:
 * V8 collects buffers of streams late, because it does not count them.
 *
 * @module
 */

import { withinDeadline } from "../base/clock.ts";

/** The bytes that are read of the output of a command at a time. */
const PART_BYTES = 1 << 20;

/** What a command reads and writes part by part. */
export interface CommandStreams {
  /**
   * What the command reads from its standard input; nothing by default. A part may be changed when the next one is
   * requested. When it ends or fails, the input ends: a command that changes something is not killed for that.
   */
  readonly input?: AsyncIterable<Uint8Array<ArrayBuffer>>;
  /**
   * Takes the standard output part by part, in place of {@linkcode Output.stdout}; only for a command that reads. The
   * command waits until the promise resolves; then the part is overwritten. The command is killed when it fails.
   */
  readonly onOutput?: (part: Uint8Array<ArrayBuffer>) => Promise<void>;
}

/** The end of a process; its output is absent when something else keeps it open. */
type ProcessEnd =
  | { readonly code: number; readonly stdout: string; readonly stderr: string }
  | { readonly code: number; readonly stdout?: undefined };

/**
 * Waits for the end of a child process, and reads its output. `child.output()` of Deno leaves 130 KiB for each process until
 * V8 collects garbage, which it does late: it does not count that memory.
 *
 * @param readMs the time in which the output must end, after the process: what the process started may keep it open
 * @throws {unknown} what the input or the receiver of the output failed with, after the process has ended
 */
export async function outputOf(
  child: Deno.ChildProcess,
  { input, onOutput }: CommandStreams,
  readMs: number,
): Promise<ProcessEnd> {
  const text = (stream: ReadableStream<Uint8Array<ArrayBuffer>>) => new Response(stream).text();
  const drained = onOutput && drain(child.stdout, onOutput).catch((error) => {
    attempt(() => child.kill("SIGKILL"));
    throw error;
  });
  const stdout = drained?.then(() => "") ?? text(child.stdout);
  const streams = Promise.all([stdout, text(child.stderr), input && feed(child, input)]);
  streams.catch(() => {}); // thrown below, after the end of the process
  const { code } = await child.status;
  const texts = await withinDeadline(streams, readMs);
  return texts === undefined ? { code } : { code, stdout: texts[0], stderr: texts[1] };
}

/**
 * Writes all parts to the standard input of a process, and closes it, also when a part cannot be had. A process that ends
 * before has a reason that it says itself: then no part is requested any more.
 */
async function feed(
  { stdin, status }: Deno.ChildProcess,
  input: AsyncIterable<Uint8Array<ArrayBuffer>>,
): Promise<void> {
  const writer = stdin.getWriter();
  writer.closed.catch(() => {}); // a write that failed says it
  const ended = status.then(() => undefined);
  const parts = input[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await Promise.race([parts.next(), ended]);
      if (next === undefined || next.done) return;
      await writer.write(next.value).catch(() => ended);
    }
  } finally {
    await writer.close().catch(() => {}); // the process has ended already
    void parts.return?.().catch(() => {}); // it may wait for something that does not come
  }
}

/** Gives the output of a process to a receiver, part by part, in one buffer. */
async function drain(
  stdout: ReadableStream<Uint8Array<ArrayBuffer>>,
  receive: NonNullable<CommandStreams["onOutput"]>,
): Promise<void> {
  const reader = stdout.getReader({ mode: "byob" });
  let buffer = new ArrayBuffer(PART_BYTES);
  try {
    for (;;) {
      const { value, done } = await reader.read(new Uint8Array(buffer));
      if (done || value === undefined) return;
      await receive(value as Uint8Array<ArrayBuffer>);
      buffer = value.buffer as ArrayBuffer;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Does something to a process. Returns false when it, or a pipe of it, has just ended: Deno throws then. */
export function attempt(action: () => void): boolean {
  try {
    action();
    return true;
  } catch (error) {
    if ([TypeError, Deno.errors.NotFound, Deno.errors.BadResource].some((type) => error instanceof type)) return false;
    throw error;
  }
}
