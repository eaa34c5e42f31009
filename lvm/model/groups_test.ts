import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../error.ts";
import { ANY_GROUP, type GroupSpace, selectCandidates } from "./groups.ts";
import type { Layout } from "./layout.ts";

const MiB = 1n << 20n;

/** Returns a group of one physical volume with free space. */
function group(name: string, extentMib: bigint, freeMib = 1024n): GroupSpace {
  const free = freeMib * MiB;
  const usable = { missingPvs: 0, writeable: true, responsive: true };
  return { name, free, extentSize: extentMib * MiB, pvs: [{ free }, { free }], ...usable };
}

/** Returns the names of the groups that are selected for a size in MiB, with the size in each. */
function select(groups: GroupSpace[], required: bigint, limit: bigint, layout?: Layout) {
  const range = { required: required * MiB, limit: limit * MiB };
  return selectCandidates(groups, ANY_GROUP, range, "leastFree", layout).map(({ group, size }) =>
    `${group.name} ${size / MiB}`
  );
}

Deno.test("selectCandidates() leaves out a group whose extents miss the range", () => {
  const groups = [group("coarse", 64n, 512n), group("fine", 4n)];
  assertEquals(select(groups, 8n, 32n), ["fine 8"]);
  assertEquals(select(groups, 8n, 64n), ["coarse 64", "fine 8"]);
});

Deno.test("selectCandidates() leaves out a group in which a row of stripes misses the range", () => {
  const layout: Layout = { type: "striped", stripes: 2, stripeSize: 65536n };
  assertEquals(select([group("coarse", 8n, 512n), group("fine", 4n)], 8n, 12n, layout), ["fine 8"]);
});

Deno.test("selectCandidates() throws OutOfRange when the extents of all usable groups miss the range", () => {
  const groups = [group("coarse", 64n), { ...group("fine", 4n), writeable: false }];
  const error = assertThrows(() => select(groups, 8n, 32n), StorageError, "extents");
  assertEquals(error.kind, "OutOfRange");
});

Deno.test("selectCandidates() leaves out a group whose spare space the images of a volume would take", () => {
  const layout: Layout = { type: "raid1", mirrors: 1 };
  const spare = (free: bigint) => ({ ...group("data", 4n), free: free * MiB, spare: 1024n * MiB });
  assertEquals(select([spare(72n)], 32n, 64n, layout), ["data 32"]);
  const error = assertThrows(() => select([spare(68n)], 32n, 64n, layout), StorageError);
  assertEquals(error.kind, "NoSpace");
  assertEquals(
    error.message,
    "choosing a volume group for 32 MiB: not enough free space in data (raid1 with 1 mirror takes 72 MiB, but 68 MiB free " +
      "and 1 GiB of spare space together)",
  );
});

Deno.test("selectCandidates() says of a full group and of one whose extents miss the range why neither is chosen", () => {
  const groups = [group("coarse", 64n), group("fine", 4n, 4n)];
  const error = assertThrows(() => select(groups, 8n, 32n), StorageError);
  assertEquals(error.kind, "NoSpace");
  assertEquals(
    error.message,
    "choosing a volume group for 8 MiB: not enough free space in coarse (no number of its extents of 64 MiB is in the " +
      "requested range), fine (4 MiB free)",
  );
});
