/**
 * Encrypted volumes: their LUKS headers, and their mappings.
 *
 * A header is created exactly once, in the same way as a filesystem: its UUID is recorded before it is created, and that it is
 * complete before anything is written below it. So a header with the recorded UUID is the driver's own unfinished work while the
 * state is `formatting`, and only such a header may be created again. The first part of the new mapping is overwritten with
 * zeros before the header is recorded as complete: what was on the disk before would be decrypted to something that could look
 * like a filesystem.
 *
 * @module
 */

import type { Lvm } from "../client/client.ts";
import { type Backoff, backoffMs, type Clock, systemClock } from "../../base/clock.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { type Exec, runOk } from "../exec.ts";
import {
  allowWrites,
  describeSignatures,
  foreignDataError,
  type LocatedDevice,
  readBlockDevice,
  readSignatures,
  requireBlank,
  restoreDeviceNode,
  wipeSignatures,
} from "../host/device.ts";
import type { MappedDevice } from "../host/device_mapper.ts";
import type { Mount } from "../host/mounts.ts";
import type { VolumeId } from "../../base/ids.ts";
import { markFormatState } from "../model/tags.ts";
import type { LuksState } from "../settings/format.ts";
import {
  formatCommand,
  KeyDerivation,
  mappingError,
  openCommand,
  resizeMappingCommand,
  testCommand,
} from "./cryptsetup.ts";
import {
  closeMapping,
  closeUnpublished,
  type EncryptedVolume,
  mappingName,
  mappingPath,
  readMapping,
  requireOwnMapping,
} from "./mapping.ts";
import { findHeaderBackup } from "./header_tags.ts";
import { KeyChanges, type KeyOutcome } from "./key_changes.ts";
import { requireHeader } from "./header.ts";
import {
  eitherOf,
  isReplaced,
  type Passphrase,
  type Passphrases,
  previousOf,
  requirePassphrase,
} from "./passphrase.ts";
import { Reencryption } from "./reencryption.ts";
import { Rotation } from "./rotation.ts";
import { VOLUME_KEY_KEY, volumeKeyNameOf } from "./volume_key.ts";

/** The bytes at the start of a new mapping that are overwritten with zeros. */
const ZEROED_BYTES = 1 << 20;

/** How long a change of a passphrase that failed again is not tried: from two minutes to an hour. */
const BACKOFF: Backoff = { startMs: 2 * 60_000, capMs: 60 * 60_000 };

/** The last attempt to change a passphrase. */
interface Attempt {
  /** The digests of the passphrases. */
  readonly digest: string;
  /** The number of failures with them in a row. */
  readonly failures: number;
  /** When they are tried again, by the clock's `now()`: never when the passphrase was changed, or refused as wrong. */
  readonly notBefore: number;
}

/** What a secret has that has a passphrase. */
interface GivenPassphrases extends Passphrases {
  readonly passphrase: Passphrase;
}

/** Options of {@linkcode Encryption.open}. */
export interface OpenOptions extends Passphrases {
  /** The device of its LV. */
  readonly device: LocatedDevice;
  /** The mounts of this machine. */
  readonly mounts: readonly Mount[];
  /** Records that the volume is in use, which is done before anything else is recorded. */
  readonly recordUse: () => Promise<void>;
}

/** A volume whose mapping is open. */
export interface OpenVolume<V> {
  /** The volume as it is recorded now. */
  readonly volume: V;
  /** Its mapping. */
  readonly device: LocatedDevice;
}

/** The encrypted volumes of a machine. */
export class Encryption {
  readonly #lvm: Lvm;
  readonly #exec: Exec;
  readonly #derivation: KeyDerivation;
  readonly #rotation: Rotation;
  readonly #reencryption: Reencryption;
  readonly #onError: (error: unknown) => void;
  readonly #changes: KeyChanges;
  /** The last attempts of {@linkcode changePassphrase}, by volume. */
  readonly #attempts = new Map<VolumeId, Attempt>();
  readonly #clock: Clock;
  readonly #digestKey = crypto.randomUUID();

