import { assertEquals, assertMatch } from "@std/assert";
import { type FakeGroup, type FakeLv, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { endSync } from "../../tests/fake/machine/pvs.ts";
import { Lvm } from "../client/client.ts";
import { redundancyOf } from "./redundancy.ts";

/** Returns the redundancy of an LV with a type and a number of disks, after something happened to it. */
async function redundancyAfter(type: string, stripes: number, change: (lv: FakeLv, group: FakeGroup) => void) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 4n << 30n, 4n << 20n, stripes);
  const args =
    { raid1: ["--mirrors", `${stripes - 1}`], raid10: ["--mirrors", "1", "--stripes", `${stripes / 2}`] }[type] ??
      ["--stripes", `${stripes - (type === "raid6" ? 2 : type === "raid5" ? 1 : 0)}`];
  await machine.run({
    program: "lvm",
    args: [
      "lvcreate",
      "--type",
      type,
      ...args,
      "--stripesize",
      "65536b",
      "--name",
      "lv",
      "--size",
      "67108864b",
      "data",
    ],
    mutates: true,
  });
  endSync(group);
  change(group.lvs[0]!, group);
  const [report] = await new Lvm(machine).report();
  return redundancyOf(report!.lvs[0]!, report!);
}

Deno.test.each<[string, number, number, string]>([
  ["raid1", 2, 1, "Degraded"],
  ["raid1", 2, 2, "RaidFailed"],
  ["raid1", 3, 2, "Degraded"],
  ["raid5", 3, 1, "Degraded"],
  ["raid5", 3, 2, "RaidFailed"],
  ["raid6", 5, 2, "Degraded"],
  ["raid6", 5, 3, "RaidFailed"],
  ["raid10", 4, 1, "Degraded"],
  ["raid10", 4, 2, "RaidFailed"], // the first two have the same data
])("a %s of %d disks that lacks %d is %s", async (type, stripes, missing, state) => {
  const found = await redundancyAfter(type, stripes, (_, group) => group.missingPvs = missing);
  assertEquals([found?.state, found?.redundant], [state as typeof found & string, false]);
  assertMatch(found!.message, new RegExp(`^${missing} of its ${stripes} images are on missing physical volumes`));
});

Deno.test("redundancyOf() names how to activate a RAID volume with checksums that lost a disk", async () => {
  const found = await redundancyAfter("raid1", 2, (lv, group) => {
    lv.pvSegments = lv.pvSegments!.map((segment) => ({
      ...{ ...segment, subLv: segment.subLv.replace(/^rimage.*/, "$&_iorig") },
    }));
    group.missingPvs = 1;
    lv.active = false;
  });
  assertEquals(found?.remedy, "lvconvert --raidintegrity n data/lv; lvconvert --repair data/lv   (onto another disk)");
  assertMatch(found!.message, /LVM does not activate it without them as long as it has integrity/);
});

Deno.test("redundancyOf() returns what the kernel reports: in sync, rebuilding, refresh needed, mismatches", async () => {
  const state = async (happen: (lv: FakeLv) => void) => {
    const found = await redundancyAfter("raid1", 2, happen);
    return [found?.state, found?.redundant];
  };
  assertEquals(await state(() => {}), ["InSync", true]);
  assertEquals(await state((lv) => lv.raid!.syncPercent = 40), ["Rebuilding", false]);
  const isNew = { action: "resync", syncPercent: 0, isNew: true };
  assertEquals(await state((lv) => Object.assign(lv.raid!, isNew)), ["Rebuilding", false]);
  assertEquals(await state((lv) => lv.raid!.refreshNeeded = true), ["RefreshNeeded", false]);
  assertEquals(await state((lv) => lv.raid!.mismatches = 128), ["Mismatches", true]);
  assertEquals(await state((lv) => lv.active = false), ["InSync", true]);
});

Deno.test("redundancyOf() finds images that share a physical volume, as lvextend places them when none is named", async () => {
  const found = await redundancyAfter("raid1", 2, ({ pvSegments }, group) => {
    pvSegments!.push({ subLv: "rimage_0", pvUuid: group.pvs[1]!.uuid, size: 4n << 20n });
  });
  assertEquals(found?.state, "SharedPhysicalVolume");
  assertMatch(found!.message, /more than one of its images is on \/dev\/vdc/);
});

Deno.test("a volume without RAID images has no redundancy", async () => {
  assertEquals(await redundancyAfter("striped", 2, () => {}), undefined);
});
