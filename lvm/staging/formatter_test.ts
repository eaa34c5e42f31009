import { assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { flushPromises } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/wait_until.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { volumeLock } from "../../base/locks.ts";
import type { Command, Output } from "../exec.ts";
import { openMachine } from "../machine.ts";
import { ANY_GROUP } from "../model/groups.ts";

const MiB = 1n << 20n;
const id = volumeIdOf("one");
const access = { kind: "mount", flags: [] } as const;

/** Creates a machine with a volume, as a report shows it. */
async function setUp(request = {}, { groups = ["data"] } = {}) {
  const root = await Deno.realPath(await Deno.makeTempDir());
  const machine = new FakeMachine();
  const [group] = groups.map((name) => machine.addGroup(name, 2n << 30n));
  const programs: string[] = [];
  const held = new Map<string, Promise<unknown>>();
  const errors: unknown[] = [];
  const exec = {
    run: async (command: Command): Promise<Output> => {
      const name = command.program === "lvm" ? command.args[0]! : command.program;
      if (!["sync", "findmnt"].includes(name)) programs.push(name);
      await held.get(name);
      return await machine.run(command);
    },
    idle: () => Promise.resolve(),
  };
  const listener = { onFailure: (_action: string, error: unknown) => void errors.push(error) };
  const options = { exec, driver: "test", groups: ANY_GROUP, mountRoots: [root], scratch: "/scratch", listener };
  let own = openMachine(options);
  await own.volumes.create(namedRequest("one", 32n * MiB, request));
  await own.lvm.report();
  programs.splice(0);
  return {
    ...own,
    ...{ machine, group: group!, errors },
    /** Formats the volume. @returns the programs that ran */
    format: async () => {
      own.formatter.formatSoon(id);
      await own.formatter.idle();
      return programs.splice(0).join(" ");
    },
    stage: async () => {
      await own.staging.stage(id, `${root}/staged`, access);
      return programs.splice(0).join(" ");
    },
    unstage: () => own.staging.unstage(id, `${root}/staged`),
    restart: async () => {
      own = openMachine(options);
      await own.lvm.report();
      programs.splice(0);
    },
    /** Holds a program back. @returns what lets it run */
    hold: (program: string) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      held.set(program, promise);
      return resolve;
    },
    tags: () =>
      [...group!.lvs[0]!.tags].filter((tag) => /fs=|unmounted|deleted/.test(tag)).map((tag) =>
        tag.split(":")[0]!.replace(/(unmounted)=\w{6}-\w{6}$/, "$1")
      ),
    [Symbol.asyncDispose]: async () => {
      await own.background.stop();
      await Deno.remove(root, { recursive: true });
    },
  };
}

Deno.test("a new volume is formatted before it is staged, and its first stage only mounts it", async () => {
  for (const type of ["ext4", "xfs", "btrfs"] as const) {
    await using own = await setUp({ format: { state: "unformatted", type }, range: { required: 1n << 30n } });
    const [mkfs] = (await own.format()).match(/mk\S+/)!;
    assertEquals(mkfs, type === "ext4" ? "mke2fs" : `mkfs.${type}`);
    assertEquals([own.tags(), [...own.group.tags]], [["denolith.fs=formatted", "denolith.unmounted"], []]);
    assertEquals(await own.stage(), "dmsetup lsblk vgchange wipefs mount");
    assertEquals([own.group.tags.size, await own.format()], [1, ""]);
  }
});

Deno.test("the first stage checks a filesystem that another process created, and one of a volume that has grown", async () => {
  await using own = await setUp();
  await own.format();
  await own.restart();
  assertEquals(await own.stage(), "dmsetup lsblk vgchange wipefs e2fsck mount resize2fs");
  await using grown = await setUp();
  await grown.format();
  await grown.volumes.expand(id, { required: 64n * MiB });
  assertEquals((await grown.stage()).endsWith("vgchange wipefs e2fsck mount resize2fs"), true);
});

