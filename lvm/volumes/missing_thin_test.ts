import { assertEquals, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../error.ts";
import { snapshotIdOf, volumeIdOf } from "../ids.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../model/client.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Snapshots } from "../snapshots/snapshots.ts";
import { FULL_COW } from "../spec/cow_size.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "./volumes.ts";

const NO_DATA = failure(5, "  device-mapper: reload ioctl on  (254:4) failed: No data available");

const volumeRequest = namedRequest("one", 32n << 20n, {
  format: { state: "unformatted", type: "ext4" },
  thin: { poolSize: DEFAULT_POOL_SIZE },
});
const snapshotRequest = { id: snapshotIdOf("cut"), source: volumeIdOf("one"), cowSize: FULL_COW };

/** Creates a machine with a thin volume and its snapshot. `restart()` deactivates all LVs, and the pool lacks the last one. */
async function scene() {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const options = { lvm, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } };
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ ...options, finder });
  const snapshots = new Snapshots({ ...options, finder: new SnapshotFinder({ driver: "test" }), volumes: finder });
  const uuids = () => group.lvs.filter(({ pool }) => pool !== undefined).map(({ uuid }) => uuid);
  const restart = (answer = NO_DATA) => {
    for (const lv of group.lvs) lv.active = false;
    const path = `data/${group.lvs.at(-1)!.name}`;
    machine.fault = ({ args }) => {
      if (args[0] === "lvcreate") machine.fault = undefined;
      return args.includes("--activate") && args.at(-1) === path ? answer : undefined;
    };
  };
  await volumes.create(volumeRequest);
  return { volumes, snapshots, group, uuids, restart, options };
}

Deno.test("create() creates a thin volume again that its pool lacks, and none that its pool has", async () => {
  const s = await scene();
  const [before] = s.uuids();
  s.restart();
  await s.volumes.create(volumeRequest);
  const [created, ...more] = s.uuids();
  assertEquals([created === before, more], [false, []]);
  for (const lv of s.group.lvs) lv.active = false;
  await s.volumes.create(volumeRequest);
  assertEquals(s.uuids(), [created]);
});

Deno.test("create() leaves a thin volume alone that may have been used, and one that cannot be activated otherwise", async () => {
  const s = await scene();
  const before = s.uuids();
  s.restart(failure(5, "  device-mapper: reload ioctl on  (254:4) failed: Input/output error"));
  await assertRejects(() => s.volumes.create(volumeRequest), StorageError, "Input/output error");
  s.restart();
  const lv = s.group.lvs.at(-1)!;
  lv.tags.delete("denolith.fs=wanted:ext4");
  lv.tags.add(`denolith.fs=formatted:ext4:${crypto.randomUUID()}`);
  await s.volumes.create(volumeRequest);
  assertEquals(s.uuids(), before);
});

Deno.test("a deleted thin volume that its pool lacks is removed, although it cannot be erased", async () => {
  const s = await scene();
  s.restart();
  await s.volumes.delete(volumeRequest.id);
  const onError = (error: unknown) => void errors.push(error);
  const errors: unknown[] = [];
  const reaper = new Reaper({ ...s.options, driver: "test", removeEmptyPools: true, onError });
  reaper.start();
  await reaper.idle();
  await reaper.stop();
  assertEquals([s.uuids(), errors], [[], []]);
});

Deno.test("create() takes a thin snapshot again that its pool lacks: LVM would take it at any later time", async () => {
  const s = await scene();
  await s.snapshots.create(snapshotRequest);
  const [volume, snapshot] = s.uuids();
  s.restart();
  await s.snapshots.create(snapshotRequest);
  const [sameVolume, taken, ...more] = s.uuids();
  assertEquals([sameVolume, taken === snapshot, more], [volume, false, []]);
});
