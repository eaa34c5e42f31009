/**
 * The SnapshotMetadata service: what a snapshot has, and what changed between two, for backups.
 *
 * @module
 */

import type { Differences, Extent, ListRequest } from "../lvm/differences/differences.ts";
import { BlockMetadataType, type SnapshotMetadata } from "./proto/csi_pb.ts";
import { invalidArgument, requireSnapshotId } from "./request.ts";
import type { Handlers } from "./service.ts";
import { unimplemented } from "./status.ts";

/** The most ranges in a response, whatever a request allows: with these, a response has some 100 KB. */
const MAX_RESULTS = 4096;

/** A response of either call. */
interface BlockResponse {
  readonly blockMetadataType: BlockMetadataType;
  readonly volumeCapacityBytes: bigint;
  readonly blockMetadata: { readonly byteOffset: bigint; readonly sizeBytes: bigint }[];
}

/** Creates the handlers of the SnapshotMetadata service. */
export function snapshotMetadataHandlers(differences: Pick<Differences, "list">): Handlers<typeof SnapshotMetadata> {
  return {
    async *getMetadataAllocated({ snapshotId, startingOffset, maxResults }, signal) {
      const target = requireSnapshotId(snapshotId);
      yield* respond(differences, { target, ...range(startingOffset, maxResults), signal });
    },

    async *getMetadataDelta({ baseSnapshotId, targetSnapshotId, startingOffset, maxResults }, signal) {
      const base = requireSnapshotId(baseSnapshotId, "base_snapshot_id");
      const target = requireSnapshotId(targetSnapshotId, "target_snapshot_id");
      yield* respond(differences, { base, target, ...range(startingOffset, maxResults), signal });
    },
  };
}

/** Creates handlers that refuse all calls. @param why what has to be done before they are answered */
export function refusedSnapshotMetadata(why: string): Handlers<typeof SnapshotMetadata> {
  const refuse = (method: string) => Promise.reject<never[]>(unimplemented(method, why));
  return {
    async *getMetadataAllocated() {
      yield* await refuse("GetMetadataAllocated");
    },

    async *getMetadataDelta() {
      yield* await refuse("GetMetadataDelta");
    },
  };
}

/** Yields the responses. Where there is nothing to list, one of them says how large the volume is. */
async function* respond(
  differences: Pick<Differences, "list">,
  request: ListRequest,
): AsyncGenerator<BlockResponse, void> {
  const { size, extents } = await differences.list(request);
  const response = (group: readonly Extent[]) => ({
    blockMetadataType: BlockMetadataType.VARIABLE_LENGTH,
    volumeCapacityBytes: size,
    blockMetadata: group.map(({ offset, length }) => ({ byteOffset: offset, sizeBytes: length })),
  });
  let isEmpty = true;
  for await (const group of extents) {
    isEmpty = false;
    yield response(group);
  }
  if (isEmpty) yield response([]);
}

function range(startingOffset: bigint, maxResults: number): Pick<ListRequest, "from" | "groupSize"> {
  if (startingOffset < 0n) throw invalidArgument(`starting_offset: negative: ${startingOffset}`);
  if (maxResults < 0) throw invalidArgument(`max_results: negative: ${maxResults}`);
  return { from: startingOffset, groupSize: maxResults === 0 ? MAX_RESULTS : Math.min(maxResults, MAX_RESULTS) };
}
