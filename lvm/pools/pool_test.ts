import { assertEquals } from "@std/assert";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";
import {
  availableVirtual,
  formatOvercommit,
  fullnessOf,
  newPoolBytes,
  overcommitOf,
  parseOvercommit,
  planPoolExtension,
  withPools,
  withThinSpace,
} from "./pool.ts";

const MiB = 1n << 20n;
const GiB = 1n << 30n;

function lv(name: string, size: bigint, more: Partial<LogicalVolume> = {}): LogicalVolume {
  const fixed = { active: true, suspended: false, open: false, layout: [], invalidSnapshot: false, createdAt: 1 };
  const layoutFields = {
    segment: { type: "thin", stripes: 0, stripeSize: 0n },
    pvSegments: [],
    health: "",
    incomplete: false,
  };
  return { name, uuid: name, size, tags: [], devicePath: `/dev/mapper/g-${name}`, ...fixed, ...layoutFields, ...more };
}

function pool(size: bigint, state: Partial<LogicalVolume["thinPool"]> = {}, tags: string[] = []): LogicalVolume {
  const thinPool = {
    dataPercent: 10,
    metadataSize: 4n * MiB,
    metadataPercent: 10,
    health: "",
    needsCheck: false,
    zeroes: true,
    ...state,
  };
  return lv("g_thinpool", size, { tags, thinPool });
}

function group(free: bigint, ...lvs: LogicalVolume[]): VolumeGroup {
  const fixed = { missingPvs: 0, writeable: true, tags: [], pvPaths: ["/dev/vdb"], pvs: [], responsive: true };
  return { name: "g", uuid: "g", size: 100n * GiB, free, extentSize: 4n * MiB, ...fixed, lvs };
}

Deno.test("parseOvercommit() reads ratios from 1 to 1000, and formatOvercommit() writes them", () => {
  const texts = ["1", "1.5", "2.05", "20", "1000"];
  assertEquals(texts.map((text) => formatOvercommit(parseOvercommit(text)!)), texts);
  assertEquals(parseOvercommit("1.50"), 150n);
  for (const text of ["", "0", "0.99", "1000.01", "1.005", "-1", "1e3", "x"]) {
    assertEquals(parseOvercommit(text), undefined);
  }
});

Deno.test("a pool allocates its size times its ratio, and counts volumes, snapshots and deleted LVs", () => {
  const inPool = { pool: "g_thinpool" };
  const thin = [lv("a", GiB, inPool), lv("b", GiB, { ...inPool, origin: "a" }), lv("thick", 5n * GiB)];
  const available = (of: LogicalVolume, byDefault = 100n) => availableVirtual(group(0n, of, ...thin), of, byDefault);
  assertEquals(available(pool(4n * GiB)), 2n * GiB);
  assertEquals(available(pool(4n * GiB), 250n), 8n * GiB);
  assertEquals(available(pool(4n * GiB, {}, ["denolith.overcommit=1"]), 250n), 2n * GiB);
  assertEquals(available(pool(GiB)), 0n, "a pool that has allocated more than its ratio allows has nothing available");
  assertEquals(available(pool(4n * GiB, { dataPercent: 100 })), 0n, "a full one neither");
  assertEquals(overcommitOf(pool(GiB, {}, ["denolith.overcommit=much"]), 300n), 100n, "an odd tag overcommits nothing");
});

Deno.test("a pool that is erased to be removed allocates nothing, and is not extended", () => {
  const wiped = pool(GiB, { dataPercent: 90 });
  const wiper = lv("w", GiB, { pool: "g_thinpool", tags: ["denolith=d", "denolith.deleted=v1-x"] });
  const all = group(10n * GiB, wiped, wiper);
  assertEquals(availableVirtual(all, wiped, 1000n), 0n);
  assertEquals(planPoolExtension(all, wiped, { threshold: 80, percent: 20n }), {});
});

