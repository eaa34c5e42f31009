import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { productCommands } from "../../tests/fake/product_commands.ts";
import { REPORT_CONFIG } from "../model/report_command.ts";
import { shellLine } from "./line.ts";

/** Splits a line as LVM does (`lvm_split`), at the first end of a line. */
function split(line: string): string[] {
  const words: string[] = [];
  const text = line.split(/[\r\n]/)[0]!;
  for (let at = 0; at < text.length;) {
    if (/\s/.test(text[at]!)) {
      at++;
      continue;
    }
    if (text[at] === "#") break;
    const quote = /['"]/.test(text[at]!) ? text[at++]! : undefined;
    let end = at;
    while (end < text.length && (quote === undefined ? !/\s/.test(text[end]!) : text[end] !== quote)) end++;
    words.push(text.slice(at, end));
    at = end + 1;
  }
  return words;
}

const UUID = "G9n2Ho-nTlc-N96d-nhDe-pQaW-PujP-WM7dlK";

async function commands(): Promise<string[][]> {
  const found = productCommands({ group: "data", pv: "/dev/sda", uuidOf: () => UUID });
  return await Promise.all(found.map(async (args) => typeof args === "function" ? await args() : [...args]));
}

/** Returns the words without the options that the shell needs on no line. */
function meaning(args: readonly string[], isLine: boolean): string[] {
  const words = [...args];
  const drop = (option: string, value: string) => {
    const index = words.findIndex((word, index) => word === option && words[index + 1] === value);
    if (index >= 0) words.splice(index, 2);
  };
  if (!isLine) drop("--reportformat", "json");
  if (!isLine) drop("--config", REPORT_CONFIG);
  return words.toSorted();
}

Deno.test("shellLine(): commands of the driver are lines with the same words", async () => {
  const refused: string[] = [];
  for (const args of await commands()) {
    const line = shellLine(args);
    if (line === undefined) refused.push(args.join(" "));
    else {
      assertEquals(line.name, args[0]);
      assertEquals(line.shell, args[0] === "fullreport" ? "reports" : "changes");
      assertEquals(meaning(split(line.text), true), meaning(args, false));
      assert(line.text.endsWith("\n") && line.text.indexOf("\n") === line.text.length - 1);
    }
  }
  assertEquals([...new Set(refused.map((text) => text.replace(/data.*| y.*| n.*|d=.*/, "")))], [
    "lvconvert --yes --splitsnapshot ",
    "lvchange --activate",
    "lvchange --yes --activate",
    "lvchange --refresh ",
    "lvremove --yes --select lv_uui",
    "lvremove --select lv_uui",
  ]);
});

Deno.test("shellLine(): settings of the driver are words of the line, with those of the command", () => {
  const config = "activation/udev_sync=0 activation/udev_rules=0";
  const words = (args: readonly string[]) => split(shellLine(args, config)!.text);
  assertEquals(words(["lvextend", "--size", "1b", "--config", "a/b=0", "data/v"]), [
    ...["lvextend", "data/v", "--config", `a/b=0 ${config}`, "--size", "1b"],
  ]);
  assertEquals(words(["fullreport", "--config", REPORT_CONFIG, "--units", "b"]), [
    ...["fullreport", "--config", config, "--units", "b"],
  ]);
  assertEquals(split(shellLine(["fullreport", "--units", "b", "data"])!.text), ["fullreport", "--units", "b", "data"]);
});

Deno.test("shellLine(): commands that only a process can run are refused", () => {
  const refused: string[][] = [
    [],
    ["lvs"],
    ["lvmconfig", "--type", "full"],
    ["quit"],
    ["lvm", "lvremove"],
    ["toString"],
    ["lvremove", "--select", "lv_uuid=x", "data/v", "--yes"],
    ["lvconvert", "--yes", "--splitsnapshot", "data/v"],
    ["lvchange", "--devices", "/dev/sda", "--addtag", "a", "data/v"],
    ["lvchange", "--addtag=a", "data/v"],
    ["lvchange", "-ay", "data/v"],
    ["lvchange", "--activate", "y", "data/v"],
    ["lvchange", "--refresh", "data/v"],
    ["lvchange", "data/v", "--addtag"],
    ["fullreport", "--reportformat", "basic"],
    ["fullreport", "data", "data"],
    ["lvchange", "--addtag", "a\nlvremove --yes data", "data/v"],
    ["lvchange", "--addtag", "a\rb", "data/v"],
    ["lvchange", "--addtag", "ä", "data/v"],
    ["lvchange", "--addtag", "a\\b", "data/v"],
    ["lvchange", "--addtag", 'a"b', "data/v"],
    ["lvchange", "--addtag", "a b'c", "data/v"],
    ["lvchange", "--addtag", "x".repeat(4096), "data/v"],
    ["lvchange", ...Array.from({ length: 31 }, (_, i) => ["--addtag", `t${i}`]).flat(), "data/v"],
  ];
  for (const args of refused) assertEquals(shellLine(args), undefined, args.join(" "));
  const longest = [
    "lvchange",
    ...Array.from({ length: 30 }, (_, i) => ["--addtag", `t${i}`]).flat(),
    "data/v",
    "data/w",
  ];
  assertEquals(split(shellLine(longest)!.text).length, 63);
  const large = (length: number) => shellLine(["lvchange", "data/v", "--addtag", "x".repeat(length)])?.text.length;
  assertEquals([large(4096 - 26), large(4096 - 25)], [4096, undefined]);
});

Deno.test("shellLine(): LVM reads the words of any line as they were given, or the command is refused", () => {
  const word = fc.string({ minLength: 0, maxLength: 12, unit: fc.constantFrom(..."ab #'\"\\-=/\n\r\t\0é") });
  fc.assert(
    fc.property(fc.array(word, { maxLength: 6 }), (tags) => {
      const line = shellLine(["lvchange", ...tags.flatMap((tag) => ["--addtag", tag]), "data/v"]);
      if (line === undefined) return;
      assertEquals(split(line.text), ["lvchange", "data/v", ...tags.flatMap((tag) => ["--addtag", tag])]);
    }),
    { numRuns: 300 },
  );
});

/** The options that make LVM accept a command, by its name. */
const NEEDED: Readonly<Record<string, readonly string[]>> = {
  lvchange: ["--addtag", "--deltag", "--permission"],
  lvcreate: ["--size", "--snapshot", "--virtualsize"],
  lvextend: ["--size", "--poolmetadatasize"],
  vgchange: ["--addtag", "--deltag"],
};

Deno.test("a line that is cut short at any byte names nothing but what the whole line names", async () => {
  let cuts = 0;
  for (const args of await commands()) {
    const line = shellLine(args);
    if (line === undefined || line.name === "fullreport") continue;
    const whole = split(line.text);
    for (let length = 1; length < line.text.length - 1; length++) {
      const cut = split(line.text.slice(0, length));
      const last = cut.length - 1;
      assertEquals(cut.slice(0, last), whole.slice(0, last));
      if (cut[0] !== line.name) continue; // LVM knows commands by their whole names
      cuts++;
      // what is changed is whole when there is an option with which LVM accepts the command
      const operands = whole.filter((word) => /^(?:data|\/dev\/)/.test(word));
      const isAccepted = cut.some((word) => NEEDED[line.name]!.some((option) => word !== "" && option === word));
      if (isAccepted) assertEquals(cut.slice(1, operands.length + 1), operands, cut.join(" "));
    }
  }
  assert(cuts > 1_000, `${cuts} cuts`);
});
