import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { checkFlags, EXIT, parseCommandLine, type Program, type Subcommands, UsageError } from "./command_line.ts";

const SUBCOMMANDS: Subcommands = {
  serve: {
    summary: "serve",
    about: "Serves.",
    flags: {
      address: { value: "ADDRESS", help: "where", default: () => ":1" },
      config: { value: "PATH", help: "how" },
      quiet: { help: "say less" },
    },
    example: "x serve --quiet",
  },
  look: {
    summary: "look",
    about: "Looks.",
    argument: { name: "PLACE", help: "where to look" },
    flags: { long: { help: "for long" } },
  },
};

const X: Program = {
  name: "x",
  executable: "x",
  summary: "x: a program",
  commands: { ...SUBCOMMANDS, version: { summary: "", about: "", flags: { json: { help: "" } } } },
  topics: { places: { summary: "", about: "" } },
};

function flagsOf(...args: string[]): unknown {
  const request = parseCommandLine(X, ["serve", ...args]);
  return request.kind === "run" ? request.flags : request.kind;
}

Deno.test("parseCommandLine(): a flag that is not given is absent, or has its default", () => {
  assertEquals(flagsOf(), { address: ":1" });
  assertEquals(flagsOf("--quiet", "--config=/a=b", "--address", "off"), {
    address: "off",
    config: "/a=b",
    quiet: "true",
  });
  assertEquals(flagsOf("--config", "0"), { address: ":1", config: "0" });
});

Deno.test("parseCommandLine(): an argument has to be named, once, before flags or after them", () => {
  const parse = (...args: string[]) => parseCommandLine(X, ["look", ...args]);
  const here = { kind: "run", name: "look", flags: { PLACE: "here", long: "true" } };
  assertEquals([parse("here", "--long"), parse("--long", "here")], [here, here]);
  assertEquals(parse("007"), { kind: "run", name: "look", flags: { PLACE: "007" } });
  assertThrows(() => parse("--long"), UsageError, "look: PLACE is missing");
  assertThrows(() => parse("here", "there"), UsageError, 'look: unexpected argument "there"');
  assertThrows(() => parse("here", "--lang"), UsageError, 'unknown flag "--lang"');
  assertEquals(parse("--help"), { kind: "help", topic: "look", isRequested: true });
});

Deno.test("parseCommandLine(): an argument that is a list takes several words, and may be left out", () => {
  const argument = { name: "PLACE", help: "", isOptional: true, isList: true };
  const many = { ...X, commands: { ...X.commands, look: { ...SUBCOMMANDS["look"]!, argument } } };
  const parse = (...args: string[]) => parseCommandLine(many, ["look", ...args]);
  const here = { kind: "run", name: "look", flags: { PLACE: "a,b,c", long: "true" } };
  assertEquals([parse("a", "b", "--long", "c"), parse()], [here, { ...here, flags: {} }] as never);
});

Deno.test("parseCommandLine(): takes flags before the subcommand, as kubectl does", () => {
  const after = parseCommandLine(X, ["serve", "--config", "here", "--quiet"]);
  for (const before of [["--config", "here", "--quiet"], ["--quiet", "--config=here"]]) {
    assertEquals(parseCommandLine(X, [...before, "serve"]), after);
  }
  assertEquals(parseCommandLine(X, ["--long", "look", "here"]), parseCommandLine(X, ["look", "here", "--long"]));
  assertThrows(() => parseCommandLine(X, ["--long", "serve"]), UsageError, 'serve: unknown flag "--long"');
  assertThrows(() => parseCommandLine(X, ["--config"]), UsageError, "in the place of a command");
});

