/**
 * What must still be true before an import changes anything of another driver.
 *
 * @module
 */

import type { PersistentVolume, PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { classNameOf } from "../provisioner/claim.ts";
import { FS_TYPE } from "../sidecars/class_parameters.ts";
import { claimRefusal, isFinished } from "./handover.ts";
import {
  type ImportedClass,
  type ImportObjects,
  type LvmImport,
  type LvmImportSpec,
  type OriginDescription,
  ORIGINS,
} from "./imports.ts";

/** Returns why a volume can no longer be imported, although it could when the import was asked for. */
export function refusalOf(objects: ImportObjects): string | undefined {
  const { self, persistentVolume, claim, volume, storageClass, others } = objects;
  const { spec, status } = self;
  if (status?.persistentVolume !== undefined) return undefined;
  const earlier = others.filter((other) => isEarlier(other, self)).map((other) => conflictOf(spec, other));
  const [conflict] = earlier.filter((each) => each !== undefined);
  const refusal = conflict ?? claimRefusal(objects);
  if (refusal !== undefined) return refusal;
  if (!isOfOrigin(self, persistentVolume!)) {
    return `PersistentVolume ${spec.persistentVolume} is not of ${ORIGINS[spec.from].title}`;
  }
  if (volume !== undefined && volume.spec.imports?.lvName !== spec.logicalVolume.name) {
    return `there is an LVMVolume ${self.metadata.name} already`;
  }
  return spec.storageClass && classRefusal(spec, spec.storageClass, { claim: claim!, storageClass });
}

/** Parameters that Kubernetes' own programs read; but for the filesystem, they name secrets. */
const RESERVED = "csi.storage.k8s.io/";

/** Returns why a class is not made again: whoever may ask for imports may not replace any class of the cluster. */
function classRefusal(
  { from, driverName }: LvmImportSpec,
  { name, parameters }: ImportedClass,
  { claim, storageClass }: { readonly claim: PersistentVolumeClaim; readonly storageClass: StorageClass | undefined },
): string | undefined {
  const { driver }: OriginDescription = ORIGINS[from];
  if (driver === undefined) return `StorageClass ${name}: the classes of local volumes stay as they are`;
  if (classNameOf(claim) !== name) return `StorageClass ${name} is not that of the claim`;
  const { provisioner = driver } = storageClass ?? {};
  if (provisioner !== driver && provisioner !== driverName) {
    return `StorageClass ${name} is of ${provisioner}, not of ${ORIGINS[from].title}`;
  }
  const secret = Object.keys(parameters).find((key) => key.startsWith(RESERVED) && key !== FS_TYPE);
  return secret && `StorageClass ${name}: an import sets no parameter ${secret}`;
}

/** Returns in words that another import, which is not finished, imports the same volume; `undefined` when it does not. */
export function conflictOf(
  { claim, logicalVolume }: Pick<LvmImportSpec, "claim" | "logicalVolume">,
  other: LvmImport,
): string | undefined {
  if (isFinished(other)) return undefined;
  const { claim: { namespace, name, uid }, logicalVolume: { volumeGroupUUID, name: lvName } } = other.spec;
  const isSameLv = volumeGroupUUID === logicalVolume.volumeGroupUUID && lvName === logicalVolume.name;
  const what = uid === claim.uid ? "claim" : isSameLv ? "logical volume" : undefined;
  return what && `LVMImport ${other.metadata.name} imports the same ${what}, for claim ${namespace}/${name}`;
}

/** Reports whether an import comes before another one that has changed nothing yet: it has, or was asked for earlier. */
function isEarlier({ metadata, status }: LvmImport, { metadata: own }: LvmImport): boolean {
  if (metadata.uid === own.uid) return false;
  if (status?.persistentVolume !== undefined) return true;
  const [time = "", ownTime = ""] = [metadata.creationTimestamp, own.creationTimestamp];
  return time === ownTime ? metadata.uid! < own.uid! : time < ownTime;
}

/** Reports whether a PersistentVolume is of the driver that an import names. */
function isOfOrigin({ spec: { from } }: LvmImport, { spec }: PersistentVolume): boolean {
  const { driver }: OriginDescription = ORIGINS[from];
  return driver === undefined ? spec?.local !== undefined : spec?.csi?.driver === driver;
}
