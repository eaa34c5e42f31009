/**
 * The record that a volume was handed out: a tag of its volume group with the id and the UUID of its LV.
 *
 * An LV takes its own tags with it when it goes, so what must survive it stands on the group. The tag goes on before the
 * first use, since an LV that was never used has nothing to lose, and comes off after the LV is deleted. It comes off in
 * the background, several tags in one command: until it is off, {@linkcode UsedRecords.forgotten} tells that the absence is
 * our own doing. A crash in between errs on the safe side: the volume shows as lost until its deletion is repeated.
 *
 * @module
 */

import { change } from "./change.ts";
import type { Exec } from "./exec.ts";

/** The records of one machine. */
export class UsedRecords {
  readonly #exec: Exec;
  readonly #onError: (error: unknown) => void;
  readonly #pending = new Map<string, Set<string>>();
  #sweep: Promise<void> | undefined;

  /** Makes the records; failures of the background work go to `onError`. */
  constructor(exec: Exec, onError: (error: unknown) => void) {
    this.#exec = exec;
    this.#onError = onError;
  }

  /** Puts a record on. */
  async add(group: string, tag: string): Promise<void> {
    await change(this.#exec, ["vgchange", "--addtag", tag, group]);
  }

  /** Takes a record off now. */
  async remove(group: string, tag: string): Promise<void> {
    await change(this.#exec, ["vgchange", "--deltag", tag, group]);
    this.#pending.get(group)?.delete(tag);
  }

  /** Takes a record off soon, together with others of the group. */
  removeSoon(group: string, tag: string): void {
    const tags = this.#pending.get(group) ?? new Set();
    this.#pending.set(group, tags.add(tag));
    this.#sweep ??= this.#run().finally(() => this.#sweep = undefined);
  }

  /** Whether the record is only waiting to be taken off. */
  forgotten(tag: string): boolean {
    return [...this.#pending.values()].some((tags) => tags.has(tag));
  }

  /** Resolves when the background work is done. */
  async settled(): Promise<void> {
    await this.#sweep;
  }

  async #run(): Promise<void> {
    await Promise.resolve(); // what is asked for in the same turn shares the command
    const failed = new Set<string>();
    for (;;) {
      const next = [...this.#pending].find(([group, tags]) => tags.size > 0 && !failed.has(group));
      if (next === undefined) return;
      const [group, tags] = next;
      const batch = [...tags];
      try {
        await change(this.#exec, ["vgchange", ...batch.flatMap((tag) => ["--deltag", tag]), group]);
        for (const tag of batch) tags.delete(tag);
      } catch (error) {
        failed.add(group); // stays pending: tried again with the group's next deletion
        this.#onError(error);
      }
    }
  }
}
