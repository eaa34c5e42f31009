/**
 * The volumes of the cluster, for the Controller service. Each volume is an LVMVolume, which the agent of its node
 * reconciles.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import type { GroupCapacity } from "../../lvm/model/groups.ts";
import type { VolumeHealth } from "../../lvm/health/health.ts";
import { hasLimits, type IoLimits } from "../../lvm/settings/io_limits.ts";
import type { VolumeId } from "../../base/ids.ts";
import { formatBytes, formatQuantity, type SizeRange } from "../../base/size.ts";
import { type ContentSource, type CopyGoal, describeSource } from "../../lvm/model/tags.ts";
import type { CapacityRequest } from "../../lvm/inventory/volume.ts";
import type { NodeChoice, StoredVolume, VolumeService } from "../../lvm/volume_service.ts";
import { type ApiClient, isConflict, isNotFound, type MergePatch } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import {
  LVM_VOLUME_FINALIZER,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeSpec,
  requestAnnotations,
} from "../api/lvm_objects.ts";
import { intentAnnotations } from "../provisioner/volume_intents.ts";
import type { ClaimReference } from "../sidecars/csi_client.ts";
import { asUnavailable, asWriteError, isDeleting, type NodeCallOptions, RemoteObjects } from "./remote_objects.ts";
import { reportedError } from "../api/object_status.ts";
import { chooseNode, totalCapacity } from "../scheduling/placement.ts";
import { NodeCapacities, type NodeCapacitiesOptions } from "../scheduling/free_capacity.ts";
import { Dependents, type DependentsOptions } from "./dependents.ts";
import { clusterVolumeOf, isCreated, volumeHealthOf } from "./stored_volume.ts";
import {
  actualSize,
  ioLimitsPatch,
  lvmVolumeFor,
  type NamedVolumeRequest,
  requireCompatible,
} from "../api/volume_mapping.ts";
import { type Placement, placeNearSource } from "./source_placement.ts";
import type { ClusterTransfers } from "./transfers.ts";

/** Options of {@linkcode ClusterVolumes}. */
export interface ClusterVolumesOptions extends NodeCallOptions, NodeCapacitiesOptions, DependentsOptions {
  /** Transfers between nodes; absent where there are none. */
  readonly transfers?: ClusterTransfers | undefined;
}

/** The maximum number of attempts of a patch that conflicts with writes of the status. */
const MAX_ATTEMPTS = 5;

/** The time limit for the cache to show a new object, in milliseconds. The next placement must count its space. */
const CACHE_WAIT_MS = 5_000;

/** The maximum number of volumes whose refusals are remembered. */
const MAX_REFUSED = 1_000;

/** What an LVMVolume must be to be deleted. */
interface ExpectedVolume {
  readonly uid?: string | undefined;
  readonly onlyIf?: ((object: LvmVolume) => boolean) | undefined;
}

/** The volumes of one driver in the cluster. */
export class ClusterVolumes implements VolumeService {
  readonly #client: ApiClient;
  readonly #driver: string;
  readonly #volumes: Informer<LvmVolume>;
  readonly #options: ClusterVolumesOptions;
  readonly #transfers: ClusterTransfers | undefined;
  readonly #capacities: NodeCapacities;
  readonly #dependents: Dependents;
  readonly #objects: RemoteObjects<LvmVolume>;
  /** The nodes that have refused a volume for its space, of the volumes that were refused last. */
  readonly #refusedBy = new Map<VolumeId, Set<string>>();

