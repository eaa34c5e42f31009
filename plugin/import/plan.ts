/**
 * What the import of a claim would do: what becomes what, what is lost, and what prevents it. It is decided from objects alone;
 * what the LV is, the agent of its node says later.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { formatQuantity, parseQuantity } from "../../base/size.ts";
import { parseFilesystemType } from "../../lvm/settings/filesystem.ts";
import { checkMountFlags } from "../../lvm/settings/mount_flags.ts";
import { IO_LIMIT_PARAMETERS } from "../../lvm/settings/io_limits.ts";
import { SETTINGS } from "../../lvm/settings/settings.ts";
import { defined } from "../../base/defined.ts";
import type { NewObject } from "../../k8s/client/client.ts";
import type { LvmVolumeSpec } from "../../k8s/api/lvm_objects.ts";
import type { KubeObject, Lease, PersistentVolume } from "../../k8s/api/objects.ts";
import { accessModeOf } from "../../k8s/sidecars/csi_client.ts";
import { ClaimError } from "../../k8s/sidecars/class_parameters.ts";
import { conflictOf } from "../../k8s/handover/import_checks.ts";
import { type ClassMapping, type LostParameter, mapClass } from "./class_mapping.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmImport, type LvmImportSpec, type OriginDescription, ORIGINS } from "../../k8s/handover/imports.ts";
import { type Place, placeOf } from "./place.ts";
import type { ImportOptions, ImportSources } from "./sources.ts";
import { sidecarLeaseName } from "../../k8s/runtime/leader.ts";

/** What an import would do. */
export interface ImportPlan {
  /** The claim, as `namespace/name`. */
  readonly claim: string;
  /** Whose the volume is. */
  readonly from: string;
  /** The PersistentVolume. */
  readonly persistentVolume: string;
  /** The id that the volume gets. */
  readonly volume: string;
  /** Its size in bytes. */
  readonly size: bigint;
  /** The node; absent when it is not known. */
  readonly node?: string;
  /** The LV, as `group/name`; absent when it is not known. */
  readonly logicalVolume?: string;
  /** The name that the LV gets. */
  readonly newName: string;
  /** The thin pool that the volume stays in. */
  readonly thinPool?: string;
  /** What becomes of the class; absent when it stays. */
  readonly storageClass?: { readonly name: string } & ClassMapping;
  /** What of the PersistentVolume is lost. */
  readonly lost: readonly LostParameter[];
  /** Why it cannot be imported now; none when it can. */
  readonly refusals: readonly string[];
}

/** Returns the plan of an import, and the LVMImport that asks for it; none when something prevents it. */
export function planImport(
  sources: ImportSources,
  options: ImportOptions,
): { readonly plan: ImportPlan; readonly import?: NewObject<LvmImport> & { metadata: { name: string } } } {
  const { claim, persistentVolume, origin, storageClass } = sources;
  const { name } = persistentVolume.metadata;
  const id = volumeIdOf(name);
  const place = placeOf(sources, options);
  const size = parseQuantity(persistentVolume.spec?.capacity?.storage ?? "") ?? 0n;
  const isReplaced = origin !== "Local" && storageClass !== undefined && storageClass.provisioner !== options.driver;
  const mapping = isReplaced && place.group !== undefined
    ? accepted(
      mapClass(origin, storageClass, {
        volumeGroup: place.group,
        topologyKey: options.topologyKey,
        ...defined({ thinPool: place.thinPool }),
      }),
      options,
    )
    : undefined;
  const refusals = [
    ...place.refusals,
    ...refusalsOf(sources, options),
    ...conflictsOf(sources, place),
    provisionerRefusal(sources, options) ?? [],
  ].flat();
  const plan: ImportPlan = defined({
    claim: `${claim.metadata.namespace}/${claim.metadata.name}`,
    from: ORIGINS[origin].title,
    persistentVolume: name,
    volume: id,
    size,
    node: place.node,
    logicalVolume: place.group && `${place.group}/${place.lvName}`,
    newName: volumeLvName(id),
    thinPool: place.isThin && place.group ? place.thinPool ?? `${place.group}_thinpool` : undefined,
    storageClass: mapping && { name: storageClass!.metadata.name, ...mapping },
    lost: lostOf(persistentVolume),
    refusals,
  });
  if (refusals.length > 0) return { plan };
  const spec: LvmImportSpec = defined({
    driverName: options.driver,
    from: origin,
    persistentVolume: name,
    claim: { namespace: claim.metadata.namespace!, name: claim.metadata.name, uid: claim.metadata.uid! },
    logicalVolume: { volumeGroupUUID: place.groupUuid!, name: place.lvName! },
    volume: volumeSpec(sources, options, { place, mapping, size }),
    storageClass: mapping && importedClass(storageClass!.metadata.name, mapping),
    object: referenceTo(sources.object),
  });
  return { plan, import: { metadata: { name: id }, spec } };
}