Deno.test("a new volume is formatted as the kernel showed it, without a report since it was made", async () => {
  await using own = await setUp();
  await own.volumes.delete(id);
  const [request, [group]] = [namedRequest("one", 32n * MiB), await own.lvm.report()];
  assertEquals([await own.volumes.create(request), await own.format()], [32n * MiB, "lvremove fullreport lvcreate"]);
  await own.volumes.readCreated(request, group!, 32n * MiB);
  assertEquals(await own.format(), "dmsetup dmsetup lsblk wipefs cmp dd lvchange mke2fs wipefs lvchange");
  assertEquals(own.tags(), ["denolith.fs=formatted", "denolith.unmounted"]);
});

Deno.test("volumes that are made at the same time are formatted when they are staged", async () => {
  await using own = await setUp();
  own.formatter.formatSoon(volumeIdOf("two"));
  assertEquals(await own.format(), "");
  assertEquals([await own.format(), own.tags()[0]], [
    "dmsetup lsblk wipefs cmp dd lvchange mke2fs wipefs lvchange",
    "denolith.fs=formatted",
  ]);
});

Deno.test("a volume that is made while the formatter stops is left to its stage", async () => {
  await using own = await setUp();
  const release = own.hold("lvcreate");
  const second = own.volumes.create(namedRequest("two", 32n * MiB));
  await flushPromises();
  own.formatter.formatSoon(volumeIdOf("two")); // it waits for the creation
  await flushPromises();
  const stopped = own.formatter.stop();
  own.formatter.formatSoon(id);
  release();
  await Promise.all([second, stopped]);
  assertEquals(own.tags(), ["denolith.fs=wanted"]);
});

Deno.test("a new volume is formatted also where LVM has several groups", async () => {
  await using own = await setUp({ groups: { text: "data", matches: (name: string) => name === "data" } }, {
    groups: ["data", "more"],
  });
  assertEquals((await own.format()).endsWith("mke2fs wipefs lvchange"), true);
});

Deno.test("a volume that was formatted and never mounted is removed at once, and one that was mounted is erased", async () => {
  await using own = await setUp();
  await own.format();
  await own.volumes.delete(id);
  assertEquals(own.group.lvs, []);
  await using copied = await setUp(); // by an administrator, with its tags
  await copied.format();
  copied.group.lvs[0]!.uuid = copied.group.lvs[0]!.uuid.replace(/^.{6}/, "others");
  await copied.lvm.report();
  await copied.volumes.delete(id);
  assertEquals(copied.group.lvs[0]!.tags.has(`denolith.deleted=${id}`), true);
  await using split = await setUp(); // vgsplit(8) leaves the record of use in the other group
  await split.format();
  await split.stage();
  await split.unstage();
  split.group.tags.clear();
  split.group.uuid = split.group.uuid.replace(/^.{6}/, "others");
  await split.lvm.report();
  await split.volumes.delete(id);
  assertEquals(split.group.lvs[0]?.tags.has(`denolith.deleted=${id}`), true);
  await using used = await setUp();
  await used.format();
  await used.stage();
  await used.unstage();
  await used.volumes.delete(id);
  // without the mark of before its use: its record of use goes, and an administrator may give its other tags back
  assertEquals(used.tags(), [`denolith.deleted=${id}`]);
  await using adopted = await setUp();
  await adopted.format();
  await adopted.heldVolumes.adopt(id, volumeIdOf("two"));
  assertEquals(adopted.tags(), ["denolith.fs=formatted"]);
});

Deno.test("a volume whose formatting failed before anybody used it is removed at once", async () => {
  await using own = await setUp();
  own.machine.fault = ({ program }) =>
    program === "mke2fs" ? Promise.resolve({ code: 1, stdout: "", stderr: "failed" }) : undefined;
  await own.format();
  assertEquals([own.errors.length, own.tags()], [1, ["denolith.fs=formatting"]]);
  await own.volumes.delete(id);
  assertEquals(own.group.lvs, []);
});

