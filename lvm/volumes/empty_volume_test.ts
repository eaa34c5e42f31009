import { assertEquals, assertRejects } from "@std/assert";
import { type FakeGroup, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { usedTag } from "../model/tags.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "./volumes.ts";

const id = volumeIdOf("one");

/** Deletes an empty volume by a report, while something happens before LVM removes it. */
async function deleteDespite(happens: (group: FakeGroup, machine: FakeMachine) => unknown) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } });
  await volumes.create(namedRequest("one", 32n << 20n));
  machine.fault = async ({ args }) => {
    if (args[0] !== "lvremove") return undefined;
    machine.fault = undefined;
    await happens(group, machine);
    return undefined;
  };
  return { deleted: () => volumes.delete(id, { byReport: true }), group };
}

Deno.test("delete() does not report an empty volume as deleted that is still there, as its group or LV was renamed meanwhile", async () => {
  const renames: ((group: FakeGroup) => unknown)[] = [
    (group) => group.name = "renamed",
    (group) => group.lvs[0]!.name += ".2",
    (group) => group.lvs[0]!.name = "renamed",
  ];
  for (const [index, rename] of renames.entries()) {
    const { deleted, group } = await deleteDespite(rename);
    assertEquals((await assertRejects(deleted, StorageError, "renamed or changed meanwhile")).kind, "Busy");
    assertEquals(group.lvs.length, 1);
    await deleted();
    // an LV with a name of somebody else may have data, and is erased before it is removed
    const marked = index < 2 ? [] : [true];
    assertEquals(group.lvs.map(({ tags }) => tags.has(`denolith.deleted=${id}`)), marked);
  }
});

Deno.test("delete() keeps an empty volume that was used, or got a snapshot, since the report", async () => {
  const used = await deleteDespite((group) => group.tags.add(usedTag("test", id, group.lvs[0]!.uuid)));
  await assertRejects(used.deleted, StorageError, "renamed or changed meanwhile");
  assertEquals(used.group.lvs.length, 1);
  const origin = await deleteDespite(async (group, machine) => {
    const args = ["lvcreate", "--yes", "--snapshot", "--name", "backup", "--size", "8388608b"];
    const command = { program: "lvm", args: [...args, `data/${group.lvs[0]!.name}`], mutates: true } as const;
    assertEquals((await machine.run(command)).code, 0);
  });
  await assertRejects(origin.deleted, StorageError, "renamed or changed meanwhile");
  assertEquals(origin.group.lvs.length, 2);
  assertEquals((await assertRejects(origin.deleted, StorageError, "backup")).kind, "InUse");
});

Deno.test("delete() succeeds for an empty volume that another process has removed since the report", async () => {
  const { deleted, group } = await deleteDespite((group) => group.lvs = []);
  await deleted();
  assertEquals(group.lvs, []);
});
