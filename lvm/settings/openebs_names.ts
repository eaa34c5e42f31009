/**
 * The parameters of OpenEBS LVM LocalPV, and their meaning here. Their names are accepted in any case.
 *
 * @module
 */

import { type SettingName, SETTINGS, type SnapshotSettingName } from "./settings.ts";

/** A parameter of a StorageClass of OpenEBS. */
export interface OpenEbsParameter {
  /** The parameters that it is parsed as; absent if it is parsed under its own name. */
  readonly settings?: readonly SettingName[];
  /** The accepted values, where they are not those of the setting. */
  readonly values?: readonly string[];
  /** Its meaning, or what its meaning adds to that of the setting: a clause in Markdown. */
  readonly meaning?: string;
}

/** The parameters of StorageClasses, by the names that OpenEBS writes. */
export const OPENEBS_PARAMETERS = {
  volgroup: { settings: ["volumeGroup"] },
  vgpattern: {
    meaning:
      "a pattern that may match any part of the name. `volumeGroup` and `volumeGroupPattern` take precedence over it",
  },
  fsType: { settings: ["fsType"] },
  shared: {
    settings: ["shared"],
    meaning: `The default differs: a StorageClass that does not set it gets \`${SETTINGS.shared.default}\``,
  },
  thinProvision: {
    settings: ["thinProvision"],
    values: ["", ...SETTINGS.thinProvision.values],
    meaning: `Empty is \`${SETTINGS.thinProvision.default}\``,
  },
  storage: { values: ["", "lvm"], meaning: "only `lvm`, or empty" },
  scheduler: {
    values: ["", "SpaceWeighted"],
    meaning: "only `SpaceWeighted`, which is `volumeGroupPreference: mostFree`, or empty",
  },
  formatOptions: { settings: ["mkfsOptions"] },
  qosIopsLimit: { settings: ["readIops", "writeIops"] },
  qosIopsReadLimit: { settings: ["readIops"] },
  qosIopsWriteLimit: { settings: ["writeIops"] },
  qosBandwithPerSec: { settings: ["readBps", "writeBps"] },
  qosBandwithReadPerSec: { settings: ["readBps"] },
  qosBandwithWritePerSec: { settings: ["writeBps"] },
} as const satisfies Readonly<Record<string, OpenEbsParameter>>;

/** The parameters of StorageClasses that have no meaning here, by the names that OpenEBS writes, each with a remedy. */
export const OPENEBS_REFUSED_PARAMETERS = {
  raidType: "use layout",
  stripeCount: "use stripes",
  integrity: "use raidIntegrity",
  noSync: "omit it",
  lvCreateOptions: "use layout, stripes, stripeSize and mirrors",
} as const satisfies Readonly<Record<string, string>>;

/** The parameters of VolumeSnapshotClasses, by the names that OpenEBS writes, and the parameters of each. */
export const OPENEBS_SNAPSHOT_PARAMETERS = {
  snapSize: { settings: ["snapSize"] },
} as const satisfies Readonly<Record<string, { readonly settings: readonly SnapshotSettingName[] }>>;

/** Returns the names under which parameters are parsed, by the names of OpenEBS in lower case. */
export function openEbsAliases(
  parameters: Readonly<Record<string, Omit<OpenEbsParameter, "settings"> & { readonly settings?: readonly string[] }>>,
): ReadonlyMap<string, readonly string[]> {
  return new Map(Object.entries(parameters).map(([name, { settings }]) => [name.toLowerCase(), settings ?? [name]]));
}
