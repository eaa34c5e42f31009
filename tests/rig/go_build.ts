import { join } from "@std/path";
import { defined } from "../../base/defined.ts";
import { goToolchain } from "./go_toolchain.ts";
import { run } from "./process.ts";
import { timedLog, withProgress } from "./progress.ts";
import type { TempFolder } from "./temp_folder.ts";

/** Programs that are built together, with one choice of versions for all that they depend on. */
export interface GoModule {
  /** A description of the program that is built. */
  readonly name: string;
  /** The duration on two processors, in words. */
  readonly time: string;
  /** Versions, without the "v", by module. */
  readonly require: Readonly<Record<string, string>>;
  /** Versions to take of modules that others name without one. */
  readonly replace: Readonly<Record<string, string>>;
  /** Flags of the linker, beside those that leave out symbols. */
  readonly linkFlags: string;
  /** Packages with a main function. */
  readonly packages: readonly string[];
  /** A package whose tests become a program, with the ending `.test`. */
  readonly tests?: string;
  /** Names for programs that Go would name by their folder. */
  readonly rename: Readonly<Record<string, string>>;
  /** Programs of this checkout, which need the modules: their texts by name. */
  readonly sources?: Readonly<Record<string, string>>;
  /** The architecture, as Go names it; this machine's by default. */
  readonly architecture?: "arm64";
  /** The version of the language, and of the defaults of Go's library; {@linkcode GO_LANGUAGE_VERSION} by default. */
  readonly language?: string;
}

/** The folder in which {@linkcode buildGo} builds, and the receiver of its progress. */
export interface GoBuild {
  readonly temp: TempFolder;
  /** Takes the programs. */
  readonly into: string;
  readonly log: (line: string) => void;
}

/** The version of the language in a go.mod that is made here. */
const GO_LANGUAGE_VERSION = "1.26.0";

/**
 * Builds programs without libraries.
 *
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function buildGo(module: GoModule, { temp, into, log }: GoBuild): Promise<void> {
  const step = timedLog(log);
  step(`${module.name}: building, once (${module.time})`);
  const { go, env } = await goToolchain(temp, step);
  const folder = temp.file("module");
  await Deno.mkdir(folder);
  await Deno.writeTextFile(join(folder, "go.mod"), goMod(module));
  const own = Object.entries(module.sources ?? {});
  for (const [name, text] of own) {
    await Deno.mkdir(join(folder, name));
    await Deno.writeTextFile(join(folder, name, "main.go"), text);
  }
  const counts = { fetched: 0, compiled: 0 };
  const packages = [...module.packages, ...own.map(([name]) => `./${name}`)];
  const flags = ["-v", "-ldflags", `-s -w ${module.linkFlags}`, "-o", `${into}/`];
  const commands = [
    ...(packages.length === 0 ? [] : [["build", ...flags, ...packages]]),
    ...(module.tests === undefined ? [] : [["test", "-c", "-vet=off", ...flags, module.tests]]),
  ];
  const build = async () => {
    for (const args of commands) {
      await run(`build ${module.name}`, go, args, {
        cwd: folder,
        // Go writes what is missing in go.mod and go.sum itself, from what the modules named require: they fix every version,
        // and the checksum database vouches for each. A tidy beforehand would fetch what only the tests of others need.
        env: { ...env, GOFLAGS: `${env.GOFLAGS} -mod=mod`, ...defined({ GOARCH: module.architecture }) },
        guardedBy: temp,
        onLine: (line) => counts[line.startsWith("go: ") ? "fetched" : "compiled"]++,
      });
    }
  };
  await withProgress(
    step,
    () => `${counts.fetched} modules fetched, ${counts.compiled} packages compiled`,
    build,
  );
  for (const [from, to] of Object.entries(module.rename)) await Deno.rename(join(into, from), join(into, to));
  step(`${module.name}: done`);
}

/**
 * Fetches a module, checked against Go's checksum database.
 *
 * @param version without the "v"
 * @returns the folder with its files; it goes with `temp`
 * @throws {Error} when there is no Go and none can be fetched, or when there is no such module
 */
export async function fetchGoModule(
  path: string,
  version: string,
  { temp, log }: Omit<GoBuild, "into">,
): Promise<string> {
  const { go, env } = await goToolchain(temp, log);
  const module = `${path}@v${version}`;
  log(`${module}: fetching it, once`);
  const answer = await run(`fetch ${module}`, go, ["mod", "download", "-json", module], {
    cwd: temp.path,
    env,
    guardedBy: temp,
  });
  return (JSON.parse(answer) as { Dir: string }).Dir;
}

/** Returns the text of a go.mod. */
export function goMod(module: Pick<GoModule, "require" | "replace" | "language">): string {
  const language = module.language ?? GO_LANGUAGE_VERSION;
  const lines = [
    ...Object.entries(module.require).map(([path, version]) => `require ${path} v${version}`),
    ...Object.entries(module.replace).map(([path, version]) => `replace ${path} => ${path} v${version}`),
  ];
  return [
    "module rig",
    `go ${language}`,
    `godebug default=go${language.replace(/\.0$/, "")}`,
    ...lines,
    "",
  ].join("\n");
}