function importedClass(name: string, { parameters, allowedTopologies }: ClassMapping) {
  return { name, parameters: { ...parameters }, ...defined({ allowedTopologies }) };
}

function referenceTo(object: KubeObject | undefined) {
  if (object === undefined) return undefined;
  const { namespace, name, uid = "" } = object.metadata;
  return { name, uid, ...defined({ namespace }) };
}

/** Returns a mapping whose parameters are all accepted; those that are not are lost, too. */
function accepted(mapping: ClassMapping, { parameterProblem }: ImportOptions): ClassMapping {
  const parameters = { ...mapping.parameters };
  const lost = [...mapping.lost];
  for (;;) {
    const why = parameterProblem(parameters);
    if (why === undefined) return { ...mapping, parameters, lost };
    const names = Object.keys(parameters);
    const without = (name: string) => Object.fromEntries(Object.entries(parameters).filter(([each]) => each !== name));
    const culprit = names.find((name) => parameterProblem(without(name)) !== why) ?? names[0];
    if (culprit === undefined) return { ...mapping, parameters, lost };
    lost.push({ name: culprit, value: parameters[culprit]!, why });
    delete parameters[culprit];
  }
}

function volumeSpec(
  { persistentVolume: { metadata: { name }, spec }, origin, object }: ImportSources,
  { driver, erase }: ImportOptions,
  { place, mapping, size }: {
    readonly place: Place;
    readonly mapping: ClassMapping | undefined;
    readonly size: bigint;
  },
): LvmVolumeSpec {
  const volumeMode = spec?.volumeMode === "Block" ? "Block" : "Filesystem";
  const fsType = volumeMode === "Block" ? undefined : filesystemOf(spec);
  const ioLimits = Object.fromEntries(
    Object.entries(mapping?.parameters ?? {}).filter(([parameter]) =>
      IO_LIMIT_PARAMETERS.some((known) => known === parameter)
    ),
  );
  return {
    driverName: driver,
    requestName: name,
    nodeName: place.node!,
    size: formatQuantity(size),
    volumeGroups: place.group!,
    volumeGroupPreference: SETTINGS.volumeGroupPreference.default,
    volumeMode,
    ...defined({ fsType }),
    shared: origin !== "OpenEBS" || (object as { spec?: { shared?: string } }).spec?.shared === "yes",
    erase: erase ?? SETTINGS.erase.default,
    ...defined({
      ioLimits: Object.keys(ioLimits).length > 0 ? ioLimits : undefined,
      thinProvision: place.isThin || undefined,
      thinPool: place.thinPool,
    }),
  };
}

/** Returns the filesystem of a PersistentVolume; `undefined` for one that the driver does not know. All take ext4 by default. */
function filesystemOf(spec: PersistentVolume["spec"]) {
  return parseFilesystemType((spec?.csi?.fsType ?? spec?.local?.fsType) || SETTINGS.fsType.default);
}

