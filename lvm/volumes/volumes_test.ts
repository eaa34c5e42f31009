import { assertEquals, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { Lvm } from "../client/client.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Snapshots } from "../snapshots/snapshots.ts";
import { FULL_COW } from "../settings/cow_size.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Reaper } from "../deletion/reaper.ts";
import type { VolumeRequest } from "../inventory/volume.ts";
import { Volumes } from "./volumes.ts";

function request(name: string): VolumeRequest {
  return namedRequest(name, 32n << 20n, { format: { state: "raw" } });
}

Deno.test("create() takes the next group when one was filled since the report", async () => {
  const machine = new FakeMachine();
  machine.addGroup("small", 1n << 30n);
  machine.addGroup("large", 2n << 30n);
  const tried: string[] = [];
  machine.fault = ({ args }: Command) => {
    const group = args.at(-1)!;
    if (args[0] !== "lvcreate" || tried.push(group) > 1) return undefined;
    return failure(5, `  Volume group "${group}" has insufficient free space (0 extents): 8 required.`);
  };
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const volumes = new Volumes({
    lvm,
    finder: new VolumeFinder({ driver: "test" }),
    reservation,
    reaper: new Reaper({ lvm, driver: "test", reservation, onError: () => {} }),
  });
  const size = await volumes.create(request("one"));
  assertEquals([size, tried], [32n << 20n, ["small", "large"]]);
  assertEquals(machine.allLvs().map(({ group }) => group.name), ["large"]);
});

Deno.test("create() takes the next group when one was removed since the report, and says so when it was the last", async () => {
  const machine = new FakeMachine();
  machine.addGroup("small", 1n << 30n);
  machine.addGroup("large", 2n << 30n);
  machine.fault = ({ args }: Command) => {
    const index = machine.groups.findIndex(({ name }) => args[0] === "lvcreate" && name === args.at(-1));
    if (index >= 0 && machine.groups[index]!.name === "small") machine.groups.splice(index, 1);
    return undefined;
  };
  const lvm = new Lvm(machine);
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reaper: { wake: () => {} }, reservation: new PoolReservation(lvm) });
  await volumes.create(request("one"));
  assertEquals(machine.allLvs().map(({ group }) => group.name), ["large"]);
  machine.groups[0]!.name = "small"; // it goes when it is tried
  const error = await assertRejects(() => volumes.create(request("two")), StorageError, '"small" not found');
  assertEquals(error.kind, "NoSpace");
});

Deno.test("expand() splits off deleted snapshots, and then extends the volume while it is mounted", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const reaper = { wake: () => {} }; // is busy elsewhere
  const finder = new VolumeFinder({ driver: "test" });
  const reservation = new PoolReservation(lvm);
  const volumes = new Volumes({ lvm, finder, reaper, reservation });
  const snapshots = new Snapshots({
    ...{ lvm, volumes: finder, reaper, reservation },
    finder: new SnapshotFinder({ driver: "test" }),
  });
  const id = volumeIdOf("one");
  await volumes.create(request("one"));
  await snapshots.create({ id: snapshotIdOf("cut"), source: id, cowSize: FULL_COW });
  await snapshots.delete(snapshotIdOf("cut"));
  const [origin, cow] = machine.groups[0]!.lvs;
  const mount = { target: "/mnt/pod", source: "", fsType: "ext4", root: "/", readOnly: false, deviceNumber: "" };
  machine.mounts.push({ ...mount, lv: origin! });
  assertEquals((await volumes.expand(id, { required: 64n << 20n })).size, 64n << 20n);
  assertEquals([origin!.size, origin!.active, cow!.origin], [64n << 20n, true, undefined]);
});

for (const call of ["create", "delete"] as const) {
  Deno.test(`${call}() accepts that the reaper has removed an incomplete LV before`, async () => {
    const machine = new FakeMachine();
    machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
    const lvm = new Lvm(machine);
    const finder = new VolumeFinder({ driver: "test" });
    const volumes = new Volumes({ lvm, finder, reaper: { wake: () => {} }, reservation: new PoolReservation(lvm) });
    const raid = namedRequest("one", 32n << 20n, { format: { state: "raw" }, layout: { type: "raid1", mirrors: 1 } });
    await volumes.create(raid);
    const [group] = machine.groups;
    group!.lvs[0]!.incomplete = true;
    machine.fault = ({ args }) => {
      if (args[0] !== "lvremove") return undefined;
      machine.fault = undefined;
      group!.lvs = []; // at the start, the reaper removes such LVs, too
      return undefined;
    };
    if (call === "create") await volumes.create(raid);
    else await volumes.delete(raid.id);
    assertEquals(group!.lvs.length, call === "create" ? 1 : 0);
  });
}

Deno.test("delete() of an unused volume leaves it to LVM to wait for udev, which still reads the new device", async () => {
  const machine = new FakeMachine();
  machine.addGroup("one", 1n << 30n);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const volumes = new Volumes({
    lvm,
    finder: new VolumeFinder({ driver: "d" }),
    reservation,
    reaper: { wake: () => {} },
  });
  const create = async (name: string) => {
    await volumes.create(namedRequest(name, 8n << 20n, { format: { state: "unformatted", type: "ext4" } }));
    return machine.openDevice((await volumes.get(volumeIdOf(name))).lv.devicePath);
  };
  const openByUdev = await create("new");
  machine.fault = ({ args }) => void (args[0] === "lvremove" && openByUdev[Symbol.dispose]());
  await volumes.delete(volumeIdOf("new"));
  assertEquals(machine.allLvs().length, 0);

  machine.fault = undefined;
  using _openByProgram = await create("open");
  const { kind } = await assertRejects(() => volumes.delete(volumeIdOf("open")), StorageError);
  assertEquals([kind, machine.allLvs().length], ["InUse", 1]);
});
