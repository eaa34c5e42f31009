import { assertEquals, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { StorageError } from "../../base/error.ts";
import { Lvm } from "../client/client.ts";
import { PoolReservation } from "./pool_reservation.ts";

Deno.test("nothing is allocated in a group's pools while an lvcreate that outlasted its deadline may still allocate", async () => {
  const machine = new FakeMachine();
  for (const name of ["data", "other"]) machine.addGroup(name, 1n << 30n);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const groups = await lvm.report();
  const [data, other] = groups;
  const lvcreate = Promise.withResolvers<void>();
  const late = new StorageError("StillRunning", "lvm lvcreate", { completion: lvcreate.promise });
  const first = reservation.runExclusive(groups, data!, () => Promise.reject(late));
  const second = reservation.runExclusive(groups, data!, () => Promise.resolve("allocated"));
  assertEquals(await assertRejects(() => first, StorageError), late);
  assertEquals((await assertRejects(() => second, StorageError, "still running")).kind, "Busy");
  assertEquals(await reservation.runExclusive(groups, other!, () => Promise.resolve("elsewhere")), "elsewhere");
  lvcreate.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(await reservation.runExclusive(groups, data!, () => Promise.resolve("allocated")), "allocated");
});

Deno.test("nothing is changed in a group's pools while a command that prepares them outlasts its deadline", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const lvremove = Promise.withResolvers<void>();
  const late = new StorageError("StillRunning", "lvm lvremove", { completion: lvremove.promise });
  const prepared = [Promise.reject<boolean>(late), Promise.resolve(false)];
  const reservation = new PoolReservation(lvm, undefined, () => prepared.shift()!);
  const groups = await lvm.report();
  const run = () => reservation.runExclusive(groups, groups[0]!, () => Promise.resolve("changed"));
  assertEquals(await assertRejects(run, StorageError), late);
  assertEquals((await assertRejects(run, StorageError, "still running")).kind, "Busy");
  lvremove.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(await run(), "changed");
});

Deno.test("nothing is changed in the pools of a group that does not respond since the report, or is gone", async () => {
  const machine = new FakeMachine();
  for (const name of ["data", "other"]) machine.addGroup(name, 1n << 30n);
  const lvm = new Lvm(machine);
  const changes: string[] = [];
  const prepare = () => Promise.resolve(changes.push("prepared") > 0);
  const reservation = new PoolReservation(lvm, undefined, prepare);
  const [data] = await lvm.report();
  const hung = Promise.withResolvers<void>();
  machine.hungPvs.set("/dev/vdb", hung);
  const run = () => reservation.runExclusive([data!], data!, () => Promise.resolve(changes.push("changed")));
  assertEquals((await assertRejects(run, StorageError, "data does not respond")).kind, "Unavailable");
  machine.hungPvs.clear();
  hung.resolve();
  machine.groups.shift();
  await lvm.report();
  assertEquals((await assertRejects(run, StorageError)).kind, "Unavailable");
  assertEquals(changes, []);
});

Deno.test("areMessagesSent() reports no creation during which, or after which, a command was killed in the group", async () => {
  const machine = new FakeMachine();
  for (const name of ["data", "other"]) machine.addGroup(name, 1n << 30n);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const groups = await lvm.report();
  const [data, other] = groups;
  const create = (group = data!, during = () => Promise.resolve()) =>
    reservation.runExclusive(groups, group, async (current) => {
      await during();
      reservation.recordMessagesSent(current, "pool");
    });
  const has = () => [reservation.areMessagesSent(data!, "pool"), reservation.areMessagesSent(other!, "pool")];
  machine.fault = ({ mutates, program }) => mutates && program === "lvm" ? failure(137, "") : undefined;
  const kill = () => assertRejects(() => lvm.change(data!, ["lvremove", "data/x"]), StorageError).then(() => {});
  const all = [has()];
  for (const step of [create, () => create(other), kill, create, () => create(data, kill), create]) {
    await step();
    all.push(has());
  }
  assertEquals(all.map(([inData]) => inData), [false, true, true, false, true, false, true]);
  assertEquals(all.map(([, inOther]) => inOther), [false, false, true, true, true, true, true]);
});
