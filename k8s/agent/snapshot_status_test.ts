import { assertEquals, assertMatch } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { parseReport } from "../../lvm/model/report_parser.ts";
import { REPORT_COMMAND } from "../../lvm/model/report_command.ts";
import type { LocatedSnapshot } from "../../lvm/inventory/snapshot_finder.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { type FakeGroup, type FakeLv, FakeMachine } from "../../tests/fake/machine/machine.ts";
import type { LvmSnapshot, LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { lvmSnapshotFor } from "../api/snapshot_mapping.ts";
import { lostSnapshotStatus, takenStatus } from "./snapshot_status.ts";

const MiB = 1n << 20n;
const [id, source] = [snapshotIdOf("cut"), volumeIdOf("pvc-1")];

/** Returns a snapshot of 32 MiB with 8 MiB of COW space as LVM reports it, after a change. */
async function located(change: (cow: FakeLv, group: FakeGroup) => void = () => {}): Promise<LocatedSnapshot> {
  const machine = new FakeMachine();
  const fake = machine.addGroup("data", 1n << 30n);
  const lvcreate = (...args: string[]) =>
    machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args], mutates: true });
  await lvcreate("--size", `${32n * MiB}b`, "--name", "vol-1", "data");
  await lvcreate("--snapshot", "--size", `${8n * MiB}b`, "--name", "snap-1", "data/vol-1");
  change(fake.lvs[1]!, fake);
  const [group] = parseReport((await machine.run(REPORT_COMMAND)).stdout);
  const lv = group!.lvs[1]!;
  const snapshot = { id, source, size: 32n * MiB, createdAt: lv.createdAt, ready: !lv.invalidSnapshot };
  return { snapshot, lv, group: group!, incomplete: false, erase: "zero" };
}

function object(status?: LvmSnapshotStatus): LvmSnapshot {
  const full = lvmSnapshotFor({ id, name: "cut", source, cowSize: FULL_COW }, { driver: "d", nodeName: "n" });
  return { ...full, metadata: { ...full.metadata, generation: 1 }, ...(status && { status }) };
}

function conditionSummaries(status: LvmSnapshotStatus): string[] {
  return status.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`) ?? [];
}

Deno.test("takenStatus() reports where the LV is, the sizes of the COW space and the volume, and how full the COW space is", async () => {
  const found = await located((cow) => cow.cowPercent = 12.01);
  const { conditions: _, ...status } = takenStatus(object(), found);
  assertEquals(status, {
    state: "Ready",
    observedGeneration: 1,
    volumeGroup: "data",
    volumeGroupUUID: found.group.uuid,
    lvName: "snap-1",
    lvUUID: found.lv.uuid,
    size: "8Mi",
    restoreSize: "32Mi",
    creationTime: new Date(found.lv.createdAt * 1000).toISOString().replace(".000Z", "Z"),
    readyToUse: true,
    cowPercent: 13,
  });
  assertEquals(conditionSummaries(takenStatus(object(), found)), [
    "Healthy True PhysicalVolumesPresent",
    "Ready True Created",
  ]);
  const inactive = takenStatus(object(), await located((cow) => cow.active = false));
  assertEquals([inactive.state, "cowPercent" in inactive], ["Ready", false]);
});

Deno.test("takenStatus(): a COW space that is nearly full or overflowed, and missing disks are conditions, the worst alone", async () => {
  const statusAfter = async (change: Parameters<typeof located>[0]) => takenStatus(object(), await located(change));
  const nearFull = await statusAfter((cow) => cow.cowPercent = 80);
  assertEquals(conditionSummaries(nearFull), ["Healthy False SnapshotNearFull", "Ready True Created"]);
  assertMatch(nearFull.conditions![0]!.message, /lvextend --size \+1G data\/snap-1$/);
  const cannotExtend = await statusAfter((cow, group) => [cow.cowPercent, group.size] = [80, 40n * MiB]);
  assertEquals(conditionSummaries(cannotExtend)[0], "Healthy False SnapshotCannotExtend");
  assertMatch(cannotExtend.conditions![0]!.message, /data has no free space to extend it; .* vgextend data$/);
  const full = await statusAfter((cow) => [cow.cowPercent, cow.size] = [95, 36n * MiB]);
  assertEquals(conditionSummaries(full)[0], "Healthy True PhysicalVolumesPresent", "it has room for all of the volume");
  const overflowed = await statusAfter((cow, group) => [cow.invalid, group.missingPvs] = [true, 1]);
  assertEquals([overflowed.state, overflowed.readyToUse, overflowed.cowPercent], ["Overflowed", false, 100]);
  assertEquals(conditionSummaries(overflowed), ["Healthy False Overflowed", "Ready False Overflowed"]);
  const inactive = takenStatus(object(overflowed), await located((cow) => cow.active = false));
  assertEquals([inactive.state, inactive.readyToUse], ["Overflowed", false], "it cannot have come back");
  const missing = await statusAfter((_, group) => group.missingPvs = 1);
  assertEquals([missing.state, conditionSummaries(missing)[0]], ["Ready", "Healthy False PhysicalVolumesMissing"]);
});

Deno.test("takenStatus() has no error any more", async () => {
  const error = { code: "ForeignData", message: "two claim to be it" } as const;
  assertEquals("error" in takenStatus(object({ state: "Ready", error }), await located()), false);
});

Deno.test("lostSnapshotStatus() keeps what was recorded, and cannot be used", async () => {
  const before = takenStatus(object(), await located());
  const lost = lostSnapshotStatus(object(before), new StorageError("Lost", "its LV is gone"));
  assertEquals([lost.state, lost.readyToUse, lost.lvUUID, lost.restoreSize], ["Lost", false, before.lvUUID, "32Mi"]);
  assertEquals(conditionSummaries(lost)[1], "Ready False Lost");
});
