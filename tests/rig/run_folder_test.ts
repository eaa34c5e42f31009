import { assert, assertEquals, assertMatch } from "@std/assert";
import { RunFolder } from "./run_folder.ts";
import { TempFolder } from "./temp_folder.ts";

const exists = (path: string) => Deno.stat(path).then(() => true, () => false);

Deno.test("RunFolder ends its processes and is gone when it is released", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-run-");
  let pid: number | undefined;
  {
    await using folder = await RunFolder.create(temp.file("run"));
    await folder.start("sleeper", "/bin/sleep", ["1000"]);
    pid = await folder.pid("sleeper");
    assert(pid !== undefined);
    assertEquals(await folder.names(), ["sleeper"]);
  }
  assertEquals(await exists(temp.file("run")), false);
  // gone, or dead and not yet buried by process 1
  assertMatch(await Deno.readTextFile(`/proc/${pid}/stat`).catch(() => ") Z"), /\) Z/);
});

Deno.test("RunFolder that is kept stays, can be opened by others, and be removed by them", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-run-");
  {
    await using made = await RunFolder.create(temp.file("run"));
    await made.start("sleeper", "/bin/sleep", ["1000"]);
    await made.keep();
  }
  const opened = RunFolder.open(temp.file("run"));
  assert(await opened.isRunning("sleeper"));
  await opened.remove();
  assertEquals(await opened.isRunning("sleeper"), false);
  assertEquals(await exists(temp.file("run")), false);
});

Deno.test("RunFolder takes no other process for its own, though it has the same id", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-run-");
  await using folder = await RunFolder.create(temp.file("run"));
  await Deno.writeTextFile(folder.file("stranger.pid"), `${Deno.pid} 1\n`);
  assertEquals(await folder.isRunning("stranger"), false);
});

Deno.test("RunFolder keeps the output of a process, and stops a single one", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-run-");
  await using folder = await RunFolder.create(temp.file("run"));
  await folder.start("one", "/bin/sh", ["-c", "echo said; exec sleep 1000"]);
  await folder.start("two", "/bin/sleep", ["1000"]);
  while ((await Deno.readTextFile(folder.log("one"))) !== "said\n") await folder.isRunning("one");
  await folder.stop("one");
  assertEquals(await folder.isRunning("one"), false);
  assertEquals(await folder.isRunning("two"), true);
});
