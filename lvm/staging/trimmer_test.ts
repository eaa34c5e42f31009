import { assert, assertEquals, assertMatch } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { failure, type FakeLv, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { type Command, describeCommand, type Output } from "../exec.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import { volumeTags } from "../model/tags.ts";
import { nextTrimTime, type TrimPolicy } from "../settings/trim.ts";
import { Trimmer } from "./trimmer.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const ONE = volumeIdOf("one");

/**
 * Creates a machine with mounted volumes with a trim policy, and a trimmer whose calls of the listener are recorded.
 */
async function harness(trim: TrimPolicy = { discard: false, intervalMs: DAY }, ids = [ONE]) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  for (const id of ids) {
    const format = { state: "formatted", type: "ext4", uuid: crypto.randomUUID() } as const;
    const tags = volumeTags("test", { id, format, mkfsOptions: [], shared: true, erase: "zero", trim });
    const create = ["lvcreate", "--yes", "--size", `${32 << 20}b`, "--name", volumeLvName(id), "data"];
    const addTags = tags.flatMap((tag) => ["--addtag", tag]);
    await machine.run({ program: "lvm", args: [...create, ...addTags], mutates: true });
  }
  const mount = (lv: FakeLv, readOnly = false) => {
    lv.content.filesystemBytes = lv.size;
    const [source, deviceNumber] = [`/dev/mapper/data-${lv.name.replaceAll("-", "--")}`, `253:${lv.minor}`];
    machine.mounts.push({ target: `/mnt/${lv.name}`, fsType: "ext4", root: "/", readOnly, deviceNumber, source, lv });
  };
  const unmount = () => void machine.mounts.splice(machine.mounts.findIndex(({ lv }) => lv !== undefined));
  for (const lv of group.lvs) mount(lv);

  const commands: string[] = [];
  const answerWith = (answer: (command: Command) => Promise<Output> | Output | undefined) => {
    machine.fault = (command) => {
      commands.push(describeCommand(command).split(" ").slice(0, 2).join(" "));
      return answer(command);
    };
  };
  answerWith(() => undefined);
  const [clock, reported, errors] = [new FakeClock(), [] as string[], [] as unknown[]];
  const start = () => {
    const lvm = new Lvm(machine, (groups) => trimmer.observe(groups));
    const trimmer = new Trimmer({
      lvm,
      driver: "test",
      onTrimmed: ({ lv }, bytes) => reported.push(`${lv.name} ${bytes}`),
      onTrimFailed: (_, why, failures) => reported.push(`${failures}: ${why}`),
      onTrimUnsupported: ({ id }) => reported.push(`unsupported ${id}`),
      onError: (error) => errors.push(error),
      clock,
    });
    return { lvm, trimmer };
  };
  const { lvm, trimmer } = start();
  /** Reads a report, advances the clock, and returns the commands that were run meanwhile. */
  const pass = async (ms: number) => {
    await lvm.report();
    commands.length = 0;
    await clock.advance(ms);
    await trimmer.idle();
    return commands.splice(0);
  };
  return { machine, group, mount, unmount, lvm, trimmer, start, clock, reported, errors, commands, answerWith, pass };
}

const ONE_TRIM = ["lvm fullreport", "fstrim --verbose"];
const DONE = `${volumeLvName(ONE)} ${(32 << 20) - 4096}`;

/** Creates an fstrim that runs until it is ended, and a promise that it has started. */
function endlessTrim() {
  const started = Promise.withResolvers<void>();
  const answer = ({ program, signal }: Command): Promise<Output> | undefined => {
    if (program !== "fstrim") return undefined;
    started.resolve();
    return new Promise((_, reject) => signal!.addEventListener("abort", () => reject(new Error("ended"))));
  };
  return { answer, started: started.promise };
}

