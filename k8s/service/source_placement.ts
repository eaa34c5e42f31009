/**
 * Where a volume with a content source is created: on the node of its source, or else on one to which that can be sent.
 *
 * @module
 */

import { copyRange, type SourceProperties } from "../../lvm/copies/rules.ts";
import { defined } from "../../base/defined.ts";
import { ignoreStorageError, StorageError } from "../../base/error.ts";
import { LINEAR, sizeStep } from "../../lvm/model/layout.ts";
import { parseQuantity } from "../../base/size.ts";
import { type ContentSource, describeSource } from "../../lvm/model/tags.ts";
import type { NodeChoice, StoredVolume } from "../../lvm/volume_service.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { AgentManaged, LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import { listNodeNames } from "../api/pods.ts";
import { snapshotOf } from "../api/snapshot_mapping.ts";
import {
  actualSize,
  desiredSizeRange,
  layoutOf,
  maximumSectorBytesOf,
  type NamedVolumeRequest,
} from "../api/volume_mapping.ts";
import type { Informer } from "../runtime/informer.ts";
import { isDeleting } from "./remote_objects.ts";
import { contentOf } from "./stored_volume.ts";
import type { ClusterTransfers } from "./transfers.ts";
import type { DependentsOptions } from "./dependents.ts";

/** Options of {@linkcode placeNearSource}. */
export interface SourcePlacementOptions extends DependentsOptions {
  /** All LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** Transfers between nodes; absent where there are none. */
  readonly transfers?: ClusterTransfers | undefined;
  /** Returns a volume. @throws {StorageError} */
  readonly get: (id: VolumeId) => Promise<StoredVolume>;
}

/** A request, and where it may be fulfilled. */
export interface Placement {
  /** The request. */
  readonly request: NamedVolumeRequest;
  /** The nodes; the first choice is tried first. */
  readonly choices: readonly NodeChoice[];
}

/**
 * Returns a request with the size that its source requires, and the nodes where it may be fulfilled.
 *
 * @throws {StorageError} `NoSpace` when the source is on a node that is not allowed, and cannot be sent; those of the source
 */
export async function placeNearSource(
  request: NamedVolumeRequest,
  choice: NodeChoice,
  options: SourcePlacementOptions,
): Promise<Placement> {
  const { id, source } = request;
  if (source === undefined) return { request, choices: [choice] };
  const { nodeName, maximumSectorBytes, ...facts } = await sourceFacts(source, options);
  const range = copyRange({ ...request, source }, facts);
  const targets = options.transfers?.targetsOf(nodeName, choice.allowed) ?? [];
  const choices = [
    ...(choice.allowed?.includes(nodeName) ?? true ? [{ allowed: [nodeName], preferred: [] }] : []),
    ...(targets.length > 0 ? [{ ...choice, allowed: targets }] : []),
  ];
  if (choices.length > 0) {
    return { request: { ...request, range, sourceNode: nodeName, ...defined({ maximumSectorBytes }) }, choices };
  }
  throw new StorageError(
    "NoSpace",
    `creating volume ${id} from ${
      describeSource(source)
    }: the source is on node ${nodeName}, and volumes from it are created ` +
      `there; the request allows only ${listNodeNames(choice.allowed!, " or ")}`,
    { reason: "SourceOnOtherNode" },
  );
}

/** Returns the node and the properties of a source. @throws {StorageError} */
async function sourceFacts(
  { kind, id }: ContentSource,
  options: SourcePlacementOptions,
): Promise<SourceProperties & { nodeName: string; maximumSectorBytes?: bigint }> {
  const { get, driver, snapshots, volumes } = options;
  if (kind === "volume") {
    const { size, content, nodeId } = await get(id);
    const object = volumes.get(id);
    return { size, content, nodeName: nodeId, ...sizeFacts({ size, object, volume: object }, options) };
  }
  const object = snapshots.get(id);
  const snapshot = object === undefined || isDeleting(object) ? undefined : snapshotOf(object);
  if (object === undefined || snapshot === undefined || object.spec.driverName !== driver) {
    throw new StorageError("NotFound", `looking for snapshot ${id}: no LVMSnapshot of that name was taken`);
  }
  if (!snapshot.ready) {
    throw new StorageError(
      "FailedPrecondition",
      `using snapshot ${id}: its content is lost; it is ${object.status?.state}`,
    );
  }
  const { size } = snapshot;
  const volume = volumes.get(snapshot.source);
  const content = volume === undefined ? {} : { content: contentOf(volume) };
  return { size, nodeName: object.spec.nodeName, ...content, ...sizeFacts({ size, object, volume }, options) };
}

/** Returns how the size of a source came about, and the largest sectors for its content, as far as they are known. */
function sizeFacts(
  { size, object, volume }: {
    readonly size: bigint;
    /** The source. */
    readonly object: AgentManaged | undefined;
    /** The source, or the volume that it was taken of. */
    readonly volume: LvmVolume | undefined;
  },
  { nodes }: SourcePlacementOptions,
): Pick<SourceProperties, "step" | "requested"> & { readonly maximumSectorBytes?: bigint } {
  const { volumeGroups = [] } = nodes.get(object?.spec.nodeName ?? "")?.status ?? {};
  const group = volumeGroups.find(({ uuid }) => uuid === object?.status?.volumeGroupUUID);
  const extentSize = parseQuantity(group?.extentSize ?? "") || 1n;
  const layout = volume && ignoreStorageError(() => layoutOf(volume));
  const isSame = volume !== undefined && actualSize(volume) === size; // it may have been expanded since
  const requested = isSame ? ignoreStorageError(() => desiredSizeRange(volume).required) : undefined;
  const step = sizeStep(layout ?? LINEAR, extentSize);
  return { step, ...defined({ requested }), ...(volume && maximumSectorBytesOf(volume)) };
}
