/**
 * All volumes of others in the cluster, and what an import makes of each: which volume it becomes, or why it is not imported.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { formatBytes, parseQuantity } from "../../base/size.ts";
import { type ApiClient, orAbsent } from "../../k8s/client/client.ts";
import { lvmNodes, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  type KubeObject,
  leases,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { classNameOf } from "../../k8s/provisioner/claim.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import {
  type LvmImport,
  lvmImports,
  objectsOf,
  type OpenEbsVolume,
  openEbsVolumes,
  type Origin,
  ORIGINS,
  type TopoLvmVolume,
  topoLvmVolumes,
} from "../../k8s/handover/imports.ts";
import { chapterCommand } from "../runbooks.ts";
import { planImport } from "./plan.ts";
import { placeOf } from "./place.ts";
import { type ImportOptions, type ImportSources, originOf } from "./sources.ts";

/** The command for the chapter about volumes that no claim has. */
const BY_HAND = chapterCommand("storage-classes/existing-logical-volumes");

/** A volume of somebody else. */
export interface ForeignVolume {
  /** What it is known by: its claim, or else its PersistentVolume, or else the object of its driver. */
  readonly name: string;
  /** Whose it is. */
  readonly from: string;
  /** Its size in bytes, if it is known. */
  readonly size?: bigint;
  /** The LV, as `group/name`, if it is known. */
  readonly logicalVolume?: string;
  /** Its node, if it is known. */
  readonly node?: string;
  /** The volume that it becomes; absent if it is not imported. */
  readonly becomes?: string;
  /** Why it is not imported. */
  readonly reasons: readonly string[];
}

/** The objects that the list is decided from. */
interface Lists extends Pick<ImportSources, "lvmNodes" | "leases" | "imports"> {
  readonly claims: readonly PersistentVolumeClaim[];
  readonly volumes: readonly PersistentVolume[];
  readonly objects: Readonly<Record<"OpenEBS" | "TopoLVM", readonly KubeObject[]>>;
}

/** Reads and judges the volumes of others. @throws {ApiError} */
export async function readForeignVolumes(client: ApiClient, options: ImportOptions): Promise<ForeignVolume[]> {
  const itemsOf = async <T>(list: Promise<{ items: T[] }>) => (await orAbsent(list))?.items ?? [];
  const [claims, volumes, nodes, ownVolumes, imports, allLeases, openEbs, topoLvm] = await Promise.all([
    itemsOf(client.list(persistentVolumeClaims)),
    itemsOf(client.list(persistentVolumes)),
    itemsOf(client.list(lvmNodes)),
    itemsOf(client.list(lvmVolumes)),
    itemsOf(client.list(lvmImports)),
    itemsOf(client.list(leases)),
    itemsOf(client.list(openEbsVolumes)),
    itemsOf(client.list(topoLvmVolumes)),
  ]);
  const lists: Lists = {
    ...{ claims, volumes, imports, leases: allLeases, objects: { OpenEBS: openEbs, TopoLVM: topoLvm } },
    lvmNodes: nodes.filter(({ spec }) => spec.driverName === options.driver),
  };
  const classes = new Map<string, ImportSources["storageClass"]>();
  const [withClaim, withoutClaim]: [ForeignVolume[], ForeignVolume[]] = [[], []];
  for (const persistentVolume of volumes) {
    const origin = originOf(persistentVolume);
    if (origin === undefined) continue;
    const claim = claimOf(persistentVolume, claims);
    const id = volumeIdOf(persistentVolume.metadata.name);
    const className = claim === undefined ? "" : classNameOf(claim);
    if (className !== "" && !classes.has(className)) {
      classes.set(className, await orAbsent(client.get(storageClasses, { name: className })));
    }
    const sources = {
      ...{ persistentVolume, origin, storageClass: classes.get(className), object: objectOf(persistentVolume, lists) },
      volume: ownVolumes.find(({ metadata }) => metadata.name === id),
      existing: imports.find(({ metadata }) => metadata.name === id),
      ...{ imports, lvmNodes: lists.lvmNodes, leases: lists.leases },
    };
    if (claim === undefined) withoutClaim.push(unclaimed(sources, options));
    else withClaim.push(claimed({ ...sources, claim }, options));
  }
  return [
    ...withClaim,
    ...withoutClaim,
    ...(["OpenEBS", "TopoLVM"] as const).flatMap((origin) => withoutVolume(origin, lists)),
  ];
}

/** Returns the claim that is bound to a PersistentVolume. */
function claimOf(
  { spec, status }: PersistentVolume,
  claims: readonly PersistentVolumeClaim[],
): PersistentVolumeClaim | undefined {
  if (status?.phase !== "Bound") return undefined;
  return claims.find(({ metadata }) => metadata.uid !== undefined && metadata.uid === spec?.claimRef?.uid);
}

