import { assert, assertEquals, assertMatch } from "@std/assert";
import type { WorkerRequest } from "./cli/sandbox.ts";
import { UsageError } from "./cli/command_line.ts";
import { StorageError } from "./base/error.ts";
import { execute } from "./cli/worker.ts";
import { main } from "./main.ts";
import { collectPrinted, SubcommandFolder } from "./tests/fake/subcommand.ts";

/** Runs a command line, with the bodies of subcommands in this process. */
async function run(...args: string[]) {
  const sandboxed: WorkerRequest[] = [];
  await using printed = collectPrinted();
  const end = new AbortController();
  const status = await main(args, {
    runInSandbox: async (request, options) => {
      assertEquals([options.end, options.module], [end.signal, new URL("cli/worker.ts", import.meta.url).href]);
      assert(Array.isArray((options.permissions as Deno.PermissionOptionsObject).run));
      sandboxed.push(request);
      return await execute(request, end.signal);
    },
    waitForSignals: () => end.signal,
  });
  return { status, output: printed.output.join("\n"), log: printed.log.join("\n"), sandboxed };
}

Deno.test("main() prints help that is asked for with status 0, and help in the place of a command with status 2", async () => {
  const asked = await run("--help");
  assertMatch(asked.output, /\nUsage: denolith COMMAND /);
  assertEquals([asked.status, asked.log], [0, ""]);
  const none = await run();
  assertEquals([none.status, none.output], [2, asked.output]);
});

Deno.test("main() runs a subcommand that accesses nothing without a sandbox", async () => {
  const { status, output, sandboxed } = await run("version");
  assertEquals([status, sandboxed], [0, []]);
  assertMatch(output, /^denolith \d+\.\d+\.\d+ \(deno \d+\.\d+\.\d+, V8 /);
  assertEquals(Object.keys(JSON.parse((await run("--version", "--json")).output)), ["denolith", "deno", "v8"]);
});

Deno.test("main() runs other subcommands in the sandbox, and prints their errors", async () => {
  const { status, log, sandboxed } = await run("status", "--node-name", "n1", "--kubeconfig", "/nowhere");
  assertMatch(log, /^denolith: reading \/nowhere: /);
  assertEquals([status, sandboxed], [1, []], "it cannot tell the permissions");
  await using folder = await SubcommandFolder.create("http://127.0.0.1:1");
  const failed = await run("status", "--node-name", "n1", "--kubeconfig", folder.kubeconfig);
  assertEquals(failed.sandboxed.map(({ name, flags }) => [name, flags["node-name"]]), [["status", "n1"]]);
  assertEquals(failed.status, 1);
});

Deno.test("main() checks all flags first, and ends with status 2 for a wrong one, wherever it is found", async () => {
  const wrong = await run("standalone", "--volume-groups", "/(/", "--log-level", "loud");
  assertMatch(wrong.log, /^denolith: standalone: .*--volume-groups "\/\(\/"[^]*--log-level "loud"/);
  assertEquals([wrong.status, wrong.sandboxed], [2, []]);
  const missing = await run("standalone", "--log-level", "loud");
  assertMatch(missing.log, /--volume-groups is required; "denolith status" lists .*; --log-level "loud": must be/);
  assertEquals([missing.status, missing.sandboxed], [2, []]);
});

Deno.test("main() ends with status 2 for what the user asked wrongly, and with status 1 for what failed", async () => {
  const errors: [unknown, number][] = [
    [new UsageError("no such flag"), 2],
    [new StorageError("InvalidArgument", "no flag is to blame"), 1],
    [new StorageError("Unavailable", "lvm: not found"), 1],
    [Object.assign(new Error("it broke"), { kind: "InvalidArgument" }), 1],
    ["a text", 1],
  ];
  for (const [error, expected] of errors) {
    await using printed = collectPrinted();
    const status = await main(["doctor"], {
      runInSandbox: () => Promise.reject(error),
      waitForSignals: () => new AbortController().signal,
    });
    assertEquals([status, printed.log], [expected, [`denolith: ${error instanceof Error ? error.message : error}`]]);
  }
});
