import { assert, assertEquals, assertMatch } from "@std/assert";
import { PLUGIN } from "../../plugin/subcommands.ts";
import { succeeds } from "../../tests/demo/command.ts";
import type { Program } from "../command_line.ts";
import { DENOLITH } from "./denolith.ts";
import { manPage } from "./man.ts";

const OPTIONS = { version: "1.2.3", seeAlso: ["lvm(8)", "kubectl(1)"] };

/** Macros of man(7) that the pages have. */
const MACROS = ["TH", "SH", "SS", "PP", "TP", "br", "nf", "fi", "RS", "RE"];

/** Returns what a reader sees of a line: without fonts, and with the characters that escapes stand for. */
function plain(line: string): string {
  const characters: Readonly<Record<string, string>> = { aq: "'", dq: '"', ga: "`", ha: "^", ti: "~" };
  return line.replace(/\\f[BIR]|\\&/g, "").replace(/\\\((..)/g, (_, name) => characters[name]!).replaceAll("\\-", "-")
    .replaceAll("\\e", "\\");
}

/** Runs a program over a page. @returns what it says on standard error */
async function complaints(page: string, command: string, args: readonly string[]): Promise<string> {
  const path = await Deno.makeTempFile({ suffix: ".1" });
  try {
    await Deno.writeTextFile(path, page);
    const { stdout, stderr } = await new Deno.Command(command, {
      args: [...args, path],
      env: { LC_ALL: "C.UTF-8", MANWIDTH: "80", MANROFFSEQ: "", MAN_KEEP_FORMATTING: "" },
    }).output();
    assert(new TextDecoder().decode(stdout).length > 1_000);
    return new TextDecoder().decode(stderr);
  } finally {
    await Deno.remove(path);
  }
}

const CHECKERS: readonly (readonly [command: string, args: readonly string[]])[] = [
  ["man", ["--warnings", "--local-file"]],
  ["groff", ["-man", "-Tutf8", "-ww"]],
];

for (const program of [DENOLITH, PLUGIN]) {
  const page = manPage(program, OPTIONS);

  Deno.test(`the manual page of ${program.name} has every command, flag and topic, and only macros of man(7)`, () => {
    const macros = page.split("\n").filter((line) => /^[.']/.test(line)).map((line) => line.slice(1).split(" ")[0]!);
    assertEquals(macros.filter((macro) => !MACROS.includes(macro)), []);
    assertMatch(page, /^\.TH \S+ 1 "" "denolith 1\.2\.3"\n\.SH NAME\n\S+ \\- /);
    const text = plain(page);
    for (const [name, { flags }] of Object.entries(program.commands)) {
      assert(text.includes(`\n.SS ${program.name} ${name}`), name);
      for (const flag of Object.keys(flags)) assert(text.includes(`--${flag}`), `${name} --${flag}`);
    }
    for (const heading of ["EXIT STATUS", "ENVIRONMENT", "FILTERS", "SEE ALSO"]) {
      assert(text.includes(`\n.SH ${heading}\n`));
    }
  });

  Deno.test(`the manual page of ${program.name} is ASCII, has no bare hyphen, and no escape that man does not know`, () => {
    assertMatch(page, /^[\n\x20-\x7e]*$/);
    const text = page.split("\n").filter((line) => !line.startsWith(".TH")).join("\n");
    assertEquals([...text.matchAll(/(?<!\\)-/g)].length, 0);
    assertEquals(text.replace(/\\(?:f[BIR]|-|e|&|\((?:aq|dq|ga|ha|ti))/g, "").includes("\\"), false);
  });

  for (const [command, args] of CHECKERS) {
    const isThere = await succeeds(command, ["--version"]);
    const skipped = isThere ? "" : ` (skipped: ${command} is not installed)`;
    Deno.test(`${command} reads the manual page of ${program.name} without a warning${skipped}`, {
      ignore: !isThere,
    }, async () => {
      assertEquals(await complaints(page, command, args), "");
    });
  }
}

Deno.test("what troff takes for something else is escaped", () => {
  const program: Program = {
    ...{ name: "x", executable: "x", summary: "x: a-b", topics: {} },
    commands: { go: { summary: "", about: ".a 'b' \"c\" ~^`\\", flags: {} } },
  };
  assertMatch(manPage(program, OPTIONS), /\n\\&\.a \\\(aqb\\\(aq \\\(dqc\\\(dq \\\(ti\\\(ha\\\(ga\\e\n/);
});

Deno.test("a page has titles in capitals, flags with their values, and sentences that end", () => {
  const program: Program = {
    ...{ name: "x", executable: "kubectl-x", summary: "x: does things" },
    topics: { "exit-status": { summary: "", about: "What it ends with", rows: [["0", "success"], ["1", "Really?"]] } },
    commands: {
      go: {
        ...{ summary: "", about: "Goes.", argument: { name: "WHERE", help: "the place" } },
        flags: { speed: { value: "N", help: "How fast", short: "s" }, back: { help: "Also comes back!" } },
      },
    },
  };
  const lines = plain(
    manPage({ ...program, topics: { ...program.topics, "my-topic": { summary: "", about: "About." } } }, OPTIONS),
  )
    .split("\n");
  assertEquals(lines.slice(0, 3), ['.TH KUBECTL-X 1 "" "denolith 1.2.3"', ".SH NAME", "kubectl-x - does things"]);
  const after = (line: string, count: number) => lines.slice(lines.indexOf(line) + 1).slice(0, count);
  assertEquals(after(".SH MY TOPIC", 2), [".PP", "About."]);
  assertEquals(after("WHERE", 1), ["the place."]);
  assertEquals(after("1", 1), ["Really?"]);
  assertEquals(after("the place.", 6), [".TP", "-s, --speed N", "How fast.", ".TP", "--back", "Also comes back!"]);
});
