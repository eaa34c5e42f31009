/**
 * The durable records of volumes that are being created: their LVMVolumes.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { parseVolumeId, volumeIdOf } from "../../base/ids.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import type { ClaimReference, VolumeIntentSpec } from "../sidecars/csi_client.ts";
import type { Informer } from "../runtime/informer.ts";
import {
  CLAIM_ANNOTATION,
  type LvmVolume,
  lvmVolumes,
  type LvmVolumeSpec,
  PENDING_ANNOTATION,
} from "../api/lvm_objects.ts";
import { settingsOf } from "../../lvm/settings/settings.ts";
import { actualSize, contentSourceOf, desiredSizeRange } from "../api/volume_mapping.ts";

/**
 * Returns the annotations of a volume that the provisioner creates for a claim; none for a volume of another client.
 */
export function intentAnnotations(claim: ClaimReference | undefined): Record<string, string> {
  if (claim === undefined) return {};
  const { namespace, name, uid } = claim;
  return { [CLAIM_ANNOTATION]: `${namespace}/${name}`, [PENDING_ANNOTATION]: uid };
}

/** Options of {@linkcode volumeIntents}. */
export interface VolumeIntentsOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driver: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** All LVMVolumes. */
  readonly volumes: Informer<LvmVolume>;
}

/** Returns the records of volumes, as LVMVolumes have them. */
export function volumeIntents({ client, driver, topologyKey, volumes }: VolumeIntentsOptions): Intents {
  const toRecord = ({ metadata: { name, annotations }, spec: { requestName } }: LvmVolume): PendingIntent => ({
    requestName,
    volumeId: name,
    pending: annotations?.[PENDING_ANNOTATION] !== undefined,
  });
  const isOurs = ({ spec: { driverName } }: LvmVolume) => driverName === driver;
  const pending = new Map<string, LvmVolume>();
  volumes.subscribe((name, now) => {
    const isPending = now !== undefined && isOurs(now) && now.metadata.annotations?.[PENDING_ANNOTATION] !== undefined;
    if (isPending) pending.set(name, now);
    else pending.delete(name);
  });
  return {
    find: (requestName) => {
      const object = volumes.get(volumeIdOf(requestName));
      if (object === undefined || !isOurs(object) || hasFailedOrIsDeleting(object)) return undefined;
      return { ...toRecord(object), spec: intentSpecOf(object, topologyKey) };
    },
    listPending: () => [...pending.values()].filter(({ metadata }) => parseVolumeId(metadata.name)).map(toRecord),
    clearPending: async (requestName, { signal }) => {
      const name = volumeIdOf(requestName);
      if (volumes.get(name)?.metadata.annotations?.[PENDING_ANNOTATION] === undefined) return;
      const merge = { metadata: { annotations: { [PENDING_ANNOTATION]: null } } };
      await orAbsent(client.patch(lvmVolumes, { name }, { merge, signal }));
    },
  };
}

/** Reports whether a volume failed or is being deleted, so that the next request may differ. */
function hasFailedOrIsDeleting({ metadata: { deletionTimestamp }, status }: LvmVolume): boolean {
  return deletionTimestamp !== undefined || (status?.state === "Failed" && status.lvUUID === undefined);
}

/**
 * Returns the fields that a repeated request must have as they were in the first one: the size, the node, the volume
 * mode, the source, and the parameters that {@linkcode lvmVolumeFor} compares. The agent reads all others from the
 * LVMVolume, even if the class has changed.
 */
function intentSpecOf(object: LvmVolume, topologyKey: string): Intent["spec"] {
  const { nodeName, volumeMode, fsType } = object.spec;
  const source = contentSourceOf(object);
  const segments = [{ [topologyKey]: nodeName }];
  return {
    parameters: kindParameters(object.spec),
    mutableParameters: {},
    requiredBytes: actualSize(object) ?? desiredSizeRange(object).required,
    capabilities: [{
      mode: "SINGLE_NODE_MULTI_WRITER",
      access: volumeMode === "Block" ? { kind: "block" } : { kind: "mount", fsType: fsType ?? "", flags: [] },
    }],
    topology: { requisite: segments, preferred: segments },
    ...(source && { source: { kind: source.kind, handle: source.id } }),
  };
}

/**
 * Returns the parameters that ask for a volume of the same kind: its encryption, and those of a thin volume, or else of its
 * layout.
 */
function kindParameters(spec: LvmVolumeSpec): Record<string, string> {
  const parameters = settingsOf(spec.thinProvision ? "thin" : "layout").flatMap(([name, { field }]) => {
    const value = fieldOf(spec, field);
    if (value === undefined || value === "") return [];
    return [[name, value === true ? "yes" : String(value)]];
  });
  return { ...Object.fromEntries(parameters), ...defined({ encryption: spec.encryption }) };
}

/** Returns the value of a field, by a path such as `layout.type`; `undefined` when there is none. */
function fieldOf(spec: object, path: string): unknown {
  return path.split(".").reduce<unknown>((value, name) => (value as Record<string, unknown> | undefined)?.[name], spec);
}

/** The record of a requested volume. It exists before the volume does. */
export interface Intent {
  /** The name of the request. */
  readonly requestName: string;
  /** The volume's handle. */
  readonly volumeId: string;
  /**
   * True if the request came from the provisioner, and no PersistentVolume was seen for it yet. Once one was seen, only
   * its deletion may delete the volume: it may have been retained by its policy, and hold data.
   */
  readonly pending: boolean;
  /** The fields that a repeated request must have as they were in the first one. */
  readonly spec: Partial<VolumeIntentSpec>;
}

/** A pending record. What was requested is not read: one of a newer version does not keep the others from the list. */
export type PendingIntent = Omit<Intent, "spec">;

/** The records. They are read from a cache, which is complete when the controllers start. */
export interface Intents {
  /**
   * Finds the record of a request.
   *
   * @returns the record, or `undefined` when there is none, or the request failed and nothing of it is left, so that
   * the next request may differ
   */
  find(requestName: string): Intent | undefined;
  /** Returns the pending records. Their number does not depend on the number of volumes. */
  listPending(): PendingIntent[];
  /** Records that the PersistentVolume exists: the intent is no longer pending. */
  clearPending(requestName: string, options: { signal: AbortSignal }): Promise<void>;
}
