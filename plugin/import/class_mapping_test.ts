import { assertEquals } from "@std/assert";
import { OPENEBS_PARAMETERS, OPENEBS_REFUSED_PARAMETERS } from "../../lvm/settings/openebs_names.ts";
import type { StorageClass } from "../../k8s/api/objects.ts";
import { mapClass } from "./class_mapping.ts";
import type { Origin } from "../../k8s/handover/imports.ts";

const KEY = "topology.lvm.denolith.dev/node";

/** What becomes of one parameter: other parameters, or the reason why it is lost. */
type Row = readonly [name: string, value: string, becomes: Readonly<Record<string, string>> | string];

const NO_SECRETS = "the driver reads no secrets for it";
const NO_MEANING = "it has no meaning here";
const BY_FREE_SPACE = "the driver chooses a node by its free space alone";

/** The parameters that Kubernetes' own programs read of a class of any driver. */
const RESERVED: readonly Row[] = [
  ["csi.storage.k8s.io/fstype", "xfs", { "csi.storage.k8s.io/fstype": "xfs" }],
  ...["provisioner", "controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand"].flatMap(
    (secret) =>
      ["name", "namespace"].map((part): Row => [`csi.storage.k8s.io/${secret}-secret-${part}`, "s", NO_SECRETS]),
  ),
];

/** The parameters that OpenEBS LVM LocalPV reads, with those of its documents, in whichever case. */
const OPENEBS: readonly Row[] = [
  ...RESERVED,
  ["storage", "lvm", {}],
  ["volgroup", "lvmvg", { volumeGroup: "lvmvg" }],
  ["volGroup", "lvmvg", { volumeGroup: "lvmvg" }],
  ["vgpattern", "lvmvg.*", { vgpattern: "lvmvg.*" }],
  ["vgPattern", "lvmvg.*", { vgpattern: "lvmvg.*" }],
  ["fsType", "btrfs", { fsType: "btrfs" }],
  ["fstype", "btrfs", { fsType: "btrfs" }],
  ["fsType", "", {}],
  ["shared", "yes", { shared: "yes" }],
  ["shared", "no", { shared: "no" }],
  ["thinProvision", "yes", { thinProvision: "yes" }],
  ["thinProvision", "no", { thinProvision: "no" }],
  ["scheduler", "SpaceWeighted", { volumeGroupPreference: "mostFree" }],
  ["scheduler", "CapacityWeighted", BY_FREE_SPACE],
  ["scheduler", "VolumeWeighted", BY_FREE_SPACE],
  ["scheduler", "", {}],
  ["formatOptions", "-m 0", { mkfsOptions: "-m 0" }],
  ["qosIopsLimit", "100", { readIops: "100", writeIops: "100" }],
  ["qosIopsReadLimit", "100", { readIops: "100" }],
  ["qosIopsWriteLimit", "100", { writeIops: "100" }],
  ["qosBandwithPerSec", "10Mi", { readBps: "10Mi", writeBps: "10Mi" }],
  ["qosBandwithReadPerSec", "10Mi", { readBps: "10Mi" }],
  ["qosBandwithWritePerSec", "10Mi", { writeBps: "10Mi" }],
  ["raidType", "raid1", "use layout"],
  ["stripeCount", "2", "use stripes"],
  ["integrity", "yes", "use raidIntegrity"],
  ["noSync", "yes", "omit it"],
  ["lvCreateOptions", "--type=raid1", "use layout, stripes, stripeSize and mirrors"],
  // some write the field of a class that has this name among its parameters, where no driver reads it
  ["mountOptions", "debug", NO_MEANING],
  ["compression", "on", NO_MEANING],
];

/** The parameters that TopoLVM reads, with those of its earlier name. */
const TOPOLVM: readonly Row[] = [
  ...RESERVED,
  ["topolvm.io/device-class", "ssd", { volumeGroup: "vg" }],
  ["topolvm.cybozu.com/device-class", "ssd", { volumeGroup: "vg" }],
  ["topolvm.io/lvcreate-option-class", "r1", "use layout, stripes, stripeSize and mirrors"],
  ["topolvm.cybozu.com/lvcreate-option-class", "r1", "use layout, stripes, stripeSize and mirrors"],
  ["fsType", "xfs", NO_MEANING],
];

/** What each class of an origin gets, whatever its parameters. */
const ALWAYS: Readonly<Record<"OpenEBS" | "TopoLVM", Record<string, string>>> = {
  OpenEBS: { shared: "no" },
  TopoLVM: { volumeGroup: "vg" },
};

function classOf(parameters: Record<string, string>, more: Partial<StorageClass> = {}): StorageClass {
  return { metadata: { name: "fast" }, provisioner: "x", parameters, ...more } as StorageClass;
}

const PLACE = { volumeGroup: "vg", topologyKey: KEY };

for (const [origin, rows] of [["OpenEBS", OPENEBS], ["TopoLVM", TOPOLVM]] as const) {
  for (const [name, value, becomes] of rows) {
    Deno.test(`mapClass() of ${origin}: ${name}: ${JSON.stringify(value)}`, () => {
      const { parameters, lost } = mapClass(origin, classOf({ [name]: value }), PLACE);
      const isLost = typeof becomes === "string";
      assertEquals(parameters, { ...ALWAYS[origin], ...(isLost ? {} : becomes) });
      assertEquals(lost, isLost ? [{ name, value, why: becomes }] : []);
    });
  }
}

Deno.test("mapClass() is tried with each parameter of OpenEBS that the driver knows, or refuses", () => {
  const tried = new Set(OPENEBS.map(([name]) => name.toLowerCase()));
  const known = [...Object.keys(OPENEBS_PARAMETERS), ...Object.keys(OPENEBS_REFUSED_PARAMETERS)];
  assertEquals(known.filter((name) => !tried.has(name.toLowerCase())), []);
});

Deno.test("mapClass() maps or names each parameter of a class that has many", () => {
  const all = Object.fromEntries(OPENEBS.map(([name, value]) => [name, value]));
  const { lost } = mapClass("OpenEBS", classOf(all), PLACE);
  const expected = OPENEBS.filter(([name, value, becomes]) => typeof becomes === "string" && all[name] === value);
  assertEquals(lost.map(({ name }) => name), expected.map(([name]) => name));
});

Deno.test("mapClass() keeps new volumes of a thin device class in its pool", () => {
  const thin = classOf({ "topolvm.io/device-class": "thin" });
  assertEquals(mapClass("TopoLVM", thin, { ...PLACE, thinPool: "pool0" }).parameters, {
    volumeGroup: "vg",
    thinProvision: "yes",
    thinPool: "pool0",
  });
});

const TOPOLOGIES: readonly [Origin, theirs: string][] = [
  ["OpenEBS", "openebs.io/nodename"],
  ["OpenEBS", "kubernetes.io/hostname"],
  ["TopoLVM", "topology.topolvm.io/node"],
];

for (const [origin, theirs] of TOPOLOGIES) {
  Deno.test(`mapClass() of ${origin} gives allowed topologies by ${theirs} the driver's label`, () => {
    const topologies = (key: string) => [{
      matchLabelExpressions: [{ key, values: ["a"] }, { key: "zone", values: ["z"] }],
    }];
    const storageClass = classOf({}, { allowedTopologies: topologies(theirs) });
    assertEquals(mapClass(origin, storageClass, PLACE).allowedTopologies, topologies(KEY));
  });
}