function refusalsOf(
  { claim, persistentVolume, volume, existing, object, origin }: ImportSources,
  { driver }: ImportOptions,
) {
  const { metadata: { name, deletionTimestamp }, spec, status } = persistentVolume;
  const type = filesystemOf(spec);
  const { objects }: OriginDescription = ORIGINS[origin];
  return [
    existing !== undefined && !isFinished(existing) &&
    `it is being imported already (${existing.status?.state ?? "Pending"})`,
    (existing === undefined || isFinished(existing)) && volume !== undefined &&
    `there is an LVMVolume ${volume.metadata.name} already`,
    claim.metadata.deletionTimestamp !== undefined && "the claim is being deleted",
    deletionTimestamp !== undefined && `PersistentVolume ${name} is being deleted`,
    (claim.status?.phase !== "Bound" || status?.phase !== "Bound" || spec?.claimRef?.uid !== claim.metadata.uid) &&
    `the claim is not bound to PersistentVolume ${name}`,
    objects !== undefined && object === undefined && `there is no ${objects.kind}.${objects.group} of it`,
    object?.metadata.deletionTimestamp !== undefined && `its ${objects?.kind}.${objects?.group} is being deleted`,
    spec?.volumeMode !== "Block" && type === undefined &&
    `the driver does not know the filesystem ${spec?.csi?.fsType ?? spec?.local?.fsType}`,
    refusalBy(() => checkMountFlags(type, spec?.mountOptions ?? [])),
    refusalBy(() => requireSingleNode(spec?.accessModes ?? [])),
    driver === ORIGINS.OpenEBS.driver && "the driver has the name of the other one",
  ].filter((refusal) => typeof refusal === "string");
}

/** Returns which other imports import the same volume. */
function conflictsOf({ claim, existing, imports }: ImportSources, { groupUuid = "", lvName = "" }: Place): string[] {
  const wanted = {
    claim: { namespace: claim.metadata.namespace!, name: claim.metadata.name, uid: claim.metadata.uid! },
    logicalVolume: { volumeGroupUUID: groupUuid, name: lvName },
  };
  return imports.filter((other) => other !== existing).flatMap((other) => conflictOf(wanted, other) ?? []);
}

function requireSingleNode(modes: readonly string[]): void {
  if (accessModeOf(modes).startsWith("MULTI_NODE")) {
    throw new ClaimError(`accessModes ${modes.join(", ")}: a node-local volume is for one node`);
  }
}

function refusalBy(check: () => void): string | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof StorageError || error instanceof ClaimError) return error.message;
    throw error;
  }
}

/** Returns what the driver has no use for: the secrets of calls. Attributes of others are no settings. */
function lostOf({ spec }: PersistentVolume): LostParameter[] {
  return Object.entries(spec?.csi ?? {}).filter(([field]) => field.endsWith("SecretRef")).map(([name, reference]) => {
    const { namespace, name: secret } = reference as { namespace?: string; name?: string };
    return { name, value: `${namespace}/${secret}`, why: "the driver reads no secrets for it" };
  });
}

/** How long after its last renewal a Lease is taken for that of a program that runs, as a multiple of its duration. */
const SILENCE_FACTOR = 2;

/** The duration of a Lease that has none, in seconds: that of the official provisioner. */
const DEFAULT_DURATION_S = 15;

/** Returns why the provisioner of the other driver is not known to be stopped; `undefined` when it is, or there is none. */
export function provisionerRefusal(
  { origin, leases }: Pick<ImportSources, "origin" | "leases">,
  { now, isProvisionerStopped }: Pick<ImportOptions, "now" | "isProvisionerStopped">,
): string | undefined {
  const { driver, title }: OriginDescription = ORIGINS[origin];
  if (driver === undefined) return undefined;
  const name = sidecarLeaseName("csi-provisioner", driver);
  const own = leases.filter(({ metadata }) => metadata.name === name);
  const alive = own.find((lease) => (lease.spec?.holderIdentity ?? "") !== "" && isRenewed(lease, now));
  if (alive !== undefined) {
    return `the provisioner of ${title} runs: ${alive.spec?.holderIdentity} renews Lease ${alive.metadata.namespace}/${name}; ` +
      "scale it to zero";
  }
  if (own.length > 0 || isProvisionerStopped) return undefined;
  return `no Lease says whether the provisioner of ${title} is stopped; scale it to zero, and add --provisioner-stopped`;
}

function isRenewed({ spec }: Lease, now: number): boolean {
  const { renewTime, leaseDurationSeconds = DEFAULT_DURATION_S } = spec ?? {};
  const age = now - Date.parse(String(renewTime ?? ""));
  return !Number.isNaN(age) && age < SILENCE_FACTOR * leaseDurationSeconds * 1_000;
}
