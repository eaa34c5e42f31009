import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";
import { Repair } from "./repair.ts";

const GIB = 1n << 30n;

/** Creates a machine with groups, what creates volumes, and the repair. */
function harness(...groups: string[]) {
  const machine = new FakeMachine();
  for (const name of groups) machine.addGroup(name, 100n * GIB);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } });
  const resumed: string[][] = [];
  const repair = new Repair({
    ...{ lvm, driver: "test", reservation, report: () => lvm.report(), onDeleted: () => {} },
    onResumed: (groups) => void resumed.push(groups.map(({ name }) => name)),
  });
  const create = (name: string, options: Parameters<typeof namedRequest>[2] = {}) =>
    volumes.create(namedRequest(name, GIB, { format: { state: "raw" }, ...options }));
  return { machine, lvm, repair, create, resumed };
}

Deno.test("Repair hands on the groups that have no suspended device left, and only these", async () => {
  const { machine, lvm, repair, create, resumed } = harness("a", "b");
  for (const group of ["a", "b"]) {
    await create(group, { groups: { matches: (name) => name === group, toString: () => group } });
  }
  for (const { lv } of machine.allLvs()) lv.suspended = true;
  machine.fault = ({ args }) =>
    args.includes("--refresh") && args.at(-1)!.startsWith("a/") ? failure(5, "  Refusing refresh") : undefined;
  const errors: unknown[] = [];
  await repair.resume(await lvm.report(), (step) => step().catch((error) => void errors.push(error)));
  assertEquals([resumed, errors.length], [[["b"]], 1]);
});

Deno.test("Repair leaves a pool alone that was incomplete in its report, and is complete or gone by now", async () => {
  const { machine, lvm, repair, create } = harness("data");
  await create("thin", { thin: { poolSize: { bytes: 2n * GIB } } });
  const [group] = machine.groups;
  const pool = group!.lvs.find(({ thinPool }) => thinPool !== undefined)!;
  group!.lvs = [pool];
  const { thinPool } = pool;
  delete pool.thinPool; // its lvcreate was killed
  const report = await lvm.report();
  pool.thinPool = thinPool!;
  await repair.resume(report, (step) => step());
  assertEquals(group!.lvs, [pool]);
  group!.lvs = [];
  await repair.resume(report, (step) => step());
});

Deno.test("Repair marks the backup of a header whose volume is gone, and no other LV that has its name by now", async () => {
  const { machine, lvm, repair } = harness("data");
  const header = `denolith.header=${volumeIdOf("one")}:0:0=0000000a:0248ab34`;
  const [name, kept] = ["hdr-one", [`denolith=test`, header, "denolith.luks"]];
  const addTags = kept.flatMap((tag) => ["--addtag", tag]);
  const args = ["lvcreate", "--yes", "--zero", "y", "--wipesignatures", "y", "--size", "16777216b", "--name", name];
  await machine.run({ program: "lvm", args: [...args, ...addTags, "data"], mutates: true });
  const [lv] = machine.groups[0]!.lvs;
  const report = await lvm.report();
  const { uuid } = lv!;
  lv!.uuid = "another";
  await repair.markHeaderBackups(report, (step) => step());
  assertEquals([...lv!.tags], kept);
  lv!.uuid = uuid;
  await repair.markHeaderBackups(report, (step) => step());
  assertEquals([...lv!.tags], [kept[0], kept[2], `denolith.deleted=${volumeIdOf("one")}`]);
});
