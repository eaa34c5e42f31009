import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { type ErrorKind, StorageError } from "../../base/error.ts";
import { FILESYSTEM_TYPES } from "../../lvm/settings/filesystem.ts";
import { anyMatcherOf, exactMatcher, type GroupMatcher } from "../../lvm/model/groups.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { LvmVolume, LvmVolumeSpec, LvmVolumeStatus } from "./lvm_objects.ts";
import {
  actualSize,
  desiredSizeRange,
  ioLimitsOf,
  ioLimitsPatch,
  lvmVolumeFor,
  type NamedVolumeRequest,
  requireCompatible,
  volumeRequestOf,
} from "./volume_mapping.ts";

const GiB = 1n << 30n;
const PLACEMENT = { driver: "lvm.denolith.dev", nodeName: "node-1" };

function request(overrides: Partial<NamedVolumeRequest> = {}): NamedVolumeRequest {
  return namedRequest("pvc-1", GiB, overrides);
}

/** Returns a request as it is parsed from its object, with the groups in words. */
function roundTrip(requested: NamedVolumeRequest) {
  const object = lvmVolumeFor(requested, PLACEMENT);
  const read = volumeRequestOf(JSON.parse(JSON.stringify(object)), parseGroupList);
  return { object, read: { ...read, groups: String(read.groups) } };
}

Deno.test("a request comes back from its object as it was, whatever the volume is for, and makes the same object again", () => {
  const contents: Partial<NamedVolumeRequest>[] = [
    { format: { state: "raw" } },
    ...FILESYSTEM_TYPES.map((type) => ({ format: { state: "unformatted", type } as const })),
    { mkfsOptions: ["-N", "1000"], shared: false, erase: "discard", preference: "mostFree" },
    { trim: { discard: true } },
    { trim: { discard: false, intervalMs: 86_400_000 } },
    { trim: { discard: true, intervalMs: 600_000 } },
    { range: { required: 5_000_000n, limit: 6_000_001n } },
    { thin: { poolSize: { percent: 80n } } },
    { thin: { poolSize: { bytes: GiB } } },
    { thin: { pool: "mine", poolSize: { percent: 80n } } },
    { layout: { type: "raid1", mirrors: 2 } },
    { layout: { type: "writecache", cacheSize: 64n << 20n } },
    { layout: { type: "raid5", stripes: 3, stripeSize: 131072n } },
  ];
  for (const overrides of contents) {
    const requested = request(overrides);
    const { object, read } = roundTrip(requested);
    assertEquals(read, { ...requested, groups: "any" });
    assertEquals(lvmVolumeFor(volumeRequestOf(object, parseGroupList), PLACEMENT), object);
  }
});

Deno.test("the object says whose and where the volume is, and is kept until its node lets go", () => {
  const { object: { metadata, spec } } = roundTrip(request());
  assertEquals(metadata.name, volumeIdOf("pvc-1"));
  assertEquals(metadata.finalizers, ["lvm.denolith.dev/volume"]);
  assertEquals([spec.driverName, spec.nodeName, spec.requestName, spec.size], [
    "lvm.denolith.dev",
    "node-1",
    "pvc-1",
    "1Gi",
  ]);
  const absent = ["limit", "volumeGroups", "mkfsOptions", "layout", "discard", "fstrim"].filter((field) =>
    field in spec
  );
  assertEquals(absent, [], "what was not asked for does not stand there");
  assert(!("fsType" in roundTrip(request({ format: { state: "raw" } })).object.spec));
});

Deno.test("names and patterns of groups come back with the same meaning", () => {
  const cases: [GroupMatcher, string][] = [
    [exactMatcher("data"), "data"],
    [parseGroupList("data,/fast-.*/"), "data, /fast-.*/"],
    [parseGroupList("/a,b|c/"), "/a,b|c/"],
    [anyMatcherOf([exactMatcher("a"), exactMatcher("b")]), "a, b"],
  ];
  const names = ["data", "fast-1", "fast-", "a,b", "a", "b", "c", "xdata"];
  for (const [groups, text] of cases) {
    const object = lvmVolumeFor(request({ groups }), PLACEMENT);
    assertEquals(object.spec.volumeGroups, text);
    const read = volumeRequestOf(object, parseGroupList).groups;
    assertEquals(names.filter((name) => read.matches(name)), names.filter((name) => groups.matches(name)), text);
  }
});

function volumeWith(spec: Partial<LvmVolumeSpec>, status?: LvmVolumeStatus, name?: string): LvmVolume {
  const object = lvmVolumeFor(request(), PLACEMENT);
  const metadata = { ...object.metadata, ...(name === undefined ? {} : { name }) };
  return { ...object, metadata, spec: { ...object.spec, ...spec }, ...(status && { status }) };
}

function assertFails(kind: ErrorKind, body: () => unknown, words: string): void {
  assertEquals(assertThrows(body, StorageError, words).kind, kind);
}

