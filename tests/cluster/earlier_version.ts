/**
 * The driver of version 0.1.0, whose volumes live on in this version. It is built from the history of the checkout.
 *
 * @module
 */

import { join } from "@std/path";
import { cacheFolder, ensureCached } from "../rig/cache.ts";
import { run } from "../rig/process.ts";
import type { TempFolder } from "../rig/temp_folder.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

/** The commit of version 0.1.0. The records in tests/fixtures/0.1.0 are of the same commit. */
const COMMIT = "cb448e220231af1a3946c81cd3f16ea3d372d8b8";

/** The name of its image in its manifests. */
const IMAGE = "denolith:0.1.0";

/** The name of its image on a node, which has the image of this version beside it. */
export const EARLIER_IMAGE = "denolith:0.1.0-earlier";

/** Raise it when something else is kept in the cache. */
const FORMAT = 1;

/** An earlier version, built. */
export interface EarlierVersion {
  /** The archive of its image. */
  readonly image: string;
  /** Folders for `kubectl apply`. */
  readonly crds: string;
  readonly manifests: string;
}

/** Makes the image in a checkout of the version, by that version's own code. */
const MAKE_IMAGE = `
import { makeImageArchive } from "./deploy/image/archive.ts";
const [output, cache, name] = Deno.args;
await makeImageArchive({ output, cache, name, log: console.error });
`;

/** Makes the executable in a checkout of the version, by that version's own code. */
const MAKE_PROGRAM = `
import { makeArtifact } from "./deploy/artifact.ts";
await makeArtifact({ arch: Deno.build.arch, folder: Deno.args[0], log: console.error });
`;

/** Returns why {@linkcode ensureEarlierVersion} cannot build it, or undefined when it can. */
export async function whyNoEarlierVersion(): Promise<string | undefined> {
  if (await Deno.stat(join(cacheFolder(), cacheName())).then(() => true, () => false)) return undefined;
  const args = ["-C", ROOT, "cat-file", "-e", `${COMMIT}^{commit}`];
  return await run("look for version 0.1.0", "git", args).then(
    () => undefined,
    () => `the checkout has no history with commit ${COMMIT.slice(0, 7)}, of which version 0.1.0 is built`,
  );
}

/**
 * Returns version 0.1.0, built on first use, in a minute, and kept in the cache folder.
 *
 * @param log called with what is done
 * @throws {Error} when the checkout has no history, or a step fails
 */
export async function ensureEarlierVersion(log: (line: string) => void): Promise<EarlierVersion> {
  await requireHistory();
  const folder = await ensureCached(cacheName(), log, (temp, into) => build(temp, into, log));
  return { image: join(folder, "image.tar"), crds: join(folder, "crds"), manifests: join(folder, "manifests") };
}

/**
 * Returns the path of the executable of version 0.1.0, built on first use and kept in the cache folder.
 *
 * @param log called with what is done
 * @throws {Error} when the checkout has no history, or a step fails
 */
export async function ensureEarlierProgram(log: (line: string) => void): Promise<string> {
  await requireHistory();
  const folder = await ensureCached(`${cacheName()}-program`, log, async (temp, into) => {
    const tree = await checkOut(temp, log);
    await Deno.writeTextFile(join(tree, "make_program.ts"), MAKE_PROGRAM);
    const args = ["run", "-A", "make_program.ts", into];
    await run("make the executable of version 0.1.0", Deno.execPath(), args, {
      cwd: tree,
      guardedBy: temp,
      onLine: log,
    });
  });
  return join(folder, "denolith");
}

async function requireHistory(): Promise<void> {
  const why = await whyNoEarlierVersion();
  if (why !== undefined) throw new Error(`build version 0.1.0: ${why}; fetch it: git fetch --unshallow`);
}

function cacheName(): string {
  return `version-0.1.0-${COMMIT.slice(0, 12)}-${FORMAT}`;
}

/** Unpacks the sources of the version. @returns their folder */
async function checkOut(temp: TempFolder, log: (line: string) => void): Promise<string> {
  log(`version 0.1.0: building it from commit ${COMMIT.slice(0, 7)}, once`);
  const archive = temp.file("checkout.tar");
  const tree = temp.file("checkout");
  await run("read version 0.1.0", "git", ["-C", ROOT, "archive", "--output", archive, COMMIT]);
  await Deno.mkdir(tree);
  await run("unpack version 0.1.0", "tar", ["-xf", archive, "-C", tree]);
  return tree;
}

async function build(temp: TempFolder, into: string, log: (line: string) => void): Promise<void> {
  const tree = await checkOut(temp, log);
  await Deno.writeTextFile(join(tree, "make_image.ts"), MAKE_IMAGE);
  const args = ["run", "-A", "make_image.ts", join(into, "image.tar"), cacheFolder(), EARLIER_IMAGE];
  await run("make the image of version 0.1.0", Deno.execPath(), args, { cwd: tree, guardedBy: temp, onLine: log });
  for (const name of ["crds", "manifests"]) await copyManifests(join(tree, "deploy", name), join(into, name));
}

/** Copies manifests; they name the image as it is named here. */
async function copyManifests(from: string, into: string): Promise<void> {
  await Deno.mkdir(into);
  for await (const { name } of Deno.readDir(from)) {
    const text = await Deno.readTextFile(join(from, name));
    await Deno.writeTextFile(join(into, name), text.replaceAll(`image: ${IMAGE}\n`, `image: ${EARLIER_IMAGE}\n`));
  }
}
