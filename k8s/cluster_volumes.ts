/**
 * The volumes of the cluster, for the Controller service: each is an LVMVolume, which its node makes true.
 *
 * The object is written before anything is made, and is gone only when nothing is left, so whoever dies in between finds it
 * again. Completion arrives by watch.
 *
 * @module
 */

import { StorageError } from "../lvm/error.ts";
import type { FilesystemType } from "../lvm/filesystem.ts";
import type { GroupCapacity, GroupMatcher } from "../lvm/groups.ts";
import type { VolumeId } from "../lvm/ids.ts";
import { formatBytes, formatQuantity, type SizeRange } from "../lvm/size.ts";
import { type ApiClient, isAlreadyExists, isConflict, isNotFound } from "./client.ts";
import type { Informer } from "./informer.ts";
import {
  isForgotten,
  LVM_VOLUME_FINALIZER,
  type LvmNode,
  type LvmVolume,
  lvmVolumes,
  REMOVE_ANNOTATION,
} from "./lvm_objects.ts";
import { chooseNode, nodeCapacity, type NodeChoice } from "./placement.ts";
import { type ParseGroups, Rooms } from "./rooms.ts";
import { actualSize, lvmVolumeFor, type NamedRequest, requireSatisfying } from "./volume_spec.ts";

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
}

