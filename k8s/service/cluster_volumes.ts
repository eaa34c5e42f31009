/**
 * The volumes of the cluster, for the Controller service: each is an LVMVolume, which its node makes true.
 *
 * @module
 */

import { copyRange, type SourceFacts } from "../../lvm/copies/rules.ts";
import { type ErrorKind, StorageError } from "../../lvm/error.ts";
import type { FilesystemType } from "../../lvm/spec/filesystem.ts";
import type { GroupCapacity } from "../../lvm/model/groups.ts";
import type { VolumeHealth } from "../../lvm/health/health.ts";
import { type IoLimits, isLimited } from "../../lvm/spec/io_limits.ts";
import type { VolumeId } from "../../lvm/ids.ts";
import { formatBytes, formatQuantity, type SizeRange } from "../../lvm/size.ts";
import { type ContentSource, describeSource } from "../../lvm/model/tags.ts";
import type { CapacityRequest } from "../../lvm/inventory/volume.ts";
import { type ApiClient, isConflict, isNotFound } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import {
  LVM_VOLUME_FINALIZER,
  type LvmNode,
  type LvmSnapshot,
  type LvmVolume,
  lvmVolumes,
} from "../api/lvm_objects.ts";
import { isDeleting, NodeObjects, unavailable } from "./remote_objects.ts";
import { chooseNode, nodeCapacity, type NodeChoice } from "../scheduling/placement.ts";
import { type ParseGroups, Rooms } from "../scheduling/free_capacity.ts";
import { keepsSource, snapshotOf } from "../api/snapshot_mapping.ts";
import { volumeHealthOf } from "./volume_health.ts";
import {
  actualSize,
  ioLimitsPatch,
  lvmVolumeFor,
  type NamedRequest,
  requireSatisfying,
  sourceOf,
} from "../api/volume_mapping.ts";

/** A volume that exists. */
export interface ClusterVolume {
  /** Its id. */
  readonly id: VolumeId;
  /** Its size in bytes. */
  readonly size: bigint;
  /** What it was made for: a filesystem, or use as a block device. */
  readonly content: FilesystemType | "raw";
  /** The node that it is on. */
  readonly nodeId: string;
  /** What it was made from; nothing, for a volume that was made empty. */
  readonly source?: ContentSource;
}

/** What {@linkcode ClusterVolumes} needs. */
export interface ClusterVolumesOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driver: string;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
  /** All LVMSnapshots. */
  readonly snapshots: Informer<LvmSnapshot>;
  /** All LVMNodes. */
  readonly nodes: Informer<LvmNode>;
  /** Reads a list of volume groups. */
  readonly parseGroups: ParseGroups;
  /** How long a call waits for a node, in milliseconds. */
  readonly waitMs: number;
  /** Annotations for the object of a request's name; none by default. */
  readonly annotations?: (requestName: string) => Readonly<Record<string, string>>;
}

/** How often a change is tried against changes of the status. */
const TRIES = 5;

/** How long a new object is waited for to be seen, in milliseconds, so that the next volume is placed with it in mind. */
const SEEN_MS = 5_000;

/** The volumes of one driver in the cluster. */
export class ClusterVolumes {
  readonly #client: ApiClient;
  readonly #driver: string;
  readonly #volumes: Informer<LvmVolume>;
  readonly #snapshots: Informer<LvmSnapshot>;
  readonly #rooms: Rooms;
  readonly #objects: NodeObjects<LvmVolume>;
  readonly #annotations: (requestName: string) => Readonly<Record<string, string>>;