Deno.test("Trimmer reads nothing without a volume that is trimmed periodically", async () => {
  const s = await harness({ discard: true });
  assertEquals([await s.pass(30 * DAY), s.clock.pendingTimers], [[], 0]);
});

Deno.test("Trimmer runs fstrim once in the interval, and reports its result", async () => {
  const s = await harness();
  assertEquals(await s.pass(DAY), ONE_TRIM);
  assertEquals(s.reported, [DONE]);
  assertEquals(s.trimmer.lastSuccesses().map(({ volume, at }) => [volume.id, at > 0]), [[ONE, true]]);
  assertEquals(await s.pass(DAY), ONE_TRIM);
  assertEquals([s.reported.length, s.errors], [2, []]);
  s.group.lvs.length = 0;
  assertEquals([await s.pass(DAY), s.clock.pendingTimers], [[], 0], "it was deleted");
});

Deno.test("Trimmer: a start of the driver neither repeats nor delays it", async () => {
  const s = await harness();
  await s.lvm.report();
  await s.pass(s.clock.msUntilNextTimer);
  assertEquals(s.reported, [DONE]);
  await s.trimmer.stop();
  const next = s.start();
  await next.lvm.report();
  const now = s.clock.date().getTime();
  assertEquals(now + s.clock.msUntilNextTimer, nextTrimTime(ONE, DAY, now));
  await next.trimmer.stop();
});

Deno.test("Trimmer runs no command for a volume that is not in use when it is due, and trims it when it is in use again", async () => {
  const s = await harness();
  s.unmount();
  assertEquals(await s.pass(DAY), []);
  s.mount(s.group.lvs[0]!, true);
  assertEquals(await s.pass(0), ONE_TRIM.slice(0, 1), "it is mounted read-only");
  s.unmount();
  s.mount(s.group.lvs[0]!);
  assertEquals(await s.pass(HOUR), ONE_TRIM);
  assertEquals(s.reported, [DONE]);
});

Deno.test("Trimmer does not trim a volume while it has COW snapshots, or is suspended", async () => {
  const s = await harness();
  const [lv] = s.group.lvs;
  const cut = ["lvcreate", "--yes", "--snapshot", "--size", `${8 << 20}b`, "--name", "cut", `data/${lv!.name}`];
  await s.machine.run({ program: "lvm", args: cut, mutates: true });
  assertEquals(await s.pass(DAY), []);
  s.group.lvs.pop();
  lv!.suspended = true;
  assertEquals(await s.pass(0), []);
  lv!.suspended = false;
  assertEquals(await s.pass(0), ONE_TRIM);
});

Deno.test("Trimmer trims one volume at a time, also when all are due at once", async () => {
  const ids = Array.from({ length: 5 }, (_, index) => volumeIdOf(`${index}`));
  const s = await harness(undefined, ids);
  s.unmount();
  await s.pass(DAY);
  for (const lv of s.group.lvs) s.mount(lv);
  let [running, max] = [0, 0];
  s.answerWith(async ({ program }) => {
    if (program === "fstrim") max = Math.max(max, ++running);
    await Promise.resolve();
    if (program === "fstrim") running--;
    return undefined as never;
  });
  const commands = await s.pass(0);
  assertEquals([commands.filter((command) => command.startsWith("fstrim")).length, max], [5, 1]);
  assertEquals(commands.filter((command) => command === ONE_TRIM[0]).length, 1, "one report for all");
});

Deno.test("Trimmer reports once that a device supports no discards, and notices when it does", async () => {
  const s = await harness();
  s.machine.host.discards = false;
  await s.pass(DAY);
  await s.pass(DAY);
  assertEquals(s.reported.splice(0), [`unsupported ${ONE}`]);
  s.machine.host.discards = true;
  await s.pass(DAY);
  s.machine.host.discards = false;
  await s.pass(DAY);
  assertEquals(s.reported, [DONE, `unsupported ${ONE}`]);
});