Deno.test("parseCommandLine(): refuses unknown commands and flags, and suggests the nearest one", () => {
  const cases: [string[], string][] = [
    [["--config"], "serve: --config needs a value"],
    [["--config="], "serve: --config needs a value"],
    [["--config", ""], "serve: --config needs a value"],
    [["--config", "a", "--config", "b"], "serve: --config is given more than once"],
    [["more"], `serve: unexpected argument "more"`],
    [["\x1b[2J" + "x".repeat(200)], `serve: unexpected argument "\\u001b[2Jxxx`],
    [["--quite"], 'serve: unknown flag "--quite"; did you mean --quiet?'],
    [["--adress=x"], 'serve: unknown flag "--adress"; did you mean --address?'],
    [["-q"], 'serve: unknown flag "-q"; see "x help serve"'],
    [["--frobnicate"], 'serve: unknown flag "--frobnicate"; see "x help serve"'],
    [["--con", "a"], 'serve: unknown flag "--con"; did you mean --config?'],
  ];
  for (const [args, words] of cases) assertThrows(() => flagsOf(...args), UsageError, words);
  for (
    const [word, words] of [["toString", 'see "x help"'], ["serv", "did you mean serve?"], [
      "hlep",
      "did you mean help?",
    ], ["", 'see "x help"']]
  ) {
    assertThrows(() => parseCommandLine(X, [word!]), UsageError, `unknown command ${JSON.stringify(word)}; ${words}`);
  }
  assertThrows(
    () => parseCommandLine(X, ["--silent", "serve"]),
    UsageError,
    'unknown flag "--silent" in the place of a command',
  );
});

Deno.test("parseCommandLine(): help of a subcommand or a topic, and the version, can be asked for in every usual way", () => {
  const parse = (...args: string[]) => parseCommandLine(X, args);
  const help = { kind: "help" as const, topic: "serve", isRequested: true };
  for (const args of [["help", "serve"], ["--help", "serve"], ["-h", "serve"], ["serve", "-h"], ["serve", "--help"]]) {
    assertEquals(parse(...args), help, args.join(" "));
  }
  assertEquals(parse("help", "places"), { ...help, topic: "places" });
  for (const args of [["help"], ["--help"], ["-h"], ["help", "help"]]) {
    assertEquals(parse(...args), { kind: "help", isRequested: true });
  }
  assertEquals(parse(), { kind: "help", isRequested: false });
  const version = { kind: "run" as const, name: "version", flags: {} };
  for (const args of [["--version"], ["-V"], ["serve", "--version"], ["look", "-V"]]) {
    assertEquals(parse(...args), version, args.join(" "));
  }
  assertEquals(parse("--version", "--json"), { ...version, flags: { json: "true" } });
  assertThrows(() => parse("--version", "now"), UsageError, 'version: unexpected argument "now"');
  assertThrows(() => parse("help", "serv"), UsageError, 'unknown command "serv"; did you mean serve?');
  assertThrows(() => parse("help", "plases"), UsageError, 'unknown command "plases"; did you mean places?');
  assertThrows(() => parse("help", "nonsense"), UsageError, 'unknown command "nonsense"; see "x help"');
  assertThrows(() => parse("help", "serve", "now"), UsageError, 'help: unexpected argument "now"');
});

Deno.test("parseCommandLine(): a switch takes no value but true or false", () => {
  assertEquals(flagsOf("--quiet=true"), { address: ":1", quiet: "true" });
  assertEquals(flagsOf("--quiet=false"), { address: ":1" });
  assertThrows(() => flagsOf("--quiet=much"), UsageError, 'serve: --quiet "much": is a switch, and takes no value');
});

Deno.test("checkFlags(): a required flag, one that has no effect alone, and two that exclude each other are judged", async () => {
  const command = {
    ...{ summary: "", about: "" },
    flags: {
      place: { value: "PLACE", help: "", required: '"x look" lists some' },
      force: { help: "", needs: "place" },
      watch: { help: "", excludes: "force" },
    },
  };
  await checkFlags("go", command, { place: "here", force: "true" });
  const cases: [Record<string, string>, string][] = [
    [{}, 'go: --place is required; "x look" lists some'],
    [{ force: "true" }, 'go: --place is required; "x look" lists some; --force has no effect without --place'],
    [{ place: "here", force: "true", watch: "true" }, "go: --watch excludes --force"],
  ];
  for (const [flags, words] of cases) {
    assertEquals((await assertRejects(() => checkFlags("go", command, flags), UsageError)).message, words);
  }
});

Deno.test("the exit statuses are those of the documents", () => {
  assertEquals(EXIT, { success: 0, failure: 1, usage: 2 });
});
