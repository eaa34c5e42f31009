/**
 * Fills a volume from a snapshot of another node.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ErrorKind, StorageError } from "../../base/error.ts";
import { type SnapshotId, transferSnapshotIdOf, type VolumeId } from "../../base/ids.ts";
import { type ContentSource, markCopyBase } from "../model/tags.ts";
import { roundUp } from "../../base/size.ts";
import type { DestinationDevice, ReceivedRange } from "../transfers/receiver.ts";
import { DIFFERENCE_UNIT, type KnownSnapshot, type Range } from "../transfers/protocol.ts";
import type { CopyState, CopyStep } from "./plan.ts";
import type { CopyWork } from "./work.ts";

/** A range of a snapshot of another node. */
export interface RemoteRange extends Range {
  /** The node. */
  readonly node: string;
  /** The snapshot. */
  readonly snapshot: SnapshotId;
  /** The volume that is filled. */
  readonly volume: VolumeId;
  /** The older snapshot whose data the volume has; absent to read all of the range. */
  readonly base?: KnownSnapshot;
}

/** Reads snapshots of other nodes. */
export interface RemoteSources {
  /**
   * Fills a range of a device with that of a snapshot, and reads it back.
   *
   * @param signal ends it
   * @throws {StorageError} `Unavailable` when the other node cannot be reached, or does not allow it (yet)
   */
  fetch(range: RemoteRange, destination: DestinationDevice, signal: AbortSignal): Promise<ReceivedRange>;
}

/** Returns the snapshot on the node of the source that is read: the source itself, or a temporary one of the volume. */
export function remoteSnapshotOf(id: VolumeId, source: ContentSource): SnapshotId {
  return source.kind === "snapshot" ? source.id : transferSnapshotIdOf(id);
}

/** A volume that is filled, and what fills it. */
interface FetchTask {
  readonly copy: CopyState;
  readonly work: CopyWork;
  readonly skipsZeros: boolean;
}

/** What fetches, and records. */
interface FetchContext {
  readonly remote?: RemoteSources;
  /** Changes tags of the volume. */
  readonly changeTags: (changes: readonly string[]) => Promise<void>;
}

/** Executes the step that fetches a range. */
export async function fetchRange(
  { node, offset, length }: Extract<CopyStep, { do: "fetch" }>,
  task: FetchTask,
  { remote, changeTags }: FetchContext,
): Promise<void> {
  const { copy: { id, tags, base }, work } = task;
  const range = { node, snapshot: base?.id ?? remoteSnapshotOf(id, tags.source), volume: id, offset, length };
  const received = await receive(range, task, remote);
  const known = base === undefined ? work.uuid : base.uuid;
  if (known !== undefined && received.uuid !== known) {
    const message = `reading snapshot ${range.snapshot}: it is another one than before`;
    throw new StorageError("FailedPrecondition", message);
  }
  if (base !== undefined && received.uuid !== base.uuid) {
    await changeTags(markCopyBase(base, { id: base.id, ...defined({ uuid: received.uuid }) }));
  }
  Object.assign(work, defined({ uuid: received.uuid }));
  work.total = received.size;
  work.offset = received.end;
}

/** The failures after which a difference cannot be had: a snapshot is gone, has overflowed, or is another one. */
const WITHOUT_DIFFERENCE: readonly ErrorKind[] = ["NotFound", "Lost", "FailedPrecondition", "InvalidArgument"];

/**
 * The number of such failures in a row after which all of the snapshot is read. Of a large volume this takes long, and nobody
 * can use it meanwhile; a device that another command changes, or an agent that has just started, fails for a moment only.
 */
const DIFFERENCE_ATTEMPTS = 3;

/** Reports whether a difference cannot be had. */
export function isWithoutDifference({ differenceRefusals = 0 }: CopyWork): boolean {
  return differenceRefusals >= DIFFERENCE_ATTEMPTS;
}

/** Executes the step that fetches a difference, and records when the volume has all of it. */
export async function fetchDifference(
  { node, snapshot, offset }: Extract<CopyStep, { do: "fetch difference" }>,
  task: Omit<FetchTask, "skipsZeros">,
  { remote, changeTags }: FetchContext,
): Promise<void> {
  const { copy: { id, base, destination: { lv } }, work } = task;
  const length = roundUp(lv.size, DIFFERENCE_UNIT);
  const { id: known, uuid } = base!;
  const range = { node, snapshot, volume: id, offset, length, base: { id: known, uuid: uuid! } };
  try {
    const received = await receive(range, { ...task, skipsZeros: false }, remote);
    work.differenceOffset = received.end;
    if (received.end < received.size) return;
    await changeTags(markCopyBase(base, { id: snapshot, ...defined({ uuid: received.uuid }) }));
    delete work.differenceOffset;
  } catch (error) {
    if (!(error instanceof StorageError) || !WITHOUT_DIFFERENCE.includes(error.kind)) throw error;
    work.differenceRefusals = (work.differenceRefusals ?? 0) + 1;
    const next = isWithoutDifference(work) ? `all of snapshot ${snapshot} is read` : "it is tried again";
    throw new StorageError("Unavailable", `${error.message}; ${next}`, { cause: error });
  }
}

async function receive(
  range: RemoteRange,
  { copy: { id, destination: { lv } }, work, skipsZeros }: FetchTask,
  remote: RemoteSources | undefined,
): Promise<ReceivedRange> {
  const { node } = range;
  if (remote === undefined) {
    throw new StorageError(
      "Unavailable",
      `creating volume ${id} from a source on node ${node}: transfers are off on this node`,
    );
  }
  const end = new AbortController();
  work.cancel = () => end.abort();
  try {
    const received = await remote.fetch(range, { path: lv.devicePath, size: lv.size, skipsZeros }, end.signal);
    work.received = (work.received ?? 0) + received.received;
    return received;
  } finally {
    delete work.cancel;
  }
}
