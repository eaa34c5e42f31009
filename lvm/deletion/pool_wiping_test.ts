import { assertEquals } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { Command } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";
import { Reaper } from "./reaper.ts";

const GIB = 1n << 30n;

interface Harness {
  /** The overcommit ratio of the pool, in percent. */
  readonly overcommit?: bigint;
  /** Happens before the volume is deleted. */
  readonly before?: (machine: FakeMachine, device: string) => Promise<void>;
  /** Happens before each command of the removal. */
  readonly during?: (machine: FakeMachine, command: Command) => Promise<void>;
}

/** Creates a thin volume in a pool of 2 GiB, deletes it, and lets it be removed with its pool. */
async function removePool(size: bigint, { overcommit = 100n, before, during }: Harness) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 8n * GIB);
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm, overcommit);
  const errors: unknown[] = [];
  const onError = (error: unknown) => void errors.push(error);
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError, removeEmptyPools: true });
  const volumes = new Volumes({ lvm, finder: new VolumeFinder({ driver: "test" }), reservation, reaper });
  const thin = { poolSize: { bytes: 2n * GIB } };
  await volumes.create(namedRequest("one", size, { format: { state: "raw" }, thin }));
  const [pool, lv] = group.lvs;
  pool!.thinPool!.residualData.add("older secret");
  await before?.(machine, `/dev/mapper/data-${lv!.name.replaceAll("-", "--")}`);
  machine.fault = async (command) => void await during?.(machine, command);
  await volumes.delete(volumeIdOf("one"));
  await reaper.idle();
  await reaper.stop();
  return { errors, lvs: group.lvs.map(({ name }) => name), readable: [...group.residualData] };
}

/** Extends the pool to 3 GiB before a command that a condition selects. */
function extendBefore(isSelected: (command: Command) => boolean): Required<Pick<Harness, "during">> {
  let isDone = false;
  const during = async (machine: FakeMachine, command: Command) => {
    if (isDone || !isSelected(command)) return;
    isDone = true;
    const args = ["lvextend", "--size", `${3n * GIB}b`, "data/data_thinpool"];
    assertEquals((await machine.run({ program: "lvm", args, mutates: true })).code, 0);
  };
  return { during };
}

Deno.test("a pool that is extended while it is overwritten is overwritten as a whole before it is removed", async () => {
  let chunks = 0;
  const extended = extendBefore(({ program }) => program === "blkdiscard" && ++chunks === 2);
  assertEquals(await removePool(GIB, extended), { errors: [], lvs: [], readable: [] });
});

Deno.test("a pool that is extended when its last volume is removed stays", async () => {
  const extended = extendBefore(({ args }) => args[0] === "lvremove");
  assertEquals(await removePool(GIB, extended), { errors: [], lvs: ["data_thinpool"], readable: [] });
});

Deno.test("a pool that is smaller than its last volume is overwritten, although data is at the end of the volume", async () => {
  const before = async (machine: FakeMachine, path: string) => {
    const args = ["if=/dev/urandom", `of=${path}`, "bs=1M", "seek=3072", "count=512"];
    assertEquals((await machine.run({ program: "dd", args, mutates: true })).code, 0);
  };
  const erased: string[] = [];
  const during = (_: FakeMachine, { program, args }: Command) => {
    if (program === "blkdiscard") erased.push(args.slice(0, -1).join(" "));
    return Promise.resolve();
  };
  assertEquals(await removePool(4n * GIB, { overcommit: 300n, before, during }), { errors: [], lvs: [], readable: [] });
  assertEquals(erased, [
    `--offset ${2n * GIB} --length ${2n * GIB}`,
    ...[0n, 1n].map((offset) => `--zeroout --offset ${offset * GIB} --length ${GIB}`),
  ]);
});