  /** Creates the service; its state are the objects that are being created, and the nodes that have refused them. */
  constructor(options: ClusterVolumesOptions) {
    this.#client = options.client;
    this.#driver = options.driver;
    this.#volumes = options.volumes;
    this.#options = options;
    this.#transfers = options.transfers;
    this.#capacities = new NodeCapacities(options);
    this.#dependents = new Dependents(options);
    this.#objects = new RemoteObjects({
      ...options,
      noun: "volume",
      objects: options.volumes,
      finalizer: LVM_VOLUME_FINALIZER,
    });
  }

  /**
   * Creates a volume, unless one exists that satisfies the request. When the node cannot create it, its LVMVolume is
   * deleted before this fails.
   *
   * @param context.claim the claim that the driver's own provisioner creates the volume for; the LVMVolume records it
   * @param context.isRecorded whether the request was read from the LVMVolume, which lacks some of it: then no other one
   * is created when that one failed or is gone
   * @throws {StorageError} the error that the node reported; `AlreadyExists`; `NoSpace`; `Unavailable` while the
   * outcome is unknown; `Busy` while the volume is being copied; `NotFound`, `Lost` or `FailedPrecondition` for its
   * source
   */
  async create(
    request: NamedVolumeRequest,
    choice: NodeChoice,
    { claim, isRecorded = false }: { readonly claim?: ClaimReference; readonly isRecorded?: boolean } = {},
  ): Promise<StoredVolume> {
    const createObject = (failed?: LvmVolume) => {
      if (isRecorded) throw recordedFailure(request.id, failed);
      return this.#createObject(request, choice, intentAnnotations(claim));
    };
    let object = this.#volumes.get(request.id) ?? await createObject();
    this.#objects.requireOurs(object);
    const isLeftover = object.status?.state === "Failed" || this.#objects.isStranded(object);
    if (isDeleting(object) || (!isCreated(object) && isLeftover)) {
      await this.#objects.undo(object); // an earlier attempt left it; the next one may choose another node
      object = await createObject(object);
    }
    this.#objects.requireOurs(object);
    requireCompatible(object, request, choice.allowed);
    await this.#prepareTransfer(object, request);
    const created = await this.#objects.waitObserved("creating", object).catch((error) => {
      throw this.#withCopyProgress(request, error);
    });
    const { state, error } = created.status!;
    if (state === "Ready") {
      this.#refusedBy.delete(request.id);
      requireCompatible(created, request, choice.allowed);
      return clusterVolumeOf(created);
    }
    const refusal = reportedError(error ?? { code: "CommandFailed", message: `the volume is ${state}` });
    if (created.status?.lvUUID === undefined) {
      if (refusal.kind === "NoSpace") this.#noteRefusal(created);
      await this.#objects.undo(created);
    }
    throw refusal;
  }

  /**
   * Writes the LVMVolume of a volume that is filled from several snapshots of another node, unless one exists. Nothing waits
   * for its agent: what becomes of it, its status says.
   *
   * @throws {StorageError} `NoSpace`; `Unavailable`; `NotFound` or `Lost` for its source
   */
  async begin(request: NamedVolumeRequest & { readonly goal: CopyGoal }, choice: NodeChoice): Promise<void> {
    this.#objects.requireOurs(this.#volumes.get(request.id) ?? await this.#createObject(request, choice, {}));
  }

  /**
   * Deletes a volume. A volume that does not exist is deleted already.
   *
   * @param expected.uid the uid of its LVMVolume; another one of the name stays
   * @param expected.onlyIf what must hold until the API server deletes it
   * @throws {StorageError} `InUse` while it has snapshots; `Busy` while it is copied; the error that the node reported;
   * `Unavailable` while the node does not answer
   */
  async delete(id: VolumeId, { uid, onlyIf }: ExpectedVolume = {}): Promise<void> {
    const object = await (uid === undefined ? this.#objects.find(id) : this.#objects.read(id));
    if (object === undefined || (uid ?? object.metadata.uid) !== object.metadata.uid) return;
    this.#objects.requireOurs(object);
    this.refuseWhileCopied({ kind: "volume", id }, `deleting volume ${id}`);
    if (!object.spec.thinProvision) this.#dependents.requireNoSnapshots(id); // thin snapshots do not need their volume
    await this.#objects.delete(object, defined({ onlyIf }));
  }

  /**
   * Expands a volume to at least the requested size; it never shrinks. When the node cannot reach the size, the
   * LVMVolume's `spec.size` is reset to the actual one before this fails.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `OutOfRange`, `Unavailable`, or the error that the node reported
   */
  async expand(id: VolumeId, range: SizeRange): Promise<StoredVolume> {
    const volume = await this.get(id);
    if (range.limit !== undefined && volume.size > range.limit) {
      throw new StorageError(
        "OutOfRange",
        `expanding volume ${id}: it has ${volume.size} bytes, above the limit of ${range.limit}`,
      );
    }
    if (volume.size >= range.required) return volume;
    this.refuseWhileMoved(id, `expanding volume ${id}`);
    this.refuseWhileCopied({ kind: "volume", id }, `expanding volume ${id}`);
    const sizeLimit = range.limit === undefined ? null : formatQuantity(range.limit);
    const patched = await this.#patchSpec("expanding", id, { size: formatQuantity(range.required), sizeLimit });
    const expanded = await this.#objects.waitObserved("expanding", patched);
    if ((actualSize(expanded) ?? 0n) >= range.required) return clusterVolumeOf(expanded);
    const error = expanded.status?.error ?? {
      code: "OutOfRange" as const,
      message: `expanding volume ${id}: it has ${formatBytes(volume.size)} (requested: ${formatBytes(range.required)})`,
    };
    await this.#revertSize(expanded);
    throw reportedError(error);
  }

  /**
   * Records IO limits of the volume in place of those with the same names; the others stay. The agent of its node
   * applies them to the pods that use the volume, and to later ones.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `Unavailable`
   */
  async setLimits(id: VolumeId, limits: IoLimits): Promise<void> {
    await this.get(id);
    if (!hasLimits(limits)) return;
    this.refuseWhileMoved(id, `limiting volume ${id}`); // it may be created again by what was recorded
    // even when the cache shows these limits already: it may be stale
    await this.#patchSpec("limiting", id, { ioLimits: ioLimitsPatch(limits) });
  }

  /** Returns a volume. @throws {StorageError} `NotFound` or `Lost`. */
  async get(id: VolumeId): Promise<StoredVolume> {
    const object = await this.#objects.find(id);
    if (object?.status?.state === "Lost") {
      const { message = `volume ${id} is Lost`, reason } = object.status.error ?? {};
      throw reportedError({ code: "Lost", message, ...defined({ reason }) });
    }
    return clusterVolumeOf(this.#requireCreated(id, object));
  }

  /** Returns all created volumes, in the order of their ids. */
  list(): Promise<StoredVolume[]> {
    return Promise.resolve(this.#createdObjects().map(clusterVolumeOf));
  }

  /**
   * Returns the health of a volume, as its node reported it. A lost volume is reported in its health, and is no
   * failure.
   *
   * @throws {StorageError} `NotFound`.
   */
  async health(id: VolumeId): Promise<VolumeHealth> {
    return this.#volumeHealth(this.#requireCreated(id, await this.#objects.find(id)));
  }

  /** Returns the health of all volumes with problems, in the order of their ids. */
  listUnhealthy(): Promise<VolumeHealth[]> {
    const all = this.#createdObjects().map((object) => this.#volumeHealth(object));
    return Promise.resolve(all.filter(({ problems }) => problems.length > 0));
  }

  /** Returns the capacity of the groups for such volumes, on a node or, without one, on all nodes. */
  capacity(wanted: CapacityRequest, nodeId?: string): Promise<GroupCapacity> {
    return Promise.resolve(totalCapacity(wanted, this.#capacities.list(nodeId === undefined ? undefined : [nodeId])));
  }

  /** Requires that a volume is not being moved to another node. @throws {StorageError} `Busy` */
  refuseWhileMoved(id: VolumeId, operation: string): void {
    if (!this.#volumes.get(id)?.spec.held) return;
    throw new StorageError("Busy", `${operation}: it is being moved to another node; wait, or delete LVMMove ${id}`);
  }

  /** Requires that no volume is being created from a source. @throws {StorageError} `Busy` */
  refuseWhileCopied(source: ContentSource, operation: string): void {
    this.#dependents.refuseWhileCopied(source, operation);
  }

  #volumeHealth(object: LvmVolume): VolumeHealth {
    return volumeHealthOf(object, this.#objects.hasAgent(object.spec.nodeName));
  }

  /** Returns the objects of all volumes that were created, in the order of their names. */
  #createdObjects(): LvmVolume[] {
    const ours = this.#volumes.list().filter((object) =>
      this.#objects.isOurs(object) && isCreated(object) && !isDeleting(object)
    );
    return ours.sort((a, b) => a.metadata.name < b.metadata.name ? -1 : 1);
  }

  /** Requires that a volume was created. @throws {StorageError} `NotFound`. */
  #requireCreated(id: VolumeId, object: LvmVolume | undefined): LvmVolume {
    if (object === undefined || isDeleting(object) || !isCreated(object)) {
      throw new StorageError("NotFound", `looking for volume ${id}: no LVMVolume of that name is Ready`);
    }
    this.#objects.requireOurs(object);
    return object;
  }

  /** Returns the error for a volume that its node has not finished: with its progress, if it is being copied. */
  #withCopyProgress({ id, source }: NamedVolumeRequest, error: unknown): unknown {
    const { copy } = this.#volumes.get(id)?.status ?? {};
    if (copy === undefined || !(error instanceof StorageError && error.kind === "Unavailable")) return error;
    const { copied, total = "?", lastError } = copy;
    return new StorageError(
      "Busy",
      `creating volume ${id} from ${describeSource(source)}: ${copied} of ${total} copied${
        lastError ? `; ${lastError}` : ""
      }`,
    );
  }

  /** Returns the first node of the choices with enough space. @throws {StorageError} `NoSpace` or `OutOfRange` */
  #chooseNode({ request, choices }: Placement): string {
    const refusedBy = this.#refusedBy.get(request.id);
    let refusal: unknown;
    for (const choice of choices) {
      try {
        this.#capacities.requireResponsiveAgent(`choosing a node for volume ${request.id}`, choice);
        const allowed = this.#capacities.list(choice.allowed);
        // the error for no allowed node lists the others
        return chooseNode(request, choice, allowed.length > 0 ? allowed : this.#capacities.list(), refusedBy);
      } catch (error) {
        refusal ??= error;
      }
    }
    throw refusal;
  }

  /** Notes that a node has refused a volume for its space: another one is tried first. */
  #noteRefusal({ metadata: { name }, spec: { nodeName } }: LvmVolume): void {
    const id = name as VolumeId;
    const refusedBy = this.#refusedBy.get(id) ?? new Set();
    this.#refusedBy.delete(id); // the volume becomes the newest
    this.#refusedBy.set(id, refusedBy.add(nodeName));
    const [oldest] = this.#refusedBy.keys();
    if (this.#refusedBy.size > MAX_REFUSED) this.#refusedBy.delete(oldest!);
  }

  /** Lets the source be read on its own node. What cannot be done at all leaves no LVMVolume. */
  async #prepareTransfer(object: LvmVolume, { id, source }: NamedVolumeRequest): Promise<void> {
    if (object.spec.sourceNode === undefined || source === undefined || isCreated(object)) return;
    try {
      if (this.#transfers === undefined) throw new StorageError("Unavailable", `creating volume ${id}: no transfers`);
      await this.#transfers.prepare(id, source, object.spec.nodeName);
    } catch (error) {
      const passes = error instanceof StorageError && ["Unavailable", "Busy", "StillRunning"].includes(error.kind);
      if (!passes) await this.#objects.undo(object);
      throw error;
    }
  }

  /**
   * Chooses a node and creates the LVMVolume, or returns the existing one of its name. From the choice on, the volume's
   * size counts as pending space of the node.
   */
  async #createObject(
    requested: NamedVolumeRequest,
    requestedChoice: NodeChoice,
    annotations: Readonly<Record<string, string>>,
  ): Promise<LvmVolume> {
    const placement = await placeNearSource(requested, requestedChoice, {
      ...this.#options,
      get: (id) => this.get(id),
    });
    const { request } = placement;
    const nodeName = this.#chooseNode(placement);
    const object = lvmVolumeFor(request, { driver: this.#driver, nodeName });
    Object.assign(object.metadata.annotations!, annotations);
    using _assumed = this.#capacities.assume(object);
    const written = await this.#objects.createOrGet(object);
    const isCached = (now?: LvmVolume) => now?.metadata.uid === written.metadata.uid;
    await this.#volumes.waitForCache(request.id, isCached, { timeoutMs: CACHE_WAIT_MS });
    return written;
  }

  /** Changes what a volume should be. @throws {StorageError} `Unavailable` when it may have been changed or not */
  async #patchSpec(operation: string, name: VolumeId, spec: MergePatch<LvmVolumeSpec>): Promise<LvmVolume> {
    try {
      const merge = { metadata: { annotations: requestAnnotations() }, spec };
      return await this.#client.patch(lvmVolumes, { name }, { merge });
    } catch (error) {
      throw asWriteError(`${operation} volume ${name}`, error);
    }
  }

  /** Resets the requested size to the actual one, so that a later request can be smaller than the one that failed. */
  async #revertSize({ metadata: { name, generation }, status }: LvmVolume): Promise<void> {
    if (status?.size === undefined) return;
    const merge = { spec: { size: status.size, sizeLimit: null } };
    // Only while nobody changes the spec: a write of the status changes the resourceVersion, but not the generation.
    let now = this.#volumes.get(name);
    for (let attempt = 1; now?.metadata.generation === generation; attempt++) {
      const { resourceVersion } = now!.metadata;
      try {
        await this.#client.patch(lvmVolumes, { name }, { merge, resourceVersion });
        return;
      } catch (error) {
        if (isNotFound(error)) return;
        if (!isConflict(error) || attempt === MAX_ATTEMPTS) throw asUnavailable(`expanding volume ${name}`, error);
        now = await this.#objects.read(name);
      }
    }
  }
}

/** Returns the failure of a request that another process began, and whose volume failed or is gone. */
function recordedFailure(id: VolumeId, failed: LvmVolume | undefined): StorageError {
  const error = failed?.status?.error ??
    { code: "NoSpace" as const, message: "its node does not create it, and another one is chosen" };
  return reportedError({ ...error, message: `creating volume ${id}, which was requested before: ${error.message}` });
}
