import { dirname, join } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { DENOLITH } from "../cli/help/denolith.ts";
import { installedFiles } from "../cli/help/man.ts";
import { completionScript } from "../cli/help/completion.ts";
import { PLUGIN } from "../plugin/commands.ts";
import { bundleDriver, bundlePlugin } from "./bundle.ts";
import { launchConfig } from "./launch.ts";
import { compileNative, NATIVE_PLUGIN } from "./native.ts";
import { type Architecture, DENO_VERSION, denoBinary, denortRuntime, denoRuntime, type Runtime } from "./runtime.ts";
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
export async function makeArtifact({ arch, folder, log }: ArtifactOptions): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  // in the same folder, so that the files can be renamed into place
  const temp = await Deno.makeTempDir({ dir: folder, prefix: ".making-" });
  try {
    const runtime = await makeProgram(arch, temp, log);
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

/** Builds the executables in `temp`: the driver, and the kubectl plugin. @returns the runtime in them */
async function makeProgram(arch: Architecture, temp: string, log: (line: string) => void): Promise<Runtime> {
  const modules = await bundleDriver(temp);
  const plugin = await bundlePlugin(temp);
  const [output, pluginOutput] = [join(temp, ARTIFACT_FILES.program), join(temp, ARTIFACT_FILES.plugin)];
  await Deno.writeTextFile(join(temp, "deno.json"), launchConfig({ moduleIsFile: false }));
  if (await compileNative({ arch, folder: temp, output })) {
    const isCompiled = await compileNative({ arch, folder: temp, output: pluginOutput, program: NATIVE_PLUGIN });
    if (!isCompiled) throw new Error(`compile ${ARTIFACT_FILES.plugin}: the runtime is there no more`);
    return denortRuntime();
  }
  log(
    `The runtime of deno compile ${DENO_VERSION} could not be downloaded: the file contains the deno binary instead.`,
  );
  const binary = await denoBinary(arch, temp);
  const config = launchConfig({ moduleIsFile: true });
  await writeSelfExtracting(output, { version: manifest.version, arch, runtime: binary, modules, plugin, config });
  await Deno.symlink(ARTIFACT_FILES.program, pluginOutput); // the name decides what it starts
  return denoRuntime(arch, await sha256OfFile(binary));
}
