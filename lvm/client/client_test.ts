import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { type Command, describeCommand, type Output } from "../exec.ts";
import { Lvm } from "./client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { flushPromises } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/wait_until.ts";

Deno.test("interruptedChanges() counts the changes of a group that were killed or failed, also late, and no refusals", async () => {
  const [group, other] = ["data", "other"].map((uuid) =>
    ({ name: uuid, uuid, pvPaths: [], lvs: [] }) as unknown as VolumeGroup
  );
  const late = Promise.withResolvers<Output>();
  const outputOf = (code: number, stderr = ""): Output => ({ code, stdout: "", stderr });
  const outputs: Record<string, () => Promise<Output>> = {
    killed: () => Promise.resolve(outputOf(137)),
    failed: () => Promise.resolve(outputOf(5, "  Failed to write VG data.")),
    refused: () => Promise.resolve(outputOf(5, "  Logical volume data/one in use.")),
    succeeded: () => Promise.resolve(outputOf(0)),
    late: () => Promise.reject(new StorageError("StillRunning", "lvm late", { completion: late.promise })),
  };
  let killed = 0;
  const exec = { run: ({ args }: Command) => outputs[args[0]!]!(), idle: () => Promise.resolve() };
  const lvm = new Lvm(exec, undefined, () => killed++);
  const counts: number[] = [];
  for (const name of Object.keys(outputs)) {
    await lvm.change(group!, [name]).catch(() => {});
    counts.push(lvm.interruptedChanges(group!));
  }
  late.resolve(outputOf(139));
  await new Promise((resolve) => setTimeout(resolve));
  counts.push(lvm.interruptedChanges(group!));
  assertEquals([counts, killed, lvm.interruptedChanges(other!)], [[1, 2, 2, 2, 2, 3], 2, 0]);
});

