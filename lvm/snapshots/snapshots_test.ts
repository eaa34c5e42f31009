import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { FakeMachine, newUuid, ok } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { Snapshots } from "./snapshots.ts";
import { type ContentSource, volumeTags } from "../model/tags.ts";
import { FULL_COW } from "../settings/cow_size.ts";
import type { RecordedLv } from "../inventory/volume.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";

const MiB = 1n << 20n;
const request = { id: snapshotIdOf("cut"), source: volumeIdOf("one"), cowSize: FULL_COW };

/** Creates a machine with a volume and its snapshot; `record` records the snapshot's LV. */
async function harness() {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const records: { recordedLv?: RecordedLv } = {};
  const options = { lvm, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } };
  const volumeFinder = new VolumeFinder({ driver: "test" });
  const finder = new SnapshotFinder({ driver: "test", recordedLv: () => records.recordedLv });
  const volumes = new Volumes({ ...options, finder: volumeFinder });
  const snapshots = new Snapshots({ ...options, finder, volumes: volumeFinder });
  await volumes.create(namedRequest("one", 32n * MiB, { format: { state: "raw" } }));
  await snapshots.create(request);
  const cow = machine.groups[0]!.lvs[1]!;
  const record = () => void (records.recordedLv = { lvUuid: cow.uuid, groupName: "data" });
  return {
    machine,
    lvm,
    volumes,
    snapshots,
    finder,
    cow,
    record,
    state: async () => finder.stateOf(await lvm.report(), request),
  };
}

Deno.test("stateOf(): without a record, an LV with the tags is the snapshot, and COW space without an origin is none", async () => {
  const s = await harness();
  assertEquals((await s.state()).state, "present");
  delete s.cow.origin;
  assertEquals((await s.state()).state, "absent");
  s.machine.groups[0]!.lvs.pop();
  assertEquals((await s.state()).state, "absent");
});

Deno.test("stateOf(): with a record, only the LV with that UUID is the snapshot, and only while it has an origin", async () => {
  const s = await harness();
  s.record();
  assertEquals((await s.state()).state, "present");
  const lost = async () => {
    const found = await s.state();
    return found.state === "lost" ? found.error.message : found.state;
  };
  const { origin } = s.cow;
  delete s.cow.origin;
  assertMatch(await lost(), /it was split off/);
  Object.assign(s.cow, { origin, uuid: newUuid() });
  assertMatch(await lost(), /has taken its place/);
  s.machine.groups[0]!.lvs.pop();
  assertMatch(await lost(), /no logical volume carries its tag/);
});

Deno.test("create() and delete() of a Lost snapshot change nothing, and create nothing in its place", async () => {
  const s = await harness();
  s.record();
  s.cow.uuid = newUuid();
  const before = structuredClone(s.machine.groups);
  for (const call of [() => s.snapshots.create(request), () => s.snapshots.delete(request.id)]) {
    assertEquals((await assertRejects(call, StorageError, "has taken its place")).kind, "Lost");
  }
  assertEquals(s.machine.groups, before);
  s.machine.groups[0]!.lvs.pop();
  assertEquals((await assertRejects(() => s.snapshots.create(request), StorageError)).kind, "Lost");
  await s.snapshots.delete(request.id);
});

Deno.test("create() reports that no report shows the snapshot that lvcreate should have created", async () => {
  const s = await harness();
  s.machine.fault = ({ args }) => args[0] === "lvcreate" ? ok("") : undefined;
  const create = () => s.snapshots.create({ ...request, id: snapshotIdOf("other") });
  assertEquals((await assertRejects(create, StorageError, "no report shows")).kind, "CommandFailed");
});

Deno.test("create() reports no snapshot as taken that the kernel does not have, since something resumed the volume meanwhile", async () => {
  const s = await harness();
  const second = { ...request, id: snapshotIdOf("second") };
  s.machine.fault = ({ args }) => {
    const lv = s.machine.groups[0]!.lvs.find(({ tags }) => tags.has(`denolith.snapshot=${second.id}`));
    if (args[0] === "fullreport" && lv) lv.killedTable = "only";
    return undefined;
  };
  const error = await assertRejects(() => s.snapshots.create(second), StorageError, "resumed");
  assertEquals([error.kind, s.finder.locate(await s.lvm.report(), second.id)], ["Busy", undefined]);
});

Deno.test("isDeletable() reports whether a snapshot is neither open nor being copied", async () => {
  const s = await harness();
  const isDeletable = async () => s.snapshots.isDeletable(await new Lvm(s.machine).report(), request.id);
  assertEquals(await isDeletable(), true);
  s.machine.openLvs.push(s.cow);
  assertEquals(await isDeletable(), false);
  s.machine.openLvs.pop();
  const [group] = s.machine.groups;
  const addCopy = (name: string, source: ContentSource) => {
    const format = { state: "raw" } as const;
    const common = { format, mkfsOptions: [], shared: true, erase: "zero", source } as const;
    const tags = new Set(volumeTags("test", { id: volumeIdOf(name), ...common }));
    group!.lvs.push({ ...group!.lvs[0]!, name, uuid: newUuid(), minor: s.machine.nextMinor(), tags });
  };
  addCopy("another", { kind: "snapshot", id: snapshotIdOf("another") });
  addCopy("clone", { kind: "volume", id: volumeIdOf("one") });
  assertEquals(await isDeletable(), true);
  addCopy("copy", { kind: "snapshot", id: request.id });
  assertEquals(await isDeletable(), false);
});

Deno.test("stateOf() fails while the group of the volume, or of the record, is unresponsive", async () => {
  const s = await harness();
  s.record();
  const groups = await new Lvm(s.machine).report();
  const unresponsive = groups.map((group) => ({ ...group, responsive: false, lvs: group.lvs.slice(0, 1) }));
  const error = await assertRejects(() => Promise.try(() => s.finder.stateOf(unresponsive, request)), StorageError);
  assertEquals(error.kind, "Unavailable");
});

for (const thin of [undefined, { poolSize: DEFAULT_POOL_SIZE }]) {
  Deno.test(`createNew() takes no snapshot of a volume that was deleted since the report: ${thin ? "thin" : "thick"}`, async () => {
    const { machine, lvm, volumes, snapshots } = await harness();
    const source = volumeIdOf("two");
    await volumes.create(namedRequest("two", 32n * MiB, { format: { state: "raw" }, ...defined({ thin }) }));
    const groups = await lvm.report();
    await volumes.delete(source);
    const create = () => snapshots.createNew(groups, { ...request, source, id: snapshotIdOf("late") });
    assertEquals((await assertRejects(create, StorageError, "deleted meanwhile")).kind, "Busy");
    const tags = [...machine.groups[0]!.lvs.at(-1)!.tags];
    assertEquals(tags.filter((tag) => /^denolith.(?:snapshot|deleted)=/.test(tag)), [
      `denolith.deleted=${snapshotIdOf("late")}`,
    ]);
  });
}
