import { assertEquals, assertMatch } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { type Command, describeCommand } from "../exec.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { StorageError } from "../../base/error.ts";
import { Locks, snapshotLock, volumeLock } from "../../base/locks.ts";
import { Lvm } from "../client/client.ts";
import { Snapshots } from "./snapshots.ts";
import { CowMonitor } from "./cow_monitor.ts";
import type { SizeOrPercent } from "../settings/cow_size.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";

const MiB = 1n << 20n;

/** Creates a volume of 32 MiB, its snapshot with COW space of 8 MiB by default, and a monitor of it. */
async function harness(cowSize: SizeOrPercent = { bytes: 8n * MiB }) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const commands: string[] = [];
  machine.fault = (command: Command) => void commands.push(describeCommand(command).split(" ").slice(0, 2).join(" "));
  const [clock, locks, reported, errors] = [new FakeClock(), new Locks(), [] as string[], [] as unknown[]];
  const lvm = new Lvm(machine, (groups) => monitor.observe(groups));
  const monitor = new CowMonitor({
    lvm,
    driver: "test",
    locks,
    autoextend: { threshold: 70, percent: 20 },
    onSnapshotExtended: ({ lv }, size) => reported.push(`${lv.size / MiB} to ${size / MiB}`),
    onSnapshotCannotExtend: (_, why) => reported.push(why),
    onError: (error) => errors.push(error),
    clock,
  });
  const options = { lvm, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } };
  const volumeFinder = new VolumeFinder({ driver: "test" });
  const finder = new SnapshotFinder({ driver: "test" });
  const volumes = new Volumes({ ...options, finder: volumeFinder });
  const snapshots = new Snapshots({ ...options, finder, volumes: volumeFinder });
  const [source, id] = [volumeIdOf("one"), snapshotIdOf("cut")];
  await volumes.create(namedRequest("one", 32n * MiB, { format: { state: "raw" } }));
  await snapshots.create({ id, source, cowSize });
  await monitor.idle();
  commands.length = 0;
  const pass = async (ms: number) => {
    await clock.advance(ms);
    for (let tick = 0; tick < 5; tick++) {
      await monitor.idle();
      await clock.advance(0);
    }
    return commands.splice(0);
  };
  const lv = group.lvs[1]!;
  return { machine, group, lv, monitor, locks, source, id, snapshots, lvm, clock, reported, errors, pass };
}

const REPORT = "lvm fullreport";

Deno.test("CowMonitor reads nothing while no COW space could overflow", async () => {
  const s = await harness({ percent: 100n });
  assertEquals([s.clock.pendingTimers, await s.pass(3_600_000)], [0, []]);
});

Deno.test("CowMonitor checks once a minute, every ten seconds from half the threshold, and extends at the threshold", async () => {
  const s = await harness();
  assertEquals(await s.pass(59_999), []);
  s.lv.cowPercent = 40;
  assertEquals(await s.pass(1), [REPORT]);
  s.lv.cowPercent = 71;
  assertEquals(await s.pass(10_000), [REPORT, "lvm lvmconfig", "lvm lvextend", "sync /dev/vdb", REPORT]);
  assertEquals([s.lv.size, s.reported], [12n * MiB, ["8 to 12"]]);
  await s.monitor.stop();
  assertEquals([s.clock.pendingTimers, await s.pass(60_000)], [0, []]);
});

Deno.test("CowMonitor extends COW space until it cannot overflow, and then checks no more", async () => {
  const s = await harness();
  for (let checks = 0; s.clock.pendingTimers > 0; checks++) {
    assertEquals(checks < 20, true, `${s.lv.size / MiB} MiB`);
    s.lv.cowPercent = 99;
    await s.pass(60_000);
  }
  assertEquals([s.lv.size, s.lv.invalid, s.errors], [36n * MiB, false, []]);
});

Deno.test("CowMonitor reports once that COW space cannot be extended, and extends it when space is free", async () => {
  const s = await harness();
  s.group.size = 40n * MiB;
  s.lv.cowPercent = 90;
  await s.pass(60_000);
  assertEquals(await s.pass(10_000), [REPORT], "it was reported");
  assertEquals(s.reported.length, 1);
  assertMatch(s.reported[0]!, /data\/snap-\w+ is 90 % full and cannot be extended: .* 0 B free.*vgextend/);
  s.group.size = 100n * MiB;
  await s.pass(10_000);
  assertEquals([s.lv.size, s.reported[1]], [12n * MiB, "8 to 12"]);
  await s.monitor.stop();
});