for (
  const [what, request] of Object.entries({
    "a block volume": { format: { state: "raw" } },
    "an encrypted volume": { format: { state: "unformatted", type: "ext4", luks: { state: "wanted" } } },
  })
) {
  Deno.test(`${what} is not formatted before it is staged`, async () => {
    await using own = await setUp(request);
    assertEquals(await own.format(), "");
  });
}

Deno.test("a new volume is formatted as soon as LVM makes no others, unless it was staged first", async () => {
  for (const isStaged of [true, false]) {
    await using own = await setUp();
    const release = own.hold("lvcreate");
    const second = own.volumes.create(namedRequest("two", 32n * MiB));
    await flushPromises();
    own.formatter.formatSoon(id);
    await flushPromises();
    const releaseThird = own.hold("lvcreate");
    const third = own.volumes.create(namedRequest("three", 32n * MiB));
    await flushPromises();
    if (isStaged) await own.stage();
    release();
    await second;
    await flushPromises();
    assertEquals(own.tags(), [isStaged ? "denolith.fs=formatted" : "denolith.fs=wanted"]);
    releaseThird();
    await third;
    await own.formatter.idle();
    assertEquals(own.tags(), ["denolith.fs=formatted", ...(isStaged ? [] : ["denolith.unmounted"])]);
  }
});

Deno.test("a new volume is not formatted when LVM ends no change for five seconds, or one outlasts its deadline", async () => {
  for (const [seconds, state] of [[4, "formatted"], [6, "wanted"]] as const) {
    await using own = await setUp();
    {
      using time = new FakeTime();
      const creations = ["two", "three"].map((name) => {
        const release = own.hold("lvcreate");
        return { release, created: own.volumes.create(namedRequest(name, 32n * MiB)) };
      });
      for (let turn = 0; turn < 5; turn++) await time.runMicrotasks();
      own.formatter.formatSoon(id);
      for (const { release, created } of creations) {
        await time.tickAsync(seconds * 1_000);
        release();
        await created;
      }
    }
    await own.formatter.idle();
    assertEquals(own.tags()[0], `denolith.fs=${state}`);
  }
  await using own = await setUp();
  const { promise: completion, resolve } = Promise.withResolvers<void>();
  own.machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    throw new StorageError("StillRunning", "running lvm: it still runs", { completion });
  };
  await assertRejects(() => own.volumes.create(namedRequest("two", 32n * MiB)), StorageError, "still runs");
  await own.format();
  assertEquals(own.tags(), ["denolith.fs=wanted"]);
  resolve();
});

Deno.test("a new volume is left to who stages it already, without an error", async () => {
  await using own = await setUp();
  const { promise, resolve } = Promise.withResolvers<void>();
  const staging = own.locks.run("staging", [volumeLock(id)], () => promise);
  assertEquals(await own.format(), "");
  resolve();
  await staging;
  assertEquals(own.errors, []);
});

Deno.test("who needs a volume that is being formatted waits for the end", async () => {
  await using own = await setUp();
  const release = own.hold("mke2fs");
  own.formatter.formatSoon(id);
  await waitUntil(() => own.tags().includes("denolith.fs=formatting"), "the formatting");
  const states: string[][] = [];
  const waiting = own.locks.run("deletion", [volumeLock(id)], () => Promise.resolve(void states.push(own.tags())));
  await flushPromises();
  assertEquals(states, []);
  release();
  await waiting;
  assertEquals(states, [["denolith.fs=formatted", "denolith.unmounted"]]);
});

Deno.test("a volume that cannot be formatted is left to its stage, and the error is reported", async () => {
  await using own = await setUp();
  own.group.lvs[0]!.content.signatures = [{ type: "xfs" }] as never;
  await own.format();
  assertEquals([own.errors.length, own.tags()], [1, ["denolith.fs=wanted"]]);
});
