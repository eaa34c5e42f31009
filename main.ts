/**
 * The command line of denolith: arguments, wiring and signals. Nothing else exits the process.
 *
 * @module
 */

import { configure, jsonLinesFormatter, type LogLevel, type TextFormatter } from "@logtape/logtape";
import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import manifest from "./deno.json" with { type: "json" };
import { startStandalone } from "./csi/driver.ts";
import { socketPath } from "./csi/endpoint.ts";
import { parseGroupList } from "./csi/parameters.ts";
import { socketState } from "./csi/server.ts";
import { requireNodeId } from "./csi/topology.ts";
import { examine } from "./lvm/doctor.ts";
import { diagnosisJson, diagnosisText } from "./lvm/doctor_text.ts";
import { StorageError } from "./lvm/error.ts";
import { HostExec } from "./lvm/exec.ts";
import { readReport } from "./lvm/report.ts";
import { formatBytes } from "./lvm/size.ts";
import { readStatus, type StatusOptions } from "./lvm/status.ts";
import { statusJson, statusText } from "./lvm/status_text.ts";

interface Flag {
  /** What stands for its value in the help; none for a switch. */
  readonly value?: string;
  readonly help: string;
  readonly default?: () => string;
}

interface Subcommand {
  readonly summary: string;
  readonly about: string;
  readonly flags: Readonly<Record<string, Flag>>;
  readonly example?: string;
  run(flags: Readonly<Record<string, string>>): Promise<number>;
}

/** A mistake in the command line, as opposed to a failure. */
class UsageError extends Error {}

const LOG_LEVELS = ["debug", "info", "warning", "error"] as const satisfies readonly LogLevel[];

/** How long calls under way have to end after SIGTERM, in milliseconds: what the longest command is waited for. */
const GRACE_MS = 110_000;

/** Flags that mean the same to several commands. */
const SHARED_FLAGS = {
  endpoint: {
    value: "unix:///PATH.sock",
    help: "the driver's socket",
    default: () => Deno.env.get("CSI_ENDPOINT") ?? "unix:///run/denolith/csi.sock",
  },
  "driver-name": {
    value: "NAME",
    help: "the driver's name, also the owner in LVM's tags",
    default: () => "lvm.denolith.dev",
  },
} as const satisfies Record<string, Flag>;

const SUBCOMMANDS: Readonly<Record<string, Subcommand>> = {
  standalone: {
    summary: "serve all of CSI on one socket, for a plain host or any orchestrator",
    about:
      "Serves the CSI Identity, Controller and Node services on one unix socket. All state is in LVM's tags, so the\n" +
      "driver can be stopped, replaced and started at any time. SIGTERM and SIGINT let calls under way end first.",
    flags: {
      endpoint: SHARED_FLAGS.endpoint,
      "node-id": { value: "NAME", help: "the name of this node in topologies", default: () => Deno.hostname() },
      "volume-groups": {
        value: "LIST",
        help: "the volume groups to make volumes in: names, or patterns in slashes, separated by commas (required)",
      },
      "driver-name": SHARED_FLAGS["driver-name"],
      "log-level": { value: "LEVEL", help: LOG_LEVELS.join(", "), default: () => "info" },
      "log-format": { value: "FORMAT", help: "text or json", default: () => "text" },
    },
    example: "denolith standalone --volume-groups data,/fast-.*/",
    run: standalone,
  },
  doctor: {
    summary: "look at this host, and say what is wrong and what to do about it",
    about:
      "Checks programs, kernel, locks, filters, volume groups, metadata, udev and what crashes left. It changes nothing.\n" +
      "Exit status: 0 nothing worse than warnings, 1 an error was found.",
    flags: {
      "volume-groups": { value: "LIST", help: "as for standalone; by default those that the driver uses, or else all" },
      endpoint: SHARED_FLAGS.endpoint,
      "driver-name": SHARED_FLAGS["driver-name"],
      json: { help: "print JSON" },
    },
    example: "denolith doctor --volume-groups data",
    run: doctor,
  },
  status: {
    summary: "show groups, volumes and snapshots, how full they are, and what is left over",
    about: "Shows what the driver has on this host. It changes nothing. Exit status: 1 when it could not be told.",
    flags: {
      "volume-groups": { value: "LIST", help: "which groups; by default those that the driver uses, or else all" },
      "driver-name": SHARED_FLAGS["driver-name"],
      json: { help: "print JSON; sizes are bytes" },
    },
    run: status,
  },
  version: {
    summary: "print the version",
    about: "Prints the version of denolith, and of what it runs on.",
    flags: {},
    run: () => {
      console.log(`denolith ${manifest.version} (deno ${Deno.version.deno}, V8 ${Deno.version.v8})`);
      return Promise.resolve(0);
    },
  },
};

