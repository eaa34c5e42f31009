import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import layouts from "../../tests/fixtures/report_layouts.json" with { type: "text" };
import captured from "../../tests/fixtures/report.json" with { type: "text" };
import spare from "../../tests/fixtures/report_spare_disks.json" with { type: "text" };
import { FakeMachine } from "../../tests/fake/machine.ts";
import { StorageError } from "../error.ts";
import type { LogicalVolume } from "./report.ts";
import { parseReport } from "./report_parser.ts";
import { REPORT_COMMAND } from "./report_command.ts";

Deno.test("parseReport() reads what LVM 2.03.16 wrote: groups without LVs, inactive LVs, an overflowed snapshot", () => {
  const [first, second] = parseReport(captured);
  assertEquals([first?.name, first?.extentSize, first?.missingPvs, first?.writeable], ["vg1", 4194304n, 0, true]);
  assertEquals(first?.tags, ["denolith.used=v1-11111111111111111111111111111111:abc"]);
  const [idle, snapshot, volume] = first!.lvs;
  assertEquals([idle?.active, idle?.deviceNumber, idle?.open, idle?.origin], [false, undefined, false, undefined]);
  assertEquals(volume, {
    name: "vol-11111111111111111111111111111111",
    uuid: volume!.uuid,
    size: 67108864n,
    tags: [
      "denolith.fs=wanted:ext4",
      "denolith.volume=v1-11111111111111111111111111111111",
      "denolith=lvm.denolith.dev",
    ],
    devicePath: "/dev/mapper/vg1-vol--11111111111111111111111111111111",
    deviceNumber: "253:0",
    active: true,
    suspended: false,
    open: true,
    layout: ["linear"],
    segment: { type: "linear", stripes: 1, stripeSize: 0n },
    pvSegments: [],
    health: "",
    incomplete: false,
    invalidSnapshot: false,
    createdAt: volume!.createdAt,
  });
  assertEquals([snapshot?.origin, snapshot?.originSize, snapshot?.invalidSnapshot, snapshot?.snapshotPercent], [
    volume!.name,
    67108864n,
    true,
    100,
  ]);
  assertEquals([second?.name, second?.lvs.length], ["vg2", 1]);
});

Deno.test("parseReport() reads whether LVs are active as LVM 2.03.31 writes it: as a flag instead of a word", () => {
  const flags = captured.replaceAll('"lv_active":"active"', '"lv_active":"1"').replaceAll(
    '"lv_active":""',
    '"lv_active":"0"',
  );
  assertNotEquals(flags, captured);
  assertEquals(parseReport(flags), parseReport(captured));
});

Deno.test("parseReport() reads how LVs are laid out, on which disks, and their hidden parts as parts of them", () => {
  const [group] = parseReport(layouts);
  const [snapshot, raid1, raid5, striped] = group!.lvs;
  const names = ["/dev/loop0", "/dev/loop1", "/dev/loop2"];
  assertEquals(group!.pvs.map(({ path, free, missing }) => [path, free / group!.extentSize, missing]), [
    [names[0], 12n, false],
    [names[1], 0n, false], // not allocatable
    [names[2], 16n, false],
  ]);
  assertEquals(group!.free / group!.extentSize, 28n, "not what is free on the disk that is not allocatable");
  const segmentsOf = ({ pvSegments }: LogicalVolume) =>
    pvSegments.map(({ subLv, pvUuid, size }) => [
      subLv,
      names[group!.pvs.findIndex(({ uuid }) => uuid === pvUuid)],
      Number(size / group!.extentSize),
    ]).sort();
  assertEquals([raid1!.segment, raid1!.raid], [
    { type: "raid1", stripes: 2, stripeSize: 0n },
    { action: "idle", syncPercent: 100, mismatches: 0 },
  ]);
  assertEquals(segmentsOf(raid1!), [
    ["rimage_0", names[0], 5],
    ["rimage_1", names[2], 5],
    ["rmeta_0", names[0], 1],
    ["rmeta_1", names[2], 1],
  ]);
  assertEquals(raid5!.segment, { type: "raid5", stripes: 3, stripeSize: 131072n });
  assertEquals([striped!.segment, striped!.active, striped!.raid], [
    { type: "striped", stripes: 2, stripeSize: 65536n },
    false,
    undefined,
  ]);
  assertEquals(segmentsOf(striped!), [["", names[0], 2], ["", names[1], 2]]);
  assertEquals([snapshot!.segment.type, segmentsOf(snapshot!)], ["linear", [["", names[0], 2]]]);
});

