/**
 * Finds the key slots that passphrases open.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import { type KeyDerivation, openedSlot, opensNothing, passphraseError, testCommand } from "./cryptsetup.ts";
import type { Passphrase } from "./passphrase.ts";

/** A passphrase, and the key slot that it opens. */
export interface OpenedSlot {
  /** The passphrase. */
  readonly key: Passphrase;
  /** The number of the key slot. */
  readonly slot: number;
}

/** Finds the key slots of LUKS headers. */
export class KeySlotFinder {
  readonly #derivation: KeyDerivation;

  /** Creates the service. */
  constructor(derivation: KeyDerivation) {
    this.#derivation = derivation;
  }

  /** Returns the first of some passphrases that opens the header on a device, and its key slot. */
  async openedBy(id: VolumeId, device: string, keys: readonly Passphrase[]): Promise<OpenedSlot | undefined> {
    for (const key of keys) {
      const slot = await this.slotOf(id, device, key);
      if (slot !== undefined) return { key, slot };
    }
    return undefined;
  }

  /** Returns which of some key slots on a device have the passphrase that is known to open one of them. */
  async slotsLike(id: VolumeId, device: string, opened: OpenedSlot, slots: readonly number[]): Promise<number[]> {
    const found = [opened.slot];
    for (const slot of slots) {
      if (slot === opened.slot) continue;
      if (await this.slotOf(id, device, opened.key, slot) !== undefined) found.push(slot);
    }
    return found;
  }

  /**
   * Returns the key slot that a passphrase opens; `undefined` when it opens none, or there is no header.
   *
   * @param only the key slot that is tried; any of them by default
   */
  async slotOf(id: VolumeId, device: string, passphrase: Passphrase, only?: number): Promise<number | undefined> {
    const command = testCommand(device, passphrase, only);
    const output = await this.#derivation.run(command);
    const slot = openedSlot(output);
    if (slot === undefined && !opensNothing(output)) throw passphraseError(id, command, output);
    return slot;
  }
}
