import { assert, assertEquals } from "@std/assert";
import { parseCommandLine } from "../command_line.ts";
import { PLUGIN, PLUGIN_COMMANDS, SHELLS } from "./commands.ts";
import { completionScript } from "./completion.ts";

/** Writes a kubectl that prints names, and returns what a shell prints for a script of its own language. */
async function outputOf(shell: string, script: string): Promise<string[]> {
  const folder = await Deno.makeTempDir({ prefix: "denolith-completion-" });
  try {
    const kubectl =
      '#!/bin/sh\ncase "$*" in\n"get lvmnodes --output name") echo lvmnode.lvm/worker-1; echo lvmnode.lvm/other ;;\n' +
      '"get persistentvolumeclaims --output name") echo persistentvolumeclaim/data ;;\nesac\n';
    await Deno.writeTextFile(`${folder}/kubectl`, kubectl, { mode: 0o755 });
    const { stdout, stderr } = await new Deno.Command(shell, {
      args: ["-c", script],
      env: { PATH: `${folder}:/usr/bin:/bin` },
    }).output();
    assertEquals(new TextDecoder().decode(stderr), "");
    return new TextDecoder().decode(stdout).split(/\s+/).filter((word) => word !== "");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Returns what bash completes for words, the last of which is incomplete. */
function bash(...words: string[]): Promise<string[]> {
  const list = ["kubectl-denolith", ...words].map((word) => `'${word}'`).join(" ");
  const call = `COMP_WORDS=(${list}); COMP_CWORD=${words.length}; _kubectl_denolith; echo "\${COMPREPLY[@]}"`;
  return outputOf("bash", `${completionScript("bash")}\n${call}`);
}

Deno.test("the completion of bash knows subcommands, flags, their values, and names in the cluster", async () => {
  assertEquals(await bash("st"), ["status"]);
  assertEquals(await bash(""), [...Object.keys(PLUGIN_COMMANDS), "help"]);
  assertEquals(await bash("volumes", "--n"), ["--node", "--namespace"]);
  assertEquals(await bash("status", "--output", ""), ["json", "yaml", "wide"]);
  assertEquals(await bash("status", "-o", "j"), ["json"]);
  assertEquals(await bash("volumes", "--node", "w"), ["worker-1"]);
  assertEquals(await bash("forget-node", ""), ["worker-1", "other"]);
  assertEquals(await bash("why", "d"), ["data"]);
  assertEquals(await bash("completion", "b"), ["bash"]);
  assertEquals(await bash("help", "sna"), ["snapshots"]);
});

Deno.test("the completion program of kubectl prints candidates, and that no files are meant", async () => {
  const script = completionScript("kubectl").replaceAll("'", "'\\''");
  const complete = (...words: string[]) =>
    outputOf("sh", `sh -c '${script}' kubectl_complete-denolith ${words.map((word) => `"${word}"`).join(" ")}`);
  assertEquals(await complete("vol"), ["volumes", ":4", "#", "no", "names", "of", "files"].slice(0, 2));
  assertEquals(await complete("forget-node", "w"), ["worker-1", ":4"]);
  assertEquals(await complete("status", "--output", "y"), ["yaml", ":4"]);
});

Deno.test("every script has every subcommand and flag", () => {
  for (const shell of SHELLS) {
    const script = completionScript(shell);
    for (const [name, { flags }] of Object.entries(PLUGIN_COMMANDS)) {
      assert(script.includes(name), `${shell}: ${name}`);
      for (const flag of Object.keys(flags)) assert(script.includes(flag), `${shell}: ${name} --${flag}`);
    }
  }
});

Deno.test("short flags stand for long ones, with a value after them or in the same word", () => {
  const flagsOf = (...args: string[]) => {
    const request = parseCommandLine(PLUGIN_COMMANDS, args, PLUGIN);
    assert(request.kind === "run");
    return request.flags;
  };
  const expected = { CLAIM: "x", namespace: "shop", output: "json", watch: "true", "driver-name": "lvm.denolith.dev" };
  assertEquals(flagsOf("why", "x", "-n", "shop", "-o", "json", "-w"), expected);
  assertEquals(flagsOf("why", "-nshop", "x", "-ojson", "-w"), expected);
  assertEquals(flagsOf("why", "x", "--namespace=shop", "-o=json", "--watch"), expected);
});
