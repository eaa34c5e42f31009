/**
 * The kubectl plugin as an archive for a system, without the driver: for people, and for krew.
 *
 * @module
 */

import { zipSync } from "fflate";
import { dirname, join } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { LAUNCH_ENV, launchConfig, PLUGIN_MODULE, PLUGIN_PERMISSION_SET, RUN_FLAGS } from "./launch.ts";
import { compileNative, NATIVE_PLUGIN } from "./native.ts";
import cmd from "./plugin.cmd" with { type: "text" };
import sh from "./plugin.sh" with { type: "text" };
import { makeTar } from "./process.ts";
import { gzip } from "./release/oci.ts";
import { type Architecture, PLATFORM_NAMES, type System, type Target } from "./runtime.ts";
import { fillPlaceholders } from "./self_extracting.ts";

const ROOT = new URL("..", import.meta.url).pathname;

/** A system and an architecture that the plugin is packed for. */
export type PluginTarget = Required<Target>;

/** What an archive is made of. */
export interface PluginParts {
  readonly target: PluginTarget;
  /** Path of the bundled plugin. */
  readonly plugin: string;
  /** Path of the deno binary that the archive contains; without it, `deno compile` makes the program. */
  readonly deno: string | undefined;
  /** Folder for the archive. */
  readonly folder: string;
}

/** An archive of the plugin. */
export interface PluginArchive {
  readonly system: System;
  readonly arch: Architecture;
  /** File name of the archive. */
  readonly name: string;
  /** The file in it that kubectl starts. */
  readonly program: string;
}

/**
 * Packs the plugin for a system: the program, and the licence. The program is one file that `deno compile` makes, or a script
 * that starts the deno binary beside it. The same parts give the same file.
 *
 * @throws {Error} when a step fails
 */
export async function packPlugin({ target, plugin, deno, folder }: PluginParts): Promise<PluginArchive> {
  const { system, arch } = target;
  const isWindows = system === "windows";
  const program = `${NAME}${isWindows ? deno === undefined ? ".exe" : ".cmd" : ""}`;
  const name = `${NAME}-${manifest.version}-${system}-${PLATFORM_NAMES[arch]}.${isWindows ? "zip" : "tar.gz"}`;
  const contents = await Deno.makeTempDir({ dir: dirname(plugin), prefix: "plugin-" });
  try {
    await Deno.copyFile(join(ROOT, "LICENSE"), join(contents, "LICENSE"));
    if (deno === undefined) await compile(target, plugin, join(contents, program));
    else await writeParts(isWindows, { plugin, deno, program: join(contents, program) });
    await Deno.chmod(join(contents, program), 0o755); // whatever the umask
    if (isWindows) await zip(contents, join(folder, name));
    else {
      const tar = `${contents}.tar`;
      const names = [...Deno.readDirSync(contents)].map((entry) => entry.name).sort();
      await makeTar(contents, tar, { names, options: ["--mode=u=rwX,go=rX"] });
      await gzip(tar, join(folder, name));
      await Deno.remove(tar);
    }
  } finally {
    await Deno.remove(contents, { recursive: true });
  }
  return { system, arch, name, program };
}

const NAME = "kubectl-denolith";

/** Compiles the plugin in the folder of its module. */
async function compile(target: Target, plugin: string, output: string): Promise<void> {
  const folder = dirname(plugin);
  await Deno.writeTextFile(join(folder, "deno.json"), launchConfig({ moduleIsFile: false }));
  await compileNative({ ...target, folder, output, program: NATIVE_PLUGIN });
}

/** Writes the script that is the program, and beside it what it starts. */
async function writeParts(
  isWindows: boolean,
  { plugin, deno, program }: { readonly plugin: string; readonly deno: string; readonly program: string },
): Promise<void> {
  const folder = dirname(program);
  const runtime = join(folder, isWindows ? "deno.exe" : "deno");
  await Deno.copyFile(deno, runtime);
  await Deno.chmod(runtime, 0o755);
  await Deno.copyFile(plugin, join(folder, PLUGIN_MODULE));
  await Deno.writeTextFile(join(folder, "deno.json"), launchConfig({ moduleIsFile: true }));
  const values = { VERSION: manifest.version, FLAGS: RUN_FLAGS.join(" "), SET: PLUGIN_PERMISSION_SET };
  const env = isWindows ? LAUNCH_ENV.map((variable) => `set "${variable}"`).join("\n") : LAUNCH_ENV.join(" ");
  const script = fillPlaceholders(program, isWindows ? cmd : sh, { ...values, MODULE: PLUGIN_MODULE, ENV: env });
  await Deno.writeTextFile(program, isWindows ? script.replaceAll("\n", "\r\n") : script);
}

/** Makes a zip file of a folder that depends on its content only. */
async function zip(folder: string, output: string): Promise<void> {
  const files: Record<string, Uint8Array> = {};
  for (const { name } of [...Deno.readDirSync(folder)].sort((a, b) => a.name < b.name ? -1 : 1)) {
    files[name] = await Deno.readFile(join(folder, name));
  }
  await Deno.writeFile(output, zipSync(files, { mtime: "1980-01-01T00:00:00", level: 6 }));
}
