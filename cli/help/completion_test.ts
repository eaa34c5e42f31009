import { assert, assertEquals } from "@std/assert";
import { Language, Parser } from "web-tree-sitter";
import { PLUGIN } from "../../plugin/subcommands.ts";
import { DENOLITH } from "./denolith.ts";
import { completionLines, completionScript, type NameSource } from "./completion.ts";

const SOURCE: NameSource = {
  names: (resource, flags) => Promise.resolve([`${resource}-1`, `${resource}-${flags["namespace"] ?? "2"}`]),
  contexts: () => Promise.resolve(["prod", "arn:aws:eks:x", "bad\nname", "bad\x1b[2J"]),
};

/** Returns the words that are proposed, without descriptions, and the directive. */
async function complete(program: typeof DENOLITH, ...words: string[]): Promise<string[]> {
  return (await completionLines(program, words, SOURCE)).split("\n").map((line) => line.split("\t")[0]!);
}

Deno.test("commands and topics are completed", async () => {
  assertEquals(await complete(DENOLITH, ""), [...Object.keys(DENOLITH.commands), "help", ":4"]);
  assertEquals(await complete(DENOLITH, "sta"), ["standalone", "status", ":4"]);
  assertEquals(await complete(DENOLITH, "-"), ["--help", "--version", ":4"]);
  assertEquals(await complete(DENOLITH, "help", "ex"), ["exit-status", ":4"]);
  assertEquals(await complete(DENOLITH, "--help", "forget"), ["forget-node", ":4"]);
  assertEquals(await complete(DENOLITH, "help", "node", ""), [":4"]);
  assertEquals(await complete(DENOLITH, "nonsense", ""), [":4"]);
  assertEquals(await complete(DENOLITH), [...Object.keys(DENOLITH.commands), "help", ":4"]);
});

Deno.test("a command and its flags are completed after flags that stand before it, and so are their values", async () => {
  const commands = await complete(PLUGIN, "");
  assertEquals(await complete(PLUGIN, "-n", "shop", ""), commands);
  assertEquals(await complete(PLUGIN, "--context=prod", "vol"), ["volumes", ":4"]);
  assertEquals(await complete(PLUGIN, "--context", "pr"), ["prod", ":4"]);
  assertEquals(await complete(PLUGIN, "-n", "shop", "--context=pr"), ["prod", ":4"]);
  assertEquals(await complete(PLUGIN, "-n", "shop", "why", ""), await complete(PLUGIN, "why", "-n", "shop", ""));
  assertEquals(await complete(PLUGIN, "-n", "shop", "volumes", "--na"), [":4"]);
  assertEquals(await complete(PLUGIN, "--nonsense", ""), commands);
});

Deno.test("flags are completed, once each, and with descriptions", async () => {
  assertEquals(await complete(DENOLITH, "status", "--"), [
    ...["--volume-groups", "--node-name", "--kubeconfig", "--thin-pool-overcommit", "--driver-name", "--json"],
    ...["--help", "--version", ":4"],
  ]);
  assertEquals(await complete(DENOLITH, "status", "--json", "--j"), [":4"]);
  assertEquals(await complete(PLUGIN, "volumes", "-n", "shop", "--na"), [":4"]);
  assertEquals(await complete(PLUGIN, "volumes", "-nshop", "--n"), ["--node", ":4"]);
  assertEquals(await completionLines(DENOLITH, ["version", "--js"]), "--json\tPrint JSON\n:4");
});

Deno.test("values of flags are completed, in a word of their own and after an equals sign", async () => {
  assertEquals(await complete(PLUGIN, "status", "--output", ""), ["json", "yaml", "wide", ":4"]);
  assertEquals(await complete(PLUGIN, "status", "-o", "j"), ["json", ":4"]);
  assertEquals(await complete(PLUGIN, "status", "--output=y"), ["yaml", ":4"]);
  assertEquals(await complete(DENOLITH, "node", "--log-level", "d"), ["debug", ":4"]);
  assertEquals(await complete(DENOLITH, "node", "--node-name", ""), [":4"]);
  assertEquals(await complete(DENOLITH, "node", "--kubeconfig", ""), [":0"]);
  assertEquals(await complete(DENOLITH, "node", "--kubelet-dir=/v"), [":16"]);
  assertEquals(await complete(DENOLITH, "node", "--nonsense=/v"), [":4"]);
  const list = ["controller", "--disable-controllers"];
  assertEquals(await complete(DENOLITH, ...list, "resizer,s"), ["resizer,snapshotter", ":4"]);
  assertEquals(await complete(DENOLITH, ...list, "resizer,"), [
    ...["resizer,provisioner", "resizer,snapshotter", "resizer,capacity", ":4"],
  ]);
});

