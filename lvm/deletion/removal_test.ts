import { assert, assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { Lvm } from "../client/client.ts";
import { addUsedTag } from "../client/used_tags.ts";
import { describeCommand } from "../exec.ts";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { lvchangeTags } from "../model/command_lines.ts";
import { lvPath } from "../model/report.ts";
import { markVolumeDeleted } from "../model/tags.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";
import { Reaper } from "./reaper.ts";

const GIB = 1n << 30n;

/** Creates a machine with volumes that were used and are marked as deleted, and a reaper. */
async function harness(sizes: Readonly<Record<string, bigint>>, { isEncrypted = false } = {}) {
  const machine = new FakeMachine();
  machine.addGroup("data", 200n * GIB);
  const lvm = new Lvm(machine);
  const errors: string[] = [];
  const reservation = new PoolReservation(lvm);
  let removed = 0;
  const onRemoved = () => void removed++;
  const onError = (error: unknown) => void errors.push(String(error));
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError, onRemoved });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } });
  const paths: string[] = [];
  const format = { state: "raw", ...(isEncrypted && { luks: { state: "wanted" } as const }) } as const;
  for (const [name, size] of Object.entries(sizes)) {
    await volumes.create(namedRequest(name, size, { format, erase: isEncrypted ? "none" : "zero" }));
    const volume = await volumes.get(volumeIdOf(name));
    await addUsedTag(lvm, "test", volume);
    await lvm.change(volume.group, lvchangeTags(markVolumeDeleted(volume.id, format), lvPath(volume)));
    paths.push(lvPath(volume));
  }
  const reap = async () => {
    reaper.wake();
    await reaper.idle();
    await reaper.stop();
  };
  const tags = () => [...machine.groups[0]!.tags];
  return { machine, reaper, reap, errors, paths, tags, removed: () => removed };
}

Deno.test("Reaper removes volumes that were deleted together by few commands, records included", async () => {
  const names = Array.from({ length: 16 }, (_, index) => `used-${index}`);
  const { machine, reap, errors, tags } = await harness(Object.fromEntries(names.map((name) => [name, 8n << 20n])));
  const commands: string[] = [];
  machine.fault = (command) => void commands.push(describeCommand(command).match(/^(?:lvm )?\S+/)![0]);
  await reap();
  assertEquals([errors, machine.allLvs(), tags()], [[], [], []]);
  const counts = Object.entries(Object.groupBy(commands, (command) => command)).map((
    [name, ran],
  ) => [name, ran!.length]);
  assertEquals(Object.fromEntries(counts), {
    ...{ "lvm fullreport": 2, lsblk: 16, blkdiscard: 16, "lvm vgchange": 1, "lvm lvremove": 2 },
    sync: 16 + 3,
  });
});

Deno.test("Reaper keeps of several volumes the one that was rescued, or got a snapshot, after it was erased", async () => {
  const small = 8n << 20n;
  const { machine, reap, paths, errors, tags } = await harness({ one: small, two: small, three: small, four: small });
  let erased = 0;
  machine.fault = async ({ program }) => {
    if (program !== "blkdiscard" || ++erased < 4) return undefined;
    machine.fault = undefined;
    const run = (...args: string[]) => machine.run({ program: "lvm", args, mutates: true });
    await run("lvchange", "--deltag", `denolith.deleted=${volumeIdOf("one")}`, paths[0]!);
    await run("lvcreate", "--yes", "--snapshot", "--name", "backup", "--size", "8388608b", paths[1]!);
    return undefined;
  };
  await reap();
  assertEquals(machine.allLvs().map(({ lv }) => `data/${lv.name}`), [paths[0], paths[1], "data/backup"]);
  assertEquals(tags().length, 2);
  assertEquals(errors.length, 1);
  assert(errors[0]!.includes("is the origin of the snapshots backup"), errors[0]);
});

Deno.test("Reaper lets no erased volume wait for the erasure of a large one", async () => {
  const { machine, reap, errors } = await harness({ small: 8n << 20n, large: 2n * GIB });
  const left: number[] = [];
  machine.fault = ({ program }) => void (program === "blkdiscard" && left.push(machine.allLvs().length));
  await reap();
  assertEquals([errors, left], [[], [2, 1, 1]]);
});

Deno.test("Reaper removes the other volumes where one cannot be erased", async () => {
  const small = 8n << 20n;
  const { machine, reap, paths, errors } = await harness({ one: small, two: small, three: small });
  let count = 0;
  machine.fault = ({ program }) => program === "blkdiscard" && ++count === 2 ? failure(1, "I/O error") : undefined;
  await reap();
  assertEquals(machine.allLvs().map(({ lv }) => `data/${lv.name}`), [paths[1]]);
  assertEquals(errors.length, 1);
});

Deno.test("Reaper reports the space of volumes that were removed by a command that failed for another one", async () => {
  const small = 8n << 20n;
  const { machine, reap, errors, removed } = await harness({ one: small, two: small, three: small, four: small });
  machine.fault = ({ args }) => {
    const paths = args.filter((arg) => arg.startsWith("data/"));
    if (args[0] !== "lvremove" || paths.length < 2) return undefined;
    machine.fault = undefined;
    const [group] = machine.groups;
    group!.lvs = group!.lvs.filter(({ name }) => `data/${name}` !== paths[0]); // another process has removed it
    return undefined;
  };
  await reap();
  assertEquals([errors, machine.allLvs(), removed()], [[], [], 4]);
});

Deno.test("Reaper removes no volume whose key slots are still being destroyed, and each where that failed", async () => {
  for (const isLate of [true, false]) {
    const { machine, reap, errors } = await harness({ one: 32n << 20n }, { isEncrypted: true });
    machine.fault = ({ program }) => {
      if (program !== "blkdiscard") return undefined;
      throw isLate
        ? new StorageError("StillRunning", "blkdiscard hangs", { completion: new Promise(() => {}) })
        : new StorageError("CommandFailed", "blkdiscard failed");
    };
    await reap();
    assertEquals([errors.length, machine.allLvs().length], [1, isLate ? 1 : 0], errors.join());
  }
});

Deno.test("Reaper begins with no other volume when it is stopped while it erases one", async () => {
  const { machine, reaper, reap, errors } = await harness({ one: 8n << 20n, two: 8n << 20n });
  const programs: string[] = [];
  machine.fault = ({ program }) => {
    programs.push(program);
    if (program === "blkdiscard") void reaper.stop();
    return undefined;
  };
  await reap();
  assertEquals([errors, machine.allLvs().length], [[], 2]);
  assertEquals(programs, ["lvm", "lsblk", "blkdiscard", "sync"]);
});