/** Returns the object by which the driver of a PersistentVolume knows it. */
function objectOf(persistentVolume: PersistentVolume, { objects }: Lists): KubeObject | undefined {
  const { metadata, spec } = persistentVolume;
  switch (originOf(persistentVolume)) {
    case "OpenEBS":
      return objects.OpenEBS.find(({ metadata: { name } }) => name === spec?.csi?.volumeHandle);
    case "TopoLVM":
      return objects.TopoLVM.find(({ metadata: { name } }) => name === metadata.name);
  }
}

function claimed(sources: ImportSources, options: ImportOptions): ForeignVolume {
  const { plan } = planImport(sources, options);
  const { claim, from, size, node, logicalVolume, refusals } = plan;
  return {
    ...{ name: `Claim ${claim}`, from, size, ...defined({ node, logicalVolume }) },
    ...(refusals.length === 0 && { becomes: plan.volume }),
    reasons: refusals,
  };
}

/** Describes a PersistentVolume that no claim is bound to. */
function unclaimed(sources: Omit<ImportSources, "claim">, options: ImportOptions): ForeignVolume {
  const { persistentVolume: { metadata: { name }, spec, status }, origin } = sources;
  const { title } = ORIGINS[origin];
  const { node, group, lvName } = placeOf(sources, options);
  const phase = status?.phase ?? "Pending";
  const bind = "let a claim bind to it (its spec.volumeName), and import that claim";
  const reasons = phase === "Available" || spec?.claimRef?.uid === undefined
    ? [`no claim is bound to it (${phase}): ${bind}`]
    : [
      `its claim is gone (${phase}): to keep the data, remove spec.claimRef of the PersistentVolume, ${bind}`,
      ...(spec.persistentVolumeReclaimPolicy === "Delete" && origin !== "Local"
        ? [`its reclaim policy is Delete: ${title} may remove it at any time; set Retain first`]
        : []),
    ];
  const size = parseQuantity(spec?.capacity?.storage ?? "");
  const logicalVolume = group !== undefined && lvName !== undefined ? `${group}/${lvName}` : undefined;
  return { name: `PersistentVolume ${name}`, from: title, ...defined({ size, node, logicalVolume }), reasons };
}

/** Describes the objects of a driver that no PersistentVolume is for. */
function withoutVolume(origin: Extract<Origin, "OpenEBS" | "TopoLVM">, lists: Lists): ForeignVolume[] {
  const { title } = ORIGINS[origin];
  const { kind, group } = objectsOf(origin)!;
  const known = new Set(lists.volumes.map((volume) => originOf(volume) === origin && objectOf(volume, lists)));
  return lists.objects[origin].filter((object) => !known.has(object)).map((object) => {
    const { namespace, name, uid } = object.metadata;
    const taken = lists.imports.find(({ spec }) => spec.object?.uid === uid);
    return {
      name: `${kind}.${group} ${namespace === undefined ? "" : `${namespace}/`}${name}`,
      from: title,
      ...placeOfObject(origin, object),
      reasons: [
        taken === undefined
          ? "no PersistentVolume is for it, and so no claim: use its logical volume by objects that are written by hand " +
            `(${BY_HAND}), or delete the object, and ${title} removes it`
          : takenText(taken),
      ],
    };
  });
}

function takenText(taken: LvmImport): string {
  const { metadata: { name }, spec: { claim }, status } = taken;
  const what = `LVMImport ${name} imports it for claim ${claim.namespace}/${claim.name}`;
  const state = status?.state ?? "Pending";
  return isFinished(taken) ? `${what}: ${state}` : `${what} (${state}); --finish removes the object`;
}

function placeOfObject(origin: "OpenEBS" | "TopoLVM", object: KubeObject) {
  if (origin === "OpenEBS") {
    const { metadata: { name }, spec: { ownerNodeID: node, volGroup } = {} } = object as OpenEbsVolume;
    return defined({ node, logicalVolume: volGroup === undefined ? undefined : `${volGroup}/${name}` });
  }
  const { spec: { nodeName: node } = {}, status: { volumeID: logicalVolume } = {} } = object as TopoLvmVolume;
  return defined({ node, logicalVolume });
}

/** Formats volumes of others for people. */
export function foreignVolumesText(volumes: readonly ForeignVolume[]): string {
  const lines = volumes.flatMap(({ name, from, size, logicalVolume, node, becomes, reasons }) => {
    const facts = [
      size === undefined ? undefined : formatBytes(size),
      `of ${from}`,
      logicalVolume,
      node === undefined ? undefined : `node ${node}`,
    ].filter((fact) => fact !== undefined);
    const head = `${name} (${facts.join(", ")})`;
    return becomes === undefined
      ? [`${head} is not imported:`, ...reasons.map((reason) => `  - ${reason}`)]
      : [`${head} becomes volume ${becomes}.`];
  });
  return [
    ...(lines.length === 0 ? ["There are no volumes of other drivers that could be imported."] : lines),
    "",
    `Logical volumes that no object names are not listed: see lvs on the nodes, and ${BY_HAND}.`,
  ].join("\n");
}
