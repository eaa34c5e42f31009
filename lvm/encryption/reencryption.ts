/**
 * Encrypts the data of a volume that is not in use by another volume key: cryptsetup reads and writes all of it.
 *
 * cryptsetup keeps in the header how far it is, and continues after a crash or a loss of power (cryptsetup-reencrypt(8)). What is
 * to be done is in the header, too ({@linkcode HeaderKeys}). So each step is found again, whenever this process dies.
 *
 * @module
 */

import { flushDisks, type Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import { type Exec, runOk, runThen } from "../exec.ts";
import { lvPath } from "../model/report.ts";
import {
  beginReencryptionCommand,
  type KeyDerivation,
  type OpenedSlot,
  passphraseError,
  reencryptCommand,
  setSubsystemCommand,
  wrongPassphraseError,
} from "./cryptsetup.ts";
import type { EncryptedVolume } from "./mapping.ts";
import { findHeaderKeys, readHeaderKeys } from "./header.ts";
import type { Passphrase } from "./passphrase.ts";
import { formatKeyName, type HeaderKeys, VOLUME_KEY_KEY } from "./volume_key.ts";

/** Encrypts volumes again. */
export class Reencryption {
  readonly #exec: Exec;
  readonly #derivation: KeyDerivation;

  /** Creates the service. */
  constructor({ exec }: Pick<Lvm, "exec">, derivation: KeyDerivation) {
    this.#exec = exec;
    this.#derivation = derivation;
  }

  /** Reports whether the volume key of a volume does not have a name, or data is still encrypted by a former one. */
  async isNeeded(volume: EncryptedVolume, name: string): Promise<boolean> {
    const keys = await this.#read(volume);
    return keys.isReencrypting || keys.name !== name;
  }

  /**
   * Completes what was interrupted, if data is encrypted by two volume keys.
   *
   * @param passphrases the passphrases of which one opens the volume
   * @throws {StorageError} those of {@linkcode Reencryption.run}
   */
  async complete(volume: EncryptedVolume, passphrases: readonly Passphrase[]): Promise<void> {
    const keys = await findHeaderKeys(this.#exec, volume.lv.devicePath);
    // a header that is damaged may be written back first
    if (keys?.isReencrypting) await this.#continue(volume, keys, passphrases);
  }

  /**
   * Gives a volume a volume key of a name, if that of its volume key is another one. Requires the volume's lock, an active LV that
   * accepts writes, and that its mapping is not open.
   *
   * @throws {StorageError} `FailedPrecondition` for a thin volume, and for one with snapshots; `StillRunning` when it takes long:
   * it goes on, and the volume stays locked
   */
  async run(volume: EncryptedVolume, name: string, passphrase: Passphrase): Promise<void> {
    for (;;) {
      const keys = await this.#read(volume);
      if (keys.isReencrypting) await this.#continue(volume, keys, [passphrase]);
      else if (keys.next !== undefined && keys.next.replaces !== keys.salt) await this.#setName(volume, keys.next.name);
      else if (keys.name === name) return;
      else await this.#begin(volume, formatKeyName(name, keys.salt), passphrase);
    }
  }

  async #begin(volume: EncryptedVolume, subsystem: string, passphrase: Passphrase): Promise<void> {
    requireReencryptable(volume, "requested");
    const { id, lv: { devicePath } } = volume;
    const opened = await this.#requireSlot(volume, [passphrase]);
    await this.#setName(volume, subsystem);
    const command = beginReencryptionCommand(devicePath, opened.slot, opened.key);
    await this.#derivation.derive(id, command);
  }

  async #continue(volume: EncryptedVolume, { next }: HeaderKeys, passphrases: readonly Passphrase[]): Promise<void> {
    requireReencryptable(volume, "begun");
    const { id, lv: { devicePath } } = volume;
    const { key } = await this.#requireSlot(volume, passphrases);
    const command = reencryptCommand(devicePath, key);
    // the name must follow also when nobody waits any more
    await runThen(this.#exec, command, async (output) => {
      if (output.code !== 0) throw passphraseError(id, command, output);
      if (next !== undefined) await this.#setName(volume, next.name);
    });
  }

  async #requireSlot({ id, lv: { devicePath } }: EncryptedVolume, keys: readonly Passphrase[]): Promise<OpenedSlot> {
    const opened = await this.#derivation.openedBy(id, devicePath, keys);
    if (opened !== undefined) return opened;
    throw wrongPassphraseError(`encrypting volume ${id} again`);
  }

  async #setName({ lv: { devicePath } }: EncryptedVolume, subsystem: string): Promise<void> {
    await runOk(this.#exec, setSubsystemCommand(devicePath, subsystem));
    await flushDisks(this.#exec, [devicePath]);
  }

  async #read({ lv: { devicePath } }: EncryptedVolume): Promise<HeaderKeys> {
    return await readHeaderKeys(this.#exec, devicePath);
  }
}

/**
 * Requires that all of a volume can be overwritten: that of a thin volume is allocated by it, and a COW snapshot gets all that
 * the volume had.
 */
function requireReencryptable({ id, group, lv }: EncryptedVolume, state: "requested" | "begun"): void {
  const refuse = (reason: string, remedy: string) =>
    new StorageError(
      "FailedPrecondition",
      state === "requested"
        ? `encrypting volume ${id} again, as the ${VOLUME_KEY_KEY} in its secret requests: ${reason}; ${remedy}, or take the name back`
        // only an administrator can have begun it on a thin volume
        : `encrypting volume ${id} again, which was begun and interrupted: ${reason}; to complete it all the same, run cryptsetup ` +
          `reencrypt --resume-only ${lv.devicePath}`,
      { reason: state === "requested" ? "CannotEncryptAgain" : undefined },
    );
  if (lv.pool !== undefined) {
    throw refuse("it is thin, and would allocate all of its virtual size", "copy its files to a new volume");
  }
  const snapshots = group.lvs.filter(({ origin }) => origin === lv.name).map((each) => lvPath({ group, lv: each }));
  if (snapshots.length > 0) {
    const reason = `it has the snapshots ${snapshots.join(", ")}, which would take as much space`;
    throw refuse(state === "begun" ? `${reason}: delete them` : reason, "delete them");
  }
}
