import { assertEquals } from "@std/assert";
import { CHUNK_BYTES, type CopyState, nextStep } from "./plan.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";

const GiB = 1n << 30n;
const uuid = "11111111-2222-3333-4444-555555555555";

const group: VolumeGroup = {
  ...{ name: "g", uuid: "g", size: 100n * GiB, free: 50n * GiB, extentSize: 4n << 20n, missingPvs: 0, writeable: true },
  ...{ tags: [], pvPaths: [], pvs: [], responsive: true, lvs: [] },
};

function located(name: string, more: Partial<LogicalVolume> = {}) {
  const fixed = { active: true, suspended: false, open: false, layout: [], invalidSnapshot: false, createdAt: 1 };
  const layout = {
    segment: { type: "linear", stripes: 1, stripeSize: 0n },
    pvSegments: [],
    health: "",
    incomplete: false,
  };
  const lv = {
    name,
    uuid: name,
    size: GiB,
    tags: [],
    devicePath: `/dev/mapper/g-${name}`,
    ...fixed,
    ...layout,
    ...more,
  };
  return { lv, group };
}

const thin = { pool: "p", layout: ["thin", "sparse"] };
const ofVolume = { kind: "volume", id: volumeIdOf("original") } as const;
const ofSnapshot = { kind: "snapshot", id: snapshotIdOf("cut") } as const;

/** Returns a copy of an existing snapshot, of which no byte is copied yet. */
function copy(more: Partial<CopyState> = {}, tags: Partial<CopyState["tags"]> = {}): CopyState {
  return {
    id: volumeIdOf("copy"),
    tags: { format: { state: "unformatted", type: "ext4" }, source: ofSnapshot, copied: 0n, ...tags },
    destination: located("to"),
    original: located("original", { originSize: GiB, origin: "volume" }),
    ...more,
  };
}

/** Returns the next step as text: its kind, and its LV or the kind of its error. */
function next(state: CopyState): string {
  const step = nextStep(state);
  const on = "located" in step
    ? ` ${step.located.lv.name}`
    : "copySnapshot" in step
    ? ` ${step.copySnapshot.lv.name}`
    : "";
  return step.do === "fail" ? `fail ${step.error.kind}` : step.do + on;
}

Deno.test("a snapshot is copied chunk by chunk, from the recorded or reached offset, and completed", () => {
  const chunk = { do: "copy", from: copy().original!.lv, recorded: 0n } as const;
  assertEquals(nextStep(copy()), { ...chunk, offset: 0n, length: CHUNK_BYTES });
  assertEquals(nextStep(copy({ offset: CHUNK_BYTES })), { ...chunk, offset: CHUNK_BYTES, length: GiB - CHUNK_BYTES });
  const size = CHUNK_BYTES + (4n << 20n);
  const larger = { original: located("original", { originSize: size }), destination: located("to", { size }) };
  const last = { ...chunk, from: larger.original.lv, offset: CHUNK_BYTES, length: 4n << 20n };
  assertEquals(nextStep(copy({ ...larger, offset: CHUNK_BYTES })), last);
  const recorded = nextStep(copy({}, { copied: CHUNK_BYTES }));
  assertEquals(recorded, { ...chunk, recorded: CHUNK_BYTES, offset: CHUNK_BYTES, length: GiB - CHUNK_BYTES });
  assertEquals(next(copy({ offset: GiB })), "complete");
  assertEquals(next(copy({ offset: GiB, destination: located("to", { open: true }) })), "wait");
});

Deno.test("devices are activated first, and a copy waits while something else has its LV open", () => {
  assertEquals(
    next(copy({ destination: located("to", { open: true }) })),
    "wait",
    "a program of an earlier process may write to it",
  );
  assertEquals(next(copy({ destination: located("to", { active: false }) })), "activate to");
  assertEquals(next(copy({ destination: located("to", { suspended: true }) })), "activate to");
  assertEquals(next(copy({ original: located("original", { active: false }) })), "activate original");
});

Deno.test("a volume is copied from a snapshot of one moment", () => {
  const of = (more: Partial<CopyState>, copied = 0n) => next(copy(more, { source: ofVolume, copied }));
  assertEquals(of({ original: located("original") }), "createCopySnapshot");
  assertEquals(of({ original: located("original", { active: false }) }), "activate original");
  assertEquals(of({ copySnapshot: located("frozen", { origin: "original", originSize: GiB }) }), "copy");
  assertEquals(of({ copySnapshot: located("frozen", { ...thin, origin: "original" }) }), "copy");
  assertEquals(of({ copySnapshot: located("frozen") }), "removeCopySnapshot frozen", "it never became a snapshot");
  assertEquals(of({ copySnapshot: located("frozen", { origin: "another" }) }), "removeCopySnapshot frozen");
  assertEquals(
    of({ copySnapshot: located("frozen", { origin: "original", invalidSnapshot: true }) }),
    "removeCopySnapshot frozen",
  );
  for (const more of [{ offset: 1n }, {}]) {
    assertEquals(of({ original: located("original"), ...more }, 1n), "restart", "the copied data is of another moment");
    assertEquals(of({ original: located("original"), destination: located("to", thin), ...more }, 1n), "drop");
  }
});

Deno.test("a copy whose UUID was being changed begins again: a thick LV is overwritten, a thin LV is dropped", () => {
  const formatting = { format: { state: "formatting", type: "ext4", uuid } } as const;
  assertEquals(next(copy({}, formatting)), "restart");
  assertEquals(next(copy({ destination: located("to", thin) }, formatting)), "drop");
});

Deno.test("a copy that cannot be made fails with the reason", () => {
  const { original: _, ...without } = copy();
  assertEquals(next(without), "fail NotFound");
  assertEquals(next(copy({ original: located("original", { invalidSnapshot: true }) })), "fail FailedPrecondition");
  assertEquals(next(copy({ destination: located("to", { size: GiB / 2n }) })), "fail OutOfRange");
});

Deno.test("a thin clone is completed by the process that saw its creation, and dropped by any other", () => {
  const shared = (more: Partial<LogicalVolume>, offset?: bigint) =>
    next(
      copy({
        destination: located("to", { ...thin, origin: "original", ...more }),
        ...(offset === undefined ? {} : { offset }),
      }, {
        copied: "all",
      }),
    );
  assertEquals(shared({}, GiB), "complete");
  assertEquals(shared({ active: false }, GiB), "activate to");
  assertEquals(shared({ open: true }, GiB), "wait");
  assertEquals(shared({}), "drop");
  assertEquals(shared({ size: 2n * GiB }), "drop");
  assertEquals(shared({ origin: "another" }, GiB), "drop", "LVM took the source by its name");
});
