/**
 * The parameters of OpenEBS LVM LocalPV, and their meaning here. Their names are accepted in any case.
 *
 * @module
 */

import { type SettingName, SETTINGS } from "./settings.ts";
import type { SnapshotSettingName } from "./snapshot_settings.ts";

/** A parameter of a StorageClass of OpenEBS. */
export interface OpenEbsParameter {
  /** The parameter that it is parsed as; absent if it is parsed under its own name. */
  readonly setting?: SettingName;
  /** The accepted values, where they are not those of the setting. */
  readonly values?: readonly string[];
  /** Its meaning, or what its meaning adds to that of the setting: a clause in Markdown. */
  readonly meaning?: string;
}

/** The parameters of StorageClasses, by the names that OpenEBS writes. */
export const OPENEBS_PARAMETERS = {
  volgroup: { setting: "volumeGroup" },
  vgpattern: {
    meaning:
      "a pattern that may match any part of the name. `volumeGroup` and `volumeGroupPattern` take precedence over it",
  },
  fsType: { setting: "fsType" },
  shared: {
    setting: "shared",
    meaning: `The default differs: a StorageClass that does not set it gets \`${SETTINGS.shared.default}\``,
  },
  thinProvision: {
    setting: "thinProvision",
    values: ["", ...SETTINGS.thinProvision.values],
    meaning: `Empty is \`${SETTINGS.thinProvision.default}\``,
  },
  storage: { values: ["", "lvm"], meaning: "only `lvm`, or empty" },
  scheduler: { meaning: "accepted, without effect" },
} as const satisfies Readonly<Record<string, OpenEbsParameter>>;

/** The parameters of VolumeSnapshotClasses, by the names that OpenEBS writes, and the parameter of each. */
export const OPENEBS_SNAPSHOT_PARAMETERS = {
  snapSize: { setting: "snapSize" },
} as const satisfies Readonly<Record<string, { readonly setting: SnapshotSettingName }>>;

/** Returns the names under which parameters are parsed, by the names of OpenEBS in lower case. */
export function openEbsAliases(
  parameters: Readonly<Record<string, Omit<OpenEbsParameter, "setting"> & { readonly setting?: string }>>,
): ReadonlyMap<string, string> {
  return new Map(Object.entries(parameters).map(([name, { setting }]) => [name.toLowerCase(), setting ?? name]));
}
