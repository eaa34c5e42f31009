/**
 * The objects of a cluster that tell about the driver, as they are read for people. A person may not be allowed to read
 * some kinds, and a cluster may lack some: then the answer says what is missing in it.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ApiClient, ApiError, type Selection } from "../../k8s/client/client.ts";
import type { Definitions } from "../../k8s/client/definitions.ts";
import { agentLeaseSelector } from "../../k8s/api/agent_leases.ts";
import {
  type AgentManaged,
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import {
  type Event,
  events,
  type KubeObject,
  type Lease,
  leases,
  type Node,
  nodes,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { type LvmImport, lvmImports } from "../../k8s/handover/imports.ts";
import { type LvmMove, lvmMoves } from "../../k8s/handover/moves.ts";
import { classNameOf, provisionerOf } from "../../k8s/provisioner/claim.ts";
import { sidecarLeaseName } from "../../k8s/runtime/leader.ts";
import { type VolumeSnapshotContent, volumeSnapshotContents } from "../../k8s/api/snapshot_objects.ts";

/** What is known of an agent beside its LVMNode. */
export interface AgentEvidence {
  /** The Leases of agents. */
  readonly agentLeases: readonly Lease[];
  /** The time at which they were read. */
  readonly now: Date;
  /** Kinds that could not be read, with the cause. */
  readonly unread: readonly string[];
}

/** The objects of a cluster that tell about the driver. */
export interface ClusterState extends AgentEvidence {
  /** The driver. */
  readonly driver: string;
  /** Nodes. */
  readonly nodes: readonly Node[];
  /** LVMNodes of the driver. */
  readonly lvmNodes: readonly LvmNode[];
  /** The Leases under which volumes were created; none where an official sidecar works without one. */
  readonly provisionerLeases: readonly Lease[];
  /** LVMVolumes of the driver. */
  readonly volumes: readonly LvmVolume[];
  /** LVMSnapshots of the driver. */
  readonly snapshots: readonly LvmSnapshot[];
  /** PersistentVolumes of the driver. */
  readonly persistentVolumes: readonly PersistentVolume[];
  /** VolumeSnapshotContents of the driver. */
  readonly contents: readonly VolumeSnapshotContent[];
  /** Claims without a volume that Kubernetes has asked the driver for; none where they were not to be read. */
  readonly pendingClaims: readonly PersistentVolumeClaim[];
  /** The definitions that are too old for this plugin; absent for none, and where they were not to be read. */
  readonly outdatedDefinitions?: string;
  /** What is under way; absent where it was not to be read. */
  readonly work?: ClusterWork;
}

/** What is under way in a cluster, as far as LVMVolumes do not tell. */
export interface ClusterWork {
  /** All claims without a volume whose class is the driver's, also those that wait for a pod. */
  readonly claims: readonly PersistentVolumeClaim[];
  /** The events about claims, while one waits. */
  readonly claimEvents: readonly Event[];
  /** The classes of the driver. */
  readonly storageClasses: readonly StorageClass[];
  /** The moves of the driver. */
  readonly moves: readonly LvmMove[];
  /** The imports of the driver. */
  readonly imports: readonly LvmImport[];
}

/** Options of {@linkcode readClusterState}. */
export interface ReadOptions {
  /** Whether claims are read: a cluster may have very many. */
  readonly withClaims?: boolean;
  /** Whether claims are read, and else what is under way. */
  readonly withWork?: boolean;
  /** The definitions of the driver's kinds, if they are to be read. */
  readonly definitions?: Definitions;
}

/** Reads objects, and notes what this person may not read. */
export class LenientReader {
  /** Kinds that could not be read, with the cause. */
  readonly unread: string[] = [];

  /** Creates it. */
  constructor(readonly client: ApiClient) {}

  /** Lists objects; none where this person may not list them, or the cluster lacks the kind. @throws {ApiError} */
  async list<T extends KubeObject>(resource: Resource<T>, selection: Selection = {}): Promise<T[]> {
    return await this.#read(resource, async () => (await this.client.list(resource, selection)).items) ?? [];
  }