Deno.test("report() returns a report that started after the call, and waiting callers share it", async () => {
  const answers: PromiseWithResolvers<Output>[] = [];
  const run = () => {
    answers.push(Promise.withResolvers<Output>());
    return answers.at(-1)!.promise;
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const empty = { code: 0, stdout: '{"report": []}', stderr: "" };
  const first = lvm.report();
  const [second, third] = [lvm.report(), lvm.report()];
  assertEquals(answers.length, 1, "the second waits for the first to end");
  answers[0]!.resolve(empty);
  await first;
  const fourth = lvm.report();
  answers[1]!.resolve({ code: 5, stdout: "", stderr: "no" });
  for (const failed of [second, third, fourth]) {
    assertEquals(await failed.then(() => "", ({ kind }) => kind), "CommandFailed");
  }
  assertEquals(answers.length, 2, "one report for all calls meanwhile");
  const last = lvm.report();
  answers[2]!.resolve(empty);
  await last;
});

Deno.test("callers that changed something concurrently share one report, which starts after all changes", async () => {
  const runs: { args: readonly string[]; answer: PromiseWithResolvers<Output> }[] = [];
  const run = ({ args }: Command) => {
    runs.push({ args, answer: Promise.withResolvers<Output>() });
    return runs.at(-1)!.answer.promise;
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const group = { name: "vg", pvPaths: [], lvs: [] } as unknown as VolumeGroup;
  const made = [1, 2, 3].map(async () => {
    await lvm.change(group, ["lvcreate"]);
    return await lvm.reportAfterChanges();
  });
  const ok = { code: 0, stdout: '{"report": []}', stderr: "" };
  runs[1]!.answer.resolve(ok);
  runs[0]!.answer.resolve({ code: 5, stdout: "", stderr: "no" });
  assertEquals(await made[0]!.then(() => "", ({ kind }) => kind), "CommandFailed");
  assertEquals(runs.length, 3, "the third is not done yet");
  runs[2]!.answer.resolve(ok);
  await waitUntil(() => runs.length > 3, "the report");
  const [, , , report] = runs;
  report!.answer.resolve(ok);
  await Promise.all(made.slice(1));
  assertEquals(runs.map(({ args }) => args[0]), ["lvcreate", "lvcreate", "lvcreate", report!.args[0]]);
});

Deno.test("changes that end while the disks are flushed share the next flush, and end with it", async () => {
  const flushes: PromiseWithResolvers<Output>[] = [];
  const ok = { code: 0, stdout: "", stderr: "" };
  const run = ({ program }: Command) => {
    if (program !== "sync") return Promise.resolve(ok);
    flushes.push(Promise.withResolvers<Output>());
    return flushes.at(-1)!.promise;
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const group = { name: "data", pvPaths: ["/dev/sda"], lvs: [] } as unknown as VolumeGroup;
  const ended: number[] = [];
  const change = (number: number) => lvm.change(group, ["lvcreate"]).then(() => void ended.push(number));
  const first = change(1);
  await waitUntil(() => flushes.length === 1, "a flush");
  const others = [change(2), change(3)];
  await flushPromises();
  assertEquals([ended, flushes.length], [[], 1]);
  flushes[0]!.resolve(ok);
  await first;
  await waitUntil(() => flushes.length === 2, "another flush");
  assertEquals(ended, [1]);
  flushes[1]!.resolve(ok);
  await Promise.all(others);
  assertEquals([ended, flushes.length], [[1, 2, 3], 2]);
});

Deno.test("change() ends when the change is in the disks, not only in their caches, also after its deadline", async () => {
  const group = { name: "data", pvPaths: ["/dev/sda", "/dev/sdb"], lvs: [] } as unknown as VolumeGroup;
  const late = Promise.withResolvers<Output>();
  const commands: string[] = [];
  const run = (command: Command): Promise<Output> => {
    commands.push(describeCommand(command));
    if (command.args[0] !== "lvextend") return Promise.resolve({ code: 0, stdout: "", stderr: "" });
    return Promise.reject(new StorageError("StillRunning", "lvm lvextend", { completion: late.promise }));
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  await lvm.change(group, ["lvcreate"]);
  assertEquals(commands.splice(0), ["lvm lvcreate", "sync /dev/sda /dev/sdb"]);
  const error = await assertRejects(() => lvm.change(group, ["lvextend"]), StorageError);
  late.resolve({ code: 0, stdout: "", stderr: "" });
  await error.completion;
  assertEquals(commands, ["lvm lvextend", "sync /dev/sda /dev/sdb"]);
});

Deno.test("a report that was read while a change outlasted its deadline is not current, not even after its end", async () => {
  const group = { name: "data", pvPaths: [], lvs: [] } as unknown as VolumeGroup;
  const late = Promise.withResolvers<Output>();
  const ok = { code: 0, stdout: '{"report": []}', stderr: "" };
  const run = ({ args }: Command): Promise<Output> =>
    args[0] !== "lvcreate"
      ? Promise.resolve(ok)
      : Promise.reject(new StorageError("StillRunning", "lvm lvcreate", { completion: late.promise }));
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const error = await assertRejects(() => lvm.change(group, ["lvcreate"]), StorageError);
  const meanwhile = await lvm.report();
  assertEquals(lvm.isCurrent(meanwhile), false);
  late.resolve(ok);
  await error.completion;
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals([lvm.isCurrent(meanwhile), lvm.isCurrent(await lvm.report())], [false, true]);
});

Deno.test("a change is still running while the caches of its disks are flushed, and a flush is never killed", async () => {
  const group = { name: "data", pvPaths: ["/dev/sda"], lvs: [] } as unknown as VolumeGroup;
  const flushed = Promise.withResolvers<Output>();
  const late = Promise.withResolvers<Output>();
  const run = (command: Command): Promise<Output> => {
    assertEquals(command.mutates, true, describeCommand(command));
    const completion = command.program === "sync" ? flushed : command.args[0] === "lvextend" ? late : undefined;
    if (completion === undefined) return Promise.resolve({ code: 0, stdout: "", stderr: "" });
    return Promise.reject(
      new StorageError("StillRunning", describeCommand(command), { completion: completion.promise }),
    );
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const ended: string[] = [];
  for (const subcommand of ["lvcreate", "lvextend"]) {
    const error = await assertRejects(() => lvm.change(group, [subcommand]), StorageError);
    assertEquals(error.kind, "StillRunning");
    error.completion?.then(() => ended.push(subcommand));
  }
  late.resolve({ code: 0, stdout: "", stderr: "" });
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(ended, []);
  flushed.resolve({ code: 0, stdout: "", stderr: "" });
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(ended, ["lvcreate", "lvextend"]);
});

Deno.test("a change fails when no disk of its group could be flushed; one disk is enough for LVM's metadata", async () => {
  const group = { name: "data", pvPaths: ["/dev/sda", "/dev/sdb"], lvs: [] } as unknown as VolumeGroup;
  const broken = new Set(["/dev/sdb"]);
  const run = ({ program, args }: Command): Promise<Output> => {
    const failed = program === "sync" ? args.filter((path) => broken.has(path)) : [];
    const stderr = failed.map((path) => `sync: error syncing '${path}': Input/output error`).join("\n");
    return Promise.resolve({ code: failed.length > 0 ? 1 : 0, stdout: "", stderr });
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  await lvm.change(group, ["lvcreate"]);
  broken.add("/dev/sda");
  const error = await assertRejects(() => lvm.change(group, ["lvcreate"]), StorageError, "error syncing '/dev/sda'");
  assertEquals(error.kind, "CommandFailed");
  const programs: string[] = [];
  const only = { run: (command: Command) => (programs.push(command.program), run(command)), idle: lvm.exec.idle };
  await assertRejects(() => new Lvm(only).change({ ...group, pvPaths: ["/dev/sda"] }, ["lvcreate"]), StorageError);
  assertEquals(programs, ["lvm", "sync"], "a single disk is not tried again");
});

Deno.test("a change of a group waits while a body changes the group alone", async () => {
  const group = { name: "data", uuid: "g", pvPaths: [], lvs: [] } as unknown as VolumeGroup;
  const commands: string[] = [];
  const run = ({ args }: Command): Promise<Output> => {
    commands.push(args[0]!);
    return Promise.resolve({ code: 0, stdout: "", stderr: "" });
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  let other: Promise<void> | undefined;
  await lvm.runAlone([group], async (change) => {
    other = lvm.change(group, ["lvextend"]);
    await new Promise((resolve) => setTimeout(resolve));
    await change(group, ["lvcreate"]);
  });
  await other;
  assertEquals(commands, ["lvcreate", "lvextend"]);
});

Deno.test("a body that changes a group alone begins after a command in the group that outlasted its deadline", async () => {
  const [group, other] = ["data", "other"].map((name) =>
    ({ name, uuid: name, pvPaths: [], lvs: [] }) as unknown as VolumeGroup
  );
  const late = Promise.withResolvers<Output>();
  const events: string[] = [];
  const run = (): Promise<Output> =>
    Promise.reject(new StorageError("StillRunning", "lvm lvcreate", { completion: late.promise }));
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  await assertRejects(() => lvm.change(group!, ["lvcreate"]), StorageError);
  const body = lvm.runAlone([group!], () => Promise.resolve(events.push("body")));
  await lvm.runAlone([other!], () => Promise.resolve(events.push("body of another group")));
  await new Promise((resolve) => setTimeout(resolve));
  events.push("the command ends");
  late.resolve({ code: 0, stdout: "", stderr: "" });
  await body;
  await lvm.runAlone([group!], () => Promise.resolve(events.push("next body")));
  assertEquals(events, ["body of another group", "the command ends", "body", "next body"]);
});

Deno.test("changeSelected() returns whether LVM says that it changed something, and flushes the disks whatever it says", async () => {
  const group = { name: "data", pvPaths: ["/dev/sda"], lvs: [] } as unknown as VolumeGroup;
  const selected = async (output: Partial<Output>, options?: { isLast: boolean }) => {
    const programs: string[] = [];
    const run = ({ program }: Command): Promise<Output> => {
      programs.push(program);
      return Promise.resolve({ code: 0, stdout: "", stderr: "", ...(program === "lvm" && output) });
    };
    const lvm = new Lvm({ run, idle: () => Promise.resolve() });
    return [await lvm.changeSelected(group, ["lvremove"], options), programs.join(" ")];
  };
  for (
    const stdout of [
      '  Logical volume "a" successfully removed.\n',
      "  Logical volume data/a changed.\n",
      '  Volume group "data" successfully changed\n',
    ]
  ) {
    assertEquals(await selected({ stdout }), [true, "lvm sync"]);
    assertEquals(await selected({ stdout }, { isLast: false }), [true, "lvm"]);
  }
  assertEquals(await selected({}), [false, "lvm sync"]);
  assertEquals(await selected({ code: 5, stderr: '  Failed to find logical volume "data/a"' }), [false, "lvm"]);
  const error = await assertRejects(
    () => selected({ code: 5, stderr: "  data/a in use: not deactivating" }),
    StorageError,
  );
  assertEquals(error.kind, "InUse");
});

Deno.test("a change that waited for one body does not run during the next one", async () => {
  const group = { name: "data", uuid: "u", pvPaths: [], lvs: [] } as unknown as VolumeGroup;
  let running = 0;
  const run = async () => {
    running++;
    for (let turn = 0; turn < 40; turn++) await undefined;
    running--;
    return { code: 0, stdout: "", stderr: "" };
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const seen: number[] = [];
  // the next body may begin in any turn of the promises after the end of the first
  for (let turns = 0; turns < 12; turns++) {
    const gate = Promise.withResolvers<void>();
    const first = lvm.runAlone([group], () => gate.promise);
    const change = lvm.change(group, ["change"]);
    const next = (async () => {
      await gate.promise;
      for (let turn = 0; turn < turns; turn++) await undefined;
      await lvm.runAlone([group], () => Promise.resolve(void seen.push(running)));
    })().catch(() => {}); // the first has not ended yet
    gate.resolve();
    await Promise.all([first, next, change]);
  }
  assertEquals(new Set(seen), new Set([0]));
});

Deno.test("a change that lacks a disk which was added since the report is made after another report, and fails when it lacks one again", async () => {
  const machine = new FakeMachine();
  const data = machine.addGroup("data", 1n << 30n);
  const commands: string[] = [];
  let added = 0;
  const run = (command: Command) => {
    if (command.program === "lvm") commands.push(command.args[0]!);
    const number = data.pvs.length;
    if (command.args[0] !== "fullreport" && added-- > 0) {
      data.pvs.push({ path: `/dev/new${number}`, uuid: `new${number}` });
    }
    return machine.run(command);
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  const change = async (disks: number, ...args: string[]) => {
    const [group] = await lvm.report();
    commands.splice(0);
    added = disks;
    return await lvm.changeSelected(group!, args).then(String, ({ kind }) => kind) + ` ${commands.join(" ")}`;
  };
  const size = ["--size", `${32n << 20n}b`];
  assertEquals(
    await change(1, "lvcreate", "--yes", "--name", "one", ...size, "data"),
    "false lvcreate fullreport lvcreate",
  );
  const select = ["--select", `lv_uuid=${data.lvs[0]!.uuid}`, "data/one"];
  assertEquals(await change(1, "lvchange", "--addtag", "x", ...select), "true lvchange fullreport lvchange");
  assertEquals(await change(2, "lvremove", "--yes", ...select), "Busy lvremove fullreport lvremove");
  assertEquals([...data.lvs[0]!.tags], ["x"]);
  const [group] = await lvm.report();
  added = 1;
  const alone = lvm.runAlone([group!], (change) => change(group!, ["lvremove", "--yes", ...select]));
  assertEquals((await assertRejects(() => alone, StorageError)).kind, "Busy");
});

Deno.test("runAlone() lets LVM read the disks of the changed group alone, if devices on others may not answer", async () => {
  const group = {
    name: "data",
    uuid: "data",
    pvs: [],
    pvPaths: ["/dev/a", "/dev/b"],
    lvs: [],
  } as unknown as VolumeGroup;
  const commands: string[] = [];
  const run = (command: Command) => {
    if (command.program === "lvm") commands.push(describeCommand(command));
    return Promise.resolve({ code: 0, stdout: "", stderr: "" });
  };
  const lvm = new Lvm({ run, idle: () => Promise.resolve() });
  for (const readsOwnDisks of [false, true]) {
    await lvm.runAlone([group], (change) => change(group, ["lvchange", "data/one"]), { readsOwnDisks });
  }
  assertEquals(commands, ["lvm lvchange data/one", "lvm lvchange --devices /dev/a,/dev/b data/one"]);
});
