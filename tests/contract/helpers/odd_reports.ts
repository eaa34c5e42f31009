/**
 * What LVM may print in a report beside what the driver made: LVs, groups and disks of others that cannot be read, and texts
 * between the lines.
 *
 * @module
 */

import type { Exec } from "../../../lvm/exec.ts";

type Fields = Readonly<Record<string, unknown>>;
type Entry = Record<string, readonly Fields[]>;

/** An LV of somebody else, inactive. */
const LV: Fields = {
  ...{ lv_uuid: "odd", lv_size: "4194304", lv_tags: "", lv_dm_path: "/dev/mapper/odd", lv_kernel_major: "-1" },
  ...{
    lv_kernel_minor: "-1",
    lv_active: "",
    lv_suspended: "-1",
    lv_device_open: "-1",
    lv_layout: "linear",
    origin: "",
  },
  ...{ origin_size: "", lv_snapshot_invalid: "-1", snap_percent: "", lv_time: "1", lv_attr: "-wi-------" },
  ...{ lv_health_status: "", pool_lv: "", data_percent: "", metadata_percent: "", lv_metadata_size: "" },
  ...{ sync_percent: "", raid_sync_action: "", raid_mismatch_count: "", lv_when_full: "" },
};

/** What is odd about LVs, by a name of the LV. LVM refuses to change a group with an LV of a type that it does not know. */
const ODD_LVS: Readonly<Record<string, Fields>> = {
  "no-time": { lv_time: "" }, // made before LVM recorded it
  "no-size": { lv_size: "" },
  "huge": { lv_size: "99999999999999999999" },
  "words": { lv_suspended: "unknown", lv_device_open: "undefined", lv_snapshot_invalid: "unknown" },
  "percentages": { snap_percent: "-1.00", sync_percent: "nan", raid_sync_action: "idle" },
  "pool": { lv_layout: "thin,pool", lv_attr: "twi-aotz--", data_percent: "all", lv_metadata_size: "" },
  "fields-missing": { lv_dm_path: null, lv_health_status: undefined },
};

/** Groups of others that cannot be read, each with an LV. */
const ODD_GROUPS: Readonly<Record<string, { readonly vg?: Fields; readonly pv?: Fields }>> = {
  "odd-extents": { vg: { vg_extent_size: "0" } },
  "odd-size": { vg: { vg_size: "", vg_missing_pv_count: "-1" } },
  "odd-permissions": { vg: { vg_permissions: null, vg_exported: "unknown", vg_mda_size: "", vg_mda_free: "all" } },
  "odd-disk": { pv: { pv_pe_count: "", pv_mda_free: "some" } },
  "odd-name": { pv: { pv_name: String.raw`/dev/mapper/luks\x281\x29` } },
};

/** What LVM prints on standard output beside a report. */
const MESSAGES = [
  "  Retrying metadata scan.",
  "  Consider pruning more than 8192 archived VG metadata files in /etc/lvm/archive.",
];

/** Returns an exec whose reports have all of it, too. */
export function withOddRows(exec: Exec): Exec {
  return {
    run: async (command) => {
      const output = await exec.run(command);
      const isReport = command.args[0] === "fullreport" && output.code === 0;
      return isReport ? { ...output, stdout: addOddRows(output.stdout) } : output;
    },
    idle: () => exec.idle(),
    readMountTable: async () => await exec.readMountTable?.(),
  };
}

function addOddRows(stdout: string): string {
  const { report } = JSON.parse(stdout) as { report: Entry[] };
  const groups = report.filter(({ vg }) => vg !== undefined);
  for (const [name, { vg, pv }] of Object.entries(ODD_GROUPS)) {
    const group = {
      ...{ vg_name: name, vg_uuid: name, vg_size: "67108864", vg_extent_size: "4194304", vg_missing_pv_count: "0" },
      ...{ vg_exported: "0", vg_permissions: "writeable", vg_tags: "", vg_clustered: "0" },
    };
    const disk = {
      ...{ pv_name: `/dev/${name}`, pv_uuid: name, pv_missing: "0", pv_allocatable: "1", pv_pe_count: "0" },
      ...{ pv_pe_alloc_count: "0", pv_tags: "" },
    };
    const lv = [{ ...LV, lv_name: "lv", lv_uuid: name }];
    report.unshift({ vg: [{ ...group, ...vg }], pv: [{ ...disk, ...pv }], lv, pvseg: [], seg: [] });
  }
  for (const entry of groups) {
    const lvs = Object.entries(ODD_LVS).map(([name, odd]) => ({ ...LV, lv_name: name, lv_uuid: name, ...odd }));
    const segments = lvs.map(({ lv_name }) => ({ lv_name, segtype: "weird", stripes: "-1", stripe_size: "" }));
    entry.lv = [...lvs, ...entry.lv!];
    entry.seg = [...segments, ...entry.seg!];
  }
  report.push({ pv: [{ pv_name: "/dev/odd", pv_uuid: null, pv_pe_count: "" }], pvseg: [] });
  const lines = JSON.stringify({ report }, null, 2).split("\n");
  return lines.flatMap((line, index) => [MESSAGES[index % MESSAGES.length]!, line]).join("\n");
}
