import { assert, assertEquals } from "@std/assert";
import { assertSnapshot } from "@std/testing/snapshot";
import { PLUGIN } from "../../plugin/subcommands.ts";
import type { Program } from "../command_line.ts";
import { DENOLITH } from "./denolith.ts";
import { defaultText, helpColumns, helpText } from "./text.ts";

/** Returns what has a help: the program, its subcommands, and its topics. */
function subjects({ commands, topics }: Program): (string | undefined)[] {
  return [undefined, ...Object.keys(commands), ...Object.keys(topics)];
}

for (const program of [DENOLITH, PLUGIN]) {
  // After a change of a help text: `deno task test -- cli/help --update`.
  for (const subject of subjects(program)) {
    const line = subject === undefined ? "--help" : `help ${subject}`;
    Deno.test(`the help of ${program.name} ${line} is as the snapshot says`, async (t) => {
      await assertSnapshot(t, helpText(program, subject), { serializer: String });
    });
  }

  Deno.test(`${program.name}: no help is wider than 100 columns, or than the terminal, or has blanks at the end of a line`, () => {
    for (const subject of subjects(program)) {
      for (const columns of [100, 80, 60]) {
        const lines = helpText(program, subject, columns).split("\n");
        // below 100 columns, an example or a word that cannot be broken may be wider
        const wide = lines.filter((line) => line.length > columns && (columns === 100 || / \S+ /.test(line)));
        const isExample = (line: string) => line.startsWith(`  ${program.name} `) || line.startsWith("Usage:");
        assertEquals(wide.filter((line) => columns === 100 || !isExample(line)), [], `${subject} ${columns}`);
        assertEquals(lines.filter((line) => line !== line.trimEnd()), []);
      }
    }
  });

  Deno.test(`${program.name}: no name is that of a command and of a topic, and every command has a summary of one line`, () => {
    assertEquals(Object.keys(program.topics).filter((topic) => topic in program.commands), []);
    for (const { summary, about } of Object.values(program.commands)) {
      assert(summary.length <= 80 && !/[.\n]$/.test(summary), summary);
      assert(/\.$/.test(about), about);
    }
  });

  Deno.test(`${program.name}: every variable that changes a default is in the topic environment`, () => {
    const named = program.topics["environment"]!.rows!.flatMap(([word]) => word.split(", "));
    const read = Object.values(program.commands).flatMap(({ flags }) => Object.values(flags))
      .flatMap(({ variable }) => variable ?? []);
    assertEquals(read.filter((variable) => !named.includes(variable)), []);
  });
}

Deno.test("the help is as wide as the terminal, between 60 and 100 columns", () => {
  assertEquals([undefined, 200, 100, 72, 10].map((columns) => helpColumns(columns)).slice(1), [100, 100, 72, 60]);
});

Deno.test("defaults in documents do not name this machine", () => {
  assertEquals(defaultText(DENOLITH.commands["node"]!.flags["node-name"]!), "the host name");
  assertEquals(defaultText(DENOLITH.commands["doctor"]!.flags["endpoint"]!), "unix:///run/denolith/csi.sock");
});
