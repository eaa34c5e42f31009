import { assertEquals } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine.ts";
import { describe } from "../exec.ts";
import { volumeIdOf } from "../ids.ts";
import { Lvm } from "../model/client.ts";
import { PoolGate } from "./pool_reservation.ts";
import { PoolMonitor } from "./pool_monitor.ts";
import { makePool } from "./pool_commands.ts";
import { markVolumeDeleted, volumeTags } from "../model/tags.ts";
import { Upkeep } from "../volumes/reaper.ts";

const DRIVER = "d";
const GiB = 1n << 30n;

async function pooledMachine() {
  const machine = new FakeMachine();
  const group = machine.addGroup("g", 2n * GiB);
  const lvm = new Lvm(machine);
  await makePool(lvm, DRIVER, (await lvm.report())[0]!, { name: "g_thinpool", size: GiB });
  const { lv } = machine.allLvs()[0]!;
  return { machine, group, lvm, lv, pool: lv.thinPool! };
}

Deno.test("PoolMonitor grows a pool of the driver that fills, and its metadata, and asks the kernel otherwise", async () => {
  const { machine, lvm, lv, pool } = await pooledMachine();
  const words: string[] = [];
  const commands: string[] = [];
  let polled: PromiseWithResolvers<void> | undefined;
  machine.fault = (command) => {
    commands.push(describe(command));
    if (command.program === "dmsetup") polled?.resolve();
    return undefined;
  };
  const errors: unknown[] = [];
  const onError = (error: unknown) => void errors.push(error);
  const monitor = new PoolMonitor({ lvm, driver: DRIVER, onGrown: (each) => words.push(each), onError, everyMs: 5 });
  monitor.look();
  await monitor.settled();
  assertEquals(words, []);
  commands.length = 0;
  polled = Promise.withResolvers();
  await polled.promise;
  await monitor.settled();
  assertEquals(commands.filter((command) => command.startsWith("lvm")), [], "nothing is near its end");

  Object.assign(pool, { dataPercent: 85, metadataPercent: 72 });
  const before = words.length;
  while (words.length < before + 2) {
    polled = Promise.withResolvers();
    await polled.promise;
    await monitor.settled();
  }
  await monitor.stop();
  assertEquals(words, [
    "the metadata of thin pool g/g_thinpool grew from 4 MiB to 8 MiB",
    "thin pool g/g_thinpool grew from 1 GiB to 1.20 GiB",
  ]);
  assertEquals([lv.size, pool.metadataSize, pool.monitored, errors], [1291845632n, 8n << 20n, false, []]);
});

Deno.test("PoolMonitor grows a full pool when its group has room again, though nothing can be written to it meanwhile", async () => {
  const { machine, group, lvm, lv, pool } = await pooledMachine();
  group.size = GiB + (8n << 20n); // the pool, its metadata and the spare
  pool.dataPercent = 100;
  const words: string[] = [];
  let looked = Promise.withResolvers<void>();
  machine.fault = () => {
    looked.resolve();
    return undefined;
  };
  const fail = (error: unknown) => {
    throw error;
  };
  const onGrown = (each: string) => words.push(each);
  const monitor = new PoolMonitor({ lvm, driver: DRIVER, onGrown, onError: fail, everyMs: 1 });
  monitor.look();
  for (let turn = 0; turn < 10 && words.length === 0; turn++) {
    await looked.promise;
    await monitor.settled();
    looked = Promise.withResolvers();
    if (turn === 3) group.size = 2n * GiB;
  }
  await monitor.stop();
  assertEquals([words, lv.size], [["thin pool g/g_thinpool grew from 1 GiB to 1.20 GiB"], 1291845632n]);
});

Deno.test("PoolMonitor leaves pools of others alone, and asks for nothing where there is none of the driver", async () => {
  const { machine, lvm, lv, pool } = await pooledMachine();
  lv.tags.clear();
  pool.dataPercent = 99;
  const commands: string[] = [];
  machine.fault = (command) => void commands.push(command.args[0]!);
  const fail = (error: unknown) => {
    throw error;
  };
  const monitor = new PoolMonitor({ lvm, driver: DRIVER, onGrown: fail, onError: fail, everyMs: 1 });
  monitor.look();
  await monitor.settled();
  await monitor.stop();
  assertEquals([commands, lv.size], [["fullreport"], GiB]);
});

for (const remove of [true, false]) {
  const what = remove ? "removes a pool of the driver with its last volume, overwritten before" : "keeps an empty pool";
  Deno.test(`Upkeep ${what}`, async () => {
    const { machine, group, lvm, lv, pool } = await pooledMachine();
    const id = volumeIdOf("one");
    const tags = volumeTags(DRIVER, { id, content: { state: "raw" }, mkfsOptions: [], shared: true, erase: "zero" });
    const [at] = await lvm.report();
    const thin = ["--type", "thin", "--thinpool", "g_thinpool", "--virtualsize", "67108864b", "--name", "vol-1"];
    const added = tags.flatMap((tag) => ["--addtag", tag]);
    await lvm.change(at!, ["lvcreate", "--yes", ...thin, "--config", "activation/monitoring=0", ...added, "g"]);
    machine.allLvs()[1]!.lv.content.data.add("secret");
    pool.residue.add("older secret");
    await lvm.change(at!, ["lvchange", ...markVolumeDeleted(id), "g/vol-1"]);
    const errors: unknown[] = [];
    const onError = (error: unknown) => void errors.push(error);
    const upkeep = new Upkeep({ lvm, driver: DRIVER, onError, ...(remove && { emptyPools: new PoolGate(lvm) }) });
    upkeep.start();
    await upkeep.settled();
    await upkeep.stop();
    assertEquals(errors, []);
    assertEquals(group.lvs, remove ? [] : [lv]);
    assertEquals([...group.residue], [], "nothing can be read where the pool was");
  });
}
