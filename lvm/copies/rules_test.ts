import { assertEquals, assertThrows } from "@std/assert";
import { copyRange, type SourceProperties, thinCloneSize } from "./rules.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { ANY_GROUP, exactMatcher } from "../model/groups.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";

const MiB = 1n << 20n;
const GiB = 1n << 30n;

function lv(name: string, size: bigint, more: Partial<LogicalVolume> = {}): LogicalVolume {
  const fixed = { active: true, suspended: false, open: false, layout: [], invalidSnapshot: false, createdAt: 1 };
  const layout = {
    segment: { type: "linear", stripes: 1, stripeSize: 0n },
    pvSegments: [],
    health: "",
    incomplete: false,
  };
  return { name, uuid: name, size, tags: [], devicePath: `/dev/mapper/g-${name}`, ...fixed, ...layout, ...more };
}

const pools = ["g_thinpool", "mine"].map((name) =>
  lv(name, 4n * GiB, { thinPool: { metadataSize: 4n * MiB, health: "", zeroes: true, needsCheck: false } })
);
const inPool = lv("thin", GiB, { pool: "g_thinpool" });
const thick = lv("thick", GiB);

const group: VolumeGroup = {
  ...{ name: "g", uuid: "g", size: 100n * GiB, free: 50n * GiB, extentSize: 4n * MiB, missingPvs: 0, writeable: true },
  ...{ tags: [], pvPaths: [], pvs: [], responsive: true, lvs: [...pools, inPool, thick] },
};

const thin = { poolSize: DEFAULT_POOL_SIZE };
const range = { required: GiB };

/** Returns the size of a thin clone of an LV, in bytes, or `undefined` when it has to be copied. */
function cloneSize(of: LogicalVolume, request: Partial<Parameters<typeof thinCloneSize>[2]>, groups = [group]) {
  return thinCloneSize(groups, { lv: of, group }, { groups: ANY_GROUP, range, ...request }, 100n);
}

Deno.test("a thin clone is created only in the pool of its source", () => {
  assertEquals(cloneSize(inPool, { thin }), GiB);
  assertEquals(cloneSize(inPool, { thin: { ...thin, pool: "g_thinpool" } }), GiB, "which a class may also name");
  assertEquals(cloneSize(inPool, { thin: { ...thin, pool: "mine" } }), undefined);
  assertEquals(cloneSize(inPool, {}), undefined, "a thick one");
  assertEquals(cloneSize(thick, { thin }), undefined, "of a thick one");
});

Deno.test("a thin clone is created only in a group that is requested and usable", () => {
  assertEquals(cloneSize(inPool, { thin, groups: exactMatcher("other") }), undefined);
  assertEquals(cloneSize(inPool, { thin }, []), undefined, "the driver creates no volumes there");
  assertEquals(cloneSize(inPool, { thin }, [{ ...group, missingPvs: 1 }]), undefined);
});

Deno.test("a thin clone is created in a group that this machine itself uses only where that is named, as other volumes are", () => {
  const system = [{ ...group, hostUse: "root (mounted)" }];
  assertEquals(cloneSize(inPool, { thin }, system), undefined);
  assertEquals(cloneSize(inPool, { thin, groups: exactMatcher("g") }, system), GiB);
});

Deno.test("a thin clone is created only where the pool has enough available virtual size, in whole extents", () => {
  assertEquals(cloneSize(inPool, { thin, range: { required: GiB + 1n } }), GiB + 4n * MiB);
  assertEquals(cloneSize(inPool, { thin, range: { required: GiB + 1n, limit: GiB + 2n } }), undefined);
  assertEquals(cloneSize(inPool, { thin, range: { required: 3n * GiB } }), 3n * GiB);
  assertEquals(cloneSize(inPool, { thin, range: { required: 3n * GiB + 1n } }), undefined);
});

Deno.test("copyRange() returns the source's size by default, and refuses a smaller size or another filesystem", () => {
  const source = { kind: "volume", id: volumeIdOf("original") } as const;
  const request = {
    id: volumeIdOf("copy"),
    range: { required: 0n },
    format: { state: "unformatted", type: "ext4" },
    source,
  } as const;
  const step = 4n * MiB;
  assertEquals(copyRange(request, { size: GiB, step }), { required: GiB });
  const larger = { required: 2n * GiB, limit: 3n * GiB };
  assertEquals(copyRange({ ...request, range: larger }, { size: GiB, step, content: "ext4" }), larger);
  assertEquals(
    copyRange(request, { size: GiB, step, content: "raw" }),
    { required: GiB },
    "the signatures on the copy decide",
  );
  const refusals = [
    ["OutOfRange", { range: { required: MiB } }, {}],
    ["OutOfRange", { range: { required: 0n, limit: MiB } }, {}],
    ["InvalidArgument", {}, { content: "xfs" }],
  ] as const;
  for (const [kind, asked, properties] of refusals) {
    const error = assertThrows(
      () => copyRange({ ...request, ...asked }, { size: GiB, step, ...properties }),
      StorageError,
    );
    assertEquals(error.kind, kind);
  }
});

Deno.test("copyRange() accepts what was asked for the source, and what a volume of that size has", () => {
  const source = { kind: "volume", id: volumeIdOf("original") } as const;
  const made = { id: volumeIdOf("copy"), format: { state: "raw" }, source } as const;
  const range = (required: bigint, properties: Partial<SourceProperties> = {}, limit?: bigint) =>
    copyRange({ ...made, range: { required, ...defined({ limit }) } }, {
      size: 1032n * MiB,
      step: 12n * MiB,
      ...properties,
    });
  assertEquals(range(GiB), { required: 1032n * MiB }, "three stripes of 4 MiB");
  assertEquals(range(GiB, {}, 1032n * MiB), { required: 1032n * MiB, limit: 1032n * MiB });
  assertEquals(range(MiB, { requested: MiB }), { required: 1032n * MiB }, "made larger by hand");
  const refused: [string, () => unknown][] = [
    ["the source has 1032Mi (requested: only 1020Mi)", () => range(1020n * MiB)],
    [
      "the source has 1032Mi (requested: only 1069547519)",
      () => range(1020n * MiB - 1n, { requested: 1020n * MiB }),
    ],
    ["the source has 1032Mi (limit: 1Gi)", () => range(MiB, { requested: MiB }, GiB)],
  ];
  for (const [words, call] of refused) assertThrows(call, StorageError, words);
});
