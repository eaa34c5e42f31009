import { assertEquals } from "@std/assert";
import {
  allocatedBytes,
  bytesPerPv,
  choosePvs,
  type Layout,
  layoutOf,
  layoutOptions,
  layoutSpace,
  LINEAR,
  pvsToExtend,
  pvsWithSeveralImages,
  requiredPvCount,
  snapshotRefusal,
} from "./layout.ts";
import type { PhysicalVolume } from "./report.ts";
import { lvcreate } from "./command_lines.ts";

const MiB = 1n << 20n;
const EXTENT = 4n * MiB;
const RAID1: Layout = { type: "raid1", mirrors: 1 };
const RAID5: Layout = { type: "raid5", stripes: 2, stripeSize: 65536n };
const RAID6: Layout = { type: "raid6", stripes: 3, stripeSize: 65536n };
const RAID10: Layout = { type: "raid10", stripes: 2, stripeSize: 65536n };
const STRIPED: Layout = { type: "striped", stripes: 2, stripeSize: 65536n };

/** Returns physical volumes with the free MiB, named a, b, c … */
function createPvs(...free: number[]): PhysicalVolume[] {
  return free.map((mib, index) => {
    const name = String.fromCharCode("a".charCodeAt(0) + index);
    return { path: `/dev/${name}`, uuid: name, missing: false, size: 1n << 40n, free: BigInt(mib) * MiB };
  });
}

/** Returns a RAID LV whose images have segments on these physical volumes. */
function raid(...images: string[]) {
  return {
    pvSegments: images.flatMap((pvUuids, index) =>
      [...pvUuids].map((pvUuid) => ({ subLv: `rimage_${index}`, pvUuid, size: EXTENT }))
    ),
  };
}

Deno.test.each<[Layout, number, bigint, bigint]>([
  [LINEAR, 1, 64n, 64n],
  [STRIPED, 2, 32n, 64n],
  [RAID1, 2, 68n, 136n],
  [{ type: "raid1", mirrors: 2 }, 3, 68n, 204n],
  [RAID5, 3, 36n, 108n],
  [RAID6, 5, 28n, 140n],
  [RAID10, 4, 36n, 144n],
])("a volume of 64 MiB costs what LVM takes for it: %j", (layout, count, each, raw) => {
  assertEquals(requiredPvCount(layout), count);
  assertEquals(bytesPerPv(layout, 64n * MiB, EXTENT), each * MiB);
  assertEquals(allocatedBytes(layout, 64n * MiB, EXTENT), raw * MiB);
});

Deno.test("bytesPerPv() counts the metadata of small extents as LVM 2.03.16 does: 3 extents of 4 KiB for 20 MiB", () => {
  assertEquals(bytesPerPv(RAID1, 20n * MiB, 4096n), 20n * MiB + 3n * 4096n);
});

Deno.test("layoutSpace() returns the largest volume, which the disk with the least free space decides, and the sum of all volumes", () => {
  const groupOf = (...free: number[]) => {
    const pvs = createPvs(...free);
    return { pvs, extentSize: EXTENT, free: pvs.reduce((sum, { free }) => sum + free, 0n) };
  };
  const space = (layout: Layout, ...free: number[]) => spaceOf(layout, groupOf(...free));
  const spaceOf = (layout: Layout, group: ReturnType<typeof groupOf>) => {
    const { maximumVolumeSize, available } = layoutSpace(layout, group);
    return [Number(maximumVolumeSize / MiB), Number(available / MiB)];
  };
  assertEquals(space(RAID1, 100), [0, 0]);
  assertEquals(space(RAID1, 100, 100), [96, 96]);
  assertEquals(space(RAID1, 100, 60), [56, 56]);
  assertEquals(space(RAID1, 100, 100, 100), [96, 144]); // in several volumes: a half of each disk beside another
  assertEquals(space(RAID1, 400, 40, 40), [36, 76]);
  assertEquals(space(STRIPED, 100, 60), [120, 120]);
  assertEquals(space(RAID5, 100, 100, 50), [88, 88]);
  assertEquals(space(RAID6, 100, 100, 100, 100), [0, 0]);
  assertEquals(space(RAID10, 40, 40, 40, 40), [72, 72]);
  assertEquals(space(RAID1, 4, 4), [0, 0]); // space for metadata only
  assertEquals(layoutSpace({ ...STRIPED, stripeSize: 8n * MiB }, groupOf(100, 100)).maximumVolumeSize, 0n);
  // with spare space on any of them
  assertEquals(spaceOf(RAID1, { ...groupOf(100, 100, 100), free: 160n * MiB }), [76, 76]);
  assertEquals(spaceOf(RAID1, { ...groupOf(100, 100, 100), free: 240n * MiB }), [96, 116]);
  assertEquals(spaceOf(STRIPED, { ...groupOf(100, 100), free: 0n }), [0, 0]);
});

Deno.test("bytesPerPv() counts the checksums of an image as LVM 2.03.16 and 2.03.31 make them", () => {
  const checksums = (mib: bigint) =>
    (bytesPerPv({ ...RAID1, integrity: true }, mib * MiB, EXTENT) - bytesPerPv(RAID1, mib * MiB, EXTENT)) / MiB;
  const sizes = [4n, 256n, 496n, 500n, 512n, 700n, 1000n, 1024n, 1500n, 4096n, 4100n, 100_000n];
  assertEquals(sizes.map(checksums), [8n, 8n, 8n, 12n, 12n, 16n, 20n, 20n, 48n, 68n, 100n, 868n]);
  assertEquals(bytesPerPv({ ...RAID5, integrity: true }, 64n * MiB, EXTENT), 44n * MiB);
});

