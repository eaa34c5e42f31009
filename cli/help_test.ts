import { stub } from "@std/testing/mock";
import { assertSnapshot } from "@std/testing/snapshot";
import { parseCommandLine } from "./command_line.ts";
import { SUBCOMMANDS } from "./commands.ts";

/** Returns a help text as on a machine with the name HOSTNAME and without environment variables. */
function helpText(...args: string[]): string {
  using _hostname = stub(Deno, "hostname", () => "HOSTNAME");
  using _env = stub(Deno.env, "get", () => undefined);
  const request = parseCommandLine(SUBCOMMANDS, args);
  if (request.kind !== "help") throw new Error(`${args.join(" ")} asks for no help`);
  return request.text;
}

// After a change of a help text: `deno task test -- cli/help --update`.
for (const args of [["--help"], ...Object.keys(SUBCOMMANDS).map((name) => [name, "--help"])]) {
  Deno.test(`the help of denolith ${args.join(" ")} is as the snapshot says`, async (t) => {
    await assertSnapshot(t, helpText(...args), { serializer: String });
  });
}
