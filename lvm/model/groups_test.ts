import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import {
  ANY_GROUP,
  anyMatcherOf,
  exactMatcher,
  groupCapacity,
  groupsAllowedBy,
  type GroupSpace,
  selectCandidates,
} from "./groups.ts";
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

Deno.test("a group that the host uses is selected only by who names it, in a request or by the flag", () => {
  const groups = [{ ...group("system", 4n, 64n), hostUse: "root (mounted)" }, group("data", 4n)];
  const pattern = { matches: () => true, toString: () => "/.*/" };
  for (
    const flag of [ANY_GROUP, exactMatcher("system"), anyMatcherOf([exactMatcher("system"), exactMatcher("data")])]
  ) {
    for (const request of [ANY_GROUP, exactMatcher("system"), pattern]) {
      const allowed = groupsAllowedBy(groups, flag);
      const isNamed = flag !== ANY_GROUP || request !== ANY_GROUP;
      const title = `${flag} ${request}`;
      const names = selectCandidates(allowed, request, { required: 8n * MiB }, "leastFree").map(({ group }) =>
        group.name
      );
      assertEquals(names.includes("system"), isNamed, title);
      const expected = allowed.filter(({ name }) => name === "data" ? request.matches(name) : isNamed);
      assertEquals(
        groupCapacity(allowed, request).available,
        expected.reduce((sum, { free }) => sum + free, 0n),
        title,
      );
    }
  }
  const error = assertThrows(() => select(groups.slice(0, 1), 8n, 32n), StorageError);
  assertEquals(
    error.message,
    "choosing a volume group for 8 MiB: not enough free space in system (the host uses root (mounted) of it, so it must be " +
      "named, in the class or by --volume-groups)",
  );
});