Deno.test("a pool with a volume in use is extended, and allocates, while another LV of it is deleted", () => {
  const used = pool(10n * GiB, { dataPercent: 99 });
  const tags = ["denolith=d", "denolith.deleted=v1-x"];
  const lvs = [lv("a", 20n * GiB, { pool: "g_thinpool" }), lv("b", 20n * GiB, { pool: "g_thinpool", tags })];
  const all = group(100n * GiB, used, ...lvs);
  assertEquals(availableVirtual(all, used, 1000n), 60n * GiB);
  assertEquals(planPoolExtension(all, used, { threshold: 80, percent: 20n }), { data: 12n * GiB });
});

Deno.test("withThinSpace() returns the available virtual size of pools, also of a new one", () => {
  const spec = { poolSize: { percent: 50n } };
  const [made] = withThinSpace([withPools(group(10n * GiB, pool(GiB)), 100n)], spec);
  assertEquals([made?.free, made?.freeDescription], [GiB, "left in thin pool g_thinpool"]);
  const [none] = withThinSpace([withPools(group(10n * GiB), 200n)], spec);
  assertEquals([none?.free, none?.freeDescription], [10n * GiB, "for a new thin pool g_thinpool"]);
  const [other] = withThinSpace([withPools(group(10n * GiB, pool(GiB)), 100n)], { ...spec, pool: "p" });
  assertEquals([other?.free, other?.freeDescription], [0n, "free: it has no thin pool p"]);
});

Deno.test("a new pool leaves space for its metadata and the spare", () => {
  const bytes = (free: bigint, poolSize: { bytes: bigint } | { percent: bigint }) =>
    newPoolBytes(group(free), { poolSize });
  assertEquals(bytes(10n * GiB, { percent: 80n }), 8n * GiB);
  assertEquals(bytes(GiB, { percent: 100n }), GiB - 8n * MiB);
  assertEquals(bytes(GiB, { bytes: 4n * GiB }), GiB - 8n * MiB);
  assertEquals(bytes(1000n * GiB, { percent: 100n }), 1000n * GiB - 256n * MiB);
  assertEquals(bytes(4n * MiB, { percent: 80n }), 0n);
});

Deno.test("planPoolExtension() extends data and metadata at their thresholds, as far as the group has space", () => {
  const growth = { threshold: 80, percent: 20n };
  const due = (free: bigint, state: Partial<LogicalVolume["thinPool"]>) => {
    const one = pool(GiB, state);
    return planPoolExtension(group(free, one), one, growth);
  };
  assertEquals(due(10n * GiB, { dataPercent: 79.9 }), {});
  assertEquals(due(10n * GiB, { dataPercent: 80 }), { data: GiB + 208n * MiB });
  assertEquals(due(100n * MiB, { dataPercent: 95 }), { data: GiB + 100n * MiB });
  assertEquals(due(3n * MiB, { dataPercent: 95 }), {});
  assertEquals(due(10n * GiB, { metadataPercent: 70 }), { metadata: 8n * MiB });
  assertEquals(due(4n * MiB, { metadataPercent: 99 }), {}, "its spare would need as much");
  assertEquals(due(16n * MiB, { dataPercent: 90, metadataPercent: 90 }), { metadata: 8n * MiB, data: GiB + 8n * MiB });
  const one = pool(GiB, { dataPercent: 99, metadataPercent: 99 });
  assertEquals(planPoolExtension(group(10n * GiB, one), one, { threshold: 100, percent: 20n }), {});
});

Deno.test("fullnessOf() warns before a pool is full, and counts a damaged pool as full", () => {
  const states = [{ dataPercent: 79 }, { dataPercent: 80 }, { metadataPercent: 81 }, { dataPercent: 100 }, {
    health: "metadata_read_only",
  }];
  assertEquals(states.map((state) => fullnessOf(pool(GiB, state))), ["Ok", "NearFull", "NearFull", "Full", "Full"]);
});
