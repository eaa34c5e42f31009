import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { KnownGroups, type PendingChange } from "./known_report.ts";
import type { LogicalVolume, VolumeGroup } from "../model/report.ts";

const [A, B] = ["a", "b"].map((letter) => `${letter}`.repeat(6) + "-1234-1234-1234-1234-1234-123456") as [
  string,
  string,
];

/** Returns a group with LVs, by their names, UUIDs and tags. */
function groupOf(tags: string[], ...lvs: [name: string, uuid: string, tags: string[]][]): VolumeGroup {
  const lvsOf = lvs.map(([name, uuid, tags]) => ({ name, uuid, tags }) as unknown as LogicalVolume);
  return { name: "data", tags, lvs: lvsOf, missingPvs: 0, responsive: true } as unknown as VolumeGroup;
}

/** Returns what is known, in short. */
function shortOf(groups: readonly VolumeGroup[] | undefined) {
  return groups?.map(({ tags, lvs }) => [tags.join(), ...lvs.map((lv) => `${lv.name}:${lv.tags.join()}`)].join(" "));
}

const report = [groupOf(["t"], ["vol-1", A, ["x"]], ["vol-2", B, ["y"]])];

/** Reads a report, and makes changes after it. @returns what is known about a mark */
function knownAfter(mark: string, ...changes: { args: string; changed?: boolean | undefined }[]) {
  const known = new KnownGroups();
  known.startReport()(report);
  for (const { args, changed = true } of changes) end(known.startChange("data", args.split(" ")), changed);
  return shortOf(known.about(mark));
}

function end(change: PendingChange, changed: boolean | undefined): void {
  if (changed !== undefined) change.changed = changed;
  change.ended = true;
}

Deno.test("KnownGroups applies the changes of tags, and removals, to the last report", () => {
  assertEquals(knownAfter("1"), ["t vol-1:x vol-2:y"]);
  assertEquals(knownAfter("1", { args: "lvchange --deltag x --addtag z data/vol-1" }), ["t vol-1:z vol-2:y"]);
  assertEquals(knownAfter("1", { args: "vgchange --deltag t --addtag u data" }), ["u vol-1:x vol-2:y"]);
  assertEquals(knownAfter("1", { args: `lvremove --yes --select lv_uuid=${A} data/vol-1` }), ["t vol-2:y"]);
  const select = `lv_uuid=${A}&&lv_tags="x"`;
  assertEquals(knownAfter("1", { args: `lvremove --yes --select ${select} data/vol-1` }), ["t vol-2:y"]);
});

Deno.test("KnownGroups does not know what a change did that failed, still runs, or is of another kind", () => {
  for (
    const args of [
      ...["lvcreate --name vol-1 data", "lvextend --size 8b data/vol-1", "lvchange --activate y data/vol-1"],
      ...["lvchange --refresh data/vol-1", "lvremove --yes data/vol-1"],
    ]
  ) {
    assertEquals([knownAfter("1", { args }), knownAfter("2", { args })], [undefined, ["t vol-1:x vol-2:y"]], args);
  }
  const tags = "lvchange --addtag z data/vol-1";
  const known = new KnownGroups();
  known.startReport()(report);
  const change = known.startChange("data", tags.split(" "));
  assertEquals([known.about("1"), shortOf(known.about("2"))], [undefined, ["t vol-1:x vol-2:y"]]);
  end(change, undefined); // it failed
  assertEquals(known.about("1"), undefined);
  known.startReport()(report);
  assertEquals(shortOf(known.about("1")), ["t vol-1:x vol-2:y"]);
  assertEquals(knownAfter("1", { args: tags, changed: false }), ["t vol-1:x vol-2:y"]); // LVM selected nothing
});

Deno.test("KnownGroups knows an LV that was created once it is noted, until a report shows it", () => {
  const known = new KnownGroups();
  known.startReport()(report);
  const change = known.startChange("data", "lvcreate --name vol-3 --size 8b data".split(" "));
  const created = { name: "vol-3", uuid: "c", tags: ["z"] } as unknown as LogicalVolume;
  known.noteCreated("data", created);
  assertEquals(known.about("3"), undefined, "it has not ended");
  end(change, true);
  known.noteCreated("other", created);
  known.noteCreated("data", { ...created, name: "vol-4" });
  assertEquals(known.about("3"), undefined, "another one was noted");
  known.noteCreated("data", created);
  assertEquals(shortOf(known.about("3")), ["t vol-1:x vol-2:y vol-3:z"]);
  end(known.startChange("data", "lvchange --addtag more data/vol-3".split(" ")), true);
  assertEquals(shortOf(known.about("3")), ["t vol-1:x vol-2:y vol-3:z,more"]);
  known.startReport()(report);
  assertEquals(shortOf(known.about("3")), ["t vol-1:x vol-2:y"]);
});

