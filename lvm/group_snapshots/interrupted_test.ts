import { assertEquals } from "@std/assert";
import { machineWithVolumes, only, openDriver, thin, volumeRequest } from "../../tests/fake/machine/group_machine.ts";
import type { FakeLv } from "../../tests/fake/machine/machine.ts";
import { guardsOf } from "../../tests/fake/machine/suspension.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { groupSnapshotIdOf, snapshotIdOf } from "../../base/ids.ts";
import { EarlierGuards } from "./suspension.ts";

const cowSize = { bytes: 8n << 20n };

/** Suspends volumes, as a driver that was killed during a group snapshot leaves them. */
function leaveSuspended(lvs: readonly FakeLv[]): void {
  for (const lv of lvs) lv.suspended = true;
}

Deno.test("volumes that a crash left suspended are resumed before a group snapshot", async () => {
  const { fake, machine: killed, sources, lvs } = await machineWithVolumes();
  await killed.background.stop();
  leaveSuspended(lvs);
  const machine = openDriver(fake);
  const { snapshots } = await machine.groupSnapshots.create({ id: groupSnapshotIdOf("group"), sources, cowSize });
  await machine.background.stop();
  assertEquals([snapshots.length, lvs.map(({ suspended }) => suspended)], [3, [false, false, false]]);
});

Deno.test("a thin volume that a crash left suspended is resumed before it is snapshotted or cloned", async () => {
  const { fake, machine: killed, sources: [, two], lvs } = await machineWithVolumes();
  await killed.background.stop();
  const [, lv] = lvs;
  leaveSuspended([lv!]);
  const machine = openDriver(fake);
  await machine.snapshots.create({ id: snapshotIdOf("alone"), source: two!, cowSize });
  assertEquals(lv!.suspended, false);
  leaveSuspended([lv!]);
  const source = { kind: "volume", id: two! } as const;
  await machine.volumes.create(volumeRequest("four", { groups: only("b"), thin, source }));
  assertEquals(lv!.suspended, false);
  await machine.background.stop();
});

Deno.test("no volume is suspended while find(1) of an earlier process may resume it", async () => {
  const { fake, machine: killed, sources, lvs } = await machineWithVolumes();
  await killed.background.stop();
  const clock = new FakeClock();
  const machine = openDriver(fake, { earlierGuards: new EarlierGuards(clock) });
  const created = machine.groupSnapshots.create({ id: groupSnapshotIdOf("group"), sources, cowSize });
  await waitUntil(() => clock.msUntilNextTimer === 20_000, "the wait");
  assertEquals([guardsOf(fake), lvs.filter(({ suspended }) => suspended)], [[], []]);
  await clock.advance(20_000);
  assertEquals((await created).snapshots.length, 3);
  await machine.background.stop();
});

Deno.test("a process that ends does not wait for find(1) of an earlier one", async () => {
  const end = new AbortController();
  const waiting = new EarlierGuards(new FakeClock(), end.signal).waitForEnd();
  end.abort();
  assertEquals(await waiting, true);
});
