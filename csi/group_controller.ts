/**
 * The GroupController service: snapshots of several volumes at one point in time.
 *
 * @module
 */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { quote } from "../base/error.ts";
import {
  groupSnapshotIdOf,
  parseGroupSnapshotId,
  parseSnapshotId,
  type SnapshotId,
  type VolumeId,
} from "../base/ids.ts";
import { groupSnapshotCreationLocks, groupSnapshotLock, type Locks, snapshotLock } from "../base/locks.ts";
import type { GroupSnapshotService, StoredGroupSnapshot } from "../lvm/volume_service.ts";
import { snapshotMessage } from "./controller.ts";
import { parseSnapshotParameters } from "./parameters.ts";
import {
  type GroupController,
  GroupControllerServiceCapability_RPC_Type as Rpc,
  type VolumeGroupSnapshotSchema,
} from "./proto/csi_pb.ts";
import { invalidArgument, parseIdToDelete, requireId, requireName, requireVolumeId } from "./request.ts";
import type { Handlers } from "./service.ts";

/** The number of volumes of a group snapshot at most: all of them are suspended together, for some seconds. */
const MAX_VOLUMES = 64;

/** Creates the handlers of the GroupController service. @param locks shared with the other services of the process */
export function groupControllerHandlers(groups: GroupSnapshotService, locks: Locks): Handlers<typeof GroupController> {
  return {
    groupControllerGetCapabilities: () => {
      const type = Rpc.CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT;
      return Promise.resolve({ capabilities: [{ type: { case: "rpc", value: { type } } }] });
    },

    createVolumeGroupSnapshot: async (request) => {
      const name = requireName(request.name);
      const id = groupSnapshotIdOf(name);
      const sources = requireSources(request.sourceVolumeIds);
      const cowSize = parseSnapshotParameters(request.parameters);
      const group = await locks.run(
        "group snapshot",
        groupSnapshotCreationLocks(id, sources),
        () => groups.create({ id, name, sources, cowSize }),
      );
      return { groupSnapshot: groupSnapshotMessage(group) };
    },

    deleteVolumeGroupSnapshot: async (request) => {
      const id = parseIdToDelete("group_snapshot_id", request.groupSnapshotId, parseGroupSnapshotId);
      if (id === undefined) return {};
      const snapshots = parseSnapshotIds(request.snapshotIds);
      await locks.run("deletion", [groupSnapshotLock(id)], async () => {
        // which may be others than those that the caller names, or more
        const members = await groups.members(id);
        const needed = members.map((member) => snapshotLock(member));
        await locks.run("deletion", needed, () => groups.delete(id, snapshots));
      });
      return {};
    },

    getVolumeGroupSnapshot: async (request) => {
      const id = requireId("group_snapshot_id", request.groupSnapshotId, parseGroupSnapshotId);
      const snapshots = parseSnapshotIds(request.snapshotIds);
      return { groupSnapshot: groupSnapshotMessage(await groups.get(id, snapshots)) };
    },
  };
}

/** Parses the volumes of a request. @throws {StorageError} `InvalidArgument`, or `NotFound` for an id of another driver */
function requireSources(volumeIds: readonly string[]): VolumeId[] {
  if (volumeIds.length === 0) throw invalidArgument("source_volume_ids: missing");
  if (volumeIds.length > MAX_VOLUMES) throw invalidArgument(`source_volume_ids: more than ${MAX_VOLUMES}`);
  const sources = volumeIds.map((id) => requireVolumeId(id));
  if (new Set(sources).size < sources.length) throw invalidArgument("source_volume_ids: a volume is there twice");
  return sources;
}

/** Parses the snapshots that a caller knows of a group. @throws {StorageError} `InvalidArgument` for those of another driver */
function parseSnapshotIds(values: readonly string[]): SnapshotId[] {
  return values.map((value) => {
    const id = parseSnapshotId(value);
    if (id === undefined) throw invalidArgument(`snapshot_ids: ${quote(value)} is not an id of this driver`);
    return id;
  });
}

function groupSnapshotMessage(
  { id, snapshots }: StoredGroupSnapshot,
): MessageInitShape<typeof VolumeGroupSnapshotSchema> {
  return {
    groupSnapshotId: id,
    snapshots: snapshots.map(snapshotMessage),
    creationTime: timestampFromMs(Math.min(...snapshots.map(({ createdAt }) => createdAt)) * 1000),
    readyToUse: snapshots.every(({ ready }) => ready),
  };
}
