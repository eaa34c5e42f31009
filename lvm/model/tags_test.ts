import { assertEquals, assertMatch, assertThrows } from "@std/assert";
import fc from "fast-check";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { IoLimits } from "../settings/io_limits.ts";
import {
  ERASURES,
  markLimits,
  parseDeletedTags,
  parseSnapshotTags,
  parseVolumeTags,
  snapshotTags,
  usedLvUuids,
  usedTag,
  volumeTags,
} from "./tags.ts";
import type { FormatState } from "../settings/format.ts";
import type { TrimPolicy } from "../settings/trim.ts";

const id = volumeIdOf("a");
const uuid = "11111111-2222-3333-4444-555555555555";

const volume = { id, format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "zero" } as const;

const CONTENTS: FormatState[] = [
  { state: "raw" },
  { state: "unformatted", type: "ext4" },
  { state: "formatting", type: "xfs", uuid },
  { state: "formatted", type: "btrfs", uuid },
];

const TRIMS: { trim?: TrimPolicy }[] = [
  {},
  { trim: { discard: true } },
  { trim: { discard: false, intervalMs: 600_000 } },
  { trim: { discard: true, intervalMs: 86_400_000 } },
];

const LIMITS: { limits?: IoLimits }[] = [
  {},
  { limits: { readIops: { rate: 500n, perGiB: false }, writeBps: { rate: 4n << 20n, perGiB: true } } },
  { limits: { writeIops: "max", readBps: { rate: 1000n, perGiB: false } } },
];

Deno.test("volume tags come back as they were, whatever the mkfs options, and LVM takes them", () => {
  const options = fc.array(
    fc.string({ unit: "binary", minLength: 1 }).filter((text) => !text.includes(" ") && text.isWellFormed()),
  );
  const volumes = fc.record({
    id: fc.constant(id),
    format: fc.constantFrom(...CONTENTS),
    mkfsOptions: options,
    shared: fc.boolean(),
    erase: fc.constantFrom(...ERASURES),
  }).chain((volume) =>
    fc.constantFrom(...LIMITS.flatMap((limits) => TRIMS.map((trim) => ({ ...volume, ...limits, ...trim }))))
  );
  fc.assert(fc.property(volumes, (volume) => {
    const tags = volumeTags("lvm.denolith.dev", volume);
    for (const tag of tags) assertMatch(tag, /^[A-Za-z0-9_+.\-/=!:&#]+$/);
    assertEquals(parseVolumeTags("lvm.denolith.dev", tags), volume);
  }));
});

Deno.test("a volume with a source begins as a copy of which nothing is there, or all", () => {
  const source = { kind: "snapshot", id: snapshotIdOf("s") } as const;
  const parsed = (copied?: "all") =>
    parseVolumeTags("d", volumeTags("d", { ...volume, source, ...(copied && { copied }) }));
  assertEquals(parsed(), { ...volume, source, copied: 0n });
  assertEquals(parsed("all"), { ...volume, source, copied: "all" });
  const odd = ["denolith=d", `denolith.volume=${id}`, "denolith.fs=raw", "denolith.copied=some"];
  assertThrows(() => parseVolumeTags("d", odd), StorageError, "cannot be read");
});

Deno.test("limits are one tag, which is changed as a whole; where there are none, there is no tag", () => {
  const [none, some, other] = LIMITS.map(({ limits }) => limits);
  const [before] = volumeTags("d", { ...volume, limits: some! }).filter((tag) => tag.includes(".io="));
  assertEquals(before, "denolith.io=ri500:wb4Mi/g");
  assertEquals(markLimits(some, other!), ["--deltag", before, "--addtag", "denolith.io=wimax:rb1000"]);
  assertEquals(markLimits(none, some!), ["--addtag", before]);
  assertThrows(() => parseVolumeTags("d", [...volumeTags("d", volume), "denolith.io=fast"]), StorageError);
});

Deno.test("tags of another driver, of nobody, or of a snapshot are no volume of ours", () => {
  const tags = volumeTags("other.driver", volume);
  assertEquals(parseVolumeTags("lvm.denolith.dev", tags), undefined);
  assertEquals(parseVolumeTags("lvm.denolith.dev", []), undefined);
  const snapshot = { id: snapshotIdOf("s"), source: id, erase: "none" } as const;
  assertEquals(parseVolumeTags("d", snapshotTags("d", snapshot)), undefined);
  assertEquals(parseSnapshotTags("d", snapshotTags("d", snapshot)), snapshot);
});

Deno.test("a volume of ours whose tags cannot be read is ForeignData", () => {
  for (
    const content of [
      "",
      "denolith.fs=formatted:ntfs:1",
      "denolith.fs=formatted:ext4",
      "denolith.fs=molten:ext4:1",
      "denolith.fs=raw,denolith.erase=later",
      "denolith.fs=wanted:ext4,denolith.trim=often",
    ]
  ) {
    const tags = ["denolith=d", `denolith.volume=${id}`, ...content.split(",")];
    assertEquals(assertThrows(() => parseVolumeTags("d", tags), StorageError).kind, "ForeignData");
  }
});

Deno.test("an LV is deleted only when it is marked so, by us, and claims to be nothing else", () => {
  const owner = "denolith=d";
  const marked = [owner, `denolith.deleted=${id}`];
  assertEquals(parseDeletedTags("d", marked), { id, erase: "zero", erased: 0n });
  assertEquals(parseDeletedTags("d", [...marked, "denolith.erase=none", "denolith.erased=4096"]), {
    id,
    erase: "none",
    erased: 4096n,
  });
  const others = [
    volumeTags("d", volume),
    marked.slice(1),
    ["denolith=e", ...marked.slice(1)],
    [owner, "denolith.deleted=pvc-1"],
    [...marked, `denolith.volume=${id}`],
    [...marked, `denolith.snapshot=${id}`],
    [...marked, "denolith.erase=later"],
    [...marked, "denolith.erased=-1"],
  ];
  for (const tags of others) assertEquals(parseDeletedTags("d", tags), undefined, tags.join(" "));
});

Deno.test("usedLvUuids() answers what usedTag() recorded, for this volume of this driver only", () => {
  const tags = ["x", usedTag("d", id, "uuid-1"), usedTag("d", volumeIdOf("b"), "uuid-2"), usedTag("e", id, "uuid-3")];
  assertEquals(usedLvUuids("d", id, tags), ["uuid-1"]);
  assertEquals(usedLvUuids("d", volumeIdOf("c"), tags), []);
});
