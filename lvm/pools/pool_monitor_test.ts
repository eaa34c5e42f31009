import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { describeCommand } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { PoolReservation } from "./pool_reservation.ts";
import { PoolMonitor } from "./pool_monitor.ts";
import { createPool } from "./pool_commands.ts";
import { markVolumeDeleted, volumeTags } from "../model/tags.ts";
import { Reaper } from "../deletion/reaper.ts";

const DRIVER = "d";
const GiB = 1n << 30n;

async function createMachineWithPool() {
  const machine = new FakeMachine();
  const group = machine.addGroup("g", 2n * GiB);
  const lvm = new Lvm(machine);
  await createPool(lvm, DRIVER, (await lvm.report())[0]!, { name: "g_thinpool", size: GiB });
  const { lv } = machine.allLvs()[0]!;
  return { machine, group, lvm, lv, pool: lv.thinPool! };
}

Deno.test("PoolMonitor extends a pool of the driver and its metadata, and otherwise reads only the kernel's usage", async () => {
  const { machine, lvm, lv, pool } = await createMachineWithPool();
  const messages: string[] = [];
  const commands: string[] = [];
  let polled: PromiseWithResolvers<void> | undefined;
  machine.fault = (command) => {
    commands.push(describeCommand(command));
    if (command.program === "dmsetup") polled?.resolve();
    return undefined;
  };
  const errors: unknown[] = [];
  const onError = (error: unknown) => void errors.push(error);
  const monitor = new PoolMonitor({
    lvm,
    driver: DRIVER,
    onExtended: (each) => messages.push(each),
    onError,
    intervalMs: 5,
  });
  monitor.wake();
  await monitor.idle();
  assertEquals(messages, []);
  commands.length = 0;
  polled = Promise.withResolvers();
  await polled.promise;
  await monitor.idle();
  assertEquals(commands.filter((command) => command.startsWith("lvm")), [], "nothing is near its end");

  Object.assign(pool, { dataPercent: 85, metadataPercent: 72 });
  const before = messages.length;
  while (messages.length < before + 2) {
    polled = Promise.withResolvers();
    await polled.promise;
    await monitor.idle();
  }
  await monitor.stop();
  assertEquals(messages, [
    "the metadata of thin pool g/g_thinpool was extended from 4 MiB to 8 MiB",
    "thin pool g/g_thinpool was extended from 1 GiB to 1.20 GiB",
  ]);
  assertEquals([lv.size, pool.metadataSize, pool.monitored, errors], [1291845632n, 8n << 20n, false, []]);
});

Deno.test("PoolMonitor extends a full pool when its group has free space again, although its usage stays the same", async () => {
  const { machine, group, lvm, lv, pool } = await createMachineWithPool();
  group.size = GiB + (8n << 20n); // the pool, its metadata and the spare
  pool.dataPercent = 100;
  const messages: string[] = [];
  let polled = Promise.withResolvers<void>();
  machine.fault = () => {
    polled.resolve();
    return undefined;
  };
  const fail = (error: unknown) => {
    throw error;
  };
  const onExtended = (each: string) => messages.push(each);
  const monitor = new PoolMonitor({ lvm, driver: DRIVER, onExtended, onError: fail, intervalMs: 1 });
  monitor.wake();
  for (let attempt = 0; attempt < 10 && messages.length === 0; attempt++) {
    await polled.promise;
    await monitor.idle();
    polled = Promise.withResolvers();
    if (attempt === 3) group.size = 2n * GiB;
  }
  await monitor.stop();
  assertEquals([messages, lv.size], [["thin pool g/g_thinpool was extended from 1 GiB to 1.20 GiB"], 1291845632n]);
});

Deno.test("PoolMonitor extends a pool also while another one cannot be extended", async () => {
  const { machine, group, lvm, pool } = await createMachineWithPool();
  machine.addGroup("other", 2n * GiB);
  await createPool(lvm, DRIVER, (await lvm.report())[1]!, { name: "other_thinpool", size: GiB });
  const other = machine.allLvs()[1]!.lv;
  pool.dataPercent = 90;
  other.thinPool!.dataPercent = 90;
  const [extended, errors, commands]: [string[], unknown[], string[]] = [[], [], []];
  machine.fault = (command) => {
    if (command.args[0] !== "lvextend") return undefined;
    commands.push(describeCommand(command));
    return command.args.at(-1) === "g/g_thinpool" ? failure(5, "  Can't resize locked logical volume") : undefined;
  };
  const monitor = new PoolMonitor({
    lvm,
    driver: DRIVER,
    onExtended: (each) => extended.push(each),
    onError: (error) => errors.push(error),
    intervalMs: 60_000,
  });
  monitor.wake();
  await monitor.idle();
  assertEquals(extended, ["thin pool other/other_thinpool was extended from 1 GiB to 1.20 GiB"]);
  assertEquals([errors.length, other.size], [1, 1291845632n]);

  commands.length = 0;
  group.missingPvs = 1; // LVM changes nothing in the group
  monitor.wake();
  await monitor.idle();
  await monitor.stop();
  assertEquals([commands, errors.length], [[], 1]);
});

Deno.test("PoolMonitor ignores pools of others, and reads nothing without a pool of the driver", async () => {
  const { machine, lvm, lv, pool } = await createMachineWithPool();
  lv.tags.clear();
  pool.dataPercent = 99;
  const commands: string[] = [];
  machine.fault = (command) => void commands.push(command.args[0]!);
  const fail = (error: unknown) => {
    throw error;
  };
  const monitor = new PoolMonitor({ lvm, driver: DRIVER, onExtended: fail, onError: fail, intervalMs: 1 });
  monitor.wake();
  await monitor.idle();
  await monitor.stop();
  assertEquals([commands, lv.size], [["fullreport"], GiB]);
});

for (const remove of [true, false]) {
  const what = remove ? "removes a pool of the driver with its last volume, overwritten before" : "keeps an empty pool";
  Deno.test(`Reaper ${what}`, async () => {
    const { machine, group, lvm, lv, pool } = await createMachineWithPool();
    const id = volumeIdOf("one");
    const tags = volumeTags(DRIVER, { id, format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "zero" });
    const [at] = await lvm.report();
    const thin = ["--type", "thin", "--thinpool", "g_thinpool", "--virtualsize", "67108864b", "--name", "vol-1"];
    const added = tags.flatMap((tag) => ["--addtag", tag]);
    await lvm.change(at!, ["lvcreate", "--yes", ...thin, "--config", "activation/monitoring=0", ...added, "g"]);
    machine.allLvs()[1]!.lv.content.data.add("secret");
    pool.residualData.add("older secret");
    await lvm.change(at!, ["lvchange", ...markVolumeDeleted(id, { state: "raw" }), "g/vol-1"]);
    const errors: unknown[] = [];
    const onError = (error: unknown) => void errors.push(error);
    const reaper = new Reaper({
      lvm,
      driver: DRIVER,
      onError,
      reservation: new PoolReservation(lvm),
      removeEmptyPools: remove,
    });
    reaper.start();
    await reaper.idle();
    await reaper.stop();
    assertEquals(errors, []);
    assertEquals(group.lvs, remove ? [] : [lv]);
    assertEquals([...group.residualData], [], "nothing can be read where the pool was");
  });
}
