import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { Lvm } from "../client/client.ts";
import { ReadOnlyFilesystems } from "./read_only_filesystems.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";

Deno.test("ReadOnlyFilesystems: when the mount table cannot be read, no caller fails, and the previous result stays", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const { id } = await create(lvm);
  const { lv } = machine.allLvs()[0]!;
  const source = `/dev/mapper/data-${lv.name.replaceAll("-", "--")}`;
  const deviceNumber = `253:${lv.minor}`;
  machine.mounts.push({
    target: "/mnt",
    source,
    fsType: "ext4",
    root: "/",
    readOnly: false,
    deviceNumber,
    lv,
    remountedReadOnly: true,
  });
  const errors: unknown[] = [];
  const filesystems = new ReadOnlyFilesystems(machine, "test", (error) => errors.push(error));
  await filesystems.observe(await lvm.report());
  assertEquals([filesystems.problemOf(id)?.reason, filesystems.list().length], ["FilesystemReadOnly", 1]);
  machine.hasMountTable = false;
  machine.fault = ({ program }) => program === "findmnt" ? failure(1, "findmnt: cannot read") : undefined;
  await filesystems.observe(await lvm.report());
  assertEquals([filesystems.problemOf(id)?.reason, errors.length], ["FilesystemReadOnly", 1]);
  machine.fault = undefined;
  machine.mounts.splice(0);
  await filesystems.observe(await lvm.report());
  assertEquals([filesystems.problemOf(id), filesystems.list().length, errors.length], [undefined, 0, 1]);
});

async function create(lvm: Lvm) {
  const request = namedRequest("one", 32n << 20n);
  const finder = new VolumeFinder({ driver: "test" });
  const reservation = new PoolReservation(lvm);
  await new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } }).create(request);
  return request;
}

Deno.test("ReadOnlyFilesystems: reads the mount table only while a volume of the driver is open, and reports no others", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  await create(lvm);
  const args = ["lvcreate", "--yes", "--size", `${32 << 20}b`, "--name", "other", "data"];
  await machine.run({ program: "lvm", args, mutates: true });
  const programs: string[] = [];
  machine.fault = ({ program }) => void programs.push(program);
  const filesystems = new ReadOnlyFilesystems(machine, "test", (error) => {
    throw error;
  });
  const observed = async () => {
    const groups = await lvm.report();
    programs.length = 0;
    await filesystems.observe(groups);
    return [programs.splice(0), filesystems.list().length];
  };
  assertEquals(await observed(), [[], 0]);
  const { lv } = machine.allLvs().find(({ lv }) => lv.name === "other")!;
  const mount = { target: "/mnt", source: "/dev/mapper/data-other", fsType: "ext4", root: "/", readOnly: false };
  machine.mounts.push({ ...mount, deviceNumber: `253:${lv.minor}`, lv, remountedReadOnly: true });
  assertEquals(await observed(), [[], 0]);
});