Deno.test("an object that somebody else wrote is refused with the reason", () => {
  const { fsType: _, ...spec } = lvmVolumeFor(request(), PLACEMENT).spec;
  const cases: [LvmVolume, string][] = [
    [volumeWith({}, undefined, "pvc-1"), "its name is no volume id"],
    [{ ...volumeWith({}), spec }, "it has no fsType"],
    [volumeWith({ size: "0" }), `its size "0" is not a valid quantity`],
    [volumeWith({ size: "much" }), `its size "much" is not a valid quantity`],
    [volumeWith({ sizeLimit: "-1" }), `its limit "-1" is no size`],
    [volumeWith({ volumeGroups: "/(/" }), "volume groups"],
  ];
  assertFails("InvalidArgument", () => ioLimitsOf(volumeWith({ ioLimits: { readIops: "0" } })), "reading LVMVolume");
  for (const [object, words] of cases) {
    assertFails("InvalidArgument", () => volumeRequestOf(object, parseGroupList), words);
  }
});

Deno.test("an object with a value that only a newer version knows is refused, and never read as another one", () => {
  const newer: Record<string, unknown>[] = [
    { erase: "shred" },
    { volumeGroupPreference: "fastest" },
    { volumeMode: "Object" },
    { fsType: "bcachefs" },
    { mkfsOptions: "-m 0" },
    { shared: "sometimes" },
    { layout: { type: "raid4", stripes: 2, stripeSize: "64Ki" } },
    { layout: { type: "raid5", stripes: 2 } },
    { layout: { type: "cache" } },
    { layout: { type: "writecache", cacheSize: "much" } },
    { layout: { type: "raid1", mirrors: 99 } },
    { thinProvision: "yes" },
    { thinPool: "-y" },
    { ioLimits: { readIops: 500 } },
    { source: null },
    { size: 5 },
    { fstrim: {} },
  ];
  for (const spec of newer) {
    const object = volumeWith(spec);
    const field = Object.keys(spec)[0];
    const words = `its ${field} has the value`;
    assertFails("InvalidArgument", () => volumeRequestOf(object, parseGroupList), words);
  }
});

Deno.test("fields that only a newer version has are ignored", () => {
  const plain = volumeWith({ ioLimits: { readIops: "500" } });
  const newer = volumeWith({ ioLimits: { readIops: "500", readLatency: "5ms" }, ...{ compression: "zstd" } });
  const read = (object: LvmVolume) => ({ ...volumeRequestOf(object, parseGroupList), groups: undefined });
  assertEquals(read(newer), read(plain));
  assertEquals(ioLimitsOf(newer), ioLimitsOf(plain));
});

Deno.test("ioLimitsPatch() replaces limits of the same names, whichever way they were said", () => {
  assertEquals(ioLimitsPatch({}), {});
  assertEquals(ioLimitsPatch({ readIops: { rate: 5n, perGiB: true }, writeBps: "max" }), {
    readIops: null,
    readIopsPerGiB: "5",
    writeBps: "max",
    writeBpsPerGiB: null,
  });
});

Deno.test("the spec has the requested size, and the status the actual size", () => {
  assertEquals(desiredSizeRange(volumeWith({ size: "1500M", sizeLimit: "2Gi" })), {
    required: 1_500_000_000n,
    limit: 2n * GiB,
  });
  assertEquals([actualSize(volumeWith({})), actualSize(volumeWith({}, { size: "2Gi" }))], [undefined, 2n * GiB]);
});

Deno.test("requireCompatible() compares the existing volume, not its request", () => {
  const made = volumeWith({}, { size: "2Gi", volumeGroup: "data" });
  const requireCompatibleWith = (object: LvmVolume, requested: NamedVolumeRequest, allowed?: string[]) =>
    requireCompatible(object, requested, allowed);
  requireCompatibleWith(made, request({ range: { required: 2n * GiB, limit: 2n * GiB } }));
  requireCompatibleWith(made, request({ groups: exactMatcher("data"), preference: "mostFree" }), ["node-0", "node-1"]);
  requireCompatibleWith(volumeWith({}), request({ groups: exactMatcher("data") }), ["node-1"]);
  const cases: [Partial<NamedVolumeRequest>, string, string[]?][] = [
    [{ range: { required: 3n * GiB } }, "it has 2 GiB (requested: at least 3 GiB)"],
    [{ range: { required: 1n, limit: GiB } }, "(requested: at least 1 B and at most 1 GiB)"],
    [{ format: { state: "raw" } }, "it is a volume for ext4 (requested: a block volume)"],
    [{ format: { state: "unformatted", type: "xfs" } }, "it is a volume for ext4 (requested: a volume for xfs)"],
    [{ groups: exactMatcher("fast") }, "it is in volume group data (requested: fast)"],
    [
      { format: { state: "raw" }, groups: exactMatcher("fast") },
      "(requested: a block volume); it is in volume group data",
    ],
    [{}, "it is on node node-1 (requested: node-2 or node-3)", ["node-2", "node-3"]],
  ];
  for (const [overrides, words, allowed] of cases) {
    assertFails("AlreadyExists", () => requireCompatibleWith(made, request(overrides), allowed), words);
  }
});