Deno.test("Trimmer tries again within the hour after a failure, and counts the failures in a row", async () => {
  const s = await harness();
  s.answerWith(({ program }) =>
    program === "fstrim" ? failure(1, "fstrim: FITRIM ioctl failed: Input/output error") : undefined
  );
  await s.lvm.report();
  await s.pass(s.clock.msUntilNextTimer);
  await s.pass(HOUR);
  assertEquals(s.reported.length, 2);
  assertMatch(s.reported[1]!, /^2: fstrim --verbose \/mnt\/vol-\w+: exit 1: .*Input\/output error/);
  s.machine.hasMountTable = false;
  s.answerWith(({ program }) => program === "findmnt" ? failure(1, "findmnt: cannot read") : undefined);
  await s.pass(HOUR);
  assertEquals(
    [s.reported.length, s.errors.length],
    [2, 1],
    "a mount table that cannot be read is no failure of the volume",
  );
  s.answerWith(() => undefined);
  await s.pass(HOUR);
  assertEquals(s.reported.slice(2), [DONE]);
  const now = s.clock.date().getTime();
  assertEquals(now + s.clock.msUntilNextTimer, nextTrimTime(ONE, DAY, now), "it went well");
});

Deno.test("Trimmer: pause() ends the fstrim of a volume at once, and the volume is trimmed when it is in use again", async () => {
  const s = await harness();
  const { answer, started } = endlessTrim();
  s.answerWith(answer);
  const passed = s.pass(DAY);
  await started;
  {
    using _other = await s.trimmer.pause(volumeIdOf("another"));
    assertEquals(s.commands.length, ONE_TRIM.length, "that is nothing to this one");
    using _pause = await s.trimmer.pause(ONE);
    await passed;
    s.answerWith(() => undefined);
    assertEquals(await s.pass(HOUR), ONE_TRIM.slice(0, 1), "nothing is begun meanwhile");
  }
  assertEquals([s.reported, s.errors], [[], []], "that is no failure");
  assertEquals(await s.pass(HOUR), ONE_TRIM);
  assertEquals(s.reported, [DONE]);
});

Deno.test("Trimmer: stop() ends the fstrim that is running", async () => {
  const s = await harness();
  const { answer, started } = endlessTrim();
  s.answerWith(answer);
  const passed = s.pass(DAY);
  await started;
  await s.trimmer.stop();
  await passed;
  assertEquals([s.reported, s.errors, s.clock.pendingTimers], [[], [], 0]);
});

Deno.test("Trimmer keeps an interval that is longer than the longest timer", async () => {
  const s = await harness({ discard: false, intervalMs: 90 * DAY });
  const untilNext = () => nextTrimTime(ONE, 90 * DAY, s.clock.date().getTime()) - s.clock.date().getTime();
  assertEquals(await s.pass(untilNext()), ONE_TRIM);
  assert(untilNext() > 25 * DAY, "longer than the longest timer");
  assertEquals(await s.pass(untilNext() - 1), []);
  assertEquals(await s.pass(1), ONE_TRIM);
});

Deno.test("Trimmer does not trim a volume that is paused while the mount table is read: another filesystem may be there", async () => {
  const s = await harness();
  let paused: Promise<Disposable> | undefined;
  s.machine.hasMountTable = false;
  s.answerWith(({ program }) => {
    if (program === "findmnt") paused = s.trimmer.pause(ONE);
    return undefined;
  });
  assertEquals((await s.pass(DAY)).filter((command) => command !== ONE_TRIM[0]), ["findmnt --json"]);
  (await paused!)[Symbol.dispose]();
});

Deno.test("Trimmer runs fstrim as a command that may be killed: it hangs as long as its disk", async () => {
  const s = await harness();
  const marks: boolean[] = [];
  s.answerWith(({ program, mutates }) => void (program === "fstrim" && marks.push(mutates)));
  await s.pass(DAY);
  assertEquals(marks, [false]);
});
