/**
 * The selections that the fake machine's `lvm` knows, after LVM 2.03 (lvmreport(7), "SELECTION").
 *
 * @module
 */

import type { FakeGroup, FakeLv, FakeMachine } from "./machine.ts";
import { isOpen } from "./reports.ts";
import { lvHealthStatus } from "./pvs.ts";

/** The terms, by their forms. */
const TERMS: readonly [RegExp, (group: FakeGroup, lv: FakeLv, value: string, machine: FakeMachine) => boolean][] = [
  [/^lv_uuid=([\w-]{38})$/, (_group, lv, uuid) => lv.uuid === uuid],
  [/^lv_tags="([^"]+)"$/, (_group, lv, tag) => lv.tags.has(tag)],
  [/^lv_tags!="([^"]+)"$/, (_group, lv, tag) => !lv.tags.has(tag)],
  [/^lv_role!=origin$/, (group, lv) => group.lvs.every(({ origin }) => origin?.name !== lv.name)],
  [/^lv_health_status=""$/, (group, lv) => lvHealthStatus(group, lv) === ""],
  [/^lv_device_open=0$/, (_group, lv, _value, machine) => lv.active && !isOpen(machine, lv)],
  [/^vg_tags!="([^"]+)"$/, (group, _lv, tag) => !group.tags.has(tag)],
  [/^vg_missing_pv_count=0$/, ({ missingPvs }) => missingPvs === 0],
];

/** What a selection of several selections ends with that requires all physical volumes. */
const ALL_PVS = ") && vg_missing_pv_count=0";

/**
 * Reports whether an LV is in the selection of a command; any LV is without one.
 *
 * @throws {Error} for a selection without UUID, or with a term that the fake does not know: a mistake of the driver
 */
export function isSelected(
  machine: FakeMachine,
  options: ReadonlyMap<string, readonly string[]>,
  { group, lv }: { readonly group: FakeGroup; readonly lv: FakeLv },
): boolean {
  const [text] = options.get("--select") ?? [];
  if (text === undefined) return true;
  if (!text.startsWith("(")) return isInSelection(text, { group, lv }, machine);
  // LVM 2.03.16 evaluates this one for the first LV only, and then takes what it knows for the others
  if (text.includes("lv_device_open")) throw new Error(`an odd selection: ${text}`);
  if (text.endsWith(ALL_PVS)) {
    return group.missingPvs === 0 && isAnySelected(text.slice(1, -ALL_PVS.length), { group, lv }, machine);
  }
  return isAnySelected(text, { group, lv }, machine);
}

function isAnySelected(
  text: string,
  { group, lv }: { readonly group: FakeGroup; readonly lv: FakeLv },
  machine: FakeMachine,
): boolean {
  const results = text.split(" || ").map((selection) => {
    const [, inner] = /^\((.+)\)$/.exec(selection) ?? [];
    if (inner === undefined) throw new Error(`an odd selection: ${text}`);
    return isInSelection(inner, { group, lv }, machine);
  });
  return results.some(Boolean);
}

function isInSelection(
  text: string,
  { group, lv }: { readonly group: FakeGroup; readonly lv: FakeLv },
  machine: FakeMachine,
): boolean {
  if (!text.startsWith("lv_uuid=")) throw new Error(`an odd selection: ${text}`);
  const results = text.split(" && ").map((term) => {
    for (const [form, matches] of TERMS) {
      const match = form.exec(term);
      if (match !== null) return matches(group, lv, match[1] ?? "", machine);
    }
    throw new Error(`an odd selection: ${text}`);
  });
  return results.every(Boolean);
}
