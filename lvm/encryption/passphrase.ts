/**
 * The passphrase of an encrypted volume, as a secret has it.
 *
 * It is given to a program by standard input alone. Nothing shows it: neither JSON, nor a message, nor an inspection.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import type { VolumeId } from "../ids.ts";

/** The key under which a secret has the passphrase. */
export const PASSPHRASE_KEY = "passphrase";

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

  /** Returns its bytes, for the standard input of a program. */
  input(): AsyncIterable<Uint8Array<ArrayBuffer>> {
    const bytes = this.#bytes;
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

/** Returns the passphrase in the values of a secret, or `undefined` when they have none. */
export function passphraseOf(secrets: Readonly<Record<string, string>>): Passphrase | undefined {
  const text = Object.hasOwn(secrets, PASSPHRASE_KEY) ? secrets[PASSPHRASE_KEY] : undefined;
  return text === undefined ? undefined : new Passphrase(text);
}

/**
 * Returns the passphrase for a volume.
 *
 * @throws {StorageError} `InvalidArgument` when there is none, or one that no volume has
 */
export function requirePassphrase(operation: string, id: VolumeId, passphrase: Passphrase | undefined): Passphrase {
  const refuse = (reason: string) => new StorageError("InvalidArgument", `${operation} volume ${id}: ${reason}`);
  if (passphrase === undefined) {
    throw refuse(
      `it is encrypted, and the request has no secret with the key ${PASSPHRASE_KEY}; name a Secret with that key in the ` +
        "class (csi.storage.k8s.io/node-stage-secret-name and -namespace), or in the PersistentVolume (nodeStageSecretRef)",
    );
  }
  if (passphrase.length === 0) throw refuse(`the ${PASSPHRASE_KEY} in its secret is empty`);
  if (passphrase.length > MAX_BYTES) {
    throw refuse(`the ${PASSPHRASE_KEY} in its secret has more than ${MAX_BYTES} bytes`);
  }
  return passphrase;
}