async function standalone(flags: Readonly<Record<string, string>>): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const exec = new HostExec();
  const list = flags["volume-groups"];
  if (list === undefined) throw new UsageError(`--volume-groups is required; ${await groupsHere(exec)}`);
  const driver = await startStandalone({
    socketPath: socketPath(flags.endpoint!),
    driver: requireDriverName(flags["driver-name"]!),
    version: manifest.version,
    nodeId: requireNodeId(flags["node-id"]!),
    groups: parseGroupList(list),
    exec,
  });
  await terminated();
  return await driver.stop(GRACE_MS) ? 0 : 1;
}

async function doctor(flags: Readonly<Record<string, string>>): Promise<number> {
  const path = socketPath(flags.endpoint!);
  const state = await socketState(path).catch(() => undefined);
  const diagnosis = await examine({
    ...lookingAt(flags),
    ...(state === undefined ? {} : { socket: { path, state } }),
  });
  console.log(flags.json === "true" ? diagnosisJson(diagnosis) : diagnosisText(diagnosis));
  return diagnosis.level === "error" ? 1 : 0;
}

async function status(flags: Readonly<Record<string, string>>): Promise<number> {
  const found = await readStatus(lookingAt(flags));
  console.log(flags.json === "true" ? statusJson(found) : statusText(found));
  return 0;
}

function lookingAt(flags: Readonly<Record<string, string>>): StatusOptions {
  const list = flags["volume-groups"];
  return {
    exec: new HostExec(),
    driver: requireDriverName(flags["driver-name"]!),
    ...(list === undefined ? {} : { groups: parseGroupList(list) }),
  };
}

/** Resolves when the process is asked to end. */
function terminated(): Promise<void> {
  return new Promise((resolve) => {
    const onSignal = () => {
      for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.removeSignalListener(signal, onSignal);
      resolve();
    };
    for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, onSignal);
  });
}

async function groupsHere(exec: HostExec): Promise<string> {
  try {
    const groups = (await readReport(exec)).map(({ name, free }) => `${name} (${formatBytes(free)} free)`);
    return groups.length === 0
      ? "this host has none yet: make one with vgcreate"
      : `this host has ${groups.join(", ")}`;
  } catch (error) {
    return `the groups of this host cannot be listed: ${messageOf(error)}`;
  }
}

/** CSI spec, GetPluginInfoResponse.name. */
function requireDriverName(name: string): string {
  if (/^(?=.{1,63}$)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(name)) return name;
  throw new UsageError(`--driver-name ${JSON.stringify(name)}: must be a domain name of at most 63 characters`);
}

async function startLogging(level: string, format: string): Promise<void> {
  const lowestLevel = LOG_LEVELS.find((known) => known === level);
  if (lowestLevel === undefined) throw new UsageError(`--log-level ${level}: must be one of ${LOG_LEVELS.join(", ")}`);
  if (format !== "text" && format !== "json") throw new UsageError(`--log-format ${format}: must be text or json`);
  const formatter = format === "json" ? jsonLinesFormatter : formatText;
  await configure({
    sinks: { stderr: (record) => console.error(formatter(record).trimEnd()) },
    loggers: [
      { category: ["denolith"], sinks: ["stderr"], lowestLevel },
      { category: ["logtape", "meta"], sinks: ["stderr"], lowestLevel: "warning" },
    ],
  });
}

