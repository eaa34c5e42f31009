import { dirname, join } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { DENOLITH } from "../cli/help/denolith.ts";
import { installedFiles } from "../cli/help/man.ts";
import { completionScript } from "../cli/help/completion.ts";
import { PLUGIN } from "../plugin/subcommands.ts";
import { bundleDriver, bundlePlugin, type DriverModules } from "./bundle.ts";
import { launchConfig } from "./launch.ts";
import { compileNative, NATIVE_PLUGIN, runtimeMissing } from "./native.ts";
import {
  type Architecture,
  DENO_VERSION,
  denoBinary,
  denortRuntime,
  denoRuntime,
  nameOf,
  type Runtime,
  type Target,
} from "./runtime.ts";
import { sbom } from "./sbom.ts";
import { sha256OfFile, writeSelfExtracting } from "./self_extracting.ts";
import { ignoreNotFound } from "./tool.ts";

/** Names of the files that {@linkcode makeArtifact} writes. */
export const ARTIFACT_FILES = {
  program: "denolith",
  plugin: "kubectl-denolith",
  /** What kubectl runs to complete `kubectl denolith`. */
  pluginCompletion: "kubectl_complete-denolith",
  /** Manual pages and completion scripts, for /usr/local/share. */
  share: "share",
  sbom: "denolith.cdx.json",
  sums: "SHA256SUMS",
} as const;

/** Settings of {@linkcode makeArtifact}. */
export interface ArtifactOptions {
  readonly arch: Architecture;
  /** Folder for the files. It is created if missing. */
  readonly folder: string;
  /** The version of Deno in it; the pinned one by default. */
  readonly denoVersion?: string;
  /** Called with one line when the program is not a native executable. */
  readonly log: (line: string) => void;
}

/**
 * Builds the driver as one executable file, its manual pages, completion scripts and software bill of materials, and the
 * checksums of all. They are replaced only when the new ones are complete.
 *
 * `deno compile` builds the file. If its runtime cannot be downloaded, the file contains the deno binary instead, and unpacks
 * it on the first start.
 *
 * @throws {Error} when a step fails; the message quotes the tool
 */
export async function makeArtifact({ arch, folder, denoVersion = DENO_VERSION, log }: ArtifactOptions): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  // in the same folder, so that the files can be renamed into place
  const temp = await Deno.makeTempDir({ dir: folder, prefix: ".making-" });
  try {
    const runtime = await makePrograms(arch, temp, denoVersion, log);
    await Deno.writeTextFile(join(temp, ARTIFACT_FILES.sbom), await sbom(runtime));
    const { program, plugin, pluginCompletion, sbom: bill, share, sums } = ARTIFACT_FILES;
    const names = [program, plugin, bill, ...await writeInstalledFiles(temp, pluginCompletion)];
    const lines = names.map(async (name) => `${await sha256OfFile(join(temp, name))}  ${name}\n`);
    await Deno.writeTextFile(join(temp, sums), (await Promise.all(lines)).join(""));
    await Deno.remove(join(folder, share), { recursive: true }).catch(ignoreNotFound);
    for (const name of [share, program, plugin, pluginCompletion, bill, sums]) {
      await Deno.rename(join(temp, name), join(folder, name));
    }
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
}

/**
 * Writes the manual pages and completion scripts below a folder.
 *
 * @param pluginCompletion the path there of what kubectl runs to complete `kubectl denolith`
 * @returns their paths there
 */
export async function writeInstalledFiles(folder: string, pluginCompletion: string): Promise<string[]> {
  const pages = [DENOLITH, PLUGIN].flatMap((program) => [...installedFiles(program, manifest.version)]);
  const files = new Map([[pluginCompletion, `${completionScript(PLUGIN, "kubectl")}\n`], ...pages]);
  for (const [name, text] of files) {
    await Deno.mkdir(dirname(join(folder, name)), { recursive: true });
    await Deno.writeTextFile(join(folder, name), text);
  }
  await Deno.chmod(join(folder, pluginCompletion), 0o755); // whatever the umask
  return [...files.keys()];
}

/** What the executables for an architecture are made of. */
export interface ProgramOptions {
  readonly arch: Architecture;
  /** The bundled driver. */
  readonly modules: DriverModules;
  /** Path of the bundled plugin, in the same folder. */
  readonly plugin: string;
  /** Paths of the files to write; that of the plugin is needed for a program that `deno compile` makes. */
  readonly output: { readonly program: string; readonly plugin?: string };
  /** The deno binary that the executable contains; without it, `deno compile` makes the executables. */
  readonly deno?: { readonly path: string; readonly version: string } | undefined;
}

/**
 * Writes the executables for an architecture. The one that contains the deno binary is also the plugin: its name decides what it
 * starts. A program of `deno compile` has one permission set, so the plugin is a file of its own.
 *
 * @returns the runtime in them
 */
export async function writePrograms({ arch, modules, plugin, output, deno }: ProgramOptions): Promise<Runtime> {
  const config = launchConfig({ moduleIsFile: deno !== undefined });
  if (deno === undefined) {
    const folder = dirname(modules.main);
    await Deno.writeTextFile(join(folder, "deno.json"), config);
    await compileNative({ arch, folder, output: output.program });
    if (output.plugin !== undefined) {
      await compileNative({ arch, folder, output: output.plugin, program: NATIVE_PLUGIN });
    }
    return denortRuntime();
  }
  const { path: runtime, version } = deno;
  await writeSelfExtracting(output.program, { version: manifest.version, arch, runtime, modules, plugin, config });
  return denoRuntime({ arch }, await sha256OfFile(runtime), version);
}

/** Builds the executables in `temp`: the driver, and the kubectl plugin. @returns the runtime in them */
async function makePrograms(
  arch: Architecture,
  temp: string,
  version: string,
  log: (line: string) => void,
): Promise<Runtime> {
  const parts = { arch, modules: await bundleDriver(temp), plugin: await bundlePlugin(temp) };
  const output = { program: join(temp, ARTIFACT_FILES.program), plugin: join(temp, ARTIFACT_FILES.plugin) };
  if (await canCompile({ arch }, version, log)) return await writePrograms({ ...parts, output });
  const deno = { path: await denoBinary(arch, temp, version), version };
  const runtime = await writePrograms({ ...parts, output, deno });
  await Deno.symlink(ARTIFACT_FILES.program, output.plugin);
  return runtime;
}

/**
 * Reports whether `deno compile` can make the executables: it has the runtime of the running version alone.
 *
 * @param log called with one line if not
 */
export async function canCompile(target: Target, version: string, log: (line: string) => void): Promise<boolean> {
  const { deno: running } = Deno.version;
  const reason = version === running ? await runtimeMissing(target) : `Deno ${running} cannot compile for ${version}`;
  if (reason !== undefined) log(`The executable for ${nameOf(target)} contains the deno binary, because ${reason}.`);
  return reason === undefined;
}
