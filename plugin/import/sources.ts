/**
 * What the plan of an import is decided from.
 *
 * @module
 */

import type { Erasure } from "../../lvm/model/tags.ts";
import type { LvmNode, LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type {
  KubeObject,
  Lease,
  PersistentVolume,
  PersistentVolumeClaim,
  StorageClass,
} from "../../k8s/api/objects.ts";
import type { LvmImport, Origin } from "../../k8s/handover/imports.ts";

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