Deno.test("layoutSpace() returns the largest volume with checksums: an extent more does not fit", () => {
  for (const free of [0, 12, 16, 100, 512, 532, 536, 1060, 4200, 4204, 10_000]) {
    const layout: Layout = { ...RAID1, integrity: true };
    const pvs = createPvs(free, free);
    const group = { pvs, extentSize: EXTENT, free: 2n * BigInt(free) * MiB };
    const { maximumVolumeSize } = layoutSpace(layout, group);
    if (maximumVolumeSize > 0n) assertEquals(choosePvs(layout, maximumVolumeSize, group)?.length, 2, `${free}`);
    assertEquals(choosePvs(layout, maximumVolumeSize + 1n, group), undefined, `${free}`);
  }
});

Deno.test("choosePvs() chooses those with the most free space, and none when one of them has too little", () => {
  const names = (layout: Layout, size: bigint, ...free: number[]) =>
    choosePvs(layout, size, { pvs: createPvs(...free), extentSize: EXTENT })?.map(({ path }) => path);
  assertEquals(names(RAID1, 32n * MiB, 10, 100, 40), ["/dev/b", "/dev/c"]);
  assertEquals(names(RAID1, 40n * MiB, 10, 100, 40), undefined);
  assertEquals(names(STRIPED, 80n * MiB, 10, 100, 40), ["/dev/b", "/dev/c"]);
});

Deno.test("pvsToExtend() keeps each image on its own, or moves all images to unused ones, and never mixes them", () => {
  const extend = (lv: ReturnType<typeof raid>, mib: bigint, ...free: number[]) =>
    pvsToExtend(lv, mib * MiB, createPvs(...free))?.map(({ uuid }) => uuid).join("");
  assertEquals(extend(raid("a", "b"), 20n, 20, 20, 100), "ab");
  assertEquals(extend(raid("a", "b"), 20n, 16, 100, 100, 100), "cd");
  assertEquals(extend(raid("a", "b"), 20n, 16, 100, 100), undefined);
  assertEquals(extend(raid("ac", "bd"), 20n, 0, 40, 40, 0), "cb");
  assertEquals(extend(raid("ab", "b"), 20n, 100, 100, 100, 100), "cd"); // b has both
});

Deno.test("pvsWithSeveralImages() finds those with several images, also an image and the metadata of another", () => {
  assertEquals(pvsWithSeveralImages(raid("a", "b")), []);
  assertEquals(pvsWithSeveralImages(raid("ab", "bc")), ["b"]);
  const mixed = [...raid("a", "b").pvSegments, { subLv: "rmeta_1", pvUuid: "a", size: EXTENT }];
  assertEquals(pvsWithSeveralImages({ pvSegments: mixed }), ["a"]);
});

Deno.test("LVM reports the layout that lvcreate was given", () => {
  const args = [LINEAR, STRIPED, RAID1, RAID10, RAID5, RAID6].map((layout) =>
    lvcreate(layoutOptions(layout), "data").slice(1, -1).join(" ")
  );
  assertEquals(args, [
    "",
    "--type striped --stripes 2 --stripesize 65536b",
    "--type raid1 --mirrors 1",
    "--type raid10 --mirrors 1 --stripes 2 --stripesize 65536b",
    "--type raid5 --stripes 2 --stripesize 65536b",
    "--type raid6 --stripes 3 --stripesize 65536b",
  ]);
  const reported = (type: string, stripes: number, stripeSize = 65536n) =>
    layoutOf({ segment: { type, stripes, stripeSize }, pvSegments: [] });
  assertEquals([reported("linear", 1), reported("striped", 2), reported("raid1", 2, 0n), reported("raid10", 4)], [
    LINEAR,
    STRIPED,
    RAID1,
    RAID10,
  ]);
  assertEquals([reported("raid5", 3), reported("raid6", 5), reported("mirror", 2)], [RAID5, RAID6, undefined]);
  const others = [["striped", 0], ["raid1", 1], ["raid10", 0], ["raid10", 9], ["raid5", 1], ["raid6", 2]] as const;
  for (const [type, stripes] of others) assertEquals(reported(type, stripes), undefined, `${type} of ${stripes}`);
  const checked = { ...RAID5, integrity: true } as const;
  assertEquals(lvcreate(layoutOptions(checked), "vg").join(" ").includes("--raidintegrity y"), true);
  const pvSegments = ["rmeta_0", "rimage_0_imeta", "rimage_0_iorig"].map((subLv) => ({ subLv, pvUuid: "a", size: 1n }));
  assertEquals(layoutOf({ segment: { type: "raid5", stripes: 3, stripeSize: 65536n }, pvSegments }), checked);
  assertEquals(pvsWithSeveralImages({ pvSegments }), []);
});

Deno.test("snapshotRefusal() is about checksums and caches alone, and says who takes no snapshots", () => {
  for (const layout of [LINEAR, RAID1, RAID5, STRIPED]) assertEquals(snapshotRefusal(layout), undefined);
  assertEquals(
    snapshotRefusal({ ...RAID1, integrity: true } as Layout),
    "is raid1 with 1 mirror and integrity, and LVM takes no snapshots of such a volume",
  );
  assertEquals(
    snapshotRefusal({ type: "writecache", cacheSize: 8n * MiB }),
    "is writecache of 8Mi, and the driver takes no snapshots of such a volume",
  );
});
