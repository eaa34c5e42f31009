/**
 * The parameters of volumes that the driver accepts.
 *
 * @module
 */

import { type Setting, SETTING_NAMES, type SettingName, SETTINGS } from "../../lvm/spec/settings.ts";
import { code, table } from "./markdown.ts";

const SEE_IO_LIMITS = "See [IO limits](#io-limits).";

/** The notes of the reference on settings, in Markdown; links are relative to docs/reference. */
const NOTES: Readonly<Partial<Record<SettingName, string>>> = {
  volumeGroupPreference: "Ties are resolved by name. With `Immediate` also for nodes.",
  mkfsOptions: "See [mkfs options](mkfs-options.md).",
  shared: "`yes`: as many as the access mode allows. `no`: one.",
  erase: "`zero`: overwritten with zeros before the space is reused. `discard`: discarded, best effort. " +
    "`none`: kept on the disk.",
  readIops: SEE_IO_LIMITS,
  writeIops: SEE_IO_LIMITS,
  readBps: SEE_IO_LIMITS,
  writeBps: SEE_IO_LIMITS,
  thinProvision:
    "A thick volume allocates all space when it is created. See [thin volumes](../guides/thin-volumes.md).",
  thinPool: "Without it, the default pool of the volume group, which is created when it is first needed.",
  thinPoolSize: "A percentage is that of the free space in the volume group at that time.",
  layout: "See [layouts](#layouts).",
  discard: "See [discard](../guides/discard.md).",
  fstrim: "See [discard](../guides/discard.md).",
};

/** Returns the table of the parameters of volumes. */
export function parametersTable(): string {
  const rows = SETTING_NAMES.map((name) => {
    const { meaning, values, default: defaultValue }: Setting = SETTINGS[name];
    return [
      code(name),
      typeof defaultValue === "string" ? code(defaultValue) : defaultValue.words,
      "form" in values ? values.form : values.map(code).join(", "),
      [meaning, NOTES[name]].filter((text) => text !== undefined).join(" "),
    ];
  });
  return table(["Parameter", "Default", "Values", "Meaning"], rows);
}
