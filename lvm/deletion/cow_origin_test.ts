import { assert, assertEquals, assertRejects } from "@std/assert";
import { type FakeLv, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { describeCommand } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { markVolumeDeleted } from "../model/tags.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "../volumes/volumes.ts";

Deno.test("neither delete() nor Reaper touches an LV while it is the external origin of a thin LV", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 8n << 30n);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const errors: string[] = [];
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError: (error) => errors.push(String(error)) });
  const volumes = new Volumes({ lvm, finder: new VolumeFinder({ driver: "test" }), reservation, reaper });
  const id = volumeIdOf("one");
  await volumes.create(namedRequest("one", 1n << 30n, { format: { state: "raw" } }));
  const { lv: { name }, group } = await volumes.get(id);
  const lvcreate = (...args: string[]) => machine.run({ program: "lvm", args: ["lvcreate", ...args], mutates: true });
  await lvcreate("--yes", "--type", "thin-pool", "--zero", "y", "--name", "pool", "--size", "1073741824b", "data");
  await lvcreate(
    "--yes",
    "--type",
    "thin",
    "--thinpool",
    "pool",
    "--virtualsize",
    "1073741824b",
    "--name",
    "top",
    "data",
  );
  const [{ lv }, , { lv: top }] = machine.allLvs() as [{ lv: FakeLv }, unknown, { lv: FakeLv }];
  top.origin = { name: lv.name, size: lv.size };

  assertEquals((await assertRejects(() => volumes.delete(id), StorageError, "top")).kind, "InUse");
  await lvm.change(group, ["lvchange", ...markVolumeDeleted(id, { state: "raw" }), `data/${name}`]);
  const commands: string[] = [];
  machine.fault = (command) => void (command.mutates && commands.push(describeCommand(command)));
  reaper.wake();
  await reaper.idle();
  await reaper.stop();
  assertEquals([commands, machine.allLvs().length], [[], 3]);
  assert(errors[0]?.includes("top"), errors[0]);
});
