/**
 * Fills a volume from a snapshot of another node.
 *
 * @module
 */

import { StorageError } from "../error.ts";
import { type SnapshotId, transferSnapshotIdOf, type VolumeId } from "../ids.ts";
import type { Lvm } from "../client/client.ts";
import type { ContentSource } from "../model/tags.ts";
import type { DestinationDevice, ReceivedRange } from "../transfers/receiver.ts";
import type { Range } from "../transfers/protocol.ts";
import type { CopyState, CopyStep } from "./plan.ts";
import type { CopyWork } from "./work_state.ts";

/** A range of a snapshot of another node. */
export interface RemoteRange extends Range {
  /** The node. */
  readonly node: string;
  /** The snapshot. */
  readonly snapshot: SnapshotId;
  /** The volume that is filled. */
  readonly volume: VolumeId;
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

/** Executes the step that fetches a range. */
export async function fetchRange(
  { node, offset, length }: Extract<CopyStep, { do: "fetch" }>,
  { copy: { id, tags, destination: { lv } }, work, skipsZeros }: {
    readonly copy: CopyState;
    readonly work: CopyWork;
    readonly skipsZeros: boolean;
  },
  { remote }: { readonly lvm: Lvm; readonly remote?: RemoteSources },
): Promise<void> {
  if (remote === undefined) {
    throw new StorageError(
      "Unavailable",
      `creating volume ${id} from a source on node ${node}: transfers are off on this node`,
    );
  }
  const end = new AbortController();
  work.cancel = () => end.abort();
  try {
    const range = { node, snapshot: remoteSnapshotOf(id, tags.source), volume: id, offset, length };
    const received = await remote.fetch(range, { path: lv.devicePath, size: lv.size, skipsZeros }, end.signal);
    work.total = received.size;
    work.offset = received.end;
  } finally {
    delete work.cancel;
  }
}
