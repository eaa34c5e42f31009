/**
 * The passphrase of an encrypted volume, as a secret has it.
 *
 * It is given to a program by standard input alone. Nothing shows it: neither JSON, nor a message, nor an inspection.
 *
 * @module
 */

import { type Reason, StorageError } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import { VOLUME_KEY_KEY } from "./volume_key.ts";

/** The key under which a secret has the passphrase. */
const PASSPHRASE_KEY = "passphrase";

/** The key under which a secret has the passphrase that is to be replaced. */
export const PREVIOUS_KEY = "previousPassphrase";

/** The maximum length of a passphrase, in bytes. */
const MAX_BYTES = 4096;

/** What is shown in place of a passphrase. */
const HIDDEN = "[passphrase]";

/** A passphrase. */
export class Passphrase {
  readonly #bytes: Uint8Array<ArrayBuffer>;

  /** Creates it of the text that a secret has: each byte of it counts, also a newline at its end. */
  constructor(text: string) {
    this.#bytes = new TextEncoder().encode(text);
  }

  /** The number of its bytes. */
  get length(): number {
    return this.#bytes.length;
  }

  /** Returns a digest of its bytes, which reveals nothing of them without the key. */
  async digest(key: string): Promise<string> {
    const bytes = Uint8Array.from([...new TextEncoder().encode(key), ...this.#bytes]);
    return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
  }

  /** Reports whether another one has the same bytes. */
  equals(other: Passphrase): boolean {
    return this.length === other.length && this.#bytes.every((byte, index) => byte === other.#bytes[index]);
  }

  /**
   * Returns its bytes, for the standard input of a program.
   *
   * @param next another passphrase, whose bytes follow
   */
  input(next?: Passphrase): AsyncIterable<Uint8Array<ArrayBuffer>> {
    const bytes = Uint8Array.from([...this.#bytes, ...(next === undefined ? [] : next.#bytes)]);
    return {
      async *[Symbol.asyncIterator]() {
        yield bytes.slice();
      },
    };
  }

  /** Returns a text that does not show it. */
  toString(): string {
    return HIDDEN;
  }

  /** Returns a text that does not show it. */
  toJSON(): string {
    return HIDDEN;
  }

  /** Returns a text that does not show it. */
  [Symbol.for("Deno.customInspect")](): string {
    return HIDDEN;
  }
}

/** What a secret has for an encrypted volume. */
export interface Passphrases {
  /** That of the volume; absent if the secret has none. */
  readonly passphrase?: Passphrase | undefined;
  /** That which it replaces; absent if it replaces none. */
  readonly previous?: Passphrase | undefined;
  /** The name that the volume key is to have, not yet checked; absent if any will do. */
  readonly volumeKey?: string | undefined;
}

/** Returns the passphrases in the values of a secret. */
export function passphrasesOf(secrets: Readonly<Record<string, string>>): Passphrases {
  const valueOf = (key: string) => Object.hasOwn(secrets, key) ? new Passphrase(secrets[key]!) : undefined;
  const volumeKey = Object.hasOwn(secrets, VOLUME_KEY_KEY) ? secrets[VOLUME_KEY_KEY] : undefined;
  return { passphrase: valueOf(PASSPHRASE_KEY), previous: valueOf(PREVIOUS_KEY), volumeKey };
}

/** Reports whether another passphrase is to be replaced by that of the volume. */
export function isReplaced({ passphrase, previous }: Passphrases): boolean {
  return previous !== undefined && !passphrase?.equals(previous);
}

/**
 * Returns the passphrase that is to be replaced; `undefined` when there is none, or it is the new one.
 *
 * @throws {StorageError} `InvalidArgument` for one that no volume has
 */
export function previousOf(id: VolumeId, { passphrase, previous }: Passphrases): Passphrase | undefined {
  if (previous === undefined || !isReplaced({ passphrase, previous })) return undefined;
  if (previous.length > 0 && previous.length <= MAX_BYTES) return previous;
  throw new StorageError(
    "InvalidArgument",
    `changing the passphrase of volume ${id}: the ${PREVIOUS_KEY} in its secret is ` +
      (previous.length === 0 ? "empty" : `longer than ${MAX_BYTES} bytes`),
  );
}

/** Returns the passphrases of which one opens a volume: its own, and the one that this replaces, if there is one. */
export function eitherOf(passphrase: Passphrase, previous: Passphrase | undefined): Passphrase[] {
  return previous === undefined ? [passphrase] : [passphrase, previous];
}

/**
 * Returns the passphrase for a volume.
 *
 * @throws {StorageError} `InvalidArgument` when there is none, or one that no volume has
 */
export function requirePassphrase(operation: string, id: VolumeId, passphrase: Passphrase | undefined): Passphrase {
  const refuse = (why: string, reason?: Reason) =>
    new StorageError("InvalidArgument", `${operation} volume ${id}: ${why}`, { reason });
  if (passphrase === undefined) {
    throw refuse(
      `it is encrypted, and the request has no secret with the key ${PASSPHRASE_KEY}; name a Secret with that key in the ` +
        "class (csi.storage.k8s.io/node-stage-secret-name and -namespace), or in the PersistentVolume (nodeStageSecretRef)",
      "NoPassphrase",
    );
  }
  if (passphrase.length === 0) throw refuse(`the ${PASSPHRASE_KEY} in its secret is empty`);
  if (passphrase.length > MAX_BYTES) {
    throw refuse(`the ${PASSPHRASE_KEY} in its secret has more than ${MAX_BYTES} bytes`);
  }
  return passphrase;
}
