import { assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { type FakeShell, fakeShells, shellAnswer } from "../../tests/fake/lvm_shell.ts";
import { nextTurn } from "../clock.ts";
import { LvmShell, ShellLost } from "./shell.ts";

const LINE = { name: "lvchange", text: "lvchange data/v --addtag a\n" };

/** Starts a shell that a test plays. */
function start(play: (line: string, shell: FakeShell) => void) {
  const { start, shells } = fakeShells(play);
  return { shell: new LvmShell(start), fake: shells[0]! };
}

Deno.test("LvmShell: the error of a lost shell has what was printed during its last command, and only the end of it", async () => {
  const numbers = Array.from({ length: 500 }, (_, index) => `${index}`.padStart(4, " ")).join("");
  let lines = 0;
  const { shell } = start((_, fake) => {
    if (lines++ === 0) {
      fake.message("  WARNING: of the first command\n");
      return fake.report(shellAnswer("lvchange", 1));
    }
    fake.message(numbers);
    fake.exit(139);
  });
  await shell.run(LINE);
  await assertRejects(
    () => shell.run(LINE),
    ShellLost,
    `the shell of lvm was given up: it ended with status 139; it printed ${
      JSON.stringify(`${numbers.slice(-1000, -801)}…`)
    }`,
  );
});

Deno.test("LvmShell: messages of a failed command that do not come in time end the shell, and not the command", async () => {
  using time = new FakeTime();
  const { shell, fake } = start((line, fake) =>
    line === "lastlog" ? undefined : fake.report(shellAnswer("lvchange", 5))
  );
  const running = shell.run(LINE);
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  time.tick(5_000);
  assertEquals(await running, { code: 5, stdout: "", stderr: "  the messages of the command could not be read\n" });
  assertEquals(fake.isClosed, true);
  assertEquals(
    shell.lost?.message,
    "the shell of lvm was given up: its messages cannot be read: it is not of this command",
  );
});