Deno.test("parseReport() returns no sub LV of a RAID LV, even a visible one, and reports that the LV is incomplete", () => {
  const row = '{"lv_name":"vol-11111111111111111111111111111111", "lv_uuid"';
  const named = (name: string) => {
    const at = layouts.indexOf(row);
    const line = layouts.slice(at, layouts.indexOf("}", at) + 1);
    return layouts.replace(line, `${line}, ${line.replace("vol-11111111111111111111111111111111", name)}`);
  };
  const hidden = parseReport(named("[vol-11111111111111111111111111111111_rmeta_0]"))[0]!;
  assertEquals(hidden.lvs, parseReport(layouts)[0]!.lvs);
  const showing = parseReport(named("vol-11111111111111111111111111111111_rmeta_0"))[0]!;
  assertEquals(showing.lvs.map(({ incomplete }) => incomplete), [false, true, false, false]);
  const checksums = "vol-11111111111111111111111111111111_rimage_0_imeta";
  assertEquals(parseReport(named(`[${checksums}]`))[0]!.lvs, parseReport(layouts)[0]!.lvs);
  const [, loose] = parseReport(named(checksums))[0]!.lvs;
  assertEquals([loose?.incomplete, loose?.looseChecksums?.map(({ name }) => name)], [true, [checksums]]);
});

