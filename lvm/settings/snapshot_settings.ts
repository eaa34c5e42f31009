/**
 * The settings of a snapshot: the one table of what a VolumeSnapshotClass can set.
 *
 * @module
 */

import { PERCENT } from "./cow_size.ts";
import type { Setting } from "./settings.ts";

/** The settings, by the names of their parameters. */
export const SNAPSHOT_SETTINGS = {
  snapSize: {
    meaning: "Size of the COW space, in whole extents.",
    values: {
      form: `\`${PERCENT.min}%\` to \`${PERCENT.max}%\` of the volume's size, or a quantity: ` +
        "`512Mi`, `10Gi`, `1.5G`, `4194304`",
      examples: ["1%", "99%", "512Mi", "10Gi", "1.5G", "4194304"],
    },
    default: { words: "space for every block of the volume to change: such a snapshot cannot overflow" },
  },
} as const satisfies Readonly<Record<string, Pick<Setting, "meaning" | "values" | "default">>>;

/** The name of a setting of a snapshot, which is that of its parameter. */
export type SnapshotSettingName = keyof typeof SNAPSHOT_SETTINGS;

/** The names of all settings of a snapshot. */
export const SNAPSHOT_SETTING_NAMES = Object.keys(SNAPSHOT_SETTINGS) as readonly SnapshotSettingName[];
