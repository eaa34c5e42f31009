/**
 * The commands of cryptsetup(8).
 *
 * A passphrase reaches it by standard input alone (`--key-file -`). Commands that derive keys run one at a time: each of them takes
 * as much memory as all else together.
 *
 * @module
 */

import type { VolumeId } from "../../base/ids.ts";
import { type Passphrase, PREVIOUS_KEY } from "./passphrase.ts";
import { lateCompletion, StorageError } from "../../base/error.ts";
import { type Command, commandError, type Exec, type Output } from "../exec.ts";
import { type Clock, systemClock, withinDeadline } from "../../base/clock.ts";

/**
 * The cost of deriving a key from a passphrase. By default cryptsetup takes up to 1 GiB and half of the machine's memory, and
 * the kernel kills it in a pod with a limit. It measured 65 MiB at its peak with this value (docs/adr/0033-encryption.md).
 */
const DERIVATION = [
  ...["--pbkdf", "argon2id", "--pbkdf-memory", `${64 << 10}`],
  ...["--pbkdf-force-iterations", "4", "--pbkdf-parallel", "1"],
];

/** The time for the derivation of a key, in milliseconds: on a busy machine, it took more than the 30 s of a command that reads. */
const TEST_DEADLINE_MS = 100_000;

/** Input of a passphrase: nothing is asked, and all of standard input is the passphrase. */
const FROM_INPUT = ["--batch-mode", "--key-file", "-"];

/**
 * Returns the command that creates a LUKS header, over whatever is there.
 *
 * @param keyName the name of its volume key; none by default
 */
export function formatCommand(
  { device, uuid, keyName }: { readonly device: string; readonly uuid: string; readonly keyName?: string | undefined },
  passphrase: Passphrase,
): Command {
  const subsystem = keyName === undefined ? [] : ["--subsystem", keyName];
  const args = ["luksFormat", "--type", "luks2", "--uuid", uuid, ...subsystem, ...DERIVATION, ...FROM_INPUT, device];
  return { program: "cryptsetup", args, mutates: true, input: passphrase.input() };
}

/**
 * Returns the command that opens a mapping. The volume key is in the table of the kernel and not in its keyring, so that the
 * mapping can be resized without the passphrase.
 *
 * @param discards whether the mapping passes discards on
 */
export function openCommand(
  { device, name, discards }: { readonly device: string; readonly name: string; readonly discards: boolean },
  passphrase: Passphrase,
): Command {
  const options = ["--type", "luks2", "--disable-keyring", ...(discards ? ["--allow-discards"] : [])];
  const args = ["open", ...options, ...FROM_INPUT, device, name];
  return { program: "cryptsetup", args, mutates: true, input: passphrase.input() };
}

/**
 * Returns the command that checks whether a passphrase opens a key slot, and prints which one ({@linkcode openedSlot}).
 *
 * @param slot the key slot that is tried; any of them by default
 */
export function testCommand(device: string, passphrase: Passphrase, slot?: number): Command {
  const only = slot === undefined ? [] : ["--key-slot", `${slot}`];
  const args = ["open", "--test-passphrase", "--verbose", "--type", "luks2", ...only, ...FROM_INPUT, device];
  return { program: "cryptsetup", args, mutates: false, deadlineMs: TEST_DEADLINE_MS, input: passphrase.input() };
}

/** Returns the key slot that a passphrase opened; `undefined` when it opens none. */
function openedSlot({ code, stdout }: Output): number | undefined {
  const slot = code === 0 ? /^Key slot (\d+) unlocked\.$/m.exec(stdout)?.[1] : undefined;
  return slot === undefined ? undefined : Number(slot);
}

/** Reports whether a passphrase opens nothing on a device: none of the key slots, or there are none, or no header. */
function opensNothing(output: Output): boolean {
  return output.code === NO_PERMISSION || isNoHeader(output) || /No usable keyslot/.test(output.stderr);
}

/** Reports whether a device has no LUKS header, or one of which both copies are damaged. */
export function isNoHeader({ stderr }: Output): boolean {
  return /is not a valid LUKS device/.test(stderr);
}

/**
 * Returns the command that adds a key slot for another passphrase. Both reach cryptsetup by standard input: the first one has
 * as many bytes as an argument says.
 */
export function addKeyCommand(device: string, passphrase: Passphrase, added: Passphrase): Command {
  const sizes = ["--keyfile-size", `${passphrase.length}`, "--new-keyfile-size", `${added.length}`];
  const args = ["luksAddKey", ...DERIVATION, ...FROM_INPUT, ...sizes, device, "-"];
  return { program: "cryptsetup", args, mutates: true, input: passphrase.input(added) };
}

/**
 * Returns the command that destroys a key slot. cryptsetup refuses that unless the passphrase opens another one, or this one if
 * there is no other: nothing is left then.
 */
export function killSlotCommand(device: string, slot: number, passphrase: Passphrase): Command {
  const args = ["luksKillSlot", ...FROM_INPUT, device, `${slot}`];
  return { program: "cryptsetup", args, mutates: true, input: passphrase.input() };
}

/** Reports whether a key slot was not there, by what {@linkcode killSlotCommand} printed. */
export function isNoSlot({ stderr }: Output): boolean {
  return /^Keyslot \d+ is not active\.$/m.test(stderr);
}

