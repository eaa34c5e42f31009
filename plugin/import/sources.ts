/**
 * What the plan of an import is decided from, and how it is read.
 *
 * @module
 */

import type { Erasure } from "../../lvm/model/tags.ts";
import { type LvmNode, lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  type KubeObject,
  type Lease,
  leases,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type StorageClass,
  storageClasses,
} from "../../k8s/api/objects.ts";
import {
  type LvmImport,
  lvmImports,
  objectsOf,
  type Origin,
  type OriginDescription,
  ORIGINS,
} from "../../k8s/handover/imports.ts";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import { classNameOf } from "../../k8s/provisioner/claim.ts";

/** The objects that an import depends on. */
export interface ImportSources {
  /** The claim. */
  readonly claim: PersistentVolumeClaim;
  /** The PersistentVolume that it is bound to. */
  readonly persistentVolume: PersistentVolume;
  /** Whose it is. */
  readonly origin: Origin;
  /** The class of the claim; absent when there is none. */
  readonly storageClass: StorageClass | undefined;
  /** The object by which its driver knows the volume. */
  readonly object: KubeObject | undefined;
  /** The LVMNodes of the driver. */
  readonly lvmNodes: readonly LvmNode[];
  /** The LVMVolume with the id that the volume would get. */
  readonly volume: LvmVolume | undefined;
  /** The import of the volume that was asked for before. */
  readonly existing: LvmImport | undefined;
  /** All imports. */
  readonly imports: readonly LvmImport[];
  /** The Leases of all namespaces. */
  readonly leases: readonly Lease[];
}

/** What the administrator says, and settings of the driver. */
export interface ImportOptions {
  /** The driver's name. */
  readonly driver: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
  /** The time, in milliseconds since 1970. */
  readonly now: number;
  /** The volume group, where no object names it. */
  readonly volumeGroup?: string | undefined;
  /** The thin pool of a thin volume, where no object names it. */
  readonly thinPool?: string | undefined;
  /** How the data is erased when the volume is deleted; as the class would have it by default. */
  readonly erase?: Erasure | undefined;
  /** Whether the administrator has made sure that the provisioner of the other driver is stopped. */
  readonly isProvisionerStopped: boolean;
  /** Returns why parameters of a class are not accepted; `undefined` when they are. */
  readonly parameterProblem: (parameters: Readonly<Record<string, string>>) => string | undefined;
}

/** A claim whose volume is to be imported. */
export interface ImportRequest {
  /** The driver's name. */
  readonly driver: string;
  /** The namespace of the claim. */
  readonly namespace: string;
  /** The name of the claim. */
  readonly claimName: string;
}

/**
 * Reads the objects that an import depends on.
 *
 * @throws {StorageError} `NotFound` without such a claim, or a volume of a known driver that it is bound to
 * @throws {ApiError}
 */
export async function readSources(client: ApiClient, request: ImportRequest): Promise<ImportSources> {
  const { driver, namespace, claimName } = request;
  const what = `importing claim ${namespace}/${claimName}`;
  const claim = await orAbsent(client.get(persistentVolumeClaims, { namespace, name: claimName }));
  if (claim === undefined) throw new StorageError("NotFound", `${what}: there is no such claim`);
  const name = claim.spec?.volumeName;
  const persistentVolume = name === undefined ? undefined : await orAbsent(client.get(persistentVolumes, { name }));
  const origin = persistentVolume && originOf(persistentVolume);
  const id = volumeIdOf(name ?? "");
  const existing = name === undefined ? undefined : await orAbsent(client.get(lvmImports, { name: id }));
  if (persistentVolume === undefined || origin === undefined) {
    const whose = persistentVolume?.spec?.csi?.driver;
    throw new StorageError(
      "NotFound",
      whose === driver
        ? `${what}: it is a volume of the driver already`
        : `${what}: it is bound to no volume of ${Object.values(ORIGINS).map(({ title }) => title).join(", ")}` +
          (whose === undefined ? "" : `, but to one of ${whose}`),
    );
  }
  const className = classNameOf(claim);
  const [storageClass, object, nodes, volume, imports, allLeases] = await Promise.all([
    className === "" ? undefined : orAbsent(client.get(storageClasses, { name: className })),
    findObject(client, origin, persistentVolume),
    client.list(lvmNodes),
    orAbsent(client.get(lvmVolumes, { name: id })),
    client.list(lvmImports),
    client.list(leases),
  ]);
  const own = nodes.items.filter(({ spec }) => spec.driverName === driver);
  return {
    claim,
    persistentVolume,
    origin,
    storageClass,
    object,
    lvmNodes: own,
    volume,
    existing,
    imports: imports.items,
    leases: allLeases.items,
  };
}

/** Returns whose a PersistentVolume is; `undefined` for a driver whose volumes cannot be imported. */
export function originOf({ spec }: PersistentVolume): Origin | undefined {
  if (spec?.local !== undefined) return "Local";
  const found = Object.entries(ORIGINS).find(([, origin]) => {
    const { driver }: OriginDescription = origin;
    return driver !== undefined && driver === spec?.csi?.driver;
  });
  return found?.[0] as Origin | undefined;
}

/** Finds the object by which a driver knows a volume: by its name, in any namespace. */
async function findObject(
  client: ApiClient,
  origin: Origin,
  { metadata: { name }, spec }: PersistentVolume,
): Promise<KubeObject | undefined> {
  const resource = objectsOf(origin);
  if (resource === undefined) return undefined;
  if (!resource.namespaced) return await orAbsent(client.get(resource, { name }));
  const handle = spec?.csi?.volumeHandle;
  const found = await orAbsent(client.list(resource, { fieldSelector: `metadata.name=${handle}` }));
  return found?.items[0];
}
