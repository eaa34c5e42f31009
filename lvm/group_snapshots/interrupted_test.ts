import { assertEquals } from "@std/assert";
import { machineWithVolumes, only, openDriver, thin, volumeRequest } from "../../tests/fake/group_machine.ts";
import type { FakeLv } from "../../tests/fake/machine.ts";
import { groupSnapshotIdOf, snapshotIdOf } from "../ids.ts";

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
