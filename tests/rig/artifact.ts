import { join } from "@std/path";
import { ARTIFACT_FILES, makeArtifact } from "../../deploy/artifact.ts";
import { bundle } from "../../deploy/bundle.ts";
import { PLUGIN_MODULE } from "../../deploy/launch.ts";
import { sha256 } from "../../deploy/self_extracting.ts";
import { ensureCached, removeUnused } from "./cache.ts";
import { TempFolder } from "./temp_folder.ts";

/** The root of the checkout. */
const ROOT = new URL("../..", import.meta.url).pathname;

/** After how many days artifacts that were not used are removed: each is some 100 MB, and each change makes one. */
const UNUSED_DAYS = 1;

/**
 * Returns the path of the driver's artifact for this machine, made of this checkout. It is made in a few seconds when
 * one of its inputs changed, and kept in the cache folder.
 *
 * @param log called with what is done @throws {Error} when it cannot be made
 */
export async function ensureArtifact(log: (line: string) => void): Promise<string> {
  const key = sha256(new TextEncoder().encode((await inputs()).join("\n"))).slice(0, 12);
  const folder = await ensureCached(`artifact-${key}`, log, async (_temp, into) => {
    await makeArtifact({ arch: Deno.build.arch, folder: into, denoVersion: Deno.version.deno, log });
    const removed = await removeUnused("artifact-", UNUSED_DAYS);
    if (removed.length > 0) log(`driver: removed from the cache, unused for a day: ${removed.join(", ")}`);
  });
  return join(folder, ARTIFACT_FILES.program);
}

/** Returns the inputs of the artifact: the driver as two modules, the plugin, and the code and tools that pack it. */
async function inputs(): Promise<string[]> {
  await using temp = await TempFolder.create(Deno.env.get("TMPDIR") ?? "/tmp", "denolith-inputs-");
  const packing = [...Deno.readDirSync(join(ROOT, "deploy"))].filter(({ isFile }) => isFile)
    .map(({ name }) => join("deploy", name)).filter((file) => !file.endsWith("_test.ts")).sort();
  const files = [
    await bundle("main.ts", temp.path),
    await bundle("cli/worker.ts", temp.path),
    await bundle("plugin/main.ts", temp.path, { name: PLUGIN_MODULE }),
    ...["deno.json", "deno.lock", ...packing].map((f) => join(ROOT, f)),
  ];
  return [Deno.build.arch, Deno.version.deno, ...await Promise.all(files.map((file) => Deno.readTextFile(file)))];
}
