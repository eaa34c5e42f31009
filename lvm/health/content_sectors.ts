/**
 * The largest logical sectors of disks on which what is on a volume can be used, for reports without a request.
 *
 * They are read while a volume is in use: only then can an encrypted one be read. They do not change, so they are read once.
 *
 * @module
 */

import { contentDevice } from "../encryption/mapping.ts";
import type { Exec } from "../exec.ts";
import { readSectorBytes } from "../host/device.ts";
import { readMaximumSectorBytes } from "../host/device_bytes.ts";
import type { VolumeId } from "../ids.ts";
import type { Volume } from "../inventory/volume.ts";

/** What is known of a volume. */
interface Known {
  readonly lvUuid: string;
  /** The size in bytes; absent while it is read, and where it cannot be read. */
  readonly bytes?: bigint | undefined;
}

/** Reads the sectors of volumes in use, one after the other, and remembers them. */
export class ContentSectors {
  readonly #exec: Exec;
  readonly #onRead: () => void;
  readonly #onError: (error: unknown) => void;
  readonly #known = new Map<VolumeId, Known>();
  #reading = Promise.resolve();
  #isStopped = false;

  /**
   * Creates an object that knows nothing yet.
   *
   * @param onRead called when the sectors of a volume are known
   * @param onError called when they cannot be read; they are read again when the volume is used again
   */
  constructor(exec: Exec, onRead: () => void, onError: (error: unknown) => void) {
    this.#exec = exec;
    this.#onRead = onRead;
    this.#onError = onError;
  }

  /** Returns the size of the sectors in bytes; `undefined` while it is not known. That of a volume in use is read then. */
  of(volume: Volume): bigint | undefined {
    const { id, lv } = volume;
    const known = this.#known.get(id);
    if (known?.lvUuid === lv.uuid && (known.bytes !== undefined || lv.open)) return known.bytes;
    this.#known.delete(id);
    if (!lv.open || lv.suspended) return undefined;
    this.#known.set(id, { lvUuid: lv.uuid });
    this.#reading = this.#reading.then(() => this.#read(volume));
    return undefined;
  }

  /** Forgets a volume whose sectors are recorded elsewhere. */
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

  async #read(volume: Volume): Promise<void> {
    const { id, lv: { uuid: lvUuid } } = volume;
    if (this.#isStopped) return;
    try {
      const bytes = await readContentSectors(this.#exec, volume);
      if (bytes === undefined || this.#known.get(id)?.lvUuid !== lvUuid) return;
      this.#known.set(id, { lvUuid, bytes });
      this.#onRead();
    } catch (error) {
      this.#onError(error);
    }
  }
}

/** Reads the size of the sectors: a filesystem says it, and who uses a block volume knows those that it has. */
async function readContentSectors(
  exec: Exec,
  { lv, tags: { format } }: Pick<Volume, "lv" | "tags">,
): Promise<bigint | undefined> {
  const { devicePath } = contentDevice(lv);
  if (format.state === "raw") return await readSectorBytes(exec, [devicePath]);
  if (format.state !== "formatted") return undefined;
  const bytes = await readMaximumSectorBytes(exec, devicePath, format.type);
  return bytes === undefined ? undefined : BigInt(bytes);
}
