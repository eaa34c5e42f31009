import { assertEquals, assertMatch } from "@std/assert";
import { failure, FakeMachine, newUuid } from "../../tests/fake/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { systemClock } from "../clock.ts";
import { describeCommand } from "../exec.ts";
import { volumeIdOf } from "../ids.ts";
import { Lvm } from "../client/client.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { cacheTags } from "../inventory/cache_tags.ts";
import { markVolumeDeleted } from "../model/tags.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import type { FormatState } from "../spec/format.ts";
import { Volumes } from "../volumes/volumes.ts";
import { Reaper } from "./reaper.ts";

const MiB = 1n << 20n;
const id = volumeIdOf("one");
const RAW = { state: "raw" } as const;

/** Creates a machine with a deleted volume that has a cache, and a reaper that repairs at once what failed. */
async function setUpDeleted(format: FormatState & typeof RAW) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1024n * MiB);
  group.pvs.push({ path: "/dev/vdz", uuid: newUuid(), tags: new Set(["denolith.cache"]) });
  const lvm = new Lvm(machine);
  const errors: string[] = [];
  const reservation = new PoolReservation(lvm);
  const onError = (error: unknown) => errors.push(String(error));
  const after = (_ms: number, callback: () => void) => systemClock.after(1, callback);
  const clock = { ...systemClock, after };
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError, retryMs: 1, clock });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } });
  const layout = { type: "writecache", cacheSize: 32n * MiB } as const;
  await volumes.create(namedRequest("one", 64n * MiB, { format, erase: "none", layout }));
  const volume = await volumes.get(id);
  await lvm.change(volume.group, ["lvchange", ...markVolumeDeleted(id, format), `data/${volume.lv.name}`]);
  const commands: string[] = [];
  machine.fault = (command) => {
    if (command.mutates && command.program !== "sync") commands.push(describeCommand(command));
    return undefined;
  };
  return { machine, reaper, errors, commands };
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

Deno.test("Reaper repairs a separation of which the second half failed", async () => {
  const { machine, reaper, errors } = await setUpDeleted({ ...RAW, luks: { state: "wanted" } });
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

Deno.test("cacheTags() has the volume's policy of erasure, and for an encrypted volume the default", () => {
  const tags = (format: FormatState) => cacheTags("test", { id, erase: "none", format });
  assertEquals(tags(RAW), ["denolith=test", `denolith.cache=${id}`, "denolith.erase=none"]);
  assertEquals(tags({ ...RAW, luks: { state: "wanted" } }), ["denolith=test", `denolith.cache=${id}`]);
});