Deno.test("CowMonitor reports LVM's error when the free space of the report is not free any more", async () => {
  const s = await harness();
  const { fault } = s.machine;
  s.machine.fault = (command) =>
    command.args[0] === "lvextend"
      ? failure(5, "  Insufficient free space: 1 extents needed, but only 0 available")
      : fault!(command);
  s.lv.cowPercent = 90;
  await s.pass(60_000);
  await s.pass(10_000);
  assertEquals([s.reported.length, s.errors], [1, []]);
  assertMatch(s.reported[0]!, /Insufficient free space/);
  await s.monitor.stop();
});

Deno.test("CowMonitor leaves the extension to the host's dmeventd where that is configured, and waits while the volume is changed", async () => {
  const s = await harness();
  s.machine.host.settings.set("snapshot_autoextend_threshold", "70");
  s.lv.cowPercent = 90;
  assertEquals(await s.pass(60_000), [REPORT, "lvm lvmconfig"]);
  s.machine.host.settings.set("snapshot_autoextend_threshold", "100");
  await s.locks.run("expansion", [volumeLock(s.source)], async () => {
    assertEquals(await s.pass(10_000), [REPORT, "lvm lvmconfig"]);
  });
  await s.pass(10_000);
  assertEquals([s.lv.size, s.reported, s.errors], [12n * MiB, ["8 to 12"], []]);
  await s.monitor.stop();
});

Deno.test("CowMonitor continues after a failed report", async () => {
  const s = await harness();
  const { fault } = s.machine;
  s.machine.fault = () => failure(5, "  cannot read");
  await s.pass(60_000);
  s.machine.fault = fault;
  s.lv.cowPercent = 90;
  await s.pass(60_000);
  assertEquals([s.lv.size, s.errors.length], [12n * MiB, 1]);
  await s.monitor.stop();
});

Deno.test("CowMonitor does not extend the LV of a snapshot that was deleted after the report", async () => {
  const s = await harness();
  const { fault } = s.machine;
  s.machine.fault = async (command) => {
    if (command.args[0] === "lvmconfig") await s.snapshots.delete(s.id); // after the report, before the extension
    return await fault!(command);
  };
  s.lv.cowPercent = 90;
  await s.pass(60_000);
  await s.pass(10_000);
  assertEquals([s.lv.size, s.reported, s.errors], [8n * MiB, [], []]);
  await s.monitor.stop();
});

Deno.test("CowMonitor without a policy observes nothing and extends nothing", async () => {
  const s = await harness();
  s.lv.cowPercent = 90;
  const calls: unknown[] = [];
  const note = (...args: unknown[]) => void calls.push(args);
  const monitor = new CowMonitor({
    ...{ lvm: s.lvm, driver: "test", locks: s.locks, autoextend: undefined, clock: s.clock },
    ...{ onSnapshotExtended: note, onSnapshotCannotExtend: note, onError: note },
  });
  await s.monitor.stop();
  const groups = await s.lvm.report();
  monitor.observe(groups);
  await s.pass(600_000);
  await monitor.stop();
  assertEquals([s.lv.size, calls], [8n * MiB, []]);
});

Deno.test("CowMonitor extends the COW space of a snapshot that others use, and not of one that they change", async () => {
  const s = await harness();
  s.lv.cowPercent = 90;
  await s.locks.run("deletion", [snapshotLock(s.id)], async () => {
    await s.pass(60_000);
    assertEquals(s.lv.size, 8n * MiB);
  });
  await s.locks.run("copy", [{ ...snapshotLock(s.id), mode: "shared" }], async () => {
    await s.pass(10_000);
    assertEquals(s.lv.size, 12n * MiB);
  });
  assertEquals(s.errors, []);
  await s.monitor.stop();
});

Deno.test("CowMonitor passes on an error of LVM that it cannot handle, and tries again", async () => {
  const s = await harness();
  const { fault } = s.machine;
  s.machine.fault = (command) => command.args[0] === "lvextend" ? failure(5, "  it broke") : fault!(command);
  s.lv.cowPercent = 90;
  await s.pass(60_000);
  assertEquals([s.reported, s.errors.map((error) => (error as StorageError).kind)], [[], ["CommandFailed"]]);
  s.machine.fault = fault;
  await s.pass(10_000);
  assertEquals(s.reported, ["8 to 12"]);
  await s.monitor.stop();
});
