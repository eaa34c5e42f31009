/**
 * The parameters of volumes and of snapshots that the driver accepts.
 *
 * @module
 */

import {
  OPENEBS_PARAMETERS,
  OPENEBS_SNAPSHOT_PARAMETERS,
  openEbsAliases,
  type OpenEbsParameter,
} from "../../lvm/settings/openebs_names.ts";
import { IO_LIMIT_VALUES } from "../../lvm/settings/io_limits.ts";
import { type Bounds, LAYOUTS, type LayoutSpec } from "../../lvm/settings/layouts.ts";
import {
  type Setting,
  SETTING_NAMES,
  type SettingName,
  SETTINGS,
  SNAPSHOT_SETTING_NAMES,
  SNAPSHOT_SETTINGS,
} from "../../lvm/settings/settings.ts";
import { code, termList } from "./markdown.ts";

/** The notes of the reference on settings, in Markdown; links are relative to docs/reference. */
const NOTES: Readonly<Partial<Record<SettingName, string>>> = {
  volumeGroupPreference: "Ties are resolved by name. With `Immediate` also for nodes.",
  mkfsOptions: "See [mkfs options](filesystems.md#mkfs-options).",
  shared: "`yes`: as many as the access mode allows. `no`: one.",
  erase: "`zero`: overwritten before it is free. `discard`: discarded, best effort. " +
    "`none`: kept on the disk.",
  encryption: "See [encrypted volumes](../guides/encryption.md).",
  thinProvision:
    "A thick volume allocates all space when it is created. See [thin volumes](../guides/thin-volumes.md).",
  thinPool: "Without it, the default pool of the volume group, which is created when it is first needed.",
  thinPoolSize: "A percentage is that of the free space in the volume group at that time.",
  layout: "See [layouts](#layouts).",
  discard: "See [discard](../guides/thin-volumes.md#discard-and-fstrim).",
  fstrim: "See [discard](../guides/thin-volumes.md#discard-and-fstrim).",
};

/** The names of the IO limits, which have a list of their own. */
const IO_LIMITS: readonly string[] = IO_LIMIT_VALUES.flatMap(({ parameters }) => parameters);

/** Returns the list of the parameters of volumes, without the IO limits. */
export function volumeParameters(): string {
  return termList(
    SETTING_NAMES.filter((name) => !IO_LIMITS.includes(name)).map((name) => {
      const setting: Setting = SETTINGS[name];
      const meaning = [setting.meaning, NOTES[name]].filter((text) => text !== undefined).join(" ");
      return [code(name), notes(setting), meaning];
    }),
  );
}

/** Returns the list of the layouts. */
export function layoutsList(): string {
  const range = (parameter: string, bounds: Bounds | undefined) => {
    if (bounds === undefined) return "";
    const { min, max } = bounds;
    return `${code(parameter)} ${min === max ? `${min}` : `${min} to ${max}, by default ${min}`}`;
  };
  return termList(
    Object.entries<LayoutSpec>(LAYOUTS).map(([name, { stripes, mirrors, pvs, space, survives }]) => [
      code(name),
      [range("stripes", stripes), range("mirrors", mirrors)],
      `physical volumes: ${pvs}; 1 GiB takes ${space}; survives ${survives}`,
    ]),
  );
}

/** Returns the list of the values of IO limits. */
export function ioLimits(): string {
  return termList(IO_LIMIT_VALUES.map(({ parameters, values }) => [parameters.map(code).join(", "), [], values]));
}

/** Returns the list of the names of OpenEBS' parameters. */
export function openEbsNames(): string {
  return termList(
    Object.entries<OpenEbsParameter>(OPENEBS_PARAMETERS).map(([name, { settings, meaning }]) => [
      code(name),
      [],
      [settings?.map(code).join(" and "), meaning].filter((text) => text !== undefined).join(". "),
    ]),
  );
}

/** Returns the list of the parameters of snapshots. */
export function snapshotParameters(): string {
  const inAnyCase = [...openEbsAliases(OPENEBS_SNAPSHOT_PARAMETERS).values()].flat();
  return termList(SNAPSHOT_SETTING_NAMES.map((name) => {
    const setting = SNAPSHOT_SETTINGS[name];
    return [code(name), [inAnyCase.includes(name) ? "in any case" : "", ...notes(setting)], setting.meaning];
  }));
}

/** Returns the values of a setting, and its default. */
function notes({ default: byDefault, values }: Pick<Setting, "default" | "values">): string[] {
  const form = "form" in values ? values.form : values.map(code).join(", ");
  const text = typeof byDefault === "string" ? code(byDefault) : byDefault.words;
  return [form, text === "" ? "" : `by default ${text}`];
}
