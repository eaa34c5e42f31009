import { assertEquals } from "@std/assert";
import type { VolumeGroup } from "../model/report.ts";
import type { Survey, SurveyedGroup } from "../model/survey.ts";
import { type DiskFacts, type DiskOrder, type DiskRecord, newPvUuid, nextStep } from "./orders.ts";
import type { NamedDisk } from "./reading.ts";

const ORDER: DiskOrder = { name: "nvme-A", group: "data", identity: "i1" };
const RECORD: DiskRecord = { name: "nvme-A", group: "data", pvUuid: "pv-new" };
const TAKEN: DiskRecord = { ...RECORD, groupUuid: "vg-1" };
const EXTENSION: DiskOrder = { ...ORDER, groupUuid: "vg-1" };

const DISK: NamedDisk = {
  ...{ name: "nvme-A", ids: ["nvme-A", "nvme-eui.01"], path: "/dev/nvme1n1", number: "259:1", size: 100n << 30n },
  ...{ group: "data", identity: "i1", objections: [] },
};

/** Returns a group with physical volumes of these UUIDs. */
function group(name: string, uuid: string, pvs: readonly string[], change: Partial<VolumeGroup> = {}): SurveyedGroup {
  return {
    ...{ name, uuid, writeable: true, responsive: true, missingPvs: 0, ...change },
    pvs: pvs.map((uuid) => ({ uuid, path: `/dev/${uuid}`, missing: false })),
  } as unknown as SurveyedGroup;
}

/** Returns what is there: a disk that nobody uses, and no group. */
function facts(
  change: Partial<DiskFacts> & { readonly groups?: SurveyedGroup[]; readonly unassigned?: string[] } = {},
) {
  const { groups = [], unassigned = [], ...rest } = change;
  const survey: Pick<Survey, "groups" | "unassignedPvs"> = {
    groups,
    unassignedPvs: unassigned.map((uuid) => ({ uuid, path: "/dev/nvme1n1", missing: false }) as never),
  };
  return {
    ...{ disk: DISK, isThere: true, objections: [], survey, report: groups, pvNumber: "259:1" },
    ...{ recordedGroups: new Map<string, string>(), recordedPvs: new Set<string>(), ...rest },
  } satisfies DiskFacts;
}

const data = group("data", "vg-1", ["pv-old"]);
const done = group("data", "vg-1", ["pv-old", "pv-new"]);

Deno.test("nextStep() takes a disk in steps, each of which can be repeated after a crash", () => {
  const kinds = (order: DiskOrder | undefined, record: DiskRecord | undefined, known: DiskFacts) =>
    nextStep(order, record, known).kind;
  assertEquals(kinds(undefined, undefined, facts()), "none");
  assertEquals(kinds(ORDER, undefined, facts()), "record");
  assertEquals(nextStep(ORDER, RECORD, facts()), { kind: "createPv", disk: DISK, record: RECORD });
  assertEquals(nextStep(ORDER, RECORD, facts({ unassigned: ["pv-new"] })), {
    ...{ kind: "createGroup", disk: DISK, record: RECORD },
  });
  assertEquals(nextStep(EXTENSION, RECORD, facts({ unassigned: ["pv-new"], groups: [data] })), {
    ...{ kind: "extendGroup", disk: DISK, group: data },
  });
  assertEquals(nextStep(EXTENSION, RECORD, facts({ groups: [done] })), { kind: "done", groupUuid: "vg-1" });
  assertEquals(kinds(EXTENSION, TAKEN, facts({ groups: [done] })), "none");
});

Deno.test("nextStep() undoes what was begun when the acceptance is withdrawn, or is for another group now", () => {
  for (const order of [undefined, { ...ORDER, group: "other" }]) {
    assertEquals(nextStep(order, RECORD, facts()), { kind: "forget" });
    const withPv = facts({ unassigned: ["pv-new"] });
    assertEquals(nextStep(order, RECORD, withPv), { kind: "removePv", path: "/dev/nvme1n1", record: RECORD });
    assertEquals(nextStep(order, RECORD, facts({ groups: [done] })).kind, "done", "it is in the group already");
  }
});

/** What must not be taken, with words of the reason. */
const REFUSED: Readonly<Record<string, readonly [words: string, known: DiskFacts, order?: DiskOrder]>> = {
  "a disk that is not there": ["it is not there", facts({ disk: undefined, isThere: false })],
  "a disk that no rule names": ["no rule names it any more", facts({ disk: undefined })],
  "a disk behind the same name": ["it is not as it was accepted", facts({ disk: { ...DISK, identity: "i2" } })],
  "a disk of which udev does not know since when it is there": [
    "not as it was accepted",
    facts({ disk: withoutIdentity() }),
  ],
  "a disk for another group": ["the rules name slow", facts({ disk: { ...DISK, group: "slow" } })],
  "a disk that got a filesystem": [
    "it has a signature (ext4)",
    facts({ disk: { ...DISK, objections: ["it has a signature (ext4)"] } }),
  ],
  "a disk of an attached volume": ["it may be", facts({ objections: ["it may be the attached volume x"] })],
  "a group whose name is an option": ["is not valid", facts({ disk: { ...DISK, group: "--yes" } }), {
    ...ORDER,
    group: "--yes",
  }],
  "a group that exists by now": ["was created since", facts({ groups: [data] })],
  "a group that is gone": ["(vg-1) is not there any more", facts(), EXTENSION],
  "another group of the name": ["another volume group", facts({ groups: [group("data", "vg-2", ["x"])] }), EXTENSION],
  "two groups of the name": ["several", facts({ groups: [data, group("data", "vg-2", ["x"])] }), EXTENSION],
  "a group that volumes have, and LVM does not find": [
    "must not be created a second time",
    facts({ recordedGroups: new Map([["data", "vg-0"]]) }),
  ],
  "a group of another host": ["another host", facts({ groups: [data], report: [] }), EXTENSION],
  "a group with a missing disk": [
    "missing",
    facts({ groups: [group("data", "vg-1", ["a"], { missingPvs: 1 })] }),
    EXTENSION,
  ],
  "an exported group": ["exported", facts({ groups: [group("data", "vg-1", ["a"], { writeable: false })] }), EXTENSION],
  "a group that hangs": [
    "respond",
    facts({ groups: [group("data", "vg-1", ["a"], { responsive: false })] }),
    EXTENSION,
  ],
};