Deno.test("names in the cluster are completed, in the namespace of the line; those of contexts, if they can be a line", async () => {
  assertEquals(await complete(PLUGIN, "volumes", "--node", ""), ["lvmnodes-1", "lvmnodes-2", ":4"]);
  assertEquals(await complete(PLUGIN, "why", "-n", "shop", ""), [
    ...["persistentvolumeclaims-1", "persistentvolumeclaims-shop", ":4"],
  ]);
  assertEquals(await complete(PLUGIN, "why", "-nshop", ""), await complete(PLUGIN, "why", "-n", "shop", ""));
  assertEquals(await complete(PLUGIN, "why", "x", ""), [":4"]);
  assertEquals(await complete(PLUGIN, "why", "pod/"), ["pod/pods-1", "pod/pods-2", ":4"]);
  assertEquals(await complete(PLUGIN, "why", "vs/"), ["vs/volumesnapshots-1", "vs/volumesnapshots-2", ":4"]);
  assertEquals(await complete(PLUGIN, "why", "constructor/"), [":4"]);
  assertEquals(await complete(PLUGIN, "why", "secret/"), [":4"]);
  assertEquals(await complete(PLUGIN, "nodes", "x", "lvmnodes-1"), ["lvmnodes-1", ":4"]);
  assertEquals(await complete(PLUGIN, "forget-node", "--yes", "lvmnodes-2"), ["lvmnodes-2", ":4"]);
  assertEquals(await complete(PLUGIN, "status", "--context", ""), ["prod", "arn:aws:eks:x", ":4"]);
  assertEquals(await complete(PLUGIN, "doctor", "--", "l"), ["lvmnodes-1", "lvmnodes-2", ":4"]);
});

Deno.test("where names cannot be read, nothing is proposed", async () => {
  const failing: NameSource = { names: () => Promise.reject(new Error("no")), contexts: () => Promise.reject("no") };
  assertEquals(await completionLines(PLUGIN, ["forget-node", ""], failing), ":4");
  assertEquals(await completionLines(PLUGIN, ["status", "--context", ""], failing), ":4");
  assertEquals(await completionLines(PLUGIN, ["forget-node", ""]), ":4");
});

Deno.test("what is proposed for a flag is accepted by its check", async () => {
  for (const { commands } of [DENOLITH, PLUGIN]) {
    for (const { argument, flags } of Object.values(commands)) {
      for (const { candidates, check } of [...Object.values(flags), ...argument === undefined ? [] : [argument]]) {
        const words = Array.isArray(candidates) ? candidates : [];
        for (const word of words) await check!(word, "it");
        assert(candidates === undefined || words.length > 0 || !Array.isArray(candidates));
      }
    }
  }
});

Deno.test("the script for PowerShell can be parsed, and runs no other program than the plugin, with its words as they are", async () => {
  await Parser.init();
  const grammar = new URL(import.meta.resolve("tree-sitter-powershell/tree-sitter-powershell.wasm"));
  const parser = new Parser().setLanguage(await Language.load(await Deno.readFile(grammar)));
  const script = completionScript(PLUGIN, "powershell");
  const { rootNode } = parser.parse(script)!;
  assertEquals(rootNode.descendantsOfType(["ERROR"]).map((node) => node?.text), []);
  assert(parser.parse(script.slice(0, -1))!.rootNode.hasError, "the parser sees errors");
  assertEquals(rootNode.descendantsOfType("command").map((node) => node?.text.split("\n")[0]), [
    "Register-ArgumentCompleter -Native -CommandName 'kubectl-denolith' -ScriptBlock {",
    "Select-Object -Skip 1",
    "& 'kubectl-denolith' '__complete' @words 2>$null",
  ]);
});
