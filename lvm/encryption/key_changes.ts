/**
 * Tracks the outcome of changes of passphrases and volume keys, by volume, for reports without a request.
 *
 * The outcome of a change is known to the process that made it. The backup of the header shows that a change was interrupted,
 * also after a restart; of a change of the volume key, the header itself does.
 *
 * @module
 */

import { lateCompletion, messageOf } from "../../base/error.ts";
import type { VolumeId } from "../../base/ids.ts";
import { lvPath } from "../model/report.ts";
import type { EncryptedVolume } from "./mapping.ts";
import { findHeaderBackup, type HeaderBackup } from "./header_tags.ts";
import { PREVIOUS_KEY } from "./passphrase.ts";
import { VOLUME_KEY_KEY } from "./volume_key.ts";

/** Why a volume does not have the keys that its secret requests. */
export interface KeyChangeProblem {
  /** The reason, in one word. */
  readonly reason: "KeyChangeFailed" | "KeyChangeInterrupted" | "KeyChangeRunning" | "ReencryptionInterrupted";
  /** The problem and the remedy, in a sentence. */
  readonly message: string;
}

/**
 * How a change ended: the volume has the keys that its secret requests, and of a passphrase that was replaced, it is known that it
 * opens nothing any more.
 */
export type KeyOutcome = "Complete" | "PassphraseReplaced";

/** What is known of the keys of a volume: how the last change ended, that none is requested any more, or what keeps it. */
export type KeyState = KeyOutcome | "NotRequested" | KeyChangeProblem;

/** What is known of a volume, and since when, in milliseconds since 1970. */
interface KnownState {
  readonly state: KeyState;
  readonly since: number;
}

/** What the headers of volumes that are not in use say. */
export interface HeaderStates {
  /** Reports whether data of a volume is encrypted by two volume keys; `undefined` while that is not known. */
  of(volume: EncryptedVolume): boolean | undefined;
  /** Forgets what the header of a volume says. */
  forget(id: VolumeId): void;
}

/** The states of the keys of volumes, since this process started. */
export class KeyChanges {
  readonly #onChange: (id: VolumeId) => void;
  readonly #headers: HeaderStates | undefined;
  readonly #known = new Map<VolumeId, KnownState>();
  /** The changes that are being made, each with its begin, in milliseconds since 1970. */
  readonly #running = new Map<VolumeId, number>();

  /**
   * Creates an object that knows nothing yet.
   *
   * @param onChange called when the state of a volume has changed
   * @param headers what the headers say; by default, that is not known
   */
  constructor(onChange: (id: VolumeId) => void = () => {}, headers?: HeaderStates) {
    this.#onChange = onChange;
    this.#headers = headers;
  }

  /** Makes a change, and records what comes of it. @throws {Error} that of the change */
  async track(id: VolumeId, change: () => Promise<KeyOutcome>): Promise<void> {
    this.#running.set(id, Date.now());
    try {
      this.record(id, await change());
    } catch (error) {
      const completion = lateCompletion(error);
      const reason = completion === undefined ? "KeyChangeFailed" : "KeyChangeRunning";
      this.record(id, { reason, message: messageOf(error) });
      completion?.finally(() => this.#end(id)).catch(() => {}); // its error is that of whoever runs the command
      throw error;
    } finally {
      this.#running.delete(id);
    }
  }

  /** Records the state of a volume. */
  record(id: VolumeId, state: KeyState): void {
    this.#headers?.forget(id);
    const before = this.#known.get(id)?.state;
    this.#known.set(id, { state, since: Date.now() });
    // most volumes have no request, and the next report corrects what an earlier process said of one
    const isNews = before !== undefined || state !== "NotRequested";
    if (isNews && describe(before) !== describe(state)) this.#onChange(id);
  }

  /** Forgets a volume that is not used here any more, unless a command still changes its keys. */
  forget(id: VolumeId): void {
    if (!this.#isRunning(id)) this.#known.delete(id);
  }

  /** Forgets that a command changes the keys of a volume. The next stage finds out what came of it. */
  #end(id: VolumeId): void {
    if (!this.#isRunning(id)) return;
    this.#known.delete(id);
    this.#onChange(id);
  }

  /** Reports whether nobody is completing what the header of a volume says is not complete. It is completed before each use. */
  #isHalfEncrypted(volume: EncryptedVolume): boolean {
    if (!volume.lv.open && !this.#running.has(volume.id)) return this.#headers?.of(volume) ?? false;
    this.#headers?.forget(volume.id);
    return false;
  }

  #isRunning(id: VolumeId): boolean {
    const state = this.#known.get(id)?.state;
    return typeof state === "object" && state.reason === "KeyChangeRunning";
  }

  /**
   * Returns what is known of the keys of a volume; `undefined` when nothing is, as of one that is not encrypted. While they are
   * changed, it is what was known before, or what the backup of an earlier change shows.
   *
   * @param volume the volume as a report has it
   */
  stateOf(volume: EncryptedVolume): KeyState | undefined {
    if (volume.tags.format.luks === undefined) return undefined;
    const { state, since = 0 } = this.#known.get(volume.id) ?? {};
    const problem = typeof state === "object" ? state : undefined;
    if (!this.#isRunning(volume.id) && this.#isHalfEncrypted(volume)) {
      return { reason: "ReencryptionInterrupted", message: reencryptionMessage(problem) };
    }
    if (typeof state === "object") return state;
    const backup = findHeaderBackup(volume);
    if (backup === undefined) return state;
    const created = backup.lv.createdAt * 1_000;
    const begin = this.#running.get(volume.id);
    const isOfRunning = begin !== undefined && created + 1_000 > begin; // LVM has it to the second
    // a report from before the end of a change may still have its backup
    const isOfEnded = state !== undefined && state !== "NotRequested" && created <= since;
    return isOfRunning || isOfEnded ? state : { reason: "KeyChangeInterrupted", message: interruptionMessage(backup) };
  }

  /** Returns why a volume does not have the keys that its secret requests, if that is known. */
  problemOf(volume: EncryptedVolume): KeyChangeProblem | undefined {
    const state = this.stateOf(volume);
    return typeof state === "object" ? state : undefined;
  }
}

/** Returns that a change of a volume's passphrase was interrupted, and what to do. @param backup what it left */
export function interruptionMessage(backup: HeaderBackup): string {
  return `a change of its passphrase was interrupted, and the former passphrase may still open it; ${lvPath(backup)} ` +
    "has its LUKS header. To complete the change, start a pod with the " +
    `volume, with the new passphrase in its secret, and with the former one there as ${PREVIOUS_KEY}`;
}

/** Returns that a change of a volume's key was interrupted, and what to do. @param problem why it was not completed */
function reencryptionMessage(problem: KeyChangeProblem | undefined): string {
  const cause = problem === undefined ? "" : ` (${problem.message})`;
  return `its data is encrypted by two volume keys, since a change of its volume key was interrupted${cause}. To complete it, start ` +
    `a pod with the volume, with its passphrase and the ${VOLUME_KEY_KEY} in its secret`;
}

function describe(state: KeyState | undefined): string | undefined {
  return typeof state === "object" ? `${state.reason}: ${state.message}` : state;
}
