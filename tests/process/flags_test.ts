import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { EXIT } from "../../cli/command_line.ts";
import { DENOLITH } from "../../cli/help/denolith.ts";
import { PLUGIN } from "../../plugin/subcommands.ts";
import { wrongCommandLines } from "./wrong_flags.ts";
import type { JudgeAnswer, JudgeRequest } from "./judge.ts";

/** What the command line may read: the name of the host, and the one variable that has a default. */
const JUDGES_ONLY: Deno.PermissionOptionsObject = {
  ...{ read: false, write: false, net: false, run: false, ffi: false, import: false },
  ...{ env: ["CSI_ENDPOINT"], sys: ["hostname"] },
};

/** Runs command lines in a worker that may reach for nothing. */
class Judge implements Disposable {
  readonly #worker = new Worker(import.meta.resolve("./judge.ts"), {
    type: "module",
    deno: { permissions: JUDGES_ONLY },
  });

  run(program: string, args: readonly string[]): Promise<JudgeAnswer> {
    return new Promise((resolve, reject) => {
      this.#worker.onmessage = ({ data }) => resolve(data);
      this.#worker.onerror = (event) => {
        event.preventDefault();
        reject(new Error(event.message));
      };
      this.#worker.postMessage({ program, args } satisfies JudgeRequest);
    });
  }

  [Symbol.dispose](): void {
    this.#worker.terminate();
  }
}

for (const program of [DENOLITH, PLUGIN]) {
  Deno.test(`${program.name}: a wrong value of any flag is refused before anything is reached for`, async () => {
    using judge = new Judge();
    const lines = wrongCommandLines(program);
    assert(lines.length > 30, "the test sees them");
    for (const { args, beginning, allowed } of lines) {
      const { status, output, errors } = await judge.run(program.name, args);
      const expected = `${program.name}: ${beginning}`;
      assertEquals(errors.slice(0, expected.length), expected, errors);
      assertStringIncludes(errors, allowed);
      assertEquals([status, output, errors.split("\n").length], [EXIT.usage, "", 1], args.join(" "));
    }
  });
}

Deno.test("a right command line reaches for something, so that the worker without permissions can tell", async () => {
  using judge = new Judge();
  const cases: [string, string[], RegExp][] = [
    ["denolith", ["status", "--node-name", "n1", "--kubeconfig", "/k"], /read.*\/k|Requires read access/],
    ["kubectl denolith", ["status"], /kubectl: not found in PATH/],
  ];
  for (const [program, args, expected] of cases) {
    const { status, errors } = await judge.run(program, args);
    assertMatch(errors, expected);
    assertEquals(status, EXIT.failure);
  }
});

Deno.test("help, version and completion scripts need nothing at all", async () => {
  using judge = new Judge();
  for (const program of [DENOLITH, PLUGIN]) {
    const subjects = [...Object.keys(program.commands), ...Object.keys(program.topics)];
    const lines = [["--help"], ["--version"], ["completion", "bash"], ...subjects.map((name) => ["help", name])];
    for (const args of lines) {
      const { status, output, errors } = await judge.run(program.name, args);
      assertEquals([status, errors], [EXIT.success, ""], args.join(" "));
      assert(output !== "");
    }
    assertEquals((await judge.run(program.name, [])).status, EXIT.usage);
  }
});
