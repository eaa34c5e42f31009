import { assertEquals } from "@std/assert";
import { type CopyState, nextStep, PIECE_BYTES } from "./plan.ts";
import { snapshotIdOf, volumeIdOf } from "../ids.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";

const GiB = 1n << 30n;
const uuid = "11111111-2222-3333-4444-555555555555";

const group: VolumeGroup = {
  ...{ name: "g", uuid: "g", size: 100n * GiB, free: 50n * GiB, extentSize: 4n << 20n, missingPvs: 0, writeable: true },
  ...{ tags: [], disks: [], pvs: [], answers: true, lvs: [] },
};

function place(name: string, more: Partial<LogicalVolume> = {}) {
  const fixed = { active: true, suspended: false, open: false, layout: [], invalidSnapshot: false, createdAt: 1 };
  const place = { segment: { type: "linear", stripes: 1, stripeSize: 0n }, pieces: [], health: "", halfMade: false };
  const lv = {
    name,
    uuid: name,
    size: GiB,
    tags: [],
    devicePath: `/dev/mapper/g-${name}`,
    ...fixed,
    ...place,
    ...more,
  };
  return { lv, group };
}

const thin = { pool: "p", layout: ["thin", "sparse"] };
const ofVolume = { of: "volume", id: volumeIdOf("original") } as const;
const ofSnapshot = { of: "snapshot", id: snapshotIdOf("cut") } as const;

/** A copy of a snapshot that is there, of which nothing is copied yet. */
function copy(more: Partial<CopyState> = {}, tags: Partial<CopyState["tags"]> = {}): CopyState {
  return {
    id: volumeIdOf("copy"),
    tags: { content: { state: "wanted", type: "ext4" }, source: ofSnapshot, copied: 0n, ...tags },
    to: place("to"),
    original: place("original", { originSize: GiB, origin: "volume" }),
    ...more,
  };
}

/** What is to be done next, and on what. */
function next(state: CopyState): string {
  const step = nextStep(state);
  const on = "place" in step ? ` ${step.place.lv.name}` : "cut" in step ? ` ${step.cut.lv.name}` : "";
  return step.do === "fail" ? `fail ${step.error.kind}` : step.do + on;
}

Deno.test("a snapshot is copied piece by piece, from what is recorded or was copied, and completed", () => {
  const all = { do: "copy", from: copy().original!.lv, recorded: 0n } as const;
  assertEquals(nextStep(copy()), { ...all, offset: 0n, length: PIECE_BYTES });
  assertEquals(nextStep(copy({ offset: PIECE_BYTES })), { ...all, offset: PIECE_BYTES, length: GiB - PIECE_BYTES });
  const recorded = nextStep(copy({}, { copied: PIECE_BYTES }));
  assertEquals(recorded, { ...all, recorded: PIECE_BYTES, offset: PIECE_BYTES, length: GiB - PIECE_BYTES });
  assertEquals(next(copy({ offset: GiB })), "complete");
  assertEquals(next(copy({ offset: GiB, to: place("to", { open: true }) })), "wait");
});

Deno.test("devices are made usable first, and what somebody else has open is waited for", () => {
  assertEquals(
    next(copy({ to: place("to", { open: true }) })),
    "wait",
    "a program of an earlier driver may write to it",
  );
  assertEquals(next(copy({ to: place("to", { active: false }) })), "activate to");
  assertEquals(next(copy({ to: place("to", { suspended: true }) })), "activate to");
  assertEquals(next(copy({ original: place("original", { active: false }) })), "activate original");
});

Deno.test("a volume is copied from a snapshot of one moment", () => {
  const of = (more: Partial<CopyState>, copied = 0n) => next(copy(more, { source: ofVolume, copied }));
  assertEquals(of({ original: place("original") }), "cut");
  assertEquals(of({ original: place("original", { active: false }) }), "activate original");
  assertEquals(of({ cut: place("cut", { origin: "original", originSize: GiB }) }), "copy");
  assertEquals(of({ cut: place("cut", { ...thin, origin: "original" }) }), "copy");
  assertEquals(of({ cut: place("cut") }), "discard cut", "it never became a snapshot");
  assertEquals(of({ cut: place("cut", { origin: "original", invalidSnapshot: true }) }), "discard cut");
  for (const more of [{ offset: 1n }, {}]) {
    assertEquals(of({ original: place("original"), ...more }, 1n), "restart", "what is there is of another moment");
    assertEquals(of({ original: place("original"), to: place("to", thin), ...more }, 1n), "drop");
  }
});

Deno.test("what was being given another UUID is made anew: a thick one by writing over it", () => {
  const formatting = { content: { state: "formatting", type: "ext4", uuid } } as const;
  assertEquals(next(copy({}, formatting)), "restart");
  assertEquals(next(copy({ to: place("to", thin) }, formatting)), "drop");
});

Deno.test("what cannot be copied fails with the reason", () => {
  const { original: _, ...without } = copy();
  assertEquals(next(without), "fail NotFound");
  assertEquals(next(copy({ original: place("original", { invalidSnapshot: true }) })), "fail FailedPrecondition");
  assertEquals(next(copy({ to: place("to", { size: GiB / 2n }) })), "fail OutOfRange");
});

Deno.test("what shares its source's blocks is completed by who saw it made, and given up by everybody else", () => {
  const shared = (more: Partial<LogicalVolume>, offset?: bigint) =>
    next(
      copy({ to: place("to", { ...thin, ...more }), ...(offset === undefined ? {} : { offset }) }, { copied: "all" }),
    );
  assertEquals(shared({}, GiB), "complete");
  assertEquals(shared({ active: false }, GiB), "activate to");
  assertEquals(shared({ open: true }, GiB), "wait");
  assertEquals(shared({}), "drop");
  assertEquals(shared({ size: 2n * GiB }), "drop");
});
