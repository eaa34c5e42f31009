import { assert, assertEquals, assertMatch, assertNotEquals, assertThrows } from "@std/assert";
import { reasonIn, StorageError } from "../base/error.ts";
import { statusOf } from "./status.ts";
import { code } from "../deploy/reference/markdown.ts";
import { LAYOUTS, type LayoutSpec } from "../lvm/settings/layouts.ts";
import { SETTING_NAMES, SNAPSHOT_SETTING_NAMES, SNAPSHOT_SETTINGS } from "../lvm/settings/settings.ts";
import { parametersWith } from "../tests/fake/settings.ts";
import {
  OPENEBS_PARAMETERS,
  OPENEBS_REFUSED_PARAMETERS,
  type OpenEbsParameter,
} from "../lvm/settings/openebs_names.ts";
import { parseGroupList } from "./group_list.ts";
import { parseMutableParameters, parseSnapshotParameters, parseVolumeParameters, trimFor } from "./parameters.ts";

/** Parses parameters into a form that can be compared. */
function parseText(parameters: Readonly<Record<string, string>>) {
  const parsed = parseVolumeParameters(parameters);
  return { ...parsed, groups: String(parsed.groups) };
}

function groupsOf(parameters: Record<string, string>): string[] {
  const { groups } = parseVolumeParameters(parameters);
  return ["data", "data-1", "my-data", "fast"].filter((name) => groups.matches(name));
}

Deno.test("groups: by name, by a pattern of the whole name, and by OpenEBS's unanchored pattern", () => {
  assertEquals(groupsOf({}), ["data", "data-1", "my-data", "fast"]);
  assertEquals(groupsOf({ volumeGroup: "data" }), ["data"]);
  assertEquals(groupsOf({ volgroup: "data" }), ["data"]);
  assertEquals(groupsOf({ volumeGroupPattern: "data.*" }), ["data", "data-1"]);
  assertEquals(groupsOf({ vgpattern: "data" }), ["data", "data-1", "my-data"]);
  assertEquals(groupsOf({ vgPattern: "^data$" }), ["data"]);
});

Deno.test("a StorageClass of OpenEBS LVM LocalPV works as it is", () => {
  const parameters = parseVolumeParameters({
    storage: "lvm",
    volgroup: "lvmvg",
    fsType: "xfs",
    shared: "no",
    thinProvision: "no",
    scheduler: "SpaceWeighted",
  });
  assertEquals([parameters.type, parameters.shared, parameters.groups.matches("lvmvg")], ["xfs", false, true]);
});

Deno.test("what Kubernetes' sidecars add is not ours to read", () => {
  assertEquals(parseVolumeParameters({ "csi.storage.k8s.io/pvc/name": "x" }).type, "ext4");
});

Deno.test("an unknown parameter is refused, and the nearest known one is named", () => {
  const error = assertThrows(() => parseVolumeParameters({ mkfsOption: "-m 0" }), StorageError, "mkfsOptions");
  assertEquals(error.kind, "InvalidArgument");
  assertThrows(() => parseVolumeParameters({ fsType: "xfs", fstype: "ext4" }), StorageError, "given twice");
  assertThrows(() => parseVolumeParameters({ VolumeGroup: "a" }), StorageError, "volumeGroup");
});

Deno.test("the reason of each refused value is that of a wrong parameter, also if it looks like another one", () => {
  // the filesystem decides which mkfs options are valid
  const names = [...SETTING_NAMES.filter((name) => name !== "mkfsOptions"), "vgpattern", "storage"];
  const refused = names.map((name) => {
    const error = assertThrows(() => parseVolumeParameters({ [name]: "/( [Lost]" }), StorageError, name);
    return reasonIn(statusOf(error).details);
  });
  assertEquals([...new Set(refused)], ["WrongParameter"]);
});

Deno.test("parseGroupList() takes names and patterns, also one with a comma in it", () => {
  const groups = parseGroupList("data, /fast-[0-9]{1,2}/");
  assertEquals(["data", "fast-1", "fast-12", "fast-123", "data2"].filter((name) => groups.matches(name)), [
    "data",
    "fast-1",
    "fast-12",
  ]);
  for (const bad of ["", " , ", "a b", "../x", "/(/", "@all"]) assertThrows(() => parseGroupList(bad), StorageError);
});

