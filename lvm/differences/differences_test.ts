import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { openMachine } from "../machine.ts";
import { ANY_GROUP } from "../model/groups.ts";
import { LINEAR } from "../model/layout.ts";
import { StorageError } from "../../base/error.ts";
import { noteWrites } from "../../tests/fake/machine/block_tools.ts";
import type { Extent, ExtentList, ListRequest } from "./differences.ts";

const MiB = 1n << 20n;

/** Opens a machine with a volume, thick or thin, and returns what makes snapshots, writes and lists. */
async function harness({ thin = false, bytes = 16n * MiB, extentBytes = 4n * MiB } = {}) {
  const exec = new FakeMachine();
  exec.addGroup("data", 1024n * MiB);
  exec.groups[0]!.extentSize = extentBytes;
  const machine = openMachine({ exec, driver: "d", groups: ANY_GROUP, mountRoots: ["/pods"], scratch: "/tmp" });
  await machine.volumes.create({
    ...{ id: volumeIdOf("v"), range: { required: bytes }, groups: ANY_GROUP, preference: "mostFree" },
    ...{ format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "none", layout: LINEAR, limits: {} },
    ...(thin ? { thin: { poolSize: { bytes: 128n * MiB } } } : {}),
  });
  const { lvs } = exec.groups[0]!;
  const lvOf = (id: string) => lvs.find(({ tags }) => tags.has(`denolith.snapshot=${id}`))!;
  return {
    ...{ exec, machine, lvs, lvOf, volume: lvs.find(({ tags }) => tags.has(`denolith.volume=${volumeIdOf("v")}`))! },
    take: async (name: string) => {
      const id = snapshotIdOf(name);
      await machine.snapshots.create({ id, source: volumeIdOf("v"), cowSize: { bytes: 8n * MiB } });
      return id;
    },
    list: (request: Omit<ListRequest, "groupSize">) => machine.differences.list({ ...request, groupSize: 10 }),
  };
}

/** Returns all ranges of a list. */
async function rangesOf({ extents }: ExtentList): Promise<Extent[]> {
  const ranges: Extent[] = [];
  for await (const group of extents) ranges.push(...group);
  return ranges;
}

Deno.test("a list ends when one of its snapshots was deleted, and another one has its id", async () => {
  for (const thin of [true, false]) {
    const s = await harness({ thin });
    const [base, target] = [await s.take("base"), await s.take("target")];
    const list = await s.list({ base, target, from: 0n });
    await s.machine.snapshots.delete(target);
    s.lvs.splice(s.lvs.indexOf(s.lvs.find(({ tags }) => tags.has(`denolith.deleted=${target}`))!) >>> 0, 1);
    await s.take("target");
    const error = await assertRejects(() => rangesOf(list), StorageError, "is another one now");
    assertEquals(error.kind, "FailedPrecondition");
    await s.machine.background.stop();
  }
});

Deno.test("copy-on-write snapshots of two LVs are not compared, although they are of one volume", async () => {
  const s = await harness();
  const [base, target] = [await s.take("base"), await s.take("target")];
  s.lvs.push({ ...s.volume, name: "earlier", uuid: "earlier", tags: new Set(), minor: 99 });
  s.lvOf(base).origin!.name = "earlier";
  const error = await assertRejects(() => s.list({ base, target, from: 0n }), StorageError, "of two logical volumes");
  assertEquals(error.kind, "FailedPrecondition");
  await s.machine.background.stop();
});

Deno.test("a list from the end of a snapshot has nothing, although the last block is longer than what is left", async () => {
  const s = await harness({ thin: true, bytes: 16n * MiB + 4096n, extentBytes: 4096n });
  const base = await s.take("base");
  noteWrites(s.volume, Number(16n * MiB), Number(16n * MiB) + 4096, "/dev/urandom");
  const target = await s.take("target");
  const last = [{ offset: 16n * MiB, length: 4096n }];
  assertEquals(await rangesOf(await s.list({ base, target, from: 16n * MiB + 1n })), last);
  assertEquals(await rangesOf(await s.list({ base, target, from: 16n * MiB + 4096n })), []);
  await s.machine.background.stop();
});

Deno.test("all of a thin snapshot is listed that reads from an LV outside of its pool what was never written", async () => {
  const s = await harness({ thin: true });
  const target = await s.take("target");
  assertEquals(await rangesOf(await s.list({ target, from: 0n })), []);
  s.lvs.push({ ...s.volume, name: "external", uuid: "external", tags: new Set(), minor: 99 });
  delete s.lvs.at(-1)!.pool;
  s.volume.origin = { name: "external", size: s.volume.size };
  assertEquals(await rangesOf(await s.list({ target, from: 4096n })), [
    { offset: 4096n, length: 16n * MiB - 4096n },
  ]);
  await s.machine.background.stop();
});

Deno.test("a list has no group of ranges without a range, and no range without a length", async () => {
  const exec = new FakeMachine();
  exec.addGroup("data", 1024n * MiB);
  const machine = openMachine({ exec, driver: "d", groups: ANY_GROUP, mountRoots: ["/pods"], scratch: "/tmp" });
  await machine.volumes.create({
    ...{ id: volumeIdOf("v"), range: { required: 16n * MiB }, groups: ANY_GROUP, preference: "mostFree" },
    ...{ format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "none", layout: LINEAR, limits: {} },
  });
  const [base, target] = [snapshotIdOf("base"), snapshotIdOf("target")];
  for (const id of [base, target]) {
    await machine.snapshots.create({ id, source: volumeIdOf("v"), cowSize: { bytes: 8n * MiB } });
  }
  const groupsOf = async (request: Omit<ListRequest, "groupSize">) => {
    const { extents } = await machine.differences.list({ ...request, groupSize: 10 });
    const groups: (readonly Extent[])[] = [];
    for await (const group of extents) groups.push(group);
    return groups;
  };
  assertEquals(await groupsOf({ base, target, from: 0n }), []);
  assertEquals(await groupsOf({ target, from: 16n * MiB }), []);
  assertEquals(await groupsOf({ target, from: 16n * MiB - 512n }), [[{ offset: 16n * MiB - 512n, length: 512n }]]);
  await machine.background.stop();
});
