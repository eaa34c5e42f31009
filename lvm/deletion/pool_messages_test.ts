import { assert, assertEquals, assertRejects } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { nextTurn } from "../../base/clock.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { volumeTags } from "../model/tags.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { poolsWithLastSnapshot } from "./pool_messages.ts";
import { Reaper } from "./reaper.ts";
import { Volumes } from "../volumes/volumes.ts";
import { waitUntil } from "../../tests/fake/wait_until.ts";

/** Creates a machine with a deleted thin volume, and a reaper of the same process or of another one. */
async function harness({ isRestarted }: { isRestarted: boolean }) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const volumes = new Volumes({
    ...{ lvm, reservation, reaper: { wake: () => {} } },
    finder: new VolumeFinder({ driver: "test" }),
  });
  const request = namedRequest("one", 32n << 20n, { format: { state: "raw" }, thin: { poolSize: DEFAULT_POOL_SIZE } });
  await volumes.create(request);
  await volumes.delete(request.id);
  const created: string[] = [];
  machine.fault = ({ args }) => void (args[0] === "lvcreate" && created.push(args[args.indexOf("--name") + 1]!));
  const reaper = (errors: string[], retryMs?: number) => {
    const options = {
      ...defined({ retryMs }),
      lvm,
      driver: "test",
      onError: (error: unknown) => errors.push(String(error)),
    };
    return new Reaper({ ...options, reservation: isRestarted ? new PoolReservation(lvm) : reservation });
  };
  const reap = async () => {
    const errors: string[] = [];
    const started = reaper(errors);
    started.start();
    await started.idle();
    await started.stop();
    return errors;
  };
  const left = () => group.lvs.filter(({ thinPool }) => thinPool === undefined).map(({ name }) => name);
  const snapshot = group.lvs.at(-1)!;
  return {
    machine,
    volumes,
    request,
    snapshot,
    pool: group.lvs.find(({ thinPool }) => thinPool !== undefined)!.thinPool!,
    created,
    reaper,
    reap,
    left,
  };
}

Deno.test("before its first removal from a pool, a driver creates an LV there, and removes it, too", async () => {
  const { machine, request, pool, created, reap, left } = await harness({ isRestarted: true });
  pool.oldMessage = "followed";
  const { fault } = machine;
  const options: string[] = [];
  machine.fault = (command) => {
    if (command.args[0] === "lvcreate") options.push(command.args.join(" ").replace(/ --(name|devices) \S+/g, ""));
    return fault?.(command);
  };
  assertEquals([await reap(), created.length, left(), pool.leaked], [[], 1, [], undefined]);
  // a name that no volume takes at the same time, as one that is restored under the deleted id does outside the pool
  assertEquals(created, [`msg-${request.id.slice("v1-".length)}`]);
  const tags = `--addtag denolith=test --addtag denolith.deleted=${request.id} --addtag denolith.erase=none`;
  const size = `--virtualsize ${4 << 20}b`; // the least that there can be
  assertEquals(options, [
    `lvcreate --yes --type thin --thinpool data_thinpool ${size} --config activation/monitoring=0 ${tags} data`,
  ]);
});

Deno.test("poolsWithLastSnapshot() returns a pool only if the last LV that it has made is a snapshot, and active", () => {
  const pool = { name: "pool", thinPool: {}, segment: { transactionId: 3n } };
  const last = { name: "last", active: true, origin: "one", pool: "pool", segment: { transactionId: 2n } };
  const poolsOf = (lv: object) =>
    poolsWithLastSnapshot({ lvs: [pool, { ...last, ...lv }] } as unknown as VolumeGroup).map(({ name }) => name);
  assertEquals(poolsOf({}), ["pool"]);
  for (
    const other of [
      { active: false }, // the pool may not have made it
      { origin: undefined },
      { pool: "another" },
      { segment: { transactionId: 1n } },
      { segment: {} },
    ]
  ) assertEquals(poolsOf(other), [], JSON.stringify(Object.keys(other)));
});

Deno.test("a driver that has created an LV in a pool creates no other before a removal", async () => {
  const { created, reap, left } = await harness({ isRestarted: false });
  assertEquals([await reap(), created, left()], [[], [], []]);
});

Deno.test("before a removal from a pool in which a command was killed, a driver creates another LV there", async () => {
  const { machine, volumes, request, pool, created, reap, left } = await harness({ isRestarted: false });
  const { fault } = machine;
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    pool.oldMessage = "followed"; // the pool has made the LV, and LVM has not forgotten the message
    machine.fault = fault;
    return failure(137, "");
  };
  await assertRejects(() => volumes.create({ ...request, id: volumeIdOf("two") }), StorageError, "exit 137");
  assertEquals([await reap(), created.length, left(), pool.leaked], [[], 1, [], undefined]);
});

Deno.test("a driver creates one LV in a pool where no other one can be removed, however often it tries", async () => {
  const { machine, reap, left } = await harness({ isRestarted: true });
  const { fault } = machine;
  const [stuck] = left();
  const { uuid } = machine.allLvs().find(({ lv }) => lv.name === stuck)!.lv;
  machine.fault = (command) => {
    const isStuck = command.args[0] === "lvremove" && command.args.some((arg) => arg.includes(uuid));
    return isStuck ? failure(5, "  Failed to update pool.") : fault?.(command);
  };
  for (let count = 0; count < 6; count++) assert((await reap()).length > 0);
  assert(left().length <= 2, left().join());
  machine.fault = fault;
  assertEquals([await reap(), left()], [[], []]);
});

