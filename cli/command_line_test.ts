import { assertEquals, assertThrows } from "@std/assert";
import { parseCommandLine, type Subcommands, UsageError } from "./command_line.ts";

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
    text: () => "",
  },
  look: {
    summary: "look",
    about: "Looks.",
    argument: { name: "PLACE", help: "where to look" },
    flags: { long: { help: "for long" } },
    text: () => "",
  },
};

function flagsOf(...args: string[]): unknown {
  const request = parseCommandLine(SUBCOMMANDS, ["serve", ...args]);
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
  const parse = (...args: string[]) => parseCommandLine(SUBCOMMANDS, ["look", ...args]);
  const here = { kind: "run", name: "look", flags: { PLACE: "here", long: "true" } };
  assertEquals([parse("here", "--long"), parse("--long", "here")], [here, here]);
  assertEquals(parse("007"), { kind: "run", name: "look", flags: { PLACE: "007" } });
  assertThrows(() => parse("--long"), UsageError, "look: PLACE is missing");
  assertThrows(() => parse("here", "there"), UsageError, 'look: unexpected argument "there"');
  assertThrows(() => parse("here", "--lang"), UsageError, "unknown flag --lang");
  const help = parse("--help");
  assertEquals(
    help.kind === "help" && help.text.split("\n").slice(0, 5),
    ["Usage: denolith look PLACE [flags]", "", "Looks.", "", "  PLACE  where to look"],
  );
});

Deno.test("parseCommandLine(): refuses unknown commands and flags, and suggests the nearest one", () => {
  const cases: [string[], string][] = [
    [["--config"], "serve: --config needs a value"],
    [["--config="], "serve: --config needs a value"],
    [["--config", "a", "--config", "b"], "serve: --config is given more than once"],
    [["more"], `serve: unexpected argument "more"`],
    [["--quite"], "serve: unknown flag --quite; did you mean --quiet?"],
    [["--adress=x"], "serve: unknown flag --adress; did you mean --address?"],
    [["-q"], "serve: unknown flag -q"],
  ];
  for (const [args, words] of cases) assertThrows(() => flagsOf(...args), UsageError, words);
  assertThrows(() => parseCommandLine(SUBCOMMANDS, ["toString"]), UsageError, "did you mean serve?");
});

Deno.test("parseCommandLine(): help of a subcommand, and the version, can be asked for in every usual way", () => {
  const parse = (...args: string[]) => parseCommandLine(SUBCOMMANDS, args);
  const help = parse("serve", "--help");
  for (const args of [["help", "serve"], ["--help", "serve"], ["-h", "serve"], ["serve", "-h"]]) {
    assertEquals(parse(...args), help, args.join(" "));
  }
  for (const args of [["help"], ["--help"], ["help", "help"]]) assertEquals(parse(...args), parse("-h"));
  const version = { kind: "run" as const, name: "version", flags: {} };
  for (const args of [["--version"], ["-V"], ["serve", "--version"], ["look", "-V"]]) {
    assertEquals(parse(...args), version, args.join(" "));
  }
  assertThrows(() => parse("help", "serv"), UsageError, 'unknown command "serv"; did you mean serve?');
  assertThrows(() => parse("help", "serve", "now"), UsageError, 'help: unexpected argument "now"');
});

Deno.test("parseCommandLine(): a switch takes no value but true or false", () => {
  assertEquals(flagsOf("--quiet=true"), { address: ":1", quiet: "true" });
  assertEquals(flagsOf("--quiet=false"), { address: ":1" });
  assertThrows(() => flagsOf("--quiet=much"), UsageError, 'serve: --quiet "much": is a switch, and takes no value');
});

Deno.test("parseCommandLine(): help shows each flag with its default", () => {
  assertEquals(parseCommandLine(SUBCOMMANDS, ["serve", "--help"]), {
    kind: "help",
    isRequested: true,
    text: `Usage: denolith serve [flags]

Serves.

Flags:
  --address ADDRESS  where (default :1)
  --config PATH      how
  --quiet            say less
  -h, --help         Show this help
  -V, --version      Print the version

Example:
  x serve --quiet`,
  });
});

Deno.test("parseCommandLine(): help is wrapped at 100 columns, and a long flag has a line of its own", () => {
  const help = "word ".repeat(40).trim();
  const subcommands: Subcommands = {
    serve: {
      summary: help,
      about: `${help}\n\n${help}`,
      flags: { "a-flag-with-a-long-name": { value: "PERCENTAGE", help, default: () => "1" }, short: { help } },
      text: () => "",
    },
  };
  for (const args of [["--help"], ["serve", "--help"]]) {
    const request = parseCommandLine(subcommands, args);
    const lines = request.kind === "help" ? request.text.split("\n") : [];
    assertEquals(lines.filter((line) => line.length > 100), []);
    assertEquals(lines.join(" ").split(/\s+/).filter((word) => word === "word").length, args.length === 1 ? 40 : 160);
    assertEquals(lines.includes("  --a-flag-with-a-long-name PERCENTAGE"), args.length === 2);
  }
});
