/**
 * The layer of the image that has Debian's programs.
 *
 * `deno run -A deploy/image/system.ts ARCHITECTURE FOLDER` writes its files into a folder; the Dockerfile does that.
 *
 * @module
 */

import { join } from "@std/path";
import { type Architecture, ARCHITECTURES, PLATFORM_NAMES } from "../runtime.ts";
import { sha256 } from "../self_extracting.ts";
import { unpackDebian } from "./debian.ts";
import packageList from "./packages.txt" with { type: "text" };
import { pickSystem } from "./pick.ts";
import { makeTar } from "../process.ts";

/** Debian's release. */
export const DEBIAN_RELEASE = "bookworm";

/** To be raised when the way in which the layer is put together changes. */
const FORMAT = 2;

/**
 * Returns the path of the layer, a tar file. It is made on first use, in a minute or less, and kept in the folder under
 * a name with a hash of its inputs. A second caller waits while it is made.
 *
 * @param arch this machine's by default
 * @throws {Error} when a step fails; making it takes apt-get, dpkg-deb, and a mirror of Debian
 */
export async function systemLayer(
  cache: string,
  log: (line: string) => void,
  arch: Architecture = Deno.build.arch as Architecture,
): Promise<string> {
  await Deno.mkdir(cache, { recursive: true });
  const inputs = JSON.stringify([FORMAT, DEBIAN_RELEASE, arch, packageList]);
  const key = sha256(new TextEncoder().encode(inputs)).slice(0, 12);
  const layer = join(cache, `image-system-${key}.tar`);
  if (await fileExists(layer)) return layer;
  // The lock is the kernel's: it goes with the process that holds it.
  using lock = await Deno.open(`${layer}.lock`, { create: true, write: true });
  await lock.lock(true);
  if (await fileExists(layer)) return layer;
  log(`image: Debian ${DEBIAN_RELEASE}'s packages for ${PLATFORM_NAMES[arch]}, once, into ${cache}`);
  const temp = await Deno.makeTempDir({ dir: cache, prefix: "building-" });
  try {
    const image = join(temp, "image");
    await writeSystem(arch, image, temp);
    await makeTar(image, join(temp, "system.tar"));
    await Deno.rename(join(temp, "system.tar"), layer);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
  return layer;
}

/** Writes the files of the layer into a folder. The same packages make the same files, on any machine. */
async function writeSystem(arch: Architecture, folder: string, temp: string): Promise<void> {
  const packages = readPackages();
  const debian = join(temp, "debian");
  await Deno.mkdir(debian);
  const unpacked = await unpackDebian([...packages.keys()], { arch, release: DEBIAN_RELEASE, folder: debian });
  await pickSystem(unpacked, [...packages.values()].flat(), { arch, out: folder });
}

async function fileExists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}

if (import.meta.main) {
  const [name, folder] = Deno.args;
  const arch = ARCHITECTURES.find((arch) => PLATFORM_NAMES[arch] === name);
  if (arch === undefined || folder === undefined) throw new Error("usage: system.ts amd64|arm64 FOLDER");
  const temp = await Deno.makeTempDir();
  try {
    await writeSystem(arch, folder, temp);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
}

/**
 * Returns the files that the image takes from Debian packages, by package: names of programs and libraries, and paths
 * of other files. packages.txt lists them in lines `package: file …`.
 *
 * @throws {Error} when a line is not of this form
 */
export function readPackages(text: string = packageList): ReadonlyMap<string, readonly string[]> {
  const packages = new Map<string, readonly string[]>();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, name, files] = /^([a-z0-9][a-z0-9.+-]+): (\S.*)$/.exec(line) ?? [];
    if (name === undefined || files === undefined) throw new Error(`read packages.txt: ${JSON.stringify(line)}`);
    packages.set(name, [...packages.get(name) ?? [], ...files.split(" ")]);
  }
  return packages;
}