  /** Gets an object; `undefined` where there is none, or this person may not get it. @throws {ApiError} */
  async get<T extends KubeObject>(
    resource: Resource<T>,
    at: { readonly name: string; readonly namespace?: string | undefined },
  ): Promise<T | undefined> {
    return await this.#read(resource, () => this.client.get(resource, at));
  }

  /** Returns the kinds that could not be read, each once. */
  unreadKinds(): string[] {
    return [...new Set(this.unread)].sort();
  }

  async #read<R>({ plural }: Resource, read: () => Promise<R>): Promise<R | undefined> {
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status !== 403 && error.status !== 404)) throw error;
      if (error.status === 403) this.unread.push(`${plural}: ${error.reason}`);
      return undefined;
    }
  }
}

/**
 * Reads the objects of a driver.
 *
 * @throws {ApiError} when the API server does not answer, or the cluster does not have the driver's kinds
 */
export async function readClusterState(
  client: ApiClient,
  driver: string,
  now: Date,
  { withWork = false, withClaims = withWork, definitions }: ReadOptions = {},
): Promise<ClusterState> {
  const reader = new LenientReader(client);
  const [allNodes, lvm, agentLeases, provisionerLeases, volumes, snapshots, allPersistentVolumes, contents, claims] =
    await Promise.all([
      reader.list(nodes),
      client.list(lvmNodes).then(({ items }) => items, (error) => requireKind(error)),
      reader.list(leases, { labelSelector: agentLeaseSelector(driver) }),
      reader.list(leases, { fieldSelector: `metadata.name=${sidecarLeaseName("csi-provisioner", driver)}` }),
      reader.list(lvmVolumes),
      reader.list(lvmSnapshots),
      reader.list(persistentVolumes),
      reader.list(volumeSnapshotContents),
      withClaims ? reader.list(persistentVolumeClaims) : [],
      definitions?.read(),
    ]);
  const isOwn = ({ spec }: AgentManaged | LvmNode) => spec.driverName === driver;
  const pending = claims.filter(({ status }) => status?.phase === "Pending");
  const work = withWork ? await readWork(reader, driver, pending) : undefined;
  return {
    ...{ driver, now, nodes: allNodes, agentLeases, provisionerLeases, unread: reader.unreadKinds() },
    lvmNodes: lvm.filter(isOwn),
    volumes: volumes.filter(isOwn),
    snapshots: snapshots.filter(isOwn),
    persistentVolumes: allPersistentVolumes.filter(({ spec }) => spec?.csi?.driver === driver),
    contents: contents.filter(({ spec }) => spec.driver === driver),
    pendingClaims: pending.filter((claim) => provisionerOf(claim) === driver),
    ...defined({ outdatedDefinitions: definitions?.outdated, work }),
  };
}

/** Reads what is under way. @param pending the claims without a volume */
async function readWork(
  reader: LenientReader,
  driver: string,
  pending: readonly PersistentVolumeClaim[],
): Promise<ClusterWork> {
  const [moves, imports, classes] = await Promise.all([
    reader.list(lvmMoves),
    reader.list(lvmImports),
    reader.list(storageClasses),
  ]);
  const own = classes.filter(({ provisioner }) => provisioner === driver);
  const names = new Set(own.map(({ metadata }) => metadata.name));
  const waiting = pending.filter((claim) =>
    provisionerOf(claim) === driver || (!claim.spec?.volumeName && names.has(classNameOf(claim)))
  );
  const ofClaims = { fieldSelector: `involvedObject.kind=${persistentVolumeClaims.kind}` };
  const isOwn = ({ spec }: LvmMove | LvmImport) => spec.driverName === driver;
  return {
    claims: waiting,
    claimEvents: waiting.length === 0 ? [] : await reader.list(events, ofClaims),
    storageClasses: own,
    moves: moves.filter(isOwn),
    imports: imports.filter(isOwn),
  };
}

/** Explains that the driver is not installed; without its own kinds there is nothing to show. */
function requireKind(error: unknown): never {
  if (!(error instanceof ApiError) || error.status !== 404) throw error;
  throw new ApiError("this cluster has no LVMNodes: the driver is not installed in it, or the context is wrong", error);
}