/** Returns the command that gives a LUKS header another UUID. Its key slots stay as they are, and no passphrase is needed. */
export function headerUuidCommand(device: string, uuid: string): Command {
  return { program: "cryptsetup", args: ["luksUUID", "--batch-mode", "--uuid", uuid, device], mutates: true };
}

/** Returns the command that prints a LUKS header, without keys. */
export function dumpCommand(device: string): Command {
  return { program: "cryptsetup", args: ["luksDump", device], mutates: false };
}

/** Returns the command that gives a LUKS header another subsystem. */
export function setSubsystemCommand(device: string, subsystem: string): Command {
  return { program: "cryptsetup", args: ["config", "--subsystem", subsystem, device], mutates: true };
}

/** Returns the command that records in a header that its data is to be encrypted again. Only one key slot is kept. */
export function beginReencryptionCommand(device: string, slot: number, passphrase: Passphrase): Command {
  const args = ["reencrypt", "--init-only", "--key-slot", `${slot}`, ...DERIVATION, ...FROM_INPUT, device];
  return { program: "cryptsetup", args, mutates: true, input: passphrase.input() };
}

/** Returns the command that encrypts data again, from where an earlier one ended, to the end. */
export function reencryptCommand(device: string, passphrase: Passphrase): Command {
  const args = ["reencrypt", "--resume-only", ...FROM_INPUT, device];
  return { program: "cryptsetup", args, mutates: true, input: passphrase.input() };
}

/** Returns the command that lets a mapping have all of its LV. */
export function resizeMappingCommand(name: string): Command {
  return { program: "cryptsetup", args: ["resize", "--batch-mode", name], mutates: true };
}

/** Returns the command that closes a mapping. */
export function closeCommand(name: string): Command {
  return { program: "cryptsetup", args: ["close", name], mutates: true };
}

/** cryptsetup(8), RETURN CODES: a passphrase that opens nothing; a device that is not there; one that is in use. */
const NO_PERMISSION = 2;
const WRONG_DEVICE = 4;
const DEVICE_IN_USE = 5;

/** Reports whether there is no such mapping, by the exit status of a command about it. */
export function isNoMapping({ code }: Output): boolean {
  return code === WRONG_DEVICE;
}

/** Returns the error for a command about the mapping of a volume that failed. */
export function mappingError(command: Command, output: Output): StorageError {
  return commandError(command, output, output.code === DEVICE_IN_USE ? "InUse" : "CommandFailed");
}

/** Returns the error for an operation whose passphrase opens nothing. */
export function wrongPassphraseError(operation: string, options: { readonly cause?: unknown } = {}): StorageError {
  return new StorageError(
    "Unauthenticated",
    `${operation}: the passphrase in its secret opens none of its key slots, or these are damaged; nothing was changed. Give ` +
      "the secret the passphrase with which the volume was last used; to replace that one, leave it there as " +
      PREVIOUS_KEY,
    { ...options, reason: "WrongPassphrase" },
  );
}

/**
 * Returns the error for a command that a passphrase was given to, and that failed.
 *
 * `Unauthenticated` is what the CSI spec has for a secret that is not valid (Error Scheme).
 */
export function passphraseError(id: VolumeId, command: Command, output: Output): StorageError {
  const cause = commandError(command, output);
  if (output.code === NO_PERMISSION) return wrongPassphraseError(`opening volume ${id}`, { cause });
  if (!/No usable keyslot/.test(output.stderr)) return cause;
  return new StorageError(
    "ForeignData",
    `opening volume ${id}: its LUKS header has no key slot, and so its data cannot be read any more. It is not changed`,
    { cause },
  );
}

/**
 * The time for which others wait for a command that has outlasted its deadline, in milliseconds. A derivation has ended by then,
 * on a busy machine, too. What still runs waits for its disk, and has released the memory.
 */
const LATE_MS = 100_000;

/** A passphrase, and the key slot that it opens. */
export interface OpenedSlot {
  /** The passphrase. */
  readonly key: Passphrase;
  /** The number of the key slot. */
  readonly slot: number;
}

/** Runs commands that derive keys, and finds the key slots of LUKS headers by them. */
export class KeyDerivation {
  readonly #exec: Exec;
  readonly #clock: Clock;
  #last: Promise<unknown> = Promise.resolve();

  /** Creates the service. */
  constructor(exec: Exec, clock: Clock = systemClock) {
    this.#exec = exec;
    this.#clock = clock;
  }

  /** Runs a command after those that were given before it. If one of them outlasts its deadline, it is waited for a while. */
  async run(command: Command): Promise<Output> {
    const run = this.#last.then(() => this.#exec.run(command));
    this.#last = run.catch(async (error) => {
      const late = lateCompletion(error);
      if (late !== undefined) await withinDeadline(late, LATE_MS, { clock: this.#clock });
    }).catch(() => {});
    return await run;
  }

  /** Runs a command for a volume, which must succeed. @throws {StorageError} {@linkcode passphraseError} */
  async derive(id: VolumeId, command: Command): Promise<void> {
    const output = await this.run(command);
    if (output.code !== 0) throw passphraseError(id, command, output);
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
    const output = await this.run(command);
    const slot = openedSlot(output);
    if (slot === undefined && !opensNothing(output)) throw passphraseError(id, command, output);
    return slot;
  }
}
