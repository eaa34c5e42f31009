/**
 * Sees to VolumeSnapshotContents while this process leads.
 *
 * @module
 */

import { centralLoop, type CentralLoopOptions } from "../sidecars/controller_options.ts";
import { ClaimError, readSnapshotClassParameters, type SnapshotClassParameters } from "../sidecars/class_parameters.ts";
import { isConflict, isNotFound, isTransient } from "../client/client.ts";
import { aborted, backoffMs, type Clock, systemClock } from "../runtime/clock.ts";
import {
  type CreateSnapshotRequest,
  type CsiCalls,
  isContended,
  isExhausted,
  isMaybeInProgress,
  reasonOf,
  type TakenSnapshot,
} from "../sidecars/csi_client.ts";
import type { EventRecorder } from "../runtime/events.ts";
import { Informer, type WaitOptions } from "../runtime/informer.ts";
import type { Loop } from "../runtime/controller.ts";
import { patchAnyhow } from "../client/patch_with_retry.ts";
import { readSecret } from "../sidecars/secrets.ts";
import {
  beginning,
  type ContentPatch,
  type ContentStep,
  factsOf,
  failing,
  handleOf,
  isBegun,
  isGoing,
  isGuarded,
  isServed,
  nextStep,
  released,
  secretOf,
  seenAs,
  settled,
  snapshotNameOf,
  useless,
} from "./snapshot_content.ts";
import {
  type VolumeSnapshotClass,
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../api/snapshot_objects.ts";

/** What the snapshotter works with. */
export interface SnapshotterOptions extends CentralLoopOptions {
  /** The driver. */
  readonly csi: Pick<CsiCalls, "createSnapshot" | "deleteSnapshot" | "findSnapshot">;
  /** Where events go. */
  readonly events: EventRecorder;
  /** Whether a snapshot of the handle that was ready may not be so any more; none by default. */
  readonly isDoubtful?: (handle: string) => boolean;
  /** When it is looked again for kinds that the cluster does not have, in milliseconds; after a minute. */
  readonly absentMs?: number | undefined;
}

/** Milliseconds in which a change that was made should be seen by the informer. */
const SEEN_WITHIN_MS = 10_000;

/** When an object is looked at again that turned out to be another than the copy showed, in milliseconds. */
const BEHIND_MS = 1_000;

/** The snapshotter's work while it leads. */
export class Snapshotting {
  readonly #options: SnapshotterOptions;
  readonly #clock: Clock;
  readonly #contents: Informer<VolumeSnapshotContent>;
  readonly #classes: Informer<VolumeSnapshotClass>;
  readonly #loop: Loop;
  /** The names of contents for whose snapshots there was no space. */
  readonly #full = new Set<string>();
  /** How often in a row a content was left with a snapshot that cannot be used yet. */
  readonly #looks = new Map<string, number>();
  #stopping: AbortSignal | undefined;

  /** Does nothing before {@linkcode Snapshotting.run}. */
  constructor(options: SnapshotterOptions) {
    const { client, clock = systemClock, absentMs = 60_000 } = options;
    this.#options = options;
    this.#clock = clock;
    this.#contents = new Informer(client, volumeSnapshotContents, { absentMs, clock });
    this.#classes = new Informer(client, volumeSnapshotClasses, { absentMs, clock });
    this.#loop = centralLoop("snapshotter", options, (name, ending) => this.#reconcile(name, ending));
  }

  /** Tries again the snapshots for which there was no space. */
  poke(): void {
    for (const name of this.#full) this.#loop.add(name);
  }

  /** Has a look at the snapshot of a handle, which may not be ready any more. */
  doubt(handle: string): void {
    for (const content of this.#contents.list()) if (handleOf(content) === handle) this.#addIfDue(content);
  }

  /** Works until the signal is aborted; once. */
  async run(signal: AbortSignal): Promise<void> {
    this.#stopping = signal;
    this.#loop.follow(this.#contents, () => []).follow(
      this.#classes,
      ({ metadata }) => this.#waitingFor(metadata.name),
    );
    this.#contents.subscribe((name, now, before) => {
      if (now === undefined) [this.#full, this.#looks].forEach((memory) => memory.delete(name));
      else if (before === undefined || factsOf(now) !== factsOf(before)) this.#addIfDue(now);
    });
    const contents = this.#contents.start(signal);
    // One after the other: of a cluster without these kinds it is said once.
    await Promise.race([this.#contents.synced, aborted(signal)]);
    await Promise.all([contents, this.#classes.start(signal), this.#loop.run(signal)]);
  }

  /** How long it is waited for what was done to be seen; not when the loop is to end. */
  get #patience(): WaitOptions {
    return { signal: this.#stopping, timeoutMs: SEEN_WITHIN_MS };
  }

  #addIfDue(content: VolumeSnapshotContent): void {
    const { driverName } = this.#options;
    if (isServed(content, driverName) && this.#stepOf(content) !== "nothing") this.#loop.add(content.metadata.name);
  }

  /** What has to be done next: what the object shows, or a look at a snapshot that was ready. */
  #stepOf(content: VolumeSnapshotContent): ContentStep {
    const step = nextStep(content);
    const doubtful = content.status?.readyToUse && this.#options.isDoubtful?.(handleOf(content) ?? "");
    return step === "nothing" && doubtful && !isGoing(content) ? "check" : step;
  }

  #waitingFor(className: string): string[] {
    const waits = (content: VolumeSnapshotContent) =>
      content.spec.volumeSnapshotClassName === className && ["create", "check"].includes(nextStep(content));
    return this.#contents.list().filter(waits).map(({ metadata }) => metadata.name);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<void | { again: number }> {
    const content = this.#contents.get(name);
    if (content === undefined || !isServed(content, this.#options.driverName)) return;
    const held = await this.#act(this.#stepOf(content), content, signal);
    return held ? this.#next(name) : { again: BEHIND_MS };
  }

  /** Does what was decided on the copy; answers whether that was right for the object itself. */
  async #act(step: ContentStep, content: VolumeSnapshotContent, signal: AbortSignal): Promise<boolean> {
    switch (step) {
      case "create":
        return await this.#create(content, signal);
      case "settle":
        await this.#settle(content, signal);
        return true;
      case "check":
        await this.#check(content, signal);
        return true;
      case "remove":
        return await this.#remove(content, signal);
      case "release":
        return await this.#release(content, (now) => nextStep(now) === "release", signal);
      case "nothing":
        return true;
    }
  }

  /** When a content has its next turn, by what the copy shows after this one. */
  #next(name: string): void | { again: number } {
    const content = this.#contents.get(name);
    const step = content === undefined ? "nothing" : nextStep(content);
    if (step === "check") {
      const looks = (this.#looks.get(name) ?? 0) + 1;
      this.#looks.set(name, looks);
      const { backoff = { startMs: 1_000, capMs: 300_000 } } = this.#options;
      return { again: backoffMs(backoff, looks, this.#clock) };
    }
    this.#looks.delete(name);
    if (step !== "nothing") return { again: 0 };
  }

  async #create(content: VolumeSnapshotContent, signal: AbortSignal): Promise<boolean> {
    let now = content;
    try {
      const request = await this.#request(content, signal);
      const begun = await this.#begin(content, signal);
      if (begun === undefined) return false;
      now = begun;
      const taken = await this.#options.csi.createSnapshot(request, { signal });
      now = await this.#record(begun, taken, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      if (isExhausted(error)) this.#full.add(content.metadata.name);
      if (!isMaybeInProgress(error)) now = await this.#settle(now, signal);
      await this.#tell("create", now, error, signal);
      throw error;
    }
    this.#full.delete(content.metadata.name);
    await this.#settle(now, signal);
    return true;
  }

  /** Marks that the snapshot is asked for; `undefined` when it should not be. */
  async #begin(content: VolumeSnapshotContent, signal: AbortSignal): Promise<VolumeSnapshotContent | undefined> {
    // What was begun before is not written again, so the object itself is looked at: the copy may be old.
    const known = isBegun(content) ? await this.#original(content, signal) : content;
    const now = known && await this.#change(known, beginning, signal).catch(unlessGone);
    return now !== undefined && nextStep(now) === "create" ? now : undefined;
  }

  /** The object that a copy is of, unless it is gone. */
  async #original(copy: VolumeSnapshotContent, signal: AbortSignal): Promise<VolumeSnapshotContent | undefined> {
    const now = await this.#options.client.get(volumeSnapshotContents, copy.metadata, { signal }).catch(unlessGone);
    return now?.metadata.uid === copy.metadata.uid ? now : undefined;
  }

  async #request(content: VolumeSnapshotContent, signal: AbortSignal): Promise<CreateSnapshotRequest> {
    const { source: { volumeHandle }, volumeSnapshotRef: { uid } } = content.spec;
    if (!volumeHandle || !uid) throw new ClaimError("the content names no volume, or no VolumeSnapshot with its uid");
    const { parameters } = this.#classFor(content);
    const secrets = await this.#secrets(content, signal);
    return { name: snapshotNameOf(uid), volumeId: volumeHandle, parameters, secrets };
  }

  /**
   * The class, read. Of a content that is to go only the outcome is asked for, and its class may have gone before it.
   *
   * @throws {ClaimError} when there is none, or it cannot be meant
   */
  #classFor(content: VolumeSnapshotContent): Pick<SnapshotClassParameters, "parameters"> {
    const { metadata: { name: contentName }, spec: { volumeSnapshotClassName: name } } = content;
    const { driverName } = this.#options;
    const found = this.#classes.get(name ?? "");
    if (found?.driver !== driverName && isGoing(content)) return { parameters: {} };
    if (!name) throw new ClaimError("volumeSnapshotClassName: none is named");
    const named = `volumeSnapshotClassName ${JSON.stringify(name)}`;
    if (found === undefined) throw new ClaimError(`${named}: there is no such VolumeSnapshotClass`);
    if (found.driver !== driverName) throw new ClaimError(`${named}: it is for ${found.driver}`);
    return readSnapshotClassParameters(found.parameters ?? {}, { contentName });
  }

  async #check(content: VolumeSnapshotContent, signal: AbortSignal): Promise<void> {
    try {
      const found = await this.#find(content, signal);
      const isGone = !found.ready && this.#options.isDoubtful?.(found.snapshotId);
      await (isGone ? this.#giveUp(content, found, signal) : this.#record(content, found, signal));
    } catch (error) {
      if (!signal.aborted) await this.#tell("check", content, error, signal);
      throw error;
    }
  }

  async #find(content: VolumeSnapshotContent, signal: AbortSignal): Promise<TakenSnapshot> {
    const { client, csi, driverName } = this.#options;
    const { metadata: { name: contentName }, spec: { volumeSnapshotClassName = "" } } = content;
    const snapshotId = handleOf(content)!;
    // A class is of use here for its secret alone, and need not be there any more.
    const { parameters = {} } = this.#classes.get(volumeSnapshotClassName) ?? {};
    const { listSecret } = readSnapshotClassParameters(parameters, { contentName });
    const secrets = await readSecret(client, listSecret, { signal });
    const found = await csi.findSnapshot({ snapshotId, secrets }, { signal });
    if (found !== undefined) return found;
    throw new Error(`looking for snapshot ${snapshotId}: ${driverName} has none of that handle`);
  }

  /** Writes down how a snapshot is. */
  async #record(
    content: VolumeSnapshotContent,
    taken: TakenSnapshot,
    signal: AbortSignal,
  ): Promise<VolumeSnapshotContent> {
    const date = this.#clock.date();
    const now = await this.#change(content, (now) => seenAs(now, taken, date), signal, "status");
    await this.#seen(now, ({ status }) => status?.readyToUse === now.status?.readyToUse);
    return now;
  }

  /** Writes down, and tells once, that a snapshot that could be used cannot be used any more. */
  async #giveUp(
    content: VolumeSnapshotContent,
    { snapshotId }: TakenSnapshot,
    signal: AbortSignal,
  ): Promise<void> {
    const message =
      `snapshot ${snapshotId} was taken, and its content is gone (see LVMSnapshot ${snapshotId}): delete it`;
    const date = this.#clock.date();
    const now = await this.#change(content, (now) => useless(now, message, date), signal, "status");
    if (content.status?.readyToUse) {
      this.#options.events.record(content, "Warning", "SnapshotContentCheckandUpdateFailed", message);
    }
    await this.#seen(now, ({ status }) => status?.readyToUse === false);
  }

  async #settle(content: VolumeSnapshotContent, signal: AbortSignal): Promise<VolumeSnapshotContent> {
    const now = await this.#change(content, settled, signal);
    await this.#seen(now, (seen) => settled(seen) === undefined);
    return now;
  }

  async #remove(copy: VolumeSnapshotContent, signal: AbortSignal): Promise<boolean> {
    const { csi, events } = this.#options;
    // The policy may have just been changed to Retain: the last look is at the original.
    const content = await this.#original(copy, signal);
    if (content === undefined || nextStep(content) !== "remove") return false;
    try {
      const secrets = await this.#secrets(content, signal);
      await csi.deleteSnapshot({ snapshotId: handleOf(content)!, secrets }, { signal });
    } catch (error) {
      if (!signal.aborted && !isContended(error)) {
        events.record(content, "Warning", "SnapshotDeleteError", reasonOf(error));
      }
      throw error;
    }
    return await this.#release(content, isGoing, signal);
  }

  /** Takes the finalizer off, if that is still right. */
  async #release(
    content: VolumeSnapshotContent,
    mayGo: (now: VolumeSnapshotContent) => boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    const change = (now: VolumeSnapshotContent) => mayGo(now) ? released(now) : undefined;
    const now = await this.#change(content, change, signal).catch(unlessGone);
    if (now !== undefined && isGuarded(now)) return false;
    await this.#seen(content, (seen) => !isGuarded(seen));
    return true;
  }

  /** Secrets for taking and for removing a snapshot; of one that is to go they may have gone before it. */
  async #secrets(content: VolumeSnapshotContent, signal: AbortSignal): Promise<Record<string, string>> {
    return await readSecret(this.#options.client, secretOf(content), { signal }).catch((error) => {
      if (isGoing(content) && isNotFound(error)) return {};
      throw error;
    });
  }

  /** Says what went wrong, unless it passes by itself. */
  async #tell(
    step: "create" | "check",
    content: VolumeSnapshotContent,
    error: unknown,
    signal: AbortSignal,
  ): Promise<void> {
    if (isContended(error) || isConflict(error) || isTransient(error)) return;
    const { events } = this.#options;
    const [message, date] = [reasonOf(error), this.#clock.date()];
    if (step === "create") events.record(content, "Warning", "SnapshotCreationFailed", message);
    else events.record(content, "Warning", "SnapshotContentCheckandUpdateFailed", message);
    await this.#change(content, (now) => failing(now, message, date), signal, "status");
  }

  async #change(
    content: VolumeSnapshotContent,
    change: (now: VolumeSnapshotContent) => ContentPatch | undefined,
    signal: AbortSignal,
    subresource?: "status",
  ): Promise<VolumeSnapshotContent> {
    return await patchAnyhow(this.#options.client, volumeSnapshotContents, content, change, { signal, subresource });
  }

  /** Waits for the copy to show what an object is now. */
  async #seen(
    { metadata: { name } }: VolumeSnapshotContent,
    holds: (seen: VolumeSnapshotContent) => boolean,
  ): Promise<void> {
    await this.#contents.seen(name, (seen) => seen === undefined || holds(seen), this.#patience);
  }
}

/** For what is gone there is nothing to do. @throws whatever else it is */
function unlessGone(error: unknown): undefined {
  if (!isNotFound(error)) throw error;
}
