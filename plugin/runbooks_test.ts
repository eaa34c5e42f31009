import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { pluginOver } from "../tests/fake/cluster/plugin_run.ts";
import { chapterCommand, chapterRows, chapters, chapterText } from "./runbooks.ts";

const PAGES = new URL("../docs/guides/runbooks/", import.meta.url);

const plugin = pluginOver({ url: "http://127.0.0.1:1" });

Deno.test("help runbook lists every chapter of the runbooks, with what one sees where the index of the runbooks says it", async () => {
  const titles = [...Deno.readDirSync(PAGES)].flatMap(({ name }) => {
    const text = Deno.readTextFileSync(new URL(name, PAGES)).replace(/^```[^]*?^```/gm, "");
    return [...text.matchAll(/^##+ (.*)$/gm)].map(([, title]) => title!);
  });
  const rows = new Map(chapterRows());
  const named = [...chapters()].filter(([, { page }]) => page.includes("runbooks/"));
  assertEquals(named.map(([, { title }]) => title).sort(), titles.sort(), "no two have the same name");
  assertEquals(named.filter(([name]) => !rows.has(name)), []);
  assertEquals(rows.get("missing-physical-volume"), "A disk of a volume group is missing");
  assertEquals(rows.get("no-active-controller"), "No active controller");
  const { status, output } = await plugin(["help", "runbook"]);
  assertEquals(status, 0);
  for (const [name] of rows) assertStringIncludes(output, `\n  ${name}`);
});

Deno.test("help runbook NAME prints the chapter, and refuses another name with those that there are", async () => {
  for (const name of ["lost-volume", "move/turn-transfers-on", "disks"]) {
    const { status, output, commands } = await plugin(["help", "runbook", name]);
    assertEquals([status, output, commands], [0, chapterText(name), []]);
  }
  const { status, errors } = await plugin(["help", "runbook", "lost-volumes"]);
  assertEquals(status, 2);
  const names = chapterRows().map(([name]) => name).join(", ");
  assertStringIncludes(errors, `help runbook: unknown chapter "lost-volumes": must be one of ${names}`);
  assertEquals((await plugin(["help", "runbook", "disks", "more"])).status, 2);
  assertEquals((await plugin(["help", "status", "disks"])).status, 2);
});

Deno.test("shells complete the names of chapters", async () => {
  const { output } = await plugin(["__complete", "help", "runbook", "move"]);
  assertEquals(output.split("\n").slice(0, 2), ["move", "move/turn-transfers-on"]);
  assertEquals((await plugin(["__complete", "help", "runbook", "move", ""])).output, ":4");
  assertEquals((await plugin(["__complete", "help", "status", ""])).output, ":4");
});

/** Returns the words of a text, without the marks of code, and without those of links that a terminal cannot follow. */
function wordsOf(text: string): string {
  return text.replace(/^ *```.*\n/gm, "").replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/\s+\[[\w/-]+\]/g, "")
    .replace(/\s+\(https?:[^)]*\)/g, "").replace(/\s+/g, " ").trim();
}

Deno.test("the text of a chapter has all words of the page, and no line but code, tables and addresses is too wide", () => {
  for (const [name, { markdown }] of chapters()) {
    const text = chapterText(name)!.replace(`\n\n[NAME]: ${chapterCommand("NAME")}`, "");
    assertEquals(wordsOf(text), wordsOf(markdown), name);
    const wide = text.split("\n").filter((line) => line.length > 100 && !/^(?: {4}|\||\S+$)/.test(line));
    assertEquals(wide, [], name);
  }
});

Deno.test("the text of a chapter has blocks of code and list items as such, and the names of chapters for links", () => {
  const text = chapterText("thin-pool-near-full")!;
  assertStringIncludes(text, "\n\n       # on the node\n       vgextend GROUP /dev/sdX\n\n");
  assertStringIncludes(text, "\n2. **Pools of the driver**");
  assertStringIncludes(text, "Read-only filesystems [filesystem-read-only] are");
  assert(text.endsWith("\n\n[NAME]: kubectl denolith help runbook NAME"));
  assertEquals(chapterText("nothing"), undefined);
  assertEquals(chapterText("toString"), undefined);
});