Deno.test("parseSnapshotParameters() takes a percentage or a quantity", () => {
  assertEquals(parseSnapshotParameters({}), { percent: 100n });
  assertEquals(parseSnapshotParameters({ snapSize: "20%" }), { percent: 20n });
  assertEquals(parseSnapshotParameters({ snapsize: "1Gi" }), { bytes: 1n << 30n });
  assertEquals(parseSnapshotParameters({ snapSize: "20%", deletionPolicy: "Retain" }), { percent: 20n });
  for (const snapSize of ["0%", "101%", "0", "-1", "20 %", "lots", ""]) {
    assertThrows(() => parseSnapshotParameters({ snapSize }), StorageError, "snapSize");
  }
});

Deno.test("parseSnapshotParameters() accepts each example of each setting, and it has an effect", () => {
  for (const name of SNAPSHOT_SETTING_NAMES) {
    const { values: { examples } } = SNAPSHOT_SETTINGS[name];
    for (const value of examples) {
      assertNotEquals(parseSnapshotParameters({ [name]: value }), parseSnapshotParameters({}), value);
      assert(value.endsWith("%") || SNAPSHOT_SETTINGS[name].values.form.includes(code(value)), value);
    }
  }
});

Deno.test("every parameter of OpenEBS is accepted in any case, with the meaning of its setting", () => {
  for (const [name, { settings = [], values }] of Object.entries<OpenEbsParameter>(OPENEBS_PARAMETERS)) {
    const known = SETTING_NAMES.find((each) => each === settings[0]);
    const allowed = values ?? (known === undefined ? ["x"] : parametersWith(known).map((each) => each[known]!));
    assert(allowed.length > 0, name);
    for (const value of allowed) {
      const parsed = parseText({ [name]: value });
      assertEquals(parseText({ [name.toUpperCase()]: value }), parsed, name);
      const meant = Object.fromEntries(settings.map((setting) => [setting, value]));
      if (known !== undefined) assertEquals(parsed, parseText(meant), name);
    }
    if (values !== undefined) assertThrows(() => parseVolumeParameters({ [name]: "odd" }), StorageError, name);
  }
});

Deno.test("the scheduler of OpenEBS has its meaning, and schedulers with another one are refused by name", () => {
  const preference = (parameters: Record<string, string>) => parseVolumeParameters(parameters).preference;
  assertEquals([preference({}), preference({ scheduler: "" })], ["leastFree", "leastFree"]);
  assertEquals(preference({ scheduler: "SpaceWeighted" }), "mostFree");
  assertEquals(preference({ Scheduler: "SpaceWeighted", volumeGroupPreference: "mostFree" }), "mostFree");
  for (const scheduler of ["VolumeWeighted", "CapacityWeighted", "anything"]) {
    const words = `parameter scheduler "${scheduler}": must be SpaceWeighted`;
    assertThrows(() => preference({ scheduler }), StorageError, words);
  }
  const contradiction = { scheduler: "SpaceWeighted", volumeGroupPreference: "leastFree" };
  assertThrows(() => preference(contradiction), StorageError, "parameters scheduler and volumeGroupPreference");
});

Deno.test("the format options of OpenEBS are mkfs options", () => {
  const { mkfsOptions } = parseVolumeParameters({ formatOptions: "-m 0" });
  assertEquals(mkfsOptions, "-m 0");
  assertThrows(
    () => parseVolumeParameters({ formatoptions: "-m 0", mkfsOptions: "-m 1" }),
    StorageError,
    "given twice",
  );
});

Deno.test("the limits of a VolumeAttributesClass of OpenEBS are IO limits, of which one name can mean two", () => {
  const limits = parseMutableParameters({ qosIopsLimit: "500", qosBandwithReadPerSec: "4Mi" });
  assertEquals(limits, parseMutableParameters({ readIops: "500", writeIops: "500", readBps: "4Mi" }));
  assertEquals(parseVolumeParameters({ QOSIOPSLIMIT: "500", qosBandwithReadPerSec: "4Mi" }).limits, limits);
  const contradiction = { qosIopsLimit: "max", qosIopsReadLimit: "1000" };
  assertThrows(() => parseMutableParameters(contradiction), StorageError, "parameter readIops: given twice");
  for (const key of ["fsType", "Scheduler", "unknown"]) {
    const words = `mutable parameter "${key}": cannot change`;
    assertThrows(() => parseMutableParameters({ [key]: "xfs" }), StorageError, words);
  }
});

