import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Snapshots } from "../snapshots/snapshots.ts";
import { FULL_COW } from "../settings/cow_size.ts";
import { removePendingThin } from "./missing_thin.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "../volumes/volumes.ts";

const NO_DATA = failure(5, "  device-mapper: reload ioctl on  (254:4) failed: No data available");

const volumeRequest = namedRequest("one", 32n << 20n, {
  format: { state: "unformatted", type: "ext4" },
  thin: { poolSize: DEFAULT_POOL_SIZE },
});
const snapshotRequest = { id: snapshotIdOf("cut"), source: volumeIdOf("one"), cowSize: FULL_COW };

/** Creates a machine with a thin volume and its snapshot. `restart()` deactivates all LVs, and the pool lacks the last one. */
async function harness() {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const options = { lvm, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } };
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ ...options, finder });
  const snapshots = new Snapshots({ ...options, finder: new SnapshotFinder({ driver: "test" }), volumes: finder });
  const uuids = () => group.lvs.filter(({ pool }) => pool !== undefined).map(({ uuid }) => uuid);
  const restart = (answer = NO_DATA, missing = group.lvs.at(-1)!) => {
    for (const lv of group.lvs) lv.active = false;
    const path = `data/${missing.name}`;
    machine.fault = ({ args }) => {
      if (args[0] === "lvcreate") machine.fault = undefined;
      return args.includes("--activate") && args.at(-1) === path ? answer : undefined;
    };
  };
  await volumes.create(volumeRequest);
  const removePending = async () => await removePendingThin(lvm, "test", (await lvm.report())[0]!);
  return { volumes, snapshots, group, uuids, restart, options, machine, removePending };
}

Deno.test("create() creates a thin volume again that its pool lacks, and none that its pool has", async () => {
  const s = await harness();
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
  const s = await harness();
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
  const s = await harness();
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

Deno.test("a deleted thin volume stays while the metadata of its pool has to be checked: LVM would ignore that its pool keeps it", async () => {
  const s = await harness();
  const pool = s.group.lvs.at(-2)!.thinPool!;
  const before = s.uuids();
  pool.needsCheck = true;
  await s.volumes.delete(volumeRequest.id);
  const errors: unknown[] = [];
  const onError = (error: unknown) => void errors.push(error);
  const pass = async () => {
    const reaper = new Reaper({ ...s.options, driver: "test", removeEmptyPools: true, onError });
    reaper.start();
    await reaper.idle();
    await reaper.stop();
  };
  await pass();
  assertMatch(
    `${errors}`,
    /^StorageError: removing data\/vol-\S+: thin pool data\/data_thinpool .* needs a check of its metadata$/,
  );
  assertEquals(s.uuids(), before);
  pool.needsCheck = false;
  await pass();
  assertEquals([s.uuids(), errors.length], [[], 1]);
});

Deno.test("create() takes a thin snapshot again that its pool lacks: LVM would take it at any later time", async () => {
  const s = await harness();
  await s.snapshots.create(snapshotRequest);
  const [volume, snapshot] = s.uuids();
  s.restart();
  await s.snapshots.create(snapshotRequest);
  const [sameVolume, taken, ...more] = s.uuids();
  assertEquals([sameVolume, taken === snapshot, more], [volume, false, []]);
});

Deno.test("create() does not take a thin snapshot again that its pool has lost", async () => {
  const s = await harness();
  await s.snapshots.create(snapshotRequest);
  const snapshot = s.group.lvs.at(-1)!;
  await s.volumes.create({ ...volumeRequest, id: volumeIdOf("later") }); // LVM makes pending LVs first
  const before = s.uuids();
  s.restart(NO_DATA, snapshot);
  await assertRejects(() => s.snapshots.create(snapshotRequest), StorageError, "does not contain it any more");
  assertEquals(s.uuids(), before);
});

Deno.test("removePendingThin() removes a volume, a snapshot and a copy snapshot that their pool has not made", async () => {
  for (const tags of [undefined, ["denolith.snapshot=v1-cut"], ["denolith.cut=v1-copy"]]) {
    const s = await harness();
    for (const lv of s.group.lvs) lv.active = false;
    const lv = s.group.lvs.at(-1)!;
    lv.pending = true;
    if (tags !== undefined) {
      lv.tags = new Set([
        "denolith=test",
        ...tags.map((tag) => tag.replace(/v1-.*/, snapshotRequest.id)),
      ]);
    }
    assertEquals([await s.removePending(), s.uuids()], [true, []]);
  }
});

Deno.test("removePendingThin() leaves everything else, and does not mind what cannot be activated for another reason", async () => {
  const s = await harness();
  const pool = s.group.lvs.at(-2)!;
  const lv = s.group.lvs.at(-1)!;
  const changes: Record<string, () => void> = {
    "a complete one": () => {},
    "a used one": () => {
      lv.pending = true;
      s.group.tags.add(`denolith.used=test:${volumeRequest.id}:${lv.uuid}`);
    },
    "one with data of its source": () => {
      s.group.tags.clear();
      lv.tags.add(`denolith.source=snapshot:${snapshotRequest.id}`);
    },
    "one with a filesystem": () => {
      lv.tags.delete(`denolith.source=snapshot:${snapshotRequest.id}`);
      lv.tags.delete("denolith.fs=wanted:ext4");
      lv.tags.add(`denolith.fs=formatting:ext4:${crypto.randomUUID()}`);
    },
    "one of another driver": () => {
      lv.tags.clear();
      for (const tag of ["denolith=other", `denolith.snapshot=${snapshotRequest.id}`]) lv.tags.add(tag);
    },
    "not the last one of the pool": () => {
      lv.tags.add("denolith=test");
      lv.tags.delete("denolith=other");
      pool.thinPool!.transactionId++;
    },
    "one that fails otherwise": () => {
      pool.thinPool!.transactionId--;
      s.restart(failure(5, "  device-mapper: reload ioctl on  (254:4) failed: Input/output error"));
    },
    "one of a pool that another device uses": () => {
      s.restart(failure(5, "  Logical volume data/x is used by another device."));
    },
    "one of a pool with a missing PV": () => {
      s.restart(failure(5, "  Refusing activation of partial LV data/x.  Use '--activationmode partial' to override."));
    },
  };
  for (const [name, change] of Object.entries(changes)) {
    for (const each of s.group.lvs) each.active = false;
    change();
    assertEquals([await s.removePending(), s.uuids()], [false, [lv.uuid]], name);
  }
  s.machine.fault = undefined;
  assertEquals(await s.removePending(), true);
});

Deno.test.each(["lvchange", "lvremove"])(
  "create() takes a thin snapshot again that is removed before its %s",
  async (command) => {
    const s = await harness();
    await s.snapshots.create(snapshotRequest);
    const before = s.uuids().at(-1);
    for (const lv of s.group.lvs) lv.active = false;
    s.group.lvs.at(-1)!.pending = true;
    s.machine.fault = ({ args }) => {
      if (args[0] !== command) return undefined;
      s.group.lvs.pop();
      s.machine.fault = undefined;
    };
    await s.snapshots.create(snapshotRequest);
    assertEquals([s.uuids().length, s.uuids().includes(before!)], [2, false]);
  },
);