function withoutIdentity(): NamedDisk {
  const { identity: _, ...rest } = DISK;
  return rest;
}

for (const [name, [words, known, order = ORDER]] of Object.entries(REFUSED)) {
  Deno.test(`nextStep() writes nothing for ${name}`, () => {
    for (const record of [undefined, { ...RECORD, group: order.group }]) {
      const step = nextStep(order, record, known);
      assertEquals(
        [step.kind, "reason" in step && step.reason.includes(words)],
        ["refuse", true],
        JSON.stringify(step.kind),
      );
    }
  });
}

Deno.test("nextStep() adds a second disk to a group that was created of the first one", () => {
  const known = { groups: [group("data", "vg-1", ["pv-first"])], recordedPvs: new Set(["pv-first"]) };
  assertEquals(nextStep(ORDER, undefined, facts(known)).kind, "record");
  assertEquals(nextStep(ORDER, RECORD, facts({ ...known, unassigned: ["pv-new"] })).kind, "extendGroup");
});

Deno.test("nextStep() adds no disk to a new group to which somebody has added a disk of their own", () => {
  const groups = [group("data", "vg-1", ["pv-first", "pv-by-hand"])];
  const known = { groups, recordedPvs: new Set(["pv-first"]), unassigned: ["pv-new"] };
  const step = nextStep(ORDER, RECORD, facts(known));
  assertEquals([step.kind, JSON.stringify(step).includes("was created since the disk was accepted")], ["stay", true]);
});

Deno.test("nextStep() does nothing with a physical volume that is elsewhere than recorded", () => {
  const reason = (order: DiskOrder | undefined, record: DiskRecord, known: DiskFacts) => {
    const step = nextStep(order, record, known);
    return [step.kind, "reason" in step ? step.reason : ""];
  };
  const elsewhere =
    "its physical volume pv-new is on /dev/nvme1n1, which is not the disk: look at both, and remove it with " +
    "pvremove(8)";
  const onOther = facts({ unassigned: ["pv-new"], pvNumber: "8:0" });
  for (const order of [ORDER, undefined]) assertEquals(reason(order, RECORD, onOther), ["stay", elsewhere]);
  const unseen = facts({ unassigned: ["pv-new"], disk: undefined, pvNumber: undefined });
  assertEquals(reason(ORDER, RECORD, unseen), ["stay", elsewhere]);
  const inOther = facts({ groups: [group("other", "vg-9", ["pv-new"])] });
  assertEquals(reason(ORDER, RECORD, inOther), [
    "stay",
    "its physical volume is in volume group other, and not in data",
  ]);
  const full = facts({ unassigned: ["pv-new"], groups: [group("data", "vg-1", ["a"], { missingPvs: 1 })] });
  assertEquals(reason(EXTENSION, RECORD, full)[0], "stay");
});

Deno.test("nextStep() does not take a disk again that was taken out of its group", () => {
  const kind = (order: DiskOrder | undefined, known: DiskFacts) => nextStep(order, TAKEN, known).kind;
  assertEquals(kind(EXTENSION, facts({ groups: [data] })), "stay");
  assertEquals(kind(EXTENSION, facts({ groups: [data], unassigned: ["pv-new"] })), "stay");
  assertEquals(kind(undefined, facts({ groups: [data] })), "forget", "withdrawn, and to be accepted again");
  assertEquals(kind(EXTENSION, facts({ groups: [data], disk: undefined, isThere: false })), "lost");
  assertEquals(kind(undefined, facts({ groups: [data], disk: undefined, isThere: false })), "forget");
  const renamed = facts({ groups: [group("renamed", "vg-1", ["pv-new"])] });
  assertEquals(kind(EXTENSION, renamed), "none", "a group may get another name");
});

Deno.test("newPvUuid() returns UUIDs as LVM writes them", () => {
  const uuids = Array.from({ length: 100 }, newPvUuid);
  assertEquals(uuids.every((uuid) => /^[0-9A-Za-z]{6}(?:-[0-9A-Za-z]{4}){5}-[0-9A-Za-z]{6}$/.test(uuid)), true);
  assertEquals(new Set(uuids).size, 100);
});