Deno.test("KnownGroups knows an LV once that was created and noted during a report which shows it", () => {
  const known = new KnownGroups();
  const change = known.startChange("data", "lvcreate --name vol-3 --size 8b data".split(" "));
  const noteGroups = known.startReport();
  end(change, true);
  noteGroups([groupOf(["t"], ["vol-3", B, ["y"]])]);
  known.noteCreated("data", { name: "vol-3", uuid: B, tags: ["z"] } as unknown as LogicalVolume);
  assertEquals(shortOf(known.about("3")), ["t vol-3:y"]);
});

Deno.test("KnownGroups counts the LVs that a group still takes, also while they are created, and those that failed", () => {
  const known = new KnownGroups();
  known.startReport()([{ ...report[0]!, lvsLeft: 3 }]);
  const left = () => known.about("9")?.map(({ lvsLeft }) => lvsLeft);
  const create = (name: string) => known.startChange("data", `lvcreate --name ${name} --size 8b data`.split(" "));
  const [first] = [create("vol-3"), create("vol-4")];
  assertEquals(left(), [1]);
  end(first, true);
  end(known.startChange("data", "lvchange --addtag z data/vol-1".split(" ")), true);
  assertEquals(left(), [1]);
});

Deno.test("KnownGroups keeps a change that ended after the start of a report, which may not show it", () => {
  const known = new KnownGroups();
  known.startReport()(report);
  const change = known.startChange("data", ["lvchange", "--addtag", "z", "data/vol-1"]);
  const read = known.startReport();
  end(change, true);
  read(report);
  assertEquals(shortOf(known.about("1")), ["t vol-1:x,z vol-2:y"]);
  known.startReport()(report);
  assertEquals(shortOf(known.about("1")), ["t vol-1:x vol-2:y"]);
});

Deno.test("KnownGroups does not know what a report shows that began before it was cleared", () => {
  const known = new KnownGroups();
  const read = known.startReport();
  end(known.startChange("data", ["lvchange", "--addtag", "z", "data/vol-1"]), true);
  known.clear();
  read(report);
  assertEquals(known.about("1"), undefined);
  known.startReport()(report);
  assertEquals(shortOf(known.about("1")), ["t vol-1:x vol-2:y"]);
});

Deno.test("KnownGroups knows which LV a change was selected by its UUID, whatever its name", () => {
  const select = `lv_uuid=${A} && lv_tags="x"`;
  const known = new KnownGroups();
  known.startReport()([groupOf(["t"], ["vol-1", B, ["y"]], ["renamed", A, ["x"]])]);
  const args = ["lvchange", "--deltag", "x", "--addtag", "z", "--select", select, "data/vol-1"];
  end(known.startChange("data", args), true);
  assertEquals(shortOf(known.about("1")), ["t vol-1:y renamed:z"]);
});

Deno.test("KnownGroups does not know what a change did to an LV of the volume that has another name", () => {
  const known = new KnownGroups();
  known.startReport()([groupOf(["t"], ["renamed", A, ["denolith.volume=v1-1"]], ["vol-2", B, ["y"]])]);
  end(known.startChange("data", ["lvextend", "--size", "8b", "data/renamed"]), true);
  assertEquals([known.about("1"), known.about("2")?.length], [undefined, 1]);
});

Deno.test("KnownGroups knows nothing before a report, after ten seconds, while one group does not respond, or while LVM must read all disks to change one of several", async () => {
  const clock = new FakeClock();
  const known = new KnownGroups(clock);
  assertEquals(known.about("1"), undefined);
  const read = known.startReport();
  await clock.advance(6_000);
  read(report);
  assertEquals(known.about("1")?.length, 1);
  await clock.advance(4_001);
  assertEquals(known.about("1"), undefined);
  known.startReport()([...report, ...report]);
  assertEquals(known.about("1")?.length, 2);
  for (const what of [{ missingPvs: 1 }, { duplicatePvs: true }, { ambiguous: true }] as const) {
    const group = { ...report[0]!, ...what };
    known.startReport()([group]);
    assertEquals(known.about("1")?.length, 1);
    known.startReport()([...report, group]);
    assertEquals(known.about("1"), undefined);
  }
  known.startReport()([{ ...report[0]!, responsive: false }]);
  assertEquals(known.about("1"), undefined);
  known.startReport()(report);
  known.clear();
  assertEquals(known.about("1"), undefined);
});

Deno.test("KnownGroups knows for 90 seconds what the kernel is to confirm", async () => {
  const clock = new FakeClock();
  const known = new KnownGroups(clock);
  assertEquals(known.toConfirm("1"), undefined);
  known.startReport()([...report, ...report]);
  await clock.advance(90_000);
  assertEquals(known.toConfirm("1")?.length, 2);
  end(known.startChange("data", ["lvextend", "--size", "8b", "data/vol-2"]), true);
  assertEquals([known.toConfirm("1")?.length, known.toConfirm("2")], [2, undefined]);
  await clock.advance(1);
  assertEquals(known.toConfirm("1"), undefined);
  known.startReport()([...report, { ...report[0]!, responsive: false }]);
  assertEquals(known.toConfirm("1"), undefined);
});
