/**
 * Devices that are bytes in memory, the dd that reads and writes them, and connections in memory: what a transfer needs.
 *
 * @module
 */

import { nextTurn } from "../../../base/clock.ts";
import type { Command, Exec, Output } from "../../../lvm/exec.ts";
import type { Connection } from "../../../lvm/transfers/connection.ts";
import type { Bytes } from "../../../lvm/transfers/protocol.ts";

/** What dd takes of its input before others have their turn, in bytes. */
const PIECE_BYTES = 1 << 20;

/** Devices by path, as files in memory. */
export class ByteDevices implements Exec {
  readonly #devices = new Map<string, Uint8Array>();
  /** The commands that have run. */
  readonly commands: string[] = [];
  /** May change what dd reads of a device. */
  onRead: (path: string, bytes: Uint8Array) => Uint8Array = (_path, bytes) => bytes;

  /** Adds a device. */
  add(path: string, bytes: Uint8Array): void {
    this.#devices.set(path, bytes);
  }

  /** Returns the content of a device. */
  get(path: string): Uint8Array {
    return this.#devices.get(path)!;
  }

  async run({ program, args, input, onOutput }: Command): Promise<Output> {
    this.commands.push([program, ...args].join(" "));
    const values = new Map(args.map((arg) => arg.split("=", 2) as [string, string]));
    const block = Number(values.get("bs"));
    if (input === undefined) await this.#read(values, block, onOutput!);
    else await this.#write(values, block, input);
    return { code: 0, stdout: "", stderr: "" };
  }

  async #read(
    values: ReadonlyMap<string, string>,
    block: number,
    onOutput: NonNullable<Command["onOutput"]>,
  ): Promise<void> {
    const path = values.get("if")!;
    const begin = Number(values.get("skip")) * block;
    const bytes = this.onRead(path, this.get(path).slice(begin, begin + Number(values.get("count")) * block));
    const part = new Uint8Array(1 << 20); // the same one for all parts, as on a host
    for (let at = 0; at < bytes.length; at += part.length) {
      const length = Math.min(part.length, bytes.length - at);
      part.set(bytes.subarray(at, at + length));
      await onOutput(part.subarray(0, length));
    }
  }

  async #write(
    values: ReadonlyMap<string, string>,
    block: number,
    input: NonNullable<Command["input"]>,
  ): Promise<void> {
    const device = this.get(values.get("of")!);
    let at = Number(values.get("seek")) * block;
    for await (const part of input) {
      if (at + part.length > device.length) throw new Error("dd: No space left on device");
      // piece by piece, as through a pipe: what is changed too early is written wrong
      for (let begin = 0; begin < part.length; begin += PIECE_BYTES) {
        if (begin > 0) await nextTurn();
        device.set(part.subarray(begin, begin + PIECE_BYTES), at + begin);
      }
      at += part.length;
    }
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }
}

/** One direction of a connection. Nobody writes more before all of it was read. */
class Pipe {
  #bytes: Uint8Array = new Uint8Array(0);
  #isClosed = false;
  #changed = Promise.withResolvers<void>();

  #wake(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers<void>();
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (this.#isClosed) throw new Deno.errors.BrokenPipe("closed");
    this.#bytes = bytes;
    this.#wake();
    while (this.#bytes.length > 0 && !this.#isClosed) await this.#changed.promise;
  }

  async read(buffer: Uint8Array): Promise<number | null> {
    while (this.#bytes.length === 0) {
      if (this.#isClosed) return null;
      await this.#changed.promise;
    }
    const count = Math.min(buffer.length, this.#bytes.length);
    buffer.set(this.#bytes.subarray(0, count));
    this.#bytes = this.#bytes.subarray(count);
    this.#wake();
    return count;
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }
}

/** What happens to the bytes of a connection on their way. */
export interface Way {
  /** Changes bytes, or cuts them off. The connection breaks after bytes that are cut off. */
  readonly change?: (bytes: Bytes, offset: number) => Bytes;
  /** The largest number of bytes that are read at once. */
  readonly maxRead?: number;
}

/** Creates the two ends of a connection. @param way what happens to what the second end sends to the first */
export function connectionPair({ change = (bytes) => bytes, maxRead = Infinity }: Way = {}): [Connection, Connection] {
  const [there, back] = [new Pipe(), new Pipe()];
  const close = () => [there, back].forEach((pipe) => pipe.close());
  let offset = 0;
  return [{
    read: (buffer) => back.read(buffer.subarray(0, Math.min(buffer.length, maxRead))),
    write: (bytes) => there.write(bytes),
    close,
  }, {
    read: (buffer) => there.read(buffer),
    write: async (bytes) => {
      const changed = change(bytes.slice(), offset);
      offset += bytes.length;
      await back.write(changed);
      if (changed.length < bytes.length) close();
    },
    close: () => back.close(), // what was sent before is read
  }];
}