  /**
   * Creates the service.
   *
   * @param onError called when the passphrase or the volume key of a volume in use could not be changed
   * @param changes records the outcomes of changes
   */
  constructor(
    lvm: Lvm,
    onError: (error: unknown) => void = () => {},
    changes: KeyChanges = new KeyChanges(),
    clock: Clock = systemClock,
  ) {
    this.#onError = onError;
    this.#changes = changes;
    this.#clock = clock;
    this.#lvm = lvm;
    this.#exec = lvm.exec;
    this.#derivation = new KeyDerivation(lvm.exec, clock);
    this.#rotation = new Rotation(lvm, this.#derivation);
    this.#reencryption = new Reencryption(lvm, this.#derivation);
  }

  /**
   * Opens the mapping of a volume. Its header is created if that was never done. If there is a previous passphrase, it opens
   * nothing any more then, and the volume key has the requested name. Requires the volume's lock.
   *
   * @throws {StorageError} `InvalidArgument` without a passphrase; `Unauthenticated` for a wrong one; `ForeignData` when the
   * device holds something else than the recorded header, or nothing where one is recorded
   */
  async open<V extends EncryptedVolume>(volume: V, options: OpenOptions): Promise<OpenVolume<V>> {
    const passphrase = requirePassphrase("staging", volume.id, options.passphrase);
    const keyName = volumeKeyNameOf(volume.id, options.volumeKey);
    if (options.device.readOnly) await allowWrites(this.#exec, volume.lv.devicePath);
    const { luks } = volume.tags.format;
    if (luks?.state === "formatted") {
      await options.recordUse();
      await this.#changeKeysAndOpen(volume, luks.uuid, { ...options, passphrase, keyName });
      return { volume, device: await this.#device(volume.id) };
    }
    const begun = await this.#beginHeader(volume, luks!, options);
    await this.#createHeader(begun.volume, { uuid: begun.uuid, keyName }, passphrase);
    const complete = await this.#record(begun.volume, { state: "formatted", uuid: begun.uuid });
    return { volume: complete, device: await this.#device(volume.id) };
  }

  /**
   * Returns the mapping of a volume; `undefined` while it is not open.
   *
   * @throws {StorageError} `FailedPrecondition` when it is on another device
   */
  async find(volume: EncryptedVolume): Promise<LocatedDevice | undefined> {
    const { luks } = volume.tags.format;
    const mapping = await readMapping(this.#exec, volume.id);
    if (mapping === undefined || luks?.state !== "formatted") return undefined;
    await this.#resume(requireOwnMapping(mapping, volume, luks.uuid));
    return await this.#device(volume.id);
  }

  /**
   * Lets the passphrase open a volume that is in use, in place of the previous one, and completes a change that was interrupted.
   * Does nothing without a previous passphrase and a volume key, or when the last call with the same ones ended, or the stage with
   * them. Requires the volume's lock.
   *
   * A failure is only reported, and the next call tries again: the volume is in use, and opens by one of the two. From the second
   * failure in a row on, calls do nothing for a while.
   *
   * @param find finds the volume
   * @throws {StorageError} while a command that outlasted its deadline still runs
   */
  async changePassphrase(id: VolumeId, passphrases: Passphrases, find: () => Promise<EncryptedVolume>): Promise<void> {
    const { passphrase, volumeKey } = passphrases;
    if (passphrase === undefined) return;
    if (!isReplaced(passphrases) && volumeKey === undefined) return this.#changes.record(id, "NotRequested");
    const digest = await this.#digestOf({ ...passphrases, passphrase });
    const last = this.#attempts.get(id);
    const failures = last?.digest === digest ? last.failures : 0;
    if (last?.digest === digest && this.#clock.now() < last.notBefore) return;
    const isOver: Attempt = { digest, failures, notBefore: Infinity };
    try {
      await this.#changes.track(id, async () => await this.#changeInUse(await find(), { ...passphrases, passphrase }));
      this.#attempts.set(id, isOver);
    } catch (error) {
      if (lateCompletion(error) !== undefined) throw error;
      // kubelet repeats the call each minute, and would have keys derived each time
      const isRefused = error instanceof StorageError && ["Unauthenticated", "InUse"].includes(error.kind);
      const delay = failures === 0 ? 0 : backoffMs(BACKOFF, failures, this.#clock);
      const failed = { digest, failures: failures + 1, notBefore: this.#clock.now() + delay };
      this.#attempts.set(id, isRefused ? isOver : failed);
      this.#onError(error);
    }
  }

  /** Returns a digest of what a secret requests. */
  async #digestOf({ passphrase, previous, volumeKey }: GivenPassphrases): Promise<string> {
    const digests = eitherOf(passphrase, previous).map((each) => each.digest(this.#digestKey));
    return [...await Promise.all(digests), `key ${volumeKey}`].join();
  }

  /** Forgets how the last change of a volume's passphrase ended: it is not in use any more. */
  forgetAttempt(id: VolumeId): void {
    this.#attempts.delete(id);
  }

  /** @throws {StorageError} `InUse` when another volume key is requested; `Unauthenticated` when no passphrase opens the volume */
  async #changeInUse(volume: EncryptedVolume, passphrases: GivenPassphrases): Promise<KeyOutcome> {
    const { id, lv: { devicePath }, tags: { format: { luks } } } = volume;
    const previous = previousOf(id, passphrases);
    const keyName = volumeKeyNameOf(id, passphrases.volumeKey);
    if (luks?.state !== "formatted") return "Complete";
    const outcome = await this.#rotation.run(volume, luks.uuid, { ...passphrases, previous });
    if (keyName !== undefined && await this.#reencryption.isNeeded(volume, keyName)) throw inUseError(id);
    if (outcome === undefined) await this.#derivation.derive(id, testCommand(devicePath, passphrases.passphrase));
    return outcome ?? "Complete";
  }

  /** Lets the mapping of a volume have all of its LV, which was extended. Needs no passphrase. */
  async resize({ id }: Pick<EncryptedVolume, "id">): Promise<void> {
    const command = resizeMappingCommand(mappingName(id));
    const output = await this.#exec.run(command);
    if (output.code !== 0) throw mappingError(command, output);
  }

  /**
   * Closes the mapping of a volume, if it is open.
   *
   * @param mounts the mounts of this machine; absent if its filesystem was just unmounted, so that it is published nowhere
   * @throws {StorageError} `InUse` while it is mounted or published, or a program has it open
   */
  async close(id: VolumeId, mounts?: readonly Mount[]): Promise<void> {
    this.#changes.forget(id);
    await (mounts === undefined ? closeUnpublished(this.#exec, id) : closeMapping(this.#exec, id, mounts));
  }

  /** Opens a volume, whose passphrase and volume key are changed before if that is requested. */
  async #changeKeysAndOpen(
    volume: EncryptedVolume,
    uuid: string,
    { keyName, ...passphrases }: GivenPassphrases & { readonly keyName: string | undefined },
  ): Promise<void> {
    const { id } = volume;
    const { passphrase } = passphrases;
    const previous = previousOf(id, passphrases);
    if (keyName === undefined && previous === undefined && findHeaderBackup(volume) === undefined) {
      this.#changes.record(id, "NotRequested");
      return await this.#openFormatted(volume, uuid, passphrase);
    }
    const isClosed = await readMapping(this.#exec, id) === undefined;
    await this.#changes.track(id, async () => {
      // cryptsetup adds no key slot while data is encrypted by two volume keys
      if (isClosed) await this.#reencryption.complete(volume, eitherOf(passphrase, previous));
      const outcome = await this.#rotation.run(volume, uuid, { passphrase, previous });
      if (isClosed && keyName !== undefined) await this.#reencryption.run(volume, keyName, passphrase);
      await this.#openFormatted(volume, uuid, passphrase); // no passphrase may have been tried before
      return outcome ?? "Complete";
    });
    this.#attempts.set(id, { digest: await this.#digestOf(passphrases), failures: 0, notBefore: Infinity });
    if (isClosed || keyName === undefined || !await this.#reencryption.isNeeded(volume, keyName)) return;
    const error = inUseError(id);
    this.#changes.record(id, { reason: "KeyChangeFailed", message: error.message });
    this.#onError(error);
  }

  /** Records that a header is about to be created, once it is certain that the device holds nothing else. */
  async #beginHeader<V extends EncryptedVolume>(
    volume: V,
    luks: LuksState,
    { device, mounts, recordUse }: OpenOptions,
  ): Promise<{ readonly volume: V; readonly uuid: string }> {
    const { id, lv: { devicePath } } = volume;
    await recordUse();
    if (luks.state === "wanted") {
      await requireBlank(this.#exec, device);
      const uuid = crypto.randomUUID();
      return { volume: await this.#record(volume, { state: "formatting", uuid }), uuid };
    }
    await closeMapping(this.#exec, id, mounts);
    const signatures = await readSignatures(this.#exec, devicePath);
    if (!signatures.every((signature) => signature.uuid === luks.uuid)) {
      throw foreignDataError(
        devicePath,
        `a LUKS header with the UUID ${luks.uuid} was being created on it, but it holds ` +
          describeSignatures(signatures),
      );
    }
    if (signatures.length > 0) await wipeSignatures(this.#exec, devicePath);
    return { volume, uuid: luks.uuid };
  }

  /** Creates the header, and opens its mapping with a start of zeros. */
  async #createHeader(
    volume: EncryptedVolume,
    { uuid, keyName }: { readonly uuid: string; readonly keyName: string | undefined },
    passphrase: Passphrase,
  ): Promise<void> {
    const { id, lv: { devicePath } } = volume;
    await this.#derivation.derive(id, formatCommand({ device: devicePath, uuid, keyName }, passphrase));
    await this.#openFormatted(volume, uuid, passphrase);
    const range = ["--offset", "0", "--length", `${ZEROED_BYTES}`, mappingPath(id)];
    await runOk(this.#exec, { program: "blkdiscard", args: ["--zeroout", ...range], mutates: true });
  }

  /** Opens the mapping of a volume whose header is complete. If it is open, the passphrase is checked all the same. */
  async #openFormatted(volume: EncryptedVolume, uuid: string, passphrase: Passphrase): Promise<void> {
    const { id, lv: { devicePath }, tags: { trim } } = volume;
    await requireHeader(this.#exec, devicePath, uuid);
    const mapping = await readMapping(this.#exec, id);
    if (mapping === undefined) {
      const target = { device: devicePath, name: mappingName(id), discards: trim !== undefined };
      return await this.#derivation.derive(id, openCommand(target, passphrase));
    }
    await this.#resume(requireOwnMapping(mapping, volume, uuid));
    await this.#derivation.derive(id, testCommand(devicePath, passphrase));
    await this.resize(volume);
  }

  /** Resumes a mapping if a resize that was killed left it suspended: every program that uses it would hang. */
  async #resume({ name, suspended }: MappedDevice): Promise<void> {
    if (!suspended) return;
    const args = ["resume", "--noudevsync", name];
    await runOk(this.#exec, { program: "dmsetup", args, mutates: true });
  }

  /** Returns the device of a mapping that is open. Makes its node, if there is none. */
  async #device(id: VolumeId): Promise<LocatedDevice> {
    const devicePath = mappingPath(id);
    await restoreDeviceNode(this.#exec, { devicePath });
    return await readBlockDevice(this.#exec, devicePath);
  }

  async #record<V extends EncryptedVolume>(volume: V, luks: LuksState): Promise<V> {
    const { format } = volume.tags;
    const to = { ...format, luks };
    await this.#lvm.changeTags(volume, markFormatState(format, to));
    return { ...volume, tags: { ...volume.tags, format: to } };
  }
}

function inUseError(id: VolumeId): StorageError {
  return new StorageError(
    "InUse",
    `encrypting volume ${id} again, as the ${VOLUME_KEY_KEY} in its secret requests: it is in use; end its pods on this node, and ` +
      "start one again",
    { reason: "CannotEncryptAgain" },
  );
}
