import { assertEquals, assertRejects } from "@std/assert";
import { FakeClock } from "../../tests/fake/clock.ts";
import { nextTurn } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import type { Command, Exec, Output } from "../exec.ts";
import { SUSPENSION_SECONDS, whileSuspended } from "./suspension.ts";

const OK: Output = { code: 0, stdout: "", stderr: "" };

/** Runs commands that all succeed, and records those of dmsetup. find(1) runs until it is ended. */
class RecordingExec implements Exec {
  readonly commands: string[] = [];
  readonly deadlines: (number | undefined)[] = [];
  isGuarded = false;
  /** Ends find(1) before its time. */
  endGuard: (output: Output) => void = () => {};
  /** Replaces the output of a command. */
  answer: (command: string) => Promise<Output> | undefined = () => undefined;

  run({ program, args, signal, deadlineMs }: Command): Promise<Output> {
    if (program === "find") {
      this.isGuarded = true;
      return new Promise((resolve) => {
        this.endGuard = (output) => {
          this.isGuarded = false;
          resolve(output);
        };
        signal!.addEventListener("abort", () => this.endGuard(OK));
      });
    }
    const command = [program, ...args].join(" ");
    this.commands.push(command);
    this.deadlines.push(deadlineMs);
    return this.answer(command) ?? Promise.resolve(OK);
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }
}

/** Runs a body that takes too long, and asserts that the error settles when the body ends. */
async function assertOverdue(exec: RecordingExec, names: readonly string[], message: string): Promise<void> {
  const clock = new FakeClock();
  const body = Promise.withResolvers<void>();
  const rejected = assertRejects(
    () => whileSuspended(exec, names, () => body.promise, clock),
    StorageError,
    message,
  );
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  clock.advance(SUSPENSION_SECONDS * 1000);
  const error = await rejected;
  assertEquals(error.kind, "StillRunning");
  let isSettled = false;
  void error.completion!.then(() => isSettled = true);
  await nextTurn();
  assertEquals(isSettled, false);
  body.resolve();
  await error.completion;
}

Deno.test("devices are suspended one after the other, and resumed when the body fails", async () => {
  const exec = new RecordingExec();
  const failed = whileSuspended(exec, ["a", "b"], () => {
    assertEquals(exec.isGuarded, true);
    return Promise.reject(new StorageError("NoSpace", "full"));
  });
  await assertRejects(() => failed, StorageError, "full");
  const clear = "dmsetup clear a b";
  const resumed = ["dmsetup resume --noudevsync a", "dmsetup resume --noudevsync b"];
  assertEquals(exec.commands, [clear, "dmsetup suspend a", "dmsetup suspend b", clear, ...resumed]);
  assertEquals(exec.isGuarded, false);
});

Deno.test("devices that something else has resumed are left alone", async () => {
  const exec = new RecordingExec();
  await whileSuspended(exec, ["a"], (devices) => Promise.resolve(devices.forget("a")));
  assertEquals(exec.commands, ["dmsetup clear a", "dmsetup suspend a"]);
});

Deno.test("all devices are resumed when the body takes too long, and its end is awaited by others", async () => {
  const exec = new RecordingExec();
  await assertOverdue(exec, ["a", "b"], "not done within 10 s");
  assertEquals(exec.commands.slice(4), ["dmsetup resume --noudevsync a", "dmsetup resume --noudevsync b"]);
});

Deno.test("a device is resumed again that was suspended late, and no other is suspended after that", async () => {
  const exec = new RecordingExec();
  const clock = new FakeClock();
  const late = Promise.withResolvers<Output>();
  exec.answer = (command) => command === "dmsetup suspend b" ? late.promise : undefined;
  const overdue = whileSuspended(exec, ["a", "b", "c"], () => Promise.resolve(), clock);
  const rejected = assertRejects(() => overdue, StorageError, "not done within 10 s");
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  clock.advance(SUSPENSION_SECONDS * 1000);
  await rejected;
  late.resolve(OK);
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  assertEquals(exec.commands.slice(4), [
    "dmsetup resume --noudevsync a",
    "dmsetup resume --noudevsync b",
    "dmsetup resume --noudevsync b",
  ]);
});

Deno.test("the process that resumes devices goes on when the driver cannot resume them", async () => {
  const exec = new RecordingExec();
  exec.answer = (command) => command.startsWith("dmsetup resume") ? Promise.resolve({ ...OK, code: 1 }) : undefined;
  await assertRejects(() => whileSuspended(exec, ["a"], () => Promise.resolve()), StorageError, "dmsetup resume");
  assertEquals(exec.isGuarded, true);
});

Deno.test("a driver that cannot resume devices names what still runs, too", async () => {
  const exec = new RecordingExec();
  exec.answer = (command) => command.startsWith("dmsetup resume") ? Promise.resolve({ ...OK, code: 1 }) : undefined;
  await assertOverdue(exec, ["a"], "dmsetup resume");
});

Deno.test("no device stays suspended when the process that resumes devices ends soon after its start", async () => {
  const exec = new RecordingExec();
  exec.answer = async (command) => {
    if (command !== "dmsetup suspend a") return OK;
    exec.endGuard({ ...OK, code: 1, stderr: "find: unrecognized: ,\n" }); // as that of BusyBox does
    await nextTurn();
    return OK;
  };
  let isCalled = false;
  const failed = whileSuspended(exec, ["a", "b"], () => Promise.resolve(isCalled = true));
  await assertRejects(() => failed, StorageError, "ended early: exit 1 find: unrecognized: ,");
  assertEquals(isCalled, false);
  assertEquals(exec.commands.slice(1), ["dmsetup suspend a", "dmsetup clear a", "dmsetup resume --noudevsync a"]);
});

Deno.test("a device is suspended within what is left of the time, and a body that ends after it has failed", async () => {
  const exec = new RecordingExec();
  const clock = new FakeClock();
  exec.answer = (command) => {
    if (command === "dmsetup suspend a") clock.stall(4_000);
    return undefined;
  };
  const body = () => Promise.resolve(clock.stall(6_000));
  const error = await assertRejects(
    () => whileSuspended(exec, ["a", "b"], body, clock),
    StorageError,
    "not done within",
  );
  assertEquals([error.kind, exec.deadlines.slice(1, 3)], ["StillRunning", [10_000, 6_000]]);
  await error.completion;
});
