import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { Command } from "../exec.ts";
import { Lvm } from "../model/client.ts";
import { snapshotIdOf, volumeIdOf } from "../ids.ts";
import { Snapshots } from "../snapshots/snapshots.ts";
import { FULL_COW } from "../spec/cow_size.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Reaper } from "./reaper.ts";
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