/** What {@linkcode ClusterVolumes} needs. */
export interface ClusterVolumesOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driver: string;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
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
  readonly #nodes: Informer<LvmNode>;
  readonly #rooms: Rooms;
  readonly #waitMs: number;
  readonly #annotations: (requestName: string) => Readonly<Record<string, string>>;

  /** Makes the service; it keeps nothing but what is being written. */
  constructor(options: ClusterVolumesOptions) {
    this.#client = options.client;
    this.#driver = options.driver;
    this.#volumes = options.volumes;
    this.#nodes = options.nodes;
    this.#rooms = new Rooms(options);
    this.#waitMs = options.waitMs;
    this.#annotations = options.annotations ?? (() => ({}));
  }

  /**
   * Has the volume made that the request describes, unless one exists that satisfies it. When it cannot be made, nothing of
   * it is left when this fails; while that is in doubt, it fails with `Unavailable`.
   *
   * @throws {StorageError} what the node said, `AlreadyExists`, `NoSpace`, `Unavailable`.
   */
  async create(request: NamedRequest, choice: NodeChoice): Promise<ClusterVolume> {
    let object = this.#volumes.get(request.id) ?? await this.#write(request, choice);
    if (isDeleting(object) || (!isMade(object) && (object.status?.state === "Failed" || this.#isDeserted(object)))) {
      await this.#undo(object); // what an earlier try left: it may be made anew, on another node
      object = await this.#write(request, choice);
    }
    this.#requireOurs(object);
    requireSatisfying(object, request, choice.allowed);
    const made = await this.#settled("creating", object);
    const { state, error } = made.status!;
    if (state === "Ready") {
      requireSatisfying(made, request, choice.allowed);
      return stored(made);
    }
    const refusal = new StorageError(error?.code ?? "CommandFailed", error?.message ?? `the volume is ${state}`);
    if (made.status?.lvUUID === undefined) await this.#undo(made);
    throw refusal;
  }

  /**
   * Has the volume deleted; one that does not exist is deleted already.
   *
   * @throws {StorageError} what the node said, such as `InUse`; `Unavailable` while the node does not answer.
   */
  async delete(id: VolumeId): Promise<void> {
    const object = this.#volumes.get(id) ?? await this.#read(id);
    if (object === undefined) return;
    this.#requireOurs(object);
    const left = await this.#dispose("deleting", object, refusesToGo);
    if (isGone(left, object)) return;
    const { code, message } = left!.status!.error!;
    throw new StorageError(code, message);
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
    const limit = range.limit === undefined ? null : formatQuantity(range.limit);
    const asked = await this.#client.patch(lvmVolumes, { name: id }, {
      merge: { spec: { size: formatQuantity(range.required), limit } },
    });
    const grown = await this.#settled("growing", asked);
    if ((actualSize(grown) ?? 0n) >= range.required) return stored(grown);
    const { code, message } = grown.status?.error ?? {
      code: "OutOfRange" as const,
      message: `growing volume ${id}: it has ${formatBytes(volume.size)}, asked for are ${formatBytes(range.required)}`,
    };
    await this.#takeBack(grown);
    throw new StorageError(code, message);
  }

  /** The volume. @throws {StorageError} `NotFound` or `Lost`. */
  async get(id: VolumeId): Promise<ClusterVolume> {
    const object = this.#volumes.get(id) ?? await this.#read(id);
    if (object?.status?.state === "Lost") {
      throw new StorageError("Lost", object.status.error?.message ?? `volume ${id} is Lost`);
    }
    if (object === undefined || isDeleting(object) || !isMade(object)) {
      throw new StorageError("NotFound", `looking for volume ${id}: there is no LVMVolume of that name that is Ready`);
    }
    this.#requireOurs(object);
    return stored(object);
  }

  /** All volumes that were made, in the order of their ids. */
  list(): Promise<ClusterVolume[]> {
    const ours = this.#volumes.list().filter((object) =>
      object.spec.driverName === this.#driver && isMade(object) && !isDeleting(object)
    );
    return Promise.resolve(ours.map(stored).sort((a, b) => a.id < b.id ? -1 : 1));
  }

  /** What groups that match could still take, on the node or, without one, on all of them. */
  capacity(groups: GroupMatcher, nodeId?: string): Promise<GroupCapacity> {
    return Promise.resolve(nodeCapacity(groups, this.#rooms.list(nodeId)));
  }

  async #read(id: VolumeId): Promise<LvmVolume | undefined> {
    try {
      return await this.#client.get(lvmVolumes, { name: id });
    } catch (error) {
      if (isNotFound(error)) return undefined;
      throw unavailable(`looking for volume ${id}`, error);
    }
  }

  /** Writes the object, or answers the one that is there. Its room is taken from the moment of the choice on. */
  async #write(request: NamedRequest, choice: NodeChoice): Promise<LvmVolume> {
    const nodeName = chooseNode(request, choice, this.#rooms.list());
    const object = lvmVolumeFor(request, { driver: this.#driver, nodeName });
    object.metadata.annotations = { ...this.#annotations(request.name) };
    using _expected = this.#rooms.expect(object);
    try {
      const made = await this.#client.create(lvmVolumes, object);
      await this.#volumes.seen(request.id, () => this.#isSeen(made), { timeoutMs: SEEN_MS });
      return made;
    } catch (error) {
      if (!isAlreadyExists(error)) throw unavailable(`creating volume ${request.id}`, error);
    }
    const existing = await this.#read(request.id);
    if (existing !== undefined) return existing;
    throw new StorageError("Unavailable", `creating volume ${request.id}: its LVMVolume came and went; try again`);
  }

  /** The object once its node has said what it made of its present generation. */
  async #settled(doing: string, object: LvmVolume): Promise<LvmVolume> {
    const { generation = 0 } = object.metadata;
    const now = await this.#wait(doing, object, (now) => {
      const { status } = now ?? {};
      if (status === undefined || status.state === undefined || status.state === "Pending") return isGone(now, object);
      return isGone(now, object) || ((status.observedGeneration ?? 0) >= generation);
    });
    if (!isGone(now, object)) return now!;
    throw new StorageError(
      "Unavailable",
      `${doing} volume ${object.metadata.name}: it was deleted meanwhile; try again`,
    );
  }

  /** Whether the copy has the object: then its absence later on means that it is gone. */
  #isSeen({ metadata: { name, uid } }: LvmVolume): boolean {
    return this.#volumes.get(name)?.metadata.uid === uid;
  }

  /** Waits for the object to be so. As long as the copy has not seen it, its absence means nothing. */
  async #wait(
    doing: string,
    object: LvmVolume,
    predicate: (now: LvmVolume | undefined) => boolean,
    { seen = this.#isSeen(object), timeoutMs = this.#isDeserted(object) ? 0 : this.#waitMs } = {},
  ): Promise<LvmVolume | undefined> {
    const { name, uid } = object.metadata;
    const { nodeName } = object.spec;
    try {
      return await this.#volumes.waitFor(name, (now) => {
        seen ||= now?.metadata.uid === uid;
        return seen && predicate(now);
      }, { timeoutMs });
    } catch (cause) {
      const why = this.#isDeserted(object)
        ? `node ${nodeName} has no agent of the driver (no LVMNode ${nodeName})`
        : `the agent of node ${nodeName} has not answered within ${this.#waitMs / 1000} s; see its log`;
      throw new StorageError("Unavailable", `${doing} volume ${name}: ${why}. It goes on when the agent is back`, {
        cause,
      });
    }
  }

  /** Has what was begun removed, and resolves when nothing of it is left. */
  async #undo(object: LvmVolume): Promise<void> {
    await this.#dispose("undoing", object, () => false);
  }

  /**
   * Has the volume removed, and waits until it is gone, or until its node refuses. In the stead of a node that is gone, what was
   * never made is let go, and what an administrator forgot.
   */
  async #dispose(
    doing: string,
    object: LvmVolume,
    refuses: (now: LvmVolume) => boolean,
  ): Promise<LvmVolume | undefined> {
    const seen = this.#isSeen(object);
    await this.#remove(object);
    const abandoned = this.#isDeserted(object) && (!isMade(object) || isForgotten(object));
    if (!abandoned) return await this.#wait(doing, object, (now) => isGone(now, object) || refuses(now!), { seen });
    await this.#letGo(object);
    return await this.#wait(doing, object, (now) => isGone(now, object), { seen, timeoutMs: this.#waitMs });
  }

  /**
   * Says that the LV is to go, and deletes the object; the node lets that go when the LV is gone. An object that was written by
   * hand may lack the finalizer: it would go at once and leave the LV behind.
   */
  async #remove({ metadata }: LvmVolume): Promise<void> {
    const { name, uid, annotations, deletionTimestamp, finalizers = [] } = metadata;
    const unguarded = deletionTimestamp === undefined && !finalizers.includes(LVM_VOLUME_FINALIZER);
    const guard = unguarded ? { finalizers: [...finalizers, LVM_VOLUME_FINALIZER] } : {};
    try {
      if (annotations?.[REMOVE_ANNOTATION] === undefined || unguarded) {
        const merge = { metadata: { uid, annotations: { [REMOVE_ANNOTATION]: "true" }, ...guard } };
        await this.#client.patch(lvmVolumes, { name }, { merge });
      }
      if (deletionTimestamp === undefined) await this.#client.delete(lvmVolumes, { name }, { uid });
    } catch (error) {
      // another one of the name is none of this call's business
      if (!isNotFound(error) && !isConflict(error)) throw unavailable(`deleting volume ${name}`, error);
    }
  }

  /** Whether there is no agent any more that could make it or remove it. */
  #isDeserted({ spec: { nodeName } }: LvmVolume): boolean {
    return this.#nodes.get(nodeName) === undefined;
  }

  /** Takes the finalizer off in the stead of a node that is gone. An LV that it may yet have carries its tags. */
  async #letGo({ metadata: { name } }: LvmVolume): Promise<void> {
    try {
      await this.#client.patch(lvmVolumes, { name }, { merge: { metadata: { finalizers: null } } });
    } catch (error) {
      if (!isNotFound(error)) throw unavailable(`undoing volume ${name}`, error);
    }
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
        now = await this.#read(name as VolumeId); // the API server takes no other name
      }
    }
  }

  #requireOurs({ metadata: { name }, spec: { driverName } }: LvmVolume): void {
    if (driverName === this.#driver) return;
    throw new StorageError("NotFound", `looking for volume ${name}: it belongs to the driver ${driverName}`);
  }
}

