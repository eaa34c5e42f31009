import { assert, assertEquals, assertRejects } from "@std/assert";
import { stub } from "@std/testing/mock";
import { checkFlags, type Flags, parseCommandLine, type Program, UsageError } from "./command_line.ts";
import { DENOLITH } from "./help/denolith.ts";
import { PLUGIN } from "../plugin/subcommands.ts";

/** Returns the flags of a command line of a program. */
function flagsOf(program: Program, ...args: string[]): Flags {
  const request = parseCommandLine(program, args);
  assert(request.kind === "run");
  return request.flags;
}

/** What subcommands require. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {
  standalone: ["--volume-groups=data"],
  "forget-node": ["n1"],
  doctor: ["n1"],
  why: ["c1"],
  move: ["c1", "--to=n1"],
  import: ["c1"],
  drain: ["n1"],
  adopt: ["data"],
  completion: ["bash"],
};

for (const program of [DENOLITH, PLUGIN]) {
  for (const [name, subcommand] of Object.entries(program.commands)) {
    Deno.test(`${program.name} ${name}: every flag with a value has a check, which accepts its default`, async () => {
      const unchecked = Object.entries(subcommand.flags).filter(([, { value, check }]) =>
        value !== undefined && !check
      );
      assertEquals(unchecked, []);
      const required =
        program === DENOLITH && ["doctor", "move", "drain", "adopt", "import", "forget-node"].includes(name)
          ? []
          : REQUIRED[name] ?? [];
      await checkFlags(name, subcommand, flagsOf(program, name, ...required));
    });

    Deno.test(`${program.name} ${name}: flags name others that it has`, () => {
      for (const [flag, { needs, excludes, variable, defaultName }] of Object.entries(subcommand.flags)) {
        for (const other of [needs, excludes]) assert(other === undefined || other in subcommand.flags, flag);
        assert(variable === undefined || defaultName !== undefined, "documents do not depend on the environment");
      }
    });
  }
}

Deno.test("checkFlags() names every flag with a wrong value", async () => {
  const args = ["--http-address=banana", "--log-level=loud", "--kubelet-dir=/var/lib/kubelet"];
  const check = () => checkFlags("node", DENOLITH.commands.node!, flagsOf(DENOLITH, "node", ...args));
  const { message } = await assertRejects(check, UsageError);
  assertEquals(
    message,
    'node: --log-level "loud": must be debug, info, warning or error; ' +
      '--http-address "banana": must be HOST:PORT, :PORT or off',
  );
});

Deno.test("a wrong value from the environment is refused with the name of the variable; an empty one is none", async () => {
  let value = "tcp://x";
  using _env = stub(Deno.env, "get", (name: string) => name === "CSI_ENDPOINT" ? value : undefined);
  const check = () => checkFlags("doctor", DENOLITH.commands.doctor!, flagsOf(DENOLITH, "doctor"));
  const { message } = await assertRejects(check, UsageError);
  assertEquals(
    message,
    'doctor: --endpoint "tcp://x": must be unix:///PATH.sock, with an absolute path (from the environment: CSI_ENDPOINT)',
  );
  value = "";
  await check();
});

Deno.test("flags that are wrong together are refused", async () => {
  const long = "x".repeat(60);
  const cases: [Program, string[], string][] = [
    [DENOLITH, ["status", "--kubeconfig", "/k"], "status: --kubeconfig has no effect without --node-name"],
    [
      DENOLITH,
      ["node", "--kubelet-dir", `/${long}`, "--driver-name", long],
      `node: --kubelet-dir "/${long}": its socket`,
    ],
    [PLUGIN, ["orphans", "--yes"], "orphans: --yes has no effect without --remove"],
    [PLUGIN, ["orphans", "--allow-empty"], "orphans: --allow-empty has no effect without --remove"],
    [
      PLUGIN,
      ["orphans", "-w", "--remove", "abcdef-abcd-abcd-abcd-abcd-abcd-abcdef"],
      "orphans: --watch excludes --remove",
    ],
  ];
  for (const [program, [name = "", ...args], words] of cases) {
    const check = () => checkFlags(name, program.commands[name]!, flagsOf(program, name, ...args));
    assertEquals((await assertRejects(check, UsageError)).message.slice(0, words.length), words);
  }
});
