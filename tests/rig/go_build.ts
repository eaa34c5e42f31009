import { join } from "@std/path";
import { goToolchain } from "./go_toolchain.ts";
import { run } from "./process.ts";
import { telling, timedLog } from "./progress.ts";
import type { TempFolder } from "./temp_folder.ts";

/** Programs that are built together, with one choice of versions for all that they depend on. */
export interface GoModule {
  /** What is built, in words. */
  readonly name: string;
  /** Versions, without the "v", by module. */
  readonly require: Readonly<Record<string, string>>;
  /** Versions to take of modules that others name without one. */
  readonly replace: Readonly<Record<string, string>>;
  /** Flags of the linker, beside those that leave out symbols. */
  readonly linkFlags: string;
  /** Packages with a main function. */
  readonly packages: readonly string[];
  /** Names for programs that Go would name by their folder. */
  readonly rename: Readonly<Record<string, string>>;
}

/** What {@linkcode buildGo} builds, where and with whom it talks. */
export interface GoBuild {
  readonly what: string;
  readonly modules: readonly GoModule[];
  readonly temp: TempFolder;
  readonly into: string;
  /** How long it takes, in words. */
  readonly time: string;
  readonly log: (line: string) => void;
}

/** The version of the language in a go.mod that is made here. */
const LANGUAGE = "1.26.0";

/** Builds programs without libraries into a folder; modules are built one after the other, over one cache.
 *
 * @throws {Error} when there is no Go and none can be fetched, or when a build fails
 */
export async function buildGo(build: GoBuild): Promise<void> {
  const step = timedLog(build.log);
  step(`${build.what}: building it, once (${build.time})`);
  const { go, env } = await goToolchain(build.temp, step);
  for (const [number, module] of build.modules.entries()) {
    step(module.name);
    const folder = build.temp.file(`module${number}`);
    await Deno.mkdir(folder);
    await Deno.writeTextFile(join(folder, "go.mod"), goMod(module));
    await compile(build, module, { go, folder, env, step });
    for (const [from, to] of Object.entries(module.rename)) {
      await Deno.rename(join(build.into, from), join(build.into, to));
    }
  }
  step(`${build.what}: done`);
}

/** What {@linkcode compile} works with. */
interface Compiler {
  readonly go: string;
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  readonly step: (line: string) => void;
}

async function compile(build: GoBuild, module: GoModule, { go, folder, env, step }: Compiler): Promise<void> {
  const counts = { fetched: 0, compiled: 0 };
  const args = ["build", "-v", "-ldflags", `-s -w ${module.linkFlags}`, "-o", `${build.into}/`, ...module.packages];
  await telling(
    step,
    () => `${counts.fetched} modules fetched, ${counts.compiled} packages compiled`,
    () =>
      run(`build ${module.name}`, go, args, {
        cwd: folder,
        // Go writes what is missing in go.mod and go.sum itself, from what the modules named require: they fix every version,
        // and the checksum database vouches for each. A tidy beforehand would fetch what only the tests of others need.
        env: { ...env, GOFLAGS: `${env.GOFLAGS} -mod=mod` },
        guardedBy: build.temp,
        onLine: (line) => counts[line.startsWith("go: ") ? "fetched" : "compiled"]++,
      }),
  );
}

/** The text of a go.mod. */
export function goMod(module: Pick<GoModule, "require" | "replace">): string {
  const lines = [
    ...Object.entries(module.require).map(([path, version]) => `require ${path} v${version}`),
    ...Object.entries(module.replace).map(([path, version]) => `replace ${path} => ${path} v${version}`),
  ];
  return ["module rig", `go ${LANGUAGE}`, `godebug default=go${LANGUAGE.replace(/\.0$/, "")}`, ...lines, ""].join("\n");
}
