import { assertEquals, assertNotEquals, assertThrows } from "@std/assert";
import layouts from "../../tests/fixtures/report_layouts.json" with { type: "text" };
import captured from "../../tests/fixtures/report.json" with { type: "text" };
import spare from "../../tests/fixtures/report_spare_disks.json" with { type: "text" };
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { StorageError } from "../../base/error.ts";
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
});

Deno.test("parseReport() reads past the messages that LVM prints between the lines of a report", () => {
  const expected = parseReport(captured);
  const messages = [
    "  Retrying metadata scan.",
    "  Consider pruning 8192 VG archive files with more than 128 MiB in /etc/lvm/archive (see archiving settings in lvm.conf).",
    "fullreport: something else",
  ];
  for (const line of [0, 2, 5, captured.trimEnd().split("\n").length]) {
    for (const message of messages) {
      const lines = captured.trimEnd().split("\n");
      assertEquals(parseReport(lines.toSpliced(line, 0, message).join("\n")), expected, `${message} in line ${line}`);
    }
  }
});

Deno.test("parseReport() throws CommandFailed for what is not the JSON of a report", () => {
  for (const text of ["", captured.slice(0, captured.length / 2), "null", "{}", '{"report": {}}']) {
    assertEquals(assertThrows(() => parseReport(text), StorageError).kind, "CommandFailed", text);
  }
});

Deno.test("parseReport() marks an LV as unreadable for anything that LVM does not write there, and reads all else", () => {
  const id = "vol-11111111111111111111111111111111";
  const odd: [string, RegExp, string, string][] = [
    ["size", /("lv_name":"vol-1[^}]*"lv_size":")\d+/, "$1-1", "lv_size: expected a number of 0 or more"],
    ["flag", /("lv_name":"vol-1[^}]*"lv_device_open":")1/, "$1open", "lv_device_open: expected an integer"],
    ["no path", /("lv_name":"vol-1[^}]*)"lv_dm_path":"[^"]*", /, "$1", "lv_dm_path: expected text, found nothing"],
    ["percent", /("lv_name":"vol-1[^}]*"snap_percent":")/, "$1nan", "snap_percent: expected a percentage"],
    ["segment", /("lv_name":"vol-1\d+", "segtype":"linear", "stripes":")1/, "$1-1", "stripes: expected"],
  ];
  for (const [name, pattern, replacement, reason] of odd) {
    const text = captured.replace(pattern, replacement);
    assertNotEquals(text, captured, name);
    const [group, ...others] = parseReport(text);
    const [normal, ...normalOthers] = parseReport(captured);
    const isThis = (lv: LogicalVolume) => lv.name === id;
    assertEquals([group!.responsive, others], [true, normalOthers], name);
    assertEquals(group!.lvs.filter((lv) => !isThis(lv)), normal!.lvs.filter((lv) => !isThis(lv)), name);
    const [lv, before] = [group, normal].map((each) => each!.lvs.find(isThis)!);
    assertEquals([lv!.uuid, lv!.tags], [before!.uuid, before!.tags], "whose it is, is known");
    assertEquals(lv!.unreadable?.startsWith(reason), true, lv!.unreadable);
    assertEquals(group!.unreadable, [`logical volume ${id}: ${lv!.unreadable}`]);
  }
});

Deno.test("parseReport() reads an LV without a time of its creation, as old versions of LVM made them", () => {
  const [group] = parseReport(captured.replaceAll(/"lv_time":"\d+"/g, '"lv_time":""'));
  assertEquals(group!.lvs.map(({ createdAt, unreadable }) => [createdAt, unreadable]), [
    [0, undefined],
    [0, undefined],
    [
      0,
      undefined,
    ],
  ]);
});

Deno.test("parseReport() marks a group as unreadable, and says whether it still shows all LVs", () => {
  const odd: [string, (text: string) => string, boolean][] = [
    ["size", (text) => text.replace('"vg_size":"', '"vg_size":"-'), true],
    ["unit", (text) => text.replace(/"vg_size":"\d+"/, '"vg_size":"1.5g"'), true],
    ["extents", (text) => text.replace(/"vg_extent_size":"\d+"/, '"vg_extent_size":"0"'), true],
    ["tags, which have records of volumes", (text) => text.replace(/"vg_tags":"[^"]*"/, '"vg_tags":null'), false],
    ["an LV of nobody", (text) => text.replace(/"lv_tags":"[^"]*"/, '"lv_tags":null'), false],
    ["an LV without UUID", (text) => text.replace(/"lv_uuid":"[^"]*", /, ""), false],
    ["no list of LVs", (text) => text.replace('"lv": [', '"vl": ['), false],
    ["no group", (text) => text.replace(/"vg": \[\s*\{[^}]*\}/, '"vg": ['), false],
  ];
  for (const [name, change, showsLvs] of odd) {
    const [group, ...others] = parseReport(change(captured));
    assertEquals(others, parseReport(captured).slice(1), name);
    const { responsive, writeable, readError, showsLvs: shows = false } = group!;
    assertEquals([responsive, writeable, readError?.startsWith("LVM's report: "), shows], [
      false,
      false,
      true,
      showsLvs,
    ], name);
  }
});

Deno.test("parseReport() takes nothing of a physical volume that cannot be read", () => {
  for (const field of ["pv_pe_count", "pv_pe_alloc_count", "pv_allocatable"]) {
    const [group] = parseReport(layouts.replace(new RegExp(`("pv_name":"/dev/loop0"[^}]*"${field}":")\\d+`), "$1some"));
    const [before] = parseReport(layouts);
    assertEquals([group!.responsive, group!.pvs[0]!.free, group!.pvPaths], [true, 0n, before!.pvPaths]);
    assertEquals(group!.free, before!.free - before!.pvs[0]!.free);
    assertEquals(group!.unreadable, [`physical volume /dev/loop0: ${field}: expected an integer, found "some"`]);
  }
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

  // the kernel cannot read the pool's metadata: "Failed to parse thin params: Error."
  answer.report[0].lv = [lvs[0], { ...lvs[1], lv_attr: "Vwi-XXtzX-" }, { ...pool, lv_name: "other" }];
  assertEquals(parseReport(JSON.stringify(answer))[0]!.lvs.map((lv) => lv.thinPool?.needsCheck), [
    true,
    undefined,
    false,
  ]);
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