Deno.test("a parameter of OpenEBS that denolith does not have is refused by name, with what to use", () => {
  const names = ["integrity", "lvCreateOptions", "noSync", "raidType", "stripeCount"];
  assertEquals(Object.keys(OPENEBS_REFUSED_PARAMETERS).sort(), names);
  for (const [name, remedy] of Object.entries(OPENEBS_REFUSED_PARAMETERS)) {
    for (const key of [name, name.toLowerCase()]) {
      const { message } = assertThrows(() => parseVolumeParameters({ [key]: "1" }), StorageError);
      assertEquals(message, `parameter "${key}": of OpenEBS, and not supported; ${remedy}`);
    }
  }
});

Deno.test("a layout accepts the numbers of stripes and mirrors between its bounds, and no others", () => {
  for (const [layout, { stripes, mirrors }] of Object.entries<LayoutSpec>(LAYOUTS)) {
    for (const [name, bounds] of Object.entries({ stripes, mirrors })) {
      const { min, max } = bounds ?? { min: 1, max: 0 };
      for (const count of [min, max]) if (bounds !== undefined) parseText({ layout, [name]: `${count}` });
      for (const count of [min - 1, max + 1]) {
        assertThrows(() => parseText({ layout, [name]: `${count}` }), StorageError, `parameter ${name}`);
      }
    }
  }
});

Deno.test("the text of a class's groups is a list that means the same, and nobody escapes from a pattern", () => {
  for (const given of [{ volumeGroup: "data" }, { volumeGroupPattern: "data.*" }, { vgpattern: "a$|^f" }]) {
    const { groups } = parseVolumeParameters(given);
    const reparsed = parseGroupList(String(groups));
    const matched = groupsOf(given);
    assertEquals(["data", "data-1", "my-data", "fast"].filter((name) => reparsed.matches(name)), matched);
  }
  for (const given of [{ vgpattern: "a)|(b" }, { volumeGroupPattern: "a/b" }, { vgpattern: "/" }]) {
    assertThrows(() => parseVolumeParameters(given), StorageError);
  }
});

