/**
 * Rotates the passphrase of a volume, also while the volume is in use.
 *
 * At any time, at least one of the two passphrases opens the volume. The new one gets a key slot before that of the
 * previous one is destroyed, and a backup of the header exists meanwhile. It is there from before the first change until the
 * previous passphrase opens nothing, so it also tells that a change was interrupted, and which key slots are to be destroyed.
 *
 * @module
 */

import { flushDisks, type Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { lvPath } from "../model/report.ts";
import { readSignatures } from "../host/device.ts";
import {
  addKeyCommand,
  isNoSlot,
  type KeyDerivation,
  killSlotCommand,
  type OpenedSlot,
  passphraseError,
} from "./cryptsetup.ts";
import type { EncryptedVolume } from "./mapping.ts";
import { readHeaderKeys, requireHeader } from "./header.ts";
import {
  activateHeaderBackup,
  copyHeader,
  createHeaderBackup,
  recordAddedSlot,
  removeHeaderBackup,
  requireReadableHeader,
} from "./header_backup.ts";
import { type BackedUpKeys, findHeaderBackup, type HeaderBackup } from "./header_tags.ts";
import type { KeyOutcome } from "./key_changes.ts";
import { eitherOf, type Passphrase, PREVIOUS_KEY } from "./passphrase.ts";
import type { HeaderKeys } from "./volume_key.ts";

/** Changes the passphrases of volumes. */
export class Rotation {
  readonly #lvm: Lvm;
  readonly #exec: Exec;
  readonly #derivation: KeyDerivation;

  /** Creates the service. */
  constructor(lvm: Lvm, derivation: KeyDerivation) {
    this.#lvm = lvm;
    this.#exec = lvm.exec;
    this.#derivation = derivation;
  }

  /**
   * Lets a passphrase open a volume in place of the previous one, and completes a change that was interrupted. Requires the
   * volume's lock, an active LV that accepts writes, and a header that is complete.
   *
   * @param uuid the UUID of the header
   * @param previous the previous passphrase; absent if nothing is to be changed, other than what was interrupted
   * @returns how it ended; `undefined` when nothing was to be changed, and no passphrase was tried
   * @throws {StorageError} `Unauthenticated` when neither of them opens the volume; `NoSpace` without space for the backup
   */
  async run(
    volume: EncryptedVolume,
    uuid: string,
    { passphrase, previous }: { readonly passphrase: Passphrase; readonly previous: Passphrase | undefined },
  ): Promise<KeyOutcome | undefined> {
    const keys = eitherOf(passphrase, previous);
    const { lv: { devicePath } } = volume;
    const listed = findHeaderBackup(volume);
    if (listed === undefined && previous === undefined) return undefined;
    if (listed === undefined) await requireHeader(this.#exec, devicePath, uuid);
    let backup = listed;
    let opened = await this.#derivation.openedBy(volume.id, devicePath, keys);
    if (backup !== undefined && opened !== undefined) {
      await requireHeader(this.#exec, devicePath, uuid);
    } else if (backup !== undefined) {
      backup = await activateHeaderBackup(this.#lvm, volume, backup);
      opened = await this.#derivation.openedBy(volume.id, backup.lv.devicePath, keys);
      if (opened !== undefined) await this.#restoreHeader(volume, uuid, backup);
    }
    if (opened === undefined) throw this.#refusal(volume, previous);
    const completed = backup && await this.#destroyOtherSlots(volume, backup, opened);
    backup = completed ?? backup;
    if (opened.key !== passphrase) {
      const { slots: all, salt } = await this.#requireOneVolumeKey(volume);
      const former = await this.#derivation.slotsLike(volume.id, devicePath, opened, [...all.keys()]);
      // what is in an earlier backup may be incomplete
      if (backup !== undefined) await removeHeaderBackup(this.#lvm, volume, backup);
      backup = await createHeaderBackup(this.#lvm, volume, { previous: former, all, salt });
      const added = await this.#addSlot(volume, opened.key, passphrase);
      backup = await recordAddedSlot(this.#lvm, volume, backup, added);
      for (const slot of former) await this.#destroySlot(volume, slot, passphrase);
    }
    if (previous !== undefined) await this.#destroySlotsOf(volume, previous, passphrase);
    if (backup !== undefined) await removeHeaderBackup(this.#lvm, volume, backup);
    return previous !== undefined || completed !== undefined ? "PassphraseReplaced" : "Complete";
  }

  /**
   * Writes a header back of which the passphrase opens nothing, because it is gone, or a key slot is damaged. Whatever else is on
   * the device stays.
   *
   * @throws {StorageError} `FailedPrecondition` when it is there, with keys that neither the backup has nor the change added;
   * `CommandFailed` when it is there, and nothing can be read of it
   */
  async #restoreHeader(volume: EncryptedVolume, uuid: string, backup: HeaderBackup): Promise<void> {
    const { lv: { devicePath } } = volume;
    const isThere = async () => (await readSignatures(this.#exec, devicePath)).length > 0;
    if (await isThere()) {
      await requireHeader(this.#exec, devicePath, uuid);
      await this.#requireSameKeys(volume, backup);
    } else {
      await requireReadableHeader(this.#exec, devicePath);
      if (await isThere()) {
        throw new StorageError("Unavailable", `reading ${devicePath}: it failed for a moment; try again`);
      }
    }
    await copyHeader(this.#exec, backup.lv.devicePath, devicePath);
  }

  /** Requires that the header on a device has the keys that its backup has, or what the change made of them. */
  async #requireSameKeys({ id, lv: { devicePath } }: EncryptedVolume, backup: HeaderBackup): Promise<void> {
    // cryptsetup prints the same for a damaged header and where it fails itself
    const present = await readHeaderKeys(this.#exec, devicePath).catch((cause: Error) => {
      const command = `dd if=${backup.lv.devicePath} of=${devicePath} bs=1M count=16 conv=fsync,nocreat,notrunc`;
      throw new StorageError(
        "CommandFailed",
        `opening volume ${id}: its LUKS header is damaged, or cannot be read; nothing was changed. If it stays so, write it ` +
          `back: ${command}. ${cause.message}`,
        { cause },
      );
    });
    const isSameVolumeKey = present.salt === backup.tags.keys.salt;
    if (isSameVolumeKey && isOfChange(present.slots, backup.tags.keys)) return;
    const path = lvPath(backup);
    const when = present.isReencrypting ? "is being" : "was";
    const [change, remedy] = isSameVolumeKey
      ? ["a key slot there was destroyed or replaced since", "the passphrase that replaced it"]
      : [
        `its data ${when} encrypted by another volume key since, which only the header on the volume has`,
        "the passphrase with which the data was encrypted again",
      ];
    throw new StorageError(
      "FailedPrecondition",
      `opening volume ${id}: the secret has no passphrase that opens its LUKS header; one opens ${path}, which an ` +
        `interrupted change of the passphrase left. But ${change}; nothing was changed. Give the secret ${remedy}`,
    );
  }

  /**
   * Destroys the key slots of an interrupted change, but for the one that is opened: cryptsetup would destroy the last one, too. They
   * are those of the previous passphrase, and those that were added since the backup.
   *
   * @returns the updated backup; `undefined` if the volume key was changed meanwhile, in which case no slot is removed
   */
  async #destroyOtherSlots(
    volume: EncryptedVolume,
    backup: HeaderBackup,
    opened: OpenedSlot,
  ): Promise<HeaderBackup | undefined> {
    const { slots, salt } = await this.#requireOneVolumeKey(volume);
    const { previous, all, salt: formerSalt, added } = backup.tags.keys;
    if (salt !== formerSalt) return undefined;
    const isFormer = (slot: number) => all.get(slot) === slots.get(slot);
    const isPrevious = (slot: number) => previous.includes(slot) && isFormer(slot);
    const others = [...slots.keys()].filter((slot) =>
      slot !== opened.slot && (isPrevious(slot) ? !isPrevious(opened.slot) : !isFormer(slot))
    );
    const openedSalt = slots.get(opened.slot)!;
    const isRecorded = isFormer(opened.slot) || (added?.[0] === opened.slot && added[1] === openedSalt);
    const recorded = isRecorded || others.length === 0
      ? backup
      : await recordAddedSlot(this.#lvm, volume, backup, [opened.slot, openedSalt]);
    for (const slot of others) await this.#destroySlot(volume, slot, opened.key);
    return recorded;
  }

  /**
   * Requires that key slots can be added and destroyed: cryptsetup does neither while data is encrypted by two volume keys.
   *
   * @returns what the header says of its keys
   */
  async #requireOneVolumeKey(
    { id, lv: { devicePath } }: EncryptedVolume,
  ): Promise<Required<Pick<HeaderKeys, "slots" | "salt">>> {
    const { salt, slots } = await readHeaderKeys(this.#exec, devicePath);
    if (salt !== undefined) return { salt, slots };
    throw new StorageError(
      "FailedPrecondition",
      `changing the passphrase of volume ${id}: its data is being encrypted by another volume key, or that was interrupted; ` +
        "wait for its end, or stop its pods and start one with both passphrases in the secret, which completes it",
    );
  }

  /** Adds a key slot, and tries it. @returns its number, and the start of its salt */
  async #addSlot(
    volume: EncryptedVolume,
    previous: Passphrase,
    passphrase: Passphrase,
  ): Promise<readonly [slot: number, salt: string]> {
    const { id, lv: { devicePath } } = volume;
    await this.#derivation.derive(id, addKeyCommand(devicePath, previous, passphrase));
    const slot = await this.#derivation.slotOf(id, devicePath, passphrase);
    const salt = slot === undefined ? undefined : (await this.#requireOneVolumeKey(volume)).slots.get(slot);
    if (slot !== undefined && salt !== undefined) {
      await flushDisks(this.#exec, [devicePath]);
      return [slot, salt];
    }
    throw new StorageError(
      "CommandFailed",
      `changing the passphrase of volume ${id}: the new one does not open the key slot that was added for it`,
    );
  }

  /** Destroys the key slots that a passphrase opens. */
  async #destroySlotsOf(volume: EncryptedVolume, previous: Passphrase, passphrase: Passphrase): Promise<void> {
    const { id, lv: { devicePath } } = volume;
    const { slots } = await this.#requireOneVolumeKey(volume);
    for (const only of slots.keys()) { // a slot with the priority `ignore` is tried only by its number
      const slot = await this.#derivation.slotOf(id, devicePath, previous, only);
      if (slot !== undefined) await this.#destroySlot(volume, slot, passphrase);
    }
  }

  async #destroySlot({ id, lv: { devicePath } }: EncryptedVolume, slot: number, passphrase: Passphrase): Promise<void> {
    const command = killSlotCommand(devicePath, slot, passphrase);
    const output = await this.#derivation.run(command);
    if (output.code !== 0 && !isNoSlot(output)) throw passphraseError(id, command, output);
    await flushDisks(this.#exec, [devicePath]);
  }

  #refusal({ id }: EncryptedVolume, previous: Passphrase | undefined): StorageError {
    return new StorageError(
      "Unauthenticated",
      previous === undefined
        ? `opening volume ${id}: a change of its passphrase was interrupted, and the passphrase in its secret does not open it; ` +
          `nothing was changed. Give the secret the passphrase from before as ${PREVIOUS_KEY}`
        : `changing the passphrase of volume ${id}: neither the passphrase nor the ${PREVIOUS_KEY} in its secret opens one of its ` +
          "key slots, or these are damaged; nothing was changed",
      { reason: previous === undefined ? "PassphraseChangeInterrupted" : "WrongPassphrases" },
    );
  }
}

/**
 * Reports whether a change left some key slots when it was interrupted, and nobody else has changed them since: those from before,
 * and after the new one was recorded, also without those of the previous passphrase. Those that are there may be damaged: a key
 * slot is overwritten before it is removed.
 */
function isOfChange(present: HeaderKeys["slots"], { previous, all, added }: BackedUpKeys): boolean {
  const isAdded = (slot: number) => slot === added?.[0] && present.get(slot) === added[1];
  const mayBeDestroyed = added !== undefined && isAdded(added[0]);
  return [...present].every(([slot, salt]) => all.get(slot) === salt || isAdded(slot)) &&
    [...all.keys()].every((slot) => present.has(slot) || (mayBeDestroyed && previous.includes(slot)));
}
