/**
 * What is read of the devices of volumes in the background, for reports without a request.
 *
 * @module
 */

import type { EncryptedVolume } from "../encryption/mapping.ts";
import { findHeaderKeys } from "../encryption/header.ts";
import type { Exec } from "../exec.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { Volume } from "./volume.ts";

/** What is known of a volume. */
interface Known<T> {
  readonly lvUuid: string;
  /** What was read; absent while it is read, and where there is nothing or it cannot be read. */
  readonly value?: T;
}

/** Options of {@linkcode ReadOnce}. */
export interface ReadOnceOptions<V, T> {
  /** Reports whether the device of a volume can be read. */
  readonly isReadable: (volume: V) => boolean;
  /** Reads it. */
  readonly read: (volume: V) => Promise<T | undefined>;
  /** Called when something was read. */
  readonly onRead: (id: VolumeId, value: T) => void;
  /** Called when it cannot be read. It is read again when the device can be read again, after it could not. */
  readonly onError: (error: unknown) => void;
}

/** Reads the devices of volumes, one after the other, each once, and remembers what they have. */
export class ReadOnce<V extends Pick<Volume, "id" | "lv">, T> {
  readonly #options: ReadOnceOptions<V, T>;
  readonly #known = new Map<VolumeId, Known<T>>();
  #reading = Promise.resolve();
  #isStopped = false;

  /** Creates an object that knows nothing yet. */
  constructor(options: ReadOnceOptions<V, T>) {
    this.#options = options;
  }

  /** Returns what is known of a volume; `undefined` for nothing. Its device is read then. */
  of(volume: V): T | undefined {
    const { id, lv: { uuid: lvUuid } } = volume;
    const known = this.#known.get(id);
    const isReadable = this.#options.isReadable(volume);
    if (known?.lvUuid === lvUuid && (known.value !== undefined || isReadable)) return known.value;
    this.#known.delete(id);
    if (!isReadable) return undefined;
    this.#known.set(id, { lvUuid });
    this.#reading = this.#reading.then(() => this.#read(volume));
    return undefined;
  }

  /** Forgets a volume. */
  forget(id: VolumeId): void {
    this.#known.delete(id);
  }

  /** Waits until nothing is read. */
  async idle(): Promise<void> {
    await this.#reading;
  }

  /** Stops after what is being read. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#reading;
  }

  async #read(volume: V): Promise<void> {
    const { id, lv: { uuid: lvUuid } } = volume;
    const { read, onRead, onError } = this.#options;
    if (this.#isStopped) return;
    try {
      const value = await read(volume);
      if (value === undefined || this.#known.get(id)?.lvUuid !== lvUuid) return;
      this.#known.set(id, { lvUuid, value });
      onRead(id, value);
    } catch (error) {
      onError(error);
    }
  }
}

/** Whether the headers say so, by volume. */
export type InterruptedReencryptions = ReadOnce<EncryptedVolume, boolean>;

/**
 * Creates what reads the headers of encrypted volumes that are not in use: they say whether the process died that encrypted
 * the data again. They are read once after each use: it is completed before the next one.
 */
export function interruptedReencryptions(
  exec: Exec,
  options: Pick<ReadOnceOptions<EncryptedVolume, boolean>, "onRead" | "onError">,
): InterruptedReencryptions {
  return new ReadOnce<EncryptedVolume, boolean>({
    ...options,
    isReadable: ({ lv, tags: { format } }) =>
      lv.active && !lv.open && !lv.suspended && format.luks?.state === "formatted",
    read: async ({ lv }) => (await findHeaderKeys(exec, lv.devicePath))?.isReencrypting ?? false,
  });
}