Deno.test("a layout has LVM's minimum as default, and only the parameters that apply to it", () => {
  const layout = (parameters: Record<string, string>) => parseVolumeParameters(parameters).layout;
  const stripeSize = 65536n;
  assertEquals(layout({}), { type: "linear" });
  assertEquals(layout({ layout: "linear", thinProvision: "yes" }), { type: "linear" });
  assertEquals(layout({ layout: "striped" }), { type: "striped", stripes: 2, stripeSize });
  assertEquals(layout({ layout: "raid1", mirrors: "9" }), { type: "raid1", mirrors: 9 });
  assertEquals(layout({ layout: "raid10", mirrors: "1" }), { type: "raid10", stripes: 2, stripeSize });
  assertEquals(layout({ layout: "raid5", stripes: "32" }), { type: "raid5", stripes: 32, stripeSize });
  assertEquals(layout({ layout: "raid6", stripeSize: "4Mi" }), { type: "raid6", stripes: 3, stripeSize: 4n << 20n });
  assertEquals(layout({ layout: "cache" }), { type: "cache", cacheSize: 1n << 30n });
  assertEquals(layout({ layout: "writecache", cacheSize: "33Mi" }), { type: "writecache", cacheSize: 33n << 20n });
  assertEquals(layout({ layout: "raid1", raidIntegrity: "no" }), { type: "raid1", mirrors: 1 });
  assertEquals(layout({ layout: "raid1", raidIntegrity: "yes" }), { type: "raid1", mirrors: 1, integrity: true });
  assertEquals(layout({ layout: "raid5", raidIntegrity: "yes" }), {
    ...{ type: "raid5", stripes: 2, stripeSize, integrity: true },
  });
  const refusals: [Record<string, string>, RegExp][] = [
    [{ layout: "mirror" }, /parameter layout "mirror": must be linear or striped or raid1/],
    [
      { layout: "vdo" },
      /parameter layout "vdo": must be linear or .* or writecache; the driver creates no VDO volumes/,
    ],
    [{ cacheSize: "1Gi" }, /parameter cacheSize: the layout linear has none/],
    [{ layout: "raid1", cacheSize: "1Gi" }, /parameter cacheSize: the layout raid1 has none/],
    [{ layout: "cache", stripes: "2" }, /parameter stripes: the layout cache has none/],
    [{ layout: "writecache", raidIntegrity: "no" }, /parameter raidIntegrity: the layout writecache has none/],
    ...["31Mi", "0", "-1", "much", ""].map((cacheSize) =>
      [
        { layout: "cache", cacheSize },
        new RegExp(`parameter cacheSize "${cacheSize}": must be a quantity of 32Mi or more, such as 10Gi`),
      ] as [Record<string, string>, RegExp]
    ),
    [{ layout: "cache", thinProvision: "yes" }, /parameter layout cache: a thin volume is laid out as its pool is/],
    ...Object.entries({ erase: "discard", discard: "yes", fstrim: "24h" }).map(([name, value]) =>
      [
        { layout: "raid1", raidIntegrity: "yes", [name]: value },
        new RegExp(`parameter ${name}: a volume with raidIntegrity passes no discards`),
      ] as [Record<string, string>, RegExp]
    ),
    [{ raidIntegrity: "yes" }, /parameter raidIntegrity: the layout linear has none/],
    [{ layout: "striped", raidIntegrity: "no" }, /parameter raidIntegrity: the layout striped has none/],
    [{ layout: "raid1", raidIntegrity: "on" }, /parameter raidIntegrity "on": must be no or yes/],
    [{ layout: "RAID1" }, /parameter layout "RAID1"/],
    [{ stripes: "2" }, /parameter stripes: the layout linear has none/],
    [{ mirrors: "1" }, /parameter mirrors: the layout linear has none/],
    [{ layout: "raid1", stripes: "2" }, /parameter stripes: the layout raid1 has none/],
    [{ layout: "raid1", stripeSize: "64Ki" }, /parameter stripeSize: the layout raid1 has none/],
    [{ layout: "raid5", mirrors: "1" }, /parameter mirrors: the layout raid5 has none/],
    [{ layout: "raid10", mirrors: "2" }, /parameter mirrors "2": must be 1 for the layout raid10/],
    [{ layout: "raid1", mirrors: "0" }, /parameter mirrors "0": must be from 1 to 9/],
    [{ layout: "striped", stripes: "1" }, /parameter stripes "1": must be from 2 to 32/],
    [{ layout: "raid6", stripes: "2" }, /parameter stripes "2": must be from 3 to 32/],
    [{ layout: "raid5", stripes: "two" }, /parameter stripes "two"/],
    [{ layout: "striped", stripeSize: "96Ki" }, /parameter stripeSize "96Ki": must be a power of two from 4Ki to 4Mi/],
    [{ layout: "striped", stripeSize: "8Mi" }, /parameter stripeSize "8Mi"/],
    [{ layout: "striped", stripeSize: "" }, /parameter stripeSize ""/],
    [{ layuot: "raid1" }, /did you mean layout/],
    [{ layout: "raid1", thinProvision: "yes" }, /parameter layout raid1: a thin volume is laid out as its pool is/],
    [{ layout: "striped", thinProvision: "yes", thinPool: "p" }, /name it by thinPool/],
  ];
  for (const [parameters, message] of refusals) {
    const { kind, message: actualMessage } = assertThrows(() => layout(parameters), StorageError);
    assertEquals(kind, "InvalidArgument");
    assertMatch(actualMessage, message);
  }
});

Deno.test("discard and fstrim are off by default, and are refused for filesystems without them", () => {
  const trim = (parameters: Record<string, string>, type: Parameters<typeof trimFor>[1] = "ext4") =>
    trimFor(parseVolumeParameters(parameters), type);
  assertEquals(trim({}), undefined);
  assertEquals(trim({ discard: "no", fstrim: "no" }), undefined);
  assertEquals(trim({ discard: "yes" }), { discard: true });
  assertEquals(trim({ fstrim: "24h" }, "xfs"), { discard: false, intervalMs: 86_400_000 });
  assertEquals(trim({ discard: "yes", fstrim: "7d" }, "btrfs"), { discard: true, intervalMs: 7 * 86_400_000 });
  assertThrows(() => trim({ discard: "yes" }, "ext2"), StorageError, "discard: ext2 has no such thing");
  assertThrows(() => trim({ fstrim: "1d" }, "ext2"), StorageError, "fstrim: ext2");
});