  /** Makes the service; it keeps nothing but what is being written. */
  constructor(options: ClusterVolumesOptions) {
    this.#client = options.client;
    this.#driver = options.driver;
    this.#volumes = options.volumes;
    this.#snapshots = options.snapshots;
    this.#rooms = new Rooms(options);
    this.#objects = new NodeObjects({
      ...options,
      what: "volume",
      objects: options.volumes,
      finalizer: LVM_VOLUME_FINALIZER,
    });
    this.#annotations = options.annotations ?? (() => ({}));
  }

  /**
   * Has the volume made that the request describes, unless one exists that satisfies it. When it cannot be made, nothing of
   * it is left when this fails; while that is in doubt, it fails with `Unavailable`, and while it is being filled with `Busy`.
   *
   * @throws {StorageError} what the node said, `AlreadyExists`, `NoSpace`, `Unavailable`; `NotFound` and the like for its source.
   */
  async create(request: NamedRequest, choice: NodeChoice): Promise<ClusterVolume> {
    let object = this.#volumes.get(request.id) ?? await this.#write(request, choice);
    const left = object.status?.state === "Failed" || !this.#objects.hasAgent(object.spec.nodeName);
    if (isDeleting(object) || (!isMade(object) && left)) {
      await this.#objects.undo(object); // what an earlier try left: it may be made anew, on another node
      object = await this.#write(request, choice);
    }
    this.#objects.requireOurs(object);
    requireSatisfying(object, request, choice.allowed);
    const made = await this.#objects.settled("creating", object).catch((error) => {
      throw this.#inProgress(request, error);
    });
    const { state, error } = made.status!;
    if (state === "Ready") {
      requireSatisfying(made, request, choice.allowed);
      return stored(made);
    }
    const refusal = new StorageError(error?.code ?? "CommandFailed", error?.message ?? `the volume is ${state}`);
    if (made.status?.lvUUID === undefined) await this.#objects.undo(made);
    throw refusal;
  }

  /**
   * Has the volume deleted; one that does not exist is deleted already.
   *
   * @throws {StorageError} `InUse` while it has snapshots or is copied; what the node said; `Unavailable` while the node does
   * not answer.
   */
  async delete(id: VolumeId): Promise<void> {
    const object = await this.#objects.find(id);
    if (object === undefined) return;
    this.#objects.requireOurs(object);
    this.refuseWhileCopied({ of: "volume", id }, `deleting volume ${id}`);
    if (!object.spec.thinProvision) this.#requireNoSnapshots(id); // thin ones do not need their volume
    await this.#objects.delete(object);
  }

  /**
   * Has the volume grown to at least the size asked for; it never shrinks. What could not be had is not asked for any longer
   * when this fails.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `OutOfRange`, what the node said, `Unavailable`.
   */
  async expand(id: VolumeId, range: SizeRange): Promise<ClusterVolume> {
    const volume = await this.get(id);
    if (range.limit !== undefined && volume.size > range.limit) {
      throw new StorageError(
        "OutOfRange",
        `growing volume ${id}: it has ${volume.size} bytes, above the limit of ${range.limit}`,
      );
    }
    if (volume.size >= range.required) return volume;
    this.refuseWhileCopied({ of: "volume", id }, `growing volume ${id}`, "Busy");
    const limit = range.limit === undefined ? null : formatQuantity(range.limit);
    const asked = await this.#client.patch(lvmVolumes, { name: id }, {
      merge: { spec: { size: formatQuantity(range.required), limit } },
    });
    const grown = await this.#objects.settled("growing", asked);
    if ((actualSize(grown) ?? 0n) >= range.required) return stored(grown);
    const { code, message } = grown.status?.error ?? {
      code: "OutOfRange" as const,
      message: `growing volume ${id}: it has ${formatBytes(volume.size)}, asked for are ${formatBytes(range.required)}`,
    };
    await this.#takeBack(grown);
    throw new StorageError(code, message);
  }

  /**
   * Records limits of the volume's IO in place of those of the same names; the others stay. Its node applies them to the pods
   * that have it, and to those that come.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `Unavailable`.
   */
  async limit(id: VolumeId, limits: IoLimits): Promise<void> {
    await this.get(id);
    if (!isLimited(limits)) return;
    try {
      // whatever the copy shows: it may be from before another change
      await this.#client.patch(lvmVolumes, { name: id }, { merge: { spec: { ioLimits: ioLimitsPatch(limits) } } });
    } catch (error) {
      throw unavailable(`limiting volume ${id}`, error);
    }
  }

  /** The volume. @throws {StorageError} `NotFound` or `Lost`. */
  async get(id: VolumeId): Promise<ClusterVolume> {
    const object = await this.#objects.find(id);
    if (object?.status?.state === "Lost") {
      throw new StorageError("Lost", object.status.error?.message ?? `volume ${id} is Lost`);
    }
    return stored(this.#requireMade(id, object));
  }

  /** All volumes that were made, in the order of their ids. */
  list(): Promise<ClusterVolume[]> {
    return Promise.resolve(this.#made().map(stored));
  }

  /**
   * The health of the volume, as its node has told it. That it is Lost is its health, and no failure.
   *
   * @throws {StorageError} `NotFound`.
   */
  async health(id: VolumeId): Promise<VolumeHealth> {
    return this.#healthOf(this.#requireMade(id, await this.#objects.find(id)));
  }

  /** The health of all volumes with which something is wrong, in the order of their ids. */
  unhealthy(): Promise<VolumeHealth[]> {
    const all = this.#made().map((object) => this.#healthOf(object));
    return Promise.resolve(all.filter(({ problems }) => problems.length > 0));
  }

  /** What groups could still take of such volumes, on the node or, without one, on all of them. */
  capacity(wanted: CapacityRequest, nodeId?: string): Promise<GroupCapacity> {
    return Promise.resolve(nodeCapacity(wanted, this.#rooms.list(nodeId)));
  }

  /**
   * Makes sure that nothing is being made from a source.
   *
   * @throws {StorageError} `InUse`, or the kind asked for, which names what is made.
   */
  refuseWhileCopied(source: ContentSource, doing: string, kind: ErrorKind = "InUse"): void {
    const copies = this.#volumes.list().filter((object) =>
      this.#objects.isOurs(object) && object.spec.source?.[source.of] === source.id && !isMade(object) &&
      object.status?.state !== "Failed"
    );
    if (copies.length === 0) return;
    const names = copies.map(({ metadata: { name } }) => name).sort().join(", ");
    throw new StorageError(
      kind,
      `${doing}: volume ${names} is being made from it; wait until that is done, or delete that`,
    );
  }

  #healthOf(object: LvmVolume): VolumeHealth {
    return volumeHealthOf(object, this.#objects.hasAgent(object.spec.nodeName));
  }

  /** The objects of all volumes that were made, in the order of their names. */
  #made(): LvmVolume[] {
    const ours = this.#volumes.list().filter((object) =>
      this.#objects.isOurs(object) && isMade(object) && !isDeleting(object)
    );
    return ours.sort((a, b) => a.metadata.name < b.metadata.name ? -1 : 1);
  }

  /** The object, if it is one of a volume that was made. @throws {StorageError} `NotFound`. */
  #requireMade(id: VolumeId, object: LvmVolume | undefined): LvmVolume {
    if (object === undefined || isDeleting(object) || !isMade(object)) {
      throw new StorageError("NotFound", `looking for volume ${id}: there is no LVMVolume of that name that is Ready`);
    }
    this.#objects.requireOurs(object);
    return object;
  }

  /** What is told of a volume that its node has not finished: if it is being filled, how far that is. */
  #inProgress({ id, source }: NamedRequest, error: unknown): unknown {
    const { copy } = this.#volumes.get(id)?.status ?? {};
    if (copy === undefined || !(error instanceof StorageError && error.kind === "Unavailable")) return error;
    const { copied, total = "?", trouble } = copy;
    return new StorageError(
      "Busy",
      `creating volume ${id} from ${describeSource(source)}: ${copied} of ${total} copied${
        trouble ? `; ${trouble}` : ""
      }`,
    );
  }

  /** Where a source is, and what is known of it. @throws {StorageError} */
  async #source({ of, id }: ContentSource): Promise<SourceFacts & { nodeName: string }> {
    if (of === "volume") {
      const { size, content, nodeId } = await this.get(id);
      return { size, content, nodeName: nodeId };
    }
    const object = this.#snapshots.get(id);
    const snapshot = object === undefined || isDeleting(object) ? undefined : snapshotOf(object);
    if (object === undefined || snapshot === undefined || object.spec.driverName !== this.#driver) {
      throw new StorageError(
        "NotFound",
        `looking for snapshot ${id}: there is no LVMSnapshot of that name that was taken`,
      );
    }
    if (!snapshot.ready) {
      throw new StorageError(
        "FailedPrecondition",
        `using snapshot ${id}: its content is gone; it is ${object.status?.state}`,
      );
    }
    const volume = this.#volumes.get(snapshot.source);
    const content = volume === undefined ? {} : { content: contentOf(volume) };
    return { size: snapshot.size, nodeName: object.spec.nodeName, ...content };
  }

  /** The request for a copy, with the size and the node that its source asks for. @throws {StorageError} */
  async #besideSource(request: NamedRequest, choice: NodeChoice): Promise<[NamedRequest, NodeChoice]> {
    const { id, source } = request;
    if (source === undefined) return [request, choice];
    const { nodeName, ...facts } = await this.#source(source);
    const range = copyRange({ ...request, source }, facts);
    if (choice.allowed?.includes(nodeName) ?? true) {
      return [{ ...request, range }, { allowed: [nodeName], preferred: [] }];
    }
    throw new StorageError(
      "NoSpace",
      `creating volume ${id} from ${
        describeSource(source)
      }: that is on node ${nodeName}, and what is made from it is made ` +
        `there; asked for is ${choice.allowed!.join(" or ")}`,
    );
  }

  /** The node refuses as well, but what it refuses is being deleted by then, and cannot be used any more. */
  #requireNoSnapshots(id: VolumeId): void {
    const snapshots = this.#snapshots.list().filter((snapshot) =>
      snapshot.spec.driverName === this.#driver && snapshot.spec.sourceVolume === id && keepsSource(snapshot)
    );
    if (snapshots.length === 0) return;
    const names = snapshots.map(({ metadata: { name }, status }) => `${name} (${status?.lvName ?? "not taken yet"})`);
    throw new StorageError(
      "InUse",
      `deleting volume ${id}: it is the origin of the snapshots ${names.sort().join(", ")}; delete them first`,
    );
  }

  /** Writes the object, or answers the one that is there. Its room is taken from the moment of the choice on. */
  async #write(asked: NamedRequest, wanted: NodeChoice): Promise<LvmVolume> {
    const [request, choice] = await this.#besideSource(asked, wanted);
    const nodeName = chooseNode(request, choice, this.#rooms.list());
    const object = lvmVolumeFor(request, { driver: this.#driver, nodeName });
    object.metadata.annotations = { ...this.#annotations(request.name) };
    using _expected = this.#rooms.expect(object);
    const written = await this.#objects.write(object);
    const isSeen = (now?: LvmVolume) => now?.metadata.uid === written.metadata.uid;
    await this.#volumes.seen(request.id, isSeen, { timeoutMs: SEEN_MS });
    return written;
  }

  /** Asks for the size that it has, so that a later request can be smaller than the one that failed. */
  async #takeBack({ metadata: { name, generation }, status }: LvmVolume): Promise<void> {
    if (status?.size === undefined) return;
    const merge = { spec: { size: status.size, limit: null } };
    // while nobody asked anew: what its node writes changes the revision, and not the generation
    let now = this.#volumes.get(name);
    for (let tries = 1; now?.metadata.generation === generation; tries++) {
      const { resourceVersion } = now!.metadata;
      try {
        await this.#client.patch(lvmVolumes, { name }, { merge, resourceVersion });
        return;
      } catch (error) {
        if (isNotFound(error)) return;
        if (!isConflict(error) || tries === TRIES) throw unavailable(`growing volume ${name}`, error);
        now = await this.#objects.read(name);
      }
    }
  }
}

function isMade({ status }: LvmVolume): boolean {
  return status?.lvUUID !== undefined && status.size !== undefined;
}

function stored(object: LvmVolume): ClusterVolume {
  const { metadata: { name }, spec } = object;
  const source = sourceOf(object);
  return {
    id: name as VolumeId, // the API server takes no other name
    size: actualSize(object) ?? 0n,
    content: contentOf(object),
    nodeId: spec.nodeName,
    ...(source && { source }),
  };
}

function contentOf({ spec: { volumeMode, fsType } }: LvmVolume): FilesystemType | "raw" {
  return volumeMode === "Block" || fsType === undefined ? "raw" : fsType;
}