function isMade({ status }: LvmVolume): boolean {
  return status?.lvUUID !== undefined && status.size !== undefined;
}

function isDeleting({ metadata }: LvmVolume): boolean {
  return metadata.deletionTimestamp !== undefined;
}

/** Whether its node has said why it cannot be deleted: deletion is a generation of its own. */
function refusesToGo({ metadata: { generation = 0 }, status }: LvmVolume): boolean {
  return status?.error !== undefined && (status.observedGeneration ?? 0) >= generation;
}

function isGone(now: LvmVolume | undefined, object: LvmVolume): boolean {
  return now?.metadata.uid !== object.metadata.uid;
}

function stored(object: LvmVolume): ClusterVolume {
  const { metadata: { name }, spec } = object;
  return {
    id: name as VolumeId, // the API server takes no other name
    size: actualSize(object) ?? 0n,
    content: spec.volumeMode === "Block" || spec.fsType === undefined ? "raw" : spec.fsType,
    nodeId: spec.nodeName,
  };
}

/** What the API server could not do may yet have been done: "maybe in progress". */
function unavailable(doing: string, cause: unknown): unknown {
  if (cause instanceof StorageError) return cause;
  return new StorageError("Unavailable", `${doing}: ${cause instanceof Error ? cause.message : String(cause)}`, {
    cause,
  });
}
