import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import type { Command, Exec, Output } from "../exec.ts";
import type { VolumeGroup } from "../model/report.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";
import { removeLeftTables, resumeSuspended } from "./resumption.ts";

/**
 * Runs a function over LVs of the driver, `vol` and `cut`, and a foreign one, and returns the commands that change something.
 *
 * @param later the devices after a report; the same, unless a command of another process ran
 * @param responsive whether LVM reads the group for the report
 */
async function commandsOf(devices: readonly string[], later = devices, responsive = true): Promise<string[]> {
  const lv = (name: string, driver = "test") => ({ name, uuid: name, tags: [`denolith=${driver}`] });
  const group = { name: "data", uuid: "group-", lvs: [lv("vol"), lv("cut"), lv("other", "other")] };
  const commands: string[] = [];
  let isReported = false;
  const exec: Exec = {
    run: ({ args, mutates }: Command): Promise<Output> => {
      if (mutates) commands.push(args.join(" "));
      return Promise.resolve({ code: 0, stdout: mutates ? "" : (isReported ? later : devices).join("\n"), stderr: "" });
    },
    idle: () => Promise.resolve(),
  };
  const lvm = new Lvm(exec);
  lvm.report = () => {
    isReported = true;
    return Promise.resolve([{ ...group, pvPaths: [], responsive }] as never);
  };
  const removed = removeLeftTables(lvm, "test", group as unknown as VolumeGroup);
  if (responsive) await removed;
  else assertEquals((await assertRejects(() => removed, StorageError)).kind, "Unavailable");
  return commands;
}

Deno.test("of what a killed command loaded, tables that are not in use are removed, and devices that have no other one", async () => {
  const commands = await commandsOf([
    "data-vol|LVM-groupvol|253:0|Suspended|253:1|Both",
    "data-vol-real|LVM-groupvol-real|253:1|Active|254:0|Inactive",
    "data-cut-cow|LVM-groupcut-cow|253:2|Active|254:0|Live",
    "data-cut|LVM-groupcut|253:3|Active|253:1,253:2|Inactive",
    "data-other|LVM-groupother|253:4|Active|254:0|Inactive",
  ]);
  assertEquals(commands, [
    "clear data-vol data-vol-real data-cut",
    "remove --noudevsync data-cut",
    "remove --noudevsync data-cut-cow",
    "remove --noudevsync data-vol-real",
  ]);
});

Deno.test("devices in use stay, hidden ones, too", async () => {
  const commands = await commandsOf([
    "data-vol|LVM-groupvol|253:0|Active|253:1|Live",
    "data-vol-real|LVM-groupvol-real|253:1|Active|254:0|Live",
    "data-vol-tpool|LVM-groupvol-tpool|253:5|Active|254:0|Live",
    "data-cut-cow|LVM-groupcut-cow|253:2|Active|254:0|Live",
    "data-cut|LVM-groupcut|253:3|Active|253:1,253:2|Live",
  ]);
  assertEquals(commands, []);
});

Deno.test("tables stay while LVM cannot read the group, as it waits for a command of another process", async () => {
  const devices = ["data-vol|LVM-groupvol|253:0|Suspended|253:1|Both"];
  assertEquals(await commandsOf(devices, devices, false), []);
});

Deno.test("COW space is removed whose snapshot the kernel does not have", async () => {
  assertEquals(await commandsOf(["data-cut-cow|LVM-groupcut-cow|253:2|Active|254:0|Live"]), [
    "remove --noudevsync data-cut-cow",
  ]);
});

Deno.test("tables stay that a command of another process has loaded, and puts in use before the report that waits for it", async () => {
  const loaded = [
    "data-vol|LVM-groupvol|253:0|Suspended|253:1|Both",
    "data-vol-real|LVM-groupvol-real|253:1|Active|254:0|Inactive",
    "data-cut-cow|LVM-groupcut-cow|253:2|Active|254:0|Live",
  ];
  const inUse = [
    "data-vol|LVM-groupvol|253:0|Active|253:1|Live",
    "data-vol-real|LVM-groupvol-real|253:1|Active|254:0|Live",
    "data-cut-cow|LVM-groupcut-cow|253:2|Active|254:0|Live",
    "data-cut|LVM-groupcut|253:3|Active|253:1,253:2|Live",
  ];
  assertEquals(await commandsOf(loaded, inUse), []);
  assertEquals(await commandsOf(inUse, loaded), [], "of one that begins later, nothing is read");
  const another = ["data-vol|LVM-groupvol|253:0|Active|253:1|Live", "data-cut|LVM-groupcut|253:3|Active|254:0|Both"];
  assertEquals(await commandsOf(loaded, another), [], "of one that begins later, nothing is removed");
});

Deno.test("what waits for a suspended device is written to it, and not to where a killed command would have led it", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 100n << 30n);
  const lvm = new Lvm(machine);
  const options = { lvm, finder: new VolumeFinder({ driver: "test" }), reservation: new PoolReservation(lvm) };
  const volumes = new Volumes({ ...options, reaper: { wake: () => {} } });
  await volumes.create(namedRequest("one", 1n << 30n, { format: { state: "raw" } }));
  const [{ lv }] = machine.allLvs() as [ReturnType<FakeMachine["allLvs"]>[number]];
  Object.assign(lv, { suspended: true, killedTable: "beside" });
  const [group] = await lvm.report();
  assertEquals(await resumeSuspended(lvm, "test", [{ group: group!, lv: group!.lvs[0]! }]), true);
  assertEquals([lv.suspended, lv.killedTable, lv.failedWrites], [false, undefined, undefined]);
});
