/**
 * What must still be true before an import changes anything of somebody else.
 *
 * @module
 */

import type { PersistentVolume } from "../api/objects.ts";
import { isFinished, type LvmImport } from "./objects.ts";
import { type OriginDescription, ORIGINS } from "./origins.ts";
import type { ImportObjects } from "./step.ts";

/** Returns why a volume can no longer be taken over, although it could when the import was asked for. */
export function refusalOf({ import: self, persistentVolume, claim, volume }: ImportObjects): string | undefined {
  const { spec, status } = self;
  if (isFinished(self) || status?.persistentVolume !== undefined) return undefined;
  const claimText = `claim ${spec.claim.namespace}/${spec.claim.name}`;
  if (claim === undefined || claim.metadata.uid !== spec.claim.uid) return `${claimText} does not exist any more`;
  if (claim.metadata.deletionTimestamp !== undefined) return `${claimText} is being deleted`;
  const name = spec.persistentVolume;
  if (
    claim.spec?.volumeName !== name || persistentVolume?.spec?.claimRef?.uid !== spec.claim.uid ||
    persistentVolume.status?.phase !== "Bound" || persistentVolume.metadata.deletionTimestamp !== undefined
  ) return `${claimText} is not bound to PersistentVolume ${name}`;
  if (!isOfOrigin(self, persistentVolume)) return `PersistentVolume ${name} is not of ${ORIGINS[spec.from].title}`;
  if (volume !== undefined && volume.spec.imports?.lvName !== spec.logicalVolume.name) {
    return `there is an LVMVolume ${self.metadata.name} already`;
  }
  return undefined;
}

/** Reports whether a PersistentVolume is of the driver that an import names. */
function isOfOrigin({ spec: { from } }: LvmImport, { spec }: PersistentVolume): boolean {
  const { driver }: OriginDescription = ORIGINS[from];
  return driver === undefined ? spec?.local !== undefined : spec?.csi?.driver === driver;
}
