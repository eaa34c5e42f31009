import { assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { coloursOf, formatAnswer, withoutControls } from "./output.ts";
import { problemsText } from "./tables.ts";

const PLAIN = coloursOf({ hasColours: false });

Deno.test("withoutControls() leaves colours and line feeds, and replaces everything else that moves a cursor", () => {
  const { severity } = coloursOf({ hasColours: true });
  const coloured = `${severity("error", "bad")}\nü 🙂`;
  assertEquals(withoutControls(coloured), coloured);
  for (const control of ["\x1b[2J", "\x1b]0;title\x07", "\r", "\x08", "\x9b31m", "\t", "\x1b[38m"]) {
    const clean = withoutControls(`a${control}b`);
    assertEquals([...clean].some((one) => one !== "\n" && (one < " " || one >= "\x7f" && one <= "\x9f")), false);
  }
});

Deno.test("withoutControls() replaces the characters that reverse what is shown after them", () => {
  for (const control of ["\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069"]) {
    assertEquals(withoutControls(`delete ${control}claim`), "delete \ufffdclaim", JSON.stringify(control));
  }
});

Deno.test("a message of an event cannot forge a line, or write on the terminal", () => {
  const message = "no space\n\nERROR Lost claim/a/b\x1b[1A";
  const problem = { severity: "error", reason: "NoSpace", object: "claim/a/c", message } as const;
  const text = () => problemsText([problem], { wide: false, colours: PLAIN, now: new Date() }).join("\n");
  const output = formatAnswer({ data: {}, text }, { context: "c", namespace: "n" }, {
    format: "table",
    colours: PLAIN,
  });
  assertEquals(output.split("\n").slice(2), ["ERROR NoSpace claim/a/c", "  no space ERROR Lost claim/a/b\ufffd[1A"]);
});

Deno.test("JSON and YAML have no control characters but line feeds, and mean the same", () => {
  const data = { message: "a\x9b31m\x1b[2J\x7f\x85\u009d\u2028é" };
  const subject = { context: "c", namespace: "n" };
  for (const format of ["json", "yaml"] as const) {
    const text = formatAnswer({ data, text: () => "" }, subject, { format, colours: PLAIN });
    // deno-lint-ignore no-control-regex
    assertEquals(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/.test(text), false, JSON.stringify(text));
    assertEquals(parse(text), { ...subject, ...data });
  }
});

Deno.test("JSON and YAML have the context, the namespace, and sizes as numbers", () => {
  const answer = { data: { size: 1n << 40n, none: undefined }, text: () => "" };
  const subject = { context: "prod", namespace: "shop" };
  const json = formatAnswer(answer, subject, { format: "json", colours: PLAIN });
  assertEquals(JSON.parse(json), { ...subject, size: 1_099_511_627_776 });
  const yaml = formatAnswer(answer, subject, { format: "yaml", colours: PLAIN });
  assertEquals(yaml, "context: prod\nnamespace: shop\nsize: 1099511627776");
});

Deno.test("what values have cannot write on the terminal, also in templates and columns", () => {
  const row = { state: "a\x1b[2Jb", size: 1n << 40n };
  const answer = { data: { volumes: [row] }, text: () => "", rows: [{ row, name: "x/y" }] };
  const output = (format: string) => formatAnswer(answer, { context: "c", namespace: "n" }, { format, colours: PLAIN });
  assertEquals(output('jsonpath={range .volumes[*]}{.state}{"\\t"}{.size}{end}'), "a\ufffd[2Jb\t1099511627776");
  assertEquals(
    output("custom-columns=S:.state,NONE:.none,SIZE:.size"),
    [
      "S        NONE     SIZE",
      "a\ufffd[2Jb   <none>   1099511627776",
    ].join("\n"),
  );
  assertEquals(output("name"), "x/y");
});
