import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Reaper } from "../deletion/reaper.ts";
import { Volumes } from "./volumes.ts";

/** Creates a volume for blocks on a machine. */
async function setUp() {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError: () => {} });
  const volumes = new Volumes({ lvm, finder: new VolumeFinder({ driver: "test" }), reservation, reaper });
  await volumes.create(namedRequest("one", 32n << 20n, { format: { state: "raw" } }));
  const [{ group, lv }] = machine.allLvs() as [ReturnType<typeof machine.allLvs>[number]];
  return {
    machine,
    volumes,
    id: volumeIdOf("one"),
    lv,
    devicePath: `/dev/mapper/${group.name}-${lv.name.replaceAll("-", "--")}`,
  };
}

Deno.test("the deletion of a volume waits for a program that has its device open for a moment", async () => {
  const { machine, volumes, id, devicePath, lv } = await setUp();
  const opened = machine.openDevice(devicePath);
  setTimeout(() => opened[Symbol.dispose](), 50);
  await volumes.delete(id);
  assertEquals([...lv.tags].filter((tag) => tag.includes("deleted")).length, 1);
});

Deno.test("the deletion of a volume is refused while a program has its device open", async () => {
  const { machine, volumes, id, devicePath } = await setUp();
  using _opened = machine.openDevice(devicePath);
  const error = await assertRejects(() => volumes.delete(id), StorageError, "is in use; unpublish");
  assertEquals(error.kind, "InUse");
});

Deno.test("the deletion of a mounted volume is refused at once", async () => {
  const { machine, volumes, id, devicePath, lv } = await setUp();
  using _opened = machine.openDevice(devicePath);
  machine.mounts.push({
    ...{ target: "/mnt/pod", source: `/dev/mapper/data-${lv.name.replaceAll("-", "--")}`, fsType: "devtmpfs" },
    ...{ root: `/dm-${lv.minor}`, readOnly: false, deviceNumber: "0:5", lv },
  });
  let reports = 0;
  machine.fault = ({ args }: Command) => {
    if (args[0] === "fullreport") reports++;
    return undefined;
  };
  await assertRejects(() => volumes.delete(id), StorageError, "its mount /mnt/pod is in use");
  assertEquals(reports, 1);
});
