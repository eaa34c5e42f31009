import { assertEquals, assertMatch } from "@std/assert";
import { StorageError } from "../../lvm/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../lvm/ids.ts";
import { parseReport, REPORT_COMMAND } from "../../lvm/model/report.ts";
import type { LocatedSnapshot } from "../../lvm/snapshots/snapshots.ts";
import { FULL_STORE } from "../../lvm/spec/cow_size.ts";
import { type FakeGroup, type FakeLv, FakeMachine } from "../../tests/fake/machine.ts";
import type { LvmSnapshot, LvmSnapshotStatus } from "../api/lvm_objects.ts";
import { lvmSnapshotFor } from "../api/snapshot_mapping.ts";
import { lostSnapshotStatus, takenStatus } from "./snapshot_status.ts";

const MiB = 1n << 20n;
const [id, source] = [snapshotIdOf("cut"), volumeIdOf("pvc-1")];

/** A snapshot of 32 MiB with a store of 8 MiB as LVM reports it, after something was done to it. */
async function located(change: (store: FakeLv, group: FakeGroup) => void = () => {}): Promise<LocatedSnapshot> {
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
  return { snapshot, lv, group: group!, halfMade: false, erase: "zero" };
}

function object(status?: LvmSnapshotStatus): LvmSnapshot {
  const whole = lvmSnapshotFor({ id, name: "cut", source, store: FULL_STORE }, { driver: "d", nodeName: "n" });
  return { ...whole, metadata: { ...whole.metadata, generation: 1 }, ...(status && { status }) };
}

function conditionsOf(status: LvmSnapshotStatus): string[] {
  return status.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`) ?? [];
}

Deno.test("takenStatus() tells where the LV is, how large store and volume are, and how full the store is", async () => {
  const found = await located((store) => store.storePercent = 12.01);
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
    storePercent: 13,
  });
  assertEquals(conditionsOf(takenStatus(object(), found)), ["Healthy True DisksThere", "Ready True Taken"]);
  const inactive = takenStatus(object(), await located((store) => store.active = false));
  assertEquals([inactive.state, "storePercent" in inactive], ["Ready", false]);
});

Deno.test("takenStatus(): a store that fills, that overflowed, and disks that are missing are conditions, the worst alone", async () => {
  const of = async (change: Parameters<typeof located>[0]) => takenStatus(object(), await located(change));
  const filling = await of((store) => store.storePercent = 80);
  assertEquals(conditionsOf(filling), ["Healthy False StoreFilling", "Ready True Taken"]);
  assertMatch(filling.conditions![0]!.message, /lvextend --size \+1G data\/snap-1$/);
  const stuck = await of((store, group) => [store.storePercent, group.size] = [80, 40n * MiB]);
  assertEquals(conditionsOf(stuck)[0], "Healthy False StoreCannotGrow");
  assertMatch(stuck.conditions![0]!.message, /data has no room to grow it; .* vgextend data$/);
  const full = await of((store) => [store.storePercent, store.size] = [95, 36n * MiB]);
  assertEquals(conditionsOf(full)[0], "Healthy True DisksThere", "it has room for all of the volume");
  const overflowed = await of((store, group) => [store.invalid, group.missingPvs] = [true, 1]);
  assertEquals([overflowed.state, overflowed.readyToUse, overflowed.storePercent], ["Overflowed", false, 100]);
  assertEquals(conditionsOf(overflowed), ["Healthy False Overflowed", "Ready False Overflowed"]);
  const inactive = takenStatus(object(overflowed), await located((store) => store.active = false));
  assertEquals([inactive.state, inactive.readyToUse], ["Overflowed", false], "it cannot have come back");
  const missing = await of((_, group) => group.missingPvs = 1);
  assertEquals([missing.state, conditionsOf(missing)[0]], ["Ready", "Healthy False DisksMissing"]);
});

Deno.test("takenStatus() has no error any more", async () => {
  const error = { code: "ForeignData", message: "two claim to be it" } as const;
  assertEquals("error" in takenStatus(object({ state: "Ready", error }), await located()), false);
});

Deno.test("lostSnapshotStatus() keeps what was recorded, and cannot be used", async () => {
  const before = takenStatus(object(), await located());
  const lost = lostSnapshotStatus(object(before), new StorageError("Lost", "its LV is gone"));
  assertEquals([lost.state, lost.readyToUse, lost.lvUUID, lost.restoreSize], ["Lost", false, before.lvUUID, "32Mi"]);
  assertEquals(conditionsOf(lost)[1], "Ready False Lost");
});
