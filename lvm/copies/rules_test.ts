import { assertEquals, assertThrows } from "@std/assert";
import { copyRange, sharedSize } from "./rules.ts";
import { StorageError } from "../error.ts";
import { ANY_GROUP, exactly } from "../model/groups.ts";
import { volumeIdOf } from "../ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";

const MiB = 1n << 20n;
const GiB = 1n << 30n;

function lv(name: string, size: bigint, more: Partial<LogicalVolume> = {}): LogicalVolume {
  const fixed = { active: true, suspended: false, open: false, layout: [], invalidSnapshot: false, createdAt: 1 };
  const place = { segment: { type: "linear", stripes: 1, stripeSize: 0n }, pieces: [], health: "", halfMade: false };
  return { name, uuid: name, size, tags: [], devicePath: `/dev/mapper/g-${name}`, ...fixed, ...place, ...more };
}

const pools = ["g_thinpool", "mine"].map((name) =>
  lv(name, 4n * GiB, { thinPool: { metadataSize: 4n * MiB, health: "", zeroes: true, needsCheck: false } })
);
const inPool = lv("thin", GiB, { pool: "g_thinpool" });
const thick = lv("thick", GiB);

const group: VolumeGroup = {
  ...{ name: "g", uuid: "g", size: 100n * GiB, free: 50n * GiB, extentSize: 4n * MiB, missingPvs: 0, writeable: true },
  ...{ tags: [], disks: [], pvs: [], answers: true, lvs: [...pools, inPool, thick] },
};

const thin = { poolSize: DEFAULT_POOL_SIZE };
const range = { required: GiB };

/** The size that a copy shares of an LV. */
function shared(of: LogicalVolume, request: Partial<Parameters<typeof sharedSize>[2]>, groups = [group]) {
  return sharedSize(groups, { lv: of, group }, { groups: ANY_GROUP, range, ...request }, 100n);
}

Deno.test("a copy is made at once only in its source's own pool", () => {
  assertEquals(shared(inPool, { thin }), GiB);
  assertEquals(shared(inPool, { thin: { ...thin, pool: "g_thinpool" } }), GiB, "which a class may also name");
  assertEquals(shared(inPool, { thin: { ...thin, pool: "mine" } }), undefined);
  assertEquals(shared(inPool, {}), undefined, "a thick one");
  assertEquals(shared(thick, { thin }), undefined, "of a thick one");
});

Deno.test("a copy is made at once only in a group that it may be in, and that can be changed", () => {
  assertEquals(shared(inPool, { thin, groups: exactly("other") }), undefined);
  assertEquals(shared(inPool, { thin }, []), undefined, "the driver makes no volumes there");
  assertEquals(shared(inPool, { thin }, [{ ...group, missingPvs: 1 }]), undefined);
});

Deno.test("a copy is made at once only where the pool may promise all of it, in whole extents", () => {
  assertEquals(shared(inPool, { thin, range: { required: GiB + 1n } }), GiB + 4n * MiB);
  assertEquals(shared(inPool, { thin, range: { required: 3n * GiB } }), 3n * GiB);
  assertEquals(shared(inPool, { thin, range: { required: 3n * GiB + 1n } }), undefined);
});

Deno.test("copyRange() takes the source's size where none is asked for, and refuses a smaller one or another filesystem", () => {
  const source = { of: "volume", id: volumeIdOf("original") } as const;
  const request = {
    id: volumeIdOf("copy"),
    range: { required: 0n },
    content: { state: "wanted", type: "ext4" },
    source,
  } as const;
  assertEquals(copyRange(request, { size: GiB }), { required: GiB });
  const larger = { required: 2n * GiB, limit: 3n * GiB };
  assertEquals(copyRange({ ...request, range: larger }, { size: GiB, content: "ext4" }), larger);
  assertEquals(copyRange(request, { size: GiB, content: "raw" }), { required: GiB }, "what is on it tells");
  const refusals = [
    ["OutOfRange", { range: { required: MiB } }, {}],
    ["OutOfRange", { range: { required: 0n, limit: MiB } }, {}],
    ["InvalidArgument", {}, { content: "xfs" }],
  ] as const;
  for (const [kind, asked, facts] of refusals) {
    const error = assertThrows(() => copyRange({ ...request, ...asked }, { size: GiB, ...facts }), StorageError);
    assertEquals(error.kind, kind);
  }
});