const formatText: TextFormatter = ({ timestamp, level, category, rawMessage, properties }) => {
  const facts = Object.entries(properties).map(([key, value]) =>
    `${key}=${value instanceof Error ? JSON.stringify(value.message) : JSON.stringify(value) ?? value}`
  );
  return [new Date(timestamp).toISOString(), level, category.at(-1), `${rawMessage}`, ...facts].join(" ");
};

function parseFlags(name: string, subcommand: Subcommand, args: readonly string[]): Record<string, string> | "help" {
  const known = Object.keys(subcommand.flags);
  const valued = known.filter((flag) => subcommand.flags[flag]!.value !== undefined);
  const parsed = parseArgs(args, {
    string: valued,
    collect: valued,
    boolean: ["help", ...known.filter((flag) => subcommand.flags[flag]!.value === undefined)],
    alias: { help: "h" },
    unknown: (arg) => {
      if (!arg.startsWith("-")) throw new UsageError(`${name}: unexpected argument ${JSON.stringify(arg)}`);
      const flag = arg.replace(/=.*$/s, "");
      throw new UsageError(
        `${name}: unknown flag ${flag}; did you mean --${closestString(flag.replace(/^-+/, ""), [...known, "help"])}?`,
      );
    },
  });
  if (parsed.help === true) return "help";
  return Object.fromEntries(
    known.flatMap((flag) => {
      const values = [parsed[flag] ?? []].flat();
      if (values.length > 1) throw new UsageError(`${name}: --${flag} is given more than once`);
      const [value] = values;
      if (value === "") throw new UsageError(`${name}: --${flag} needs a value`);
      const text = value ?? subcommand.flags[flag]!.default?.();
      return text === undefined ? [] : [[flag, String(text)]];
    }),
  );
}

function helpOf(name: string, { about, flags, example }: Subcommand): string {
  const rows = Object.entries(flags).map(([flag, { value, help, default: byDefault }]) =>
    [
      `  --${flag}${value === undefined ? "" : " " + value}`,
      `${help}${byDefault === undefined ? "" : ` (default ${byDefault()})`}`,
    ] as const
  );
  return [
    `Usage: denolith ${name}${rows.length === 0 ? "" : " [flags]"}`,
    "",
    about,
    "",
    "Flags:",
    ...table([...rows, ["  -h, --help", "show this help"]]),
    ...(example === undefined ? [] : ["", "Example:", `  ${example}`]),
  ].join("\n");
}

function overview(): string {
  return [
    "denolith: a CSI driver for node-local LVM storage",
    "",
    "Usage: denolith COMMAND [flags]",
    "",
    "Commands:",
    ...table(Object.entries(SUBCOMMANDS).map(([name, { summary }]) => [`  ${name}`, summary] as const)),
    "",
    "denolith COMMAND --help tells more about each.",
  ].join("\n");
}

function table(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length)) + 2;
  return rows.map(([left, right]) => left.padEnd(width) + right);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Runs the command line and answers the exit status: 0 done, 1 failed, 2 not understood. */
async function main(args: readonly string[]): Promise<number> {
  const [name, ...rest] = args;
  if (name === undefined || name === "help" || name === "--help" || name === "-h") {
    console.log(overview());
    return name === undefined ? 2 : 0;
  }
  try {
    const subcommand = Object.hasOwn(SUBCOMMANDS, name) ? SUBCOMMANDS[name] : undefined;
    if (subcommand === undefined) {
      throw new UsageError(
        `unknown command ${JSON.stringify(name)}; did you mean ${closestString(name, Object.keys(SUBCOMMANDS))}?`,
      );
    }
    const flags = parseFlags(name, subcommand, rest);
    if (flags === "help") {
      console.log(helpOf(name, subcommand));
      return 0;
    }
    return await subcommand.run(flags);
  } catch (error) {
    console.error(`denolith: ${messageOf(error)}`);
    if (error instanceof UsageError) return 2;
    return error instanceof StorageError && error.kind === "InvalidArgument" ? 2 : 1;
  }
}

if (import.meta.main) Deno.exit(await main(Deno.args));