Deno.test("after a removal failed, LVM sends the messages by the removal of the LV that was created for that", async () => {
  const { machine, pool, created, reaper, left } = await harness({ isRestarted: true });
  const { fault } = machine;
  const [stuck] = left();
  const { uuid } = machine.allLvs().find(({ lv }) => lv.name === stuck)!.lv;
  const removed: string[] = [];
  machine.fault = (command) => {
    if (command.args[0] !== "lvremove") return fault?.(command);
    removed.push(command.args.at(-1)!);
    if (removed.length > 1 || !command.args.some((arg) => arg.includes(uuid))) return undefined;
    pool.oldMessage = "followed";
    return failure(5, "  Failed to update pool.");
  };
  const errors: string[] = [];
  const running = reaper(errors, 1);
  running.start();
  await waitUntil(() => left().length === 0, "the removal");
  await running.stop();
  assertEquals([created.length, removed], [1, [`data/${stuck}`, `data/${created[0]}`, `data/${stuck}`]]);
  assertEquals([pool.leaked?.data.size, errors.length], [0, 1]); // what the pool kept has no data
});

Deno.test("nothing is removed from a pool after the first creation in it was killed, until one succeeds", async () => {
  const { machine, pool, created, reap, left } = await harness({ isRestarted: true });
  const { fault } = machine;
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    pool.oldMessage = "followed";
    machine.fault = fault;
    return failure(137, "");
  };
  const [error] = await reap();
  assert(error!.includes("exit 137"), error);
  assertEquals([left().length, pool.leaked], [1, undefined]);
  assertEquals([await reap(), created.length, left(), pool.leaked], [[], 1, [], undefined]);
});

Deno.test("an LV is removed from a pool that is too full for another one, and that is reported", async () => {
  const { pool, reap, left } = await harness({ isRestarted: true });
  pool.dataPercent = 100;
  const errors = await reap();
  assertEquals(left(), []);
  assert(errors.length > 0 && errors[0]!.includes("reached threshold"), errors.join());
});

Deno.test("a driver completes the transaction of a pool that has made a snapshot, and no other one", async () => {
  for (const oldMessage of ["half-followed", "followed"] as const) {
    const { machine, snapshot, pool, reap } = await harness({ isRestarted: true });
    Object.assign(snapshot, { origin: { name: "one", size: snapshot.size } });
    snapshot.tags.clear(); // so that nothing is removed
    pool.oldMessage = oldMessage;
    const sent: string[] = [];
    machine.fault = ({ program, args }) => void (program === "dmsetup" && sent.push(args.join(" ")));
    assertEquals([await reap(), pool.oldMessage], [[], "followed"]);
    const message = "message data-data_thinpool-tpool 0 set_transaction_id 0 1";
    assertEquals(sent.slice(1), oldMessage === "followed" ? [] : [message]);
  }
});

for (const what of ["a volume", "deleted"]) {
  Deno.test(`a driver completes the transaction of a pool whose last snapshot is inactive, and ${what}`, async () => {
    const { request, snapshot, pool, reap, left } = await harness({ isRestarted: true });
    Object.assign(snapshot, { origin: { name: "one", size: snapshot.size }, active: false });
    if (what === "a volume") {
      const source = { kind: "snapshot", id: snapshotIdOf("cut") } as const;
      snapshot.tags = new Set(volumeTags("test", { ...request, source, copied: "all" }));
    }
    pool.oldMessage = "half-followed";
    assertEquals(await reap(), []);
    assertEquals([left().length, pool.oldMessage], what === "a volume" ? [1, "followed"] : [0, undefined]);
  });
}

Deno.test("a driver tries again to complete the transaction of a pool, until it succeeds", async () => {
  const { machine, snapshot, pool, reaper } = await harness({ isRestarted: true });
  Object.assign(snapshot, { origin: { name: "one", size: snapshot.size } });
  snapshot.tags.clear();
  pool.oldMessage = "half-followed";
  machine.fault = ({ program }) => program === "dmsetup" ? failure(1, "  no answer") : undefined;
  const errors: string[] = [];
  const started = reaper(errors);
  started.start();
  await started.idle();
  assertEquals([errors.length, pool.oldMessage], [1, "half-followed"]);
  machine.fault = undefined;
  started.wake();
  await started.idle();
  await started.stop();
  assertEquals([errors.length, pool.oldMessage], [1, "followed"]);
});

Deno.test("a creation before a removal that outlasts its deadline is not repeated when it has succeeded", async () => {
  const { machine, created, reaper, left } = await harness({ isRestarted: true });
  const { fault } = machine;
  machine.fault = async (command) => {
    await fault?.(command);
    if (command.args[0] !== "lvcreate") return undefined;
    const completion = nextTurn().then(() => machine.run(command));
    machine.fault = fault;
    throw new StorageError("StillRunning", "lvm lvcreate: still running", { completion });
  };
  const errors: string[] = [];
  const started = reaper(errors);
  started.start();
  await started.idle();
  assertEquals([errors.length, left().length], [1, 1]);
  await nextTurn();
  created.length = 0;
  started.wake();
  await started.idle();
  await started.stop();
  assertEquals([errors.length, created, left()], [1, [], []]);
});