Deno.test("parseReport() reads the cache of an LV from the parts that LVM 2.03.16 names, and free space for caches apart", () => {
  const name = "vol-11111111111111111111111111111111";
  const parsed = (change: (text: string) => string) => parseReport(change(captured))[0]!;
  const rowOf = (text: string) => {
    const at = text.indexOf(`{"lv_name":"${name}", "lv_uuid"`);
    return text.slice(at, text.indexOf("}", at) + 1);
  };
  const row = rowOf(captured);
  const cachedRow = row.replace(/"origin":"[^"]*"/, `"origin":"[${name}_corig]"`)
    .replace('"lv_layout":"linear"', '"lv_layout":"cache", "pool_lv":"[cache-1_cvol]"');
  const pvsegs = `"pvseg": [{"pv_uuid":"a", "pvseg_size":"16", "lv_name":"[${name}_corig]"}, ` +
    '{"pv_uuid":"b", "pvseg_size":"5", "lv_name":"[cache-1_cvol]"}, {"pv_uuid":"c", "pvseg_size":"3", "lv_name":"[cache-1_cvol]"}, ';
  const { lvs, extentSize } = parsed((text) => text.replace(row, cachedRow).replace(/"pvseg": \[/, pvsegs));
  const lv = lvs.find((lv) => lv.name === name)!;
  assertEquals(lv.cache, { name: "cache-1", size: 8n * extentSize });
  assertEquals([lv.origin, lv.incomplete, lv.pvSegments], [undefined, false, [
    { subLv: "corig", pvUuid: "a", size: 16n * extentSize },
  ]]);
  const isPlain = ({ cache }: LogicalVolume) => cache === undefined;
  assertEquals(lvs.filter((each) => each !== lv).every(isPlain) && parsed((text) => text).lvs.every(isPlain), true);

  const before = parsed((text) => text);
  const tagged = parsed((text) => text.replace('"pv_missing"', '"pv_tags":"slow,denolith.cache", "pv_missing"'));
  const [pv] = tagged.pvs;
  assertEquals([pv!.free, pv!.cacheFree], [0n, before.pvs[0]!.free]);
  assertEquals(tagged.free, before.free - before.pvs[0]!.free);
});

Deno.test("parseReport() reads past disks that are in no group: a part without group and LVs", () => {
  assertEquals(parseReport(spare).map(({ name, lvs }) => [name, lvs.length]), [["fast", 0], ["data", 3]]);
  assertThrows(() => parseReport(spare.replaceAll('"pv": [', '"odd": [')), StorageError, "expected a list");
});

Deno.test("parseReport() reads past the message of LVM 2.03.16 that it reads unreadable metadata again", () => {
  const expected = parseReport(captured);
  for (const line of [2, 5]) {
    const lines = captured.split("\n");
    assertEquals(parseReport(lines.toSpliced(line, 0, "  Retrying metadata scan.").join("\n")), expected);
  }
  assertThrows(() => parseReport(`Something else.\n${captured}`), StorageError, "not JSON");
});

Deno.test("parseReport() throws CommandFailed for anything that is not such a report", () => {
  const odd = [
    "",
    captured.slice(0, captured.length / 2),
    "null",
    "{}",
    '{"report": {}}',
    '{"report": [{}]}',
    '{"report": [{"vg": [], "lv": []}]}',
    captured.replace('"vg_size":"', '"vg_size":"-'),
    captured.replace(/"vg_size":"\d+"/, '"vg_size":"1.5g"'),
    captured.replace(/"vg_extent_size":"\d+"/, '"vg_extent_size":"0"'),
    captured.replace(/"lv_uuid":"[^"]*", /, ""),
    captured.replace(/"lv_device_open":"1"/, '"lv_device_open":"open"'),
    captured.replace(/"snap_percent":"\d+\.\d+"/, '"snap_percent":"nan"'),
    layouts.replace('"sync_percent":"100.00"', '"sync_percent":"all"'),
    layouts.replace('"raid_mismatch_count":"0"', '"raid_mismatch_count":"some"'),
  ];
  for (const text of odd) assertEquals(assertThrows(() => parseReport(text), StorageError).kind, "CommandFailed", text);
});

Deno.test("parseReport() reads thin pools, thin volumes, and thin snapshots, which have no origin_size", () => {
  const row = {
    ...{ lv_uuid: "u", lv_size: "67108864", lv_tags: "", lv_dm_path: "/dev/mapper/x", lv_kernel_major: "253" },
    ...{ lv_kernel_minor: "4", lv_active: "active", lv_suspended: "0", lv_device_open: "0", lv_time: "1" },
    ...{ origin: "", origin_size: "", lv_snapshot_invalid: "-1", snap_percent: "", lv_metadata_size: "" },
    ...{ lv_health_status: "", pool_lv: "", data_percent: "", metadata_percent: "" },
    ...{ sync_percent: "", raid_sync_action: "", raid_mismatch_count: "" },
  };
  const thin = { ...row, lv_layout: "thin,sparse", lv_attr: "Vwi-a-tz--", pool_lv: "pool", data_percent: "1.25" };
  const numbers = { data_percent: "80.12", metadata_percent: "10.84", lv_metadata_size: "4194304" };
  const pool = { ...row, lv_layout: "thin,pool", lv_attr: "twi-aotzD-", lv_health_status: "out_of_data", ...numbers };
  const lvs = [
    { ...pool, lv_name: "pool" },
    { ...thin, lv_name: "volume" },
    { ...thin, lv_name: "snapshot", origin: "volume" },
  ];
  const answer = JSON.parse(captured);
  answer.report[0].lv = lvs;
  answer.report[0].seg = [
    { lv_name: "pool", segtype: "thin-pool", stripes: "1", stripe_size: "0", transaction_id: "7" },
    { lv_name: "volume", segtype: "thin", stripes: "0", stripe_size: "0", transaction_id: "3" },
  ];
  const parts = ["[pool_tdata_rimage_0]", "[pool_tdata_rmeta_0]", "[pool_tmeta]", "[lvol0_pmspare]"];
  answer.report[0].pvseg = parts.map((lv_name) => ({ lv_name, pv_uuid: "d", pvseg_size: "2" }));
  const [readPool, volume, snapshot] = parseReport(JSON.stringify(answer))[0]!.lvs;
  assertEquals(readPool?.pvSegments.map(({ subLv }) => subLv), ["tdata_rimage_0", "tdata_rmeta_0", "tmeta"]);
  assertEquals([volume?.pvSegments, volume?.segment.type, volume?.incomplete], [[], "thin", false]);
  assertEquals([readPool, volume, snapshot].map((lv) => lv?.segment.transactionId), [7n, 3n, undefined]);
  assertEquals([readPool?.pool, readPool?.thinPool], [undefined, {
    dataPercent: 80.12,
    metadataSize: 4194304n,
    metadataPercent: 10.84,
    health: "out_of_data",
    needsCheck: false,
    zeroes: true,
  }]);
  assertEquals([volume?.pool, volume?.thinPool, volume?.origin], ["pool", undefined, undefined]);
  assertEquals([snapshot?.pool, snapshot?.origin, snapshot?.originSize], ["pool", "volume", undefined]);
});

Deno.test("REPORT_COMMAND asks for the fields that the captured report has of LVs, their segments and PVs", () => {
  const [rows] = JSON.parse(captured).report;
  const { args } = REPORT_COMMAND;
  for (const part of ["lv", "seg", "pv"]) {
    const [option, fields] = args.slice(args.indexOf(part) + 1); // after --configreport PART
    assertEquals(option, "--options");
    const missing = Object.keys(rows[part][0]).filter((field) => !fields!.split(",").includes(field));
    assertEquals(missing, [], part);
  }
});

Deno.test("parseReport() reads the name of a device with unusual characters, of which LVM does not escape the backslashes", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const { stdout } = await machine.run(REPORT_COMMAND);
  const [group] = parseReport(stdout.replaceAll("/dev/vdb", String.raw`/dev/mapper/luks\x281\x29`));
  assertEquals(group?.pvPaths, [String.raw`/dev/mapper/luks\x281\x29`]);
});
