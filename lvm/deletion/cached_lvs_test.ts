import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { failure, FakeMachine, newUuid } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { systemClock } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { describeCommand } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { cacheTags, markVolumeDeleted } from "../model/tags.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import type { FormatState } from "../settings/format.ts";
import { Volumes } from "../volumes/volumes.ts";
import { Reaper } from "./reaper.ts";

const MiB = 1n << 20n;
const id = volumeIdOf("one");
const RAW = { state: "raw" } as const;

/** Creates a machine with a deleted volume that has a cache, and a reaper, which repairs at once what failed if it retries. */
async function setUpDeleted(format: FormatState & typeof RAW, { retries = false } = {}) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1024n * MiB);
  group.pvs.push({ path: "/dev/vdz", uuid: newUuid(), tags: new Set(["denolith.cache"]) });
  const lvm = new Lvm(machine);
  const errors: string[] = [];
  const reservation = new PoolReservation(lvm);
  const onError = (error: unknown) => errors.push(String(error));
  const after = (_ms: number, callback: () => void) => systemClock.after(1, callback);
  const clock = retries ? { ...systemClock, after } : systemClock;
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError, clock });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper });
  const layout = { type: "writecache", cacheSize: 32n * MiB } as const;
  const request = namedRequest("one", 64n * MiB, { format, erase: "none", layout });
  await volumes.create(request);
  const volume = await volumes.get(id);
  await lvm.change(volume.group, ["lvchange", ...markVolumeDeleted(id, format), `data/${volume.lv.name}`]);
  const commands: string[] = [];
  machine.fault = (command) => {
    if (command.mutates && command.program !== "sync") commands.push(describeCommand(command));
    return undefined;
  };
  return { machine, reaper, volumes, request, errors, commands };
}

Deno.test("Reaper overwrites the cache of an encrypted LV that is not erased itself, since it may have the header", async () => {
  const { machine, reaper, commands, errors } = await setUpDeleted({ ...RAW, luks: { state: "wanted" } });
  reaper.start();
  await reaper.idle();
  assertEquals([errors, machine.allLvs()], [[], []]);
  assertEquals(commands.some((command) => command.includes("--splitcache")), true);
  const isCacheErased = (command: string) => /^blkdiscard --zeroout .*data-cache--/.test(command);
  assertEquals(commands.some(isCacheErased), true);
});

Deno.test("Reaper removes the cache with an LV of which nothing is erased", async () => {
  const { machine, reaper, commands, errors } = await setUpDeleted(RAW);
  reaper.start();
  await reaper.idle();
  assertEquals([errors, machine.allLvs()], [[], []]);
  assertEquals(commands.map((command) => command.split(" ")[1]), ["lvremove"]);
});

Deno.test("Reaper removes an encrypted LV that is not erased although its cache cannot be separated", async () => {
  const { machine, reaper, errors } = await setUpDeleted({ ...RAW, luks: { state: "wanted" } });
  machine.fault = ({ args }) => args.includes("--splitcache") ? failure(5, "  Failed to read the cache") : undefined;
  reaper.start();
  await reaper.idle();
  assertEquals(machine.allLvs().map(({ lv }) => lv.name), []);
  assertMatch(errors.join(), /Failed to read the cache/);
});

Deno.test("Reaper repairs a separation of which the second half failed", async () => {
  const { machine, reaper, errors } = await setUpDeleted({ ...RAW, luks: { state: "wanted" } }, { retries: true });
  let failures = 1;
  machine.fault = ({ args }) =>
    args.includes(`denolith.cache=${id}`) && failures-- > 0 ? failure(5, "  Failed to write VG data.") : undefined;
  reaper.wake();
  for (let round = 0; round < 100 && machine.allLvs().length > 0; round++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    await reaper.idle();
  }
  await reaper.stop();
  assertEquals(machine.allLvs().map(({ lv }) => lv.name), []);
  assertEquals(errors.length, 1);
  assertMatch(errors[0]!, /Failed to write VG data/);
});

Deno.test("a volume is created again while the LV of a deleted one with its name still has its cache", async () => {
  const { machine, reaper, volumes, errors, request } = await setUpDeleted({ ...RAW, luks: { state: "wanted" } });
  assertEquals(await volumes.create(request), 64n * MiB);
  const caches = machine.allLvs().map(({ lv }) => lv.cache?.name);
  assertEquals(new Set(caches).size, 2, "LVM hides both, under their names");
  reaper.start();
  await reaper.idle();
  assertEquals(errors, []);
  assertEquals(machine.allLvs().map(({ lv }) => lv.cache?.name), [caches[1]]);
});

Deno.test("no cache is left of a volume that LVM refuses to create, and the error is LVM's", async () => {
  const { machine, reaper, volumes, request } = await setUpDeleted(RAW);
  machine.groups[0]!.lvs = [];
  machine.fault = ({ args }) =>
    args.includes("--cachevol") ? failure(5, "  Insufficient free space: 16 extents") : undefined;
  await assertRejects(() => volumes.create(request), StorageError, "Insufficient free space");
  await reaper.idle();
  assertEquals(machine.allLvs().map(({ lv }) => lv.name), []);
});

Deno.test("Reaper marks each cache that is left, also after LVM has refused that for another one", async () => {
  const { machine, reaper, errors } = await setUpDeleted(RAW);
  const [group] = machine.groups;
  const [left] = group!.lvs;
  const loose = ["one", "two"].map((name) => ({
    ...{ ...left!.cache!, name: `cache-${volumeIdOf(name).slice(3)}`, uuid: newUuid() },
    tags: new Set(cacheTags("test", { id: volumeIdOf(name), erase: "zero", format: RAW })),
  }));
  group!.lvs = loose;
  machine.fault = ({ args }) =>
    args.includes(`denolith.cache=${volumeIdOf("one")}`) ? failure(5, "  Failed to write VG data.") : undefined;
  reaper.start();
  await reaper.idle();
  await reaper.stop();
  assertMatch(errors[0]!, /Failed to write VG data/);
  assertEquals(machine.allLvs().map(({ lv }) => lv.name), [loose[0]!.name]);
});

Deno.test("cacheTags() has the volume's policy of erasure, and for an encrypted volume the default", () => {
  const tags = (format: FormatState) => cacheTags("test", { id, erase: "none", format });
  assertEquals(tags(RAW), ["denolith=test", `denolith.cache=${id}`, "denolith.erase=none"]);
  assertEquals(tags({ ...RAW, luks: { state: "wanted" } }), ["denolith=test", `denolith.cache=${id}`]);
});
