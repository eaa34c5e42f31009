/**
 * The image as an archive, for machines that import it without a registry (`ctr --namespace k8s.io images import`,
 * `docker load`). It has two layers: Debian's programs, which are kept for the next time, and Deno with the driver.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { type Architecture, denoBinary, PLATFORM_NAMES } from "../runtime.ts";
import { sha256, sha256OfFile } from "../self_extracting.ts";
import { IMAGE_START, writeDriver } from "./driver.ts";
import type { StandardLibrary } from "../standard_library.ts";
import { systemLayer } from "./system.ts";
import { makeTar } from "../process.ts";
import { defined } from "../../base/defined.ts";
import { runTool } from "../tool.ts";

/** The image's name, which the manifests have, too. */
export const IMAGE = `denolith:${manifest.version}`;

/** What the image says of itself. */
export const IMAGE_LABELS: Readonly<Record<string, string>> = {
  "org.opencontainers.image.title": "denolith",
  "org.opencontainers.image.version": manifest.version,
  "org.opencontainers.image.licenses": manifest.license,
};

/** Settings of {@linkcode makeImageArchive}. */
export interface ImageArchiveOptions {
  /** The file to make. */
  readonly output: string;
  /** The folder where the layer with Debian's programs is kept; made if missing. */
  readonly cache: string;
  /** The image's name; {@linkcode IMAGE} by default. */
  readonly name?: string;
  /** Called with a line for each step that takes long. */
  readonly log: (line: string) => void;
}

/**
 * Makes an archive (`docker save`'s form) of the image for this kind of machine, in which names of layers are their
 * checksums. It is put in place when it is whole. The same sources and the same packages make the same file.
 *
 * @throws {Error} when a step fails; making the layer with Debian's programs takes apt-get and dpkg-deb
 */
export async function makeImageArchive({ output, cache, name = IMAGE, log }: ImageArchiveOptions): Promise<void> {
  const system = await systemLayer(cache, log);
  await Deno.mkdir(dirname(output), { recursive: true });
  // beside what it makes, so that this can be renamed into place
  const temp = await Deno.makeTempDir({ dir: dirname(output), prefix: ".making-" });
  try {
    const archive = join(temp, "whole.tar");
    const driver = await driverLayer(temp, await denoBinary(Deno.build.arch as Architecture, temp));
    await writeArchive(temp, { name, layers: [system, driver], output: archive });
    await Deno.rename(archive, output);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
}

/** The contents of an image archive. */
interface ArchiveContents {
  readonly name: string;
  /** The paths of the layers, the lowest first. */
  readonly layers: readonly string[];
  readonly output: string;
}

/** Makes an archive of layers, each under its checksum, and what describes them. */
async function writeArchive(temp: string, { name, layers, output }: ArchiveContents): Promise<void> {
  const folder = join(temp, "archive");
  await Deno.mkdir(folder);
  const sums: string[] = [];
  for (const layer of layers) {
    const sum = await sha256OfFile(layer);
    sums.push(sum);
    // large: tar follows the link
    await Deno.symlink(await Deno.realPath(layer), join(folder, `${sum}.tar`));
  }
  const config = imageConfig(sums, Deno.build.arch as Architecture);
  const configName = `${sha256(new TextEncoder().encode(config))}.json`;
  await Deno.writeTextFile(join(folder, configName), config);
  const imageManifest = [{ Config: configName, RepoTags: [name], Layers: sums.map((sum) => `${sum}.tar`) }];
  await Deno.writeTextFile(join(folder, "manifest.json"), JSON.stringify(imageManifest));
  const names = ["manifest.json", configName, ...sums.map((sum) => `${sum}.tar`)];
  await makeTar(folder, output, { names, options: ["--dereference"] });
}

/**
 * Returns the image's configuration (OCI image specification, config.md).
 *
 * @param layers the checksums of the layers' tar files
 * @param created the time of what the image is made of (RFC 3339); an archive has none
 */
export function imageConfig(layers: readonly string[], arch: Architecture, created?: string): string {
  return JSON.stringify({
    ...defined({ created }),
    architecture: PLATFORM_NAMES[arch],
    os: "linux",
    config: { ...IMAGE_START, Labels: IMAGE_LABELS },
    rootfs: { type: "layers", diff_ids: layers.map((sum) => `sha256:${sum}`) },
  });
}

/**
 * Makes the layer with the driver and this deno binary in the folder, and answers its path. The driver is written on the first
 * call: further ones, for other kinds of machines, take the same.
 */
export async function driverLayer(temp: string, deno: string, std: StandardLibrary = "npm"): Promise<string> {
  const root = join(temp, "driver");
  if (!await Deno.stat(root).then(() => true, () => false)) await writeDriver(root, std);
  await Deno.copyFile(deno, join(root, "usr/bin/deno"));
  await Deno.chmod(join(root, "usr/bin/deno"), 0o755);
  const output = join(temp, "driver.tar");
  await makeTar(root, output, { options: ["--mode=u=rwX,go=rX"] }); // whatever the umask
  return output;
}

/** Returns the path of the cache folder. */
export function cacheFolder(): string {
  const cache = Deno.env.get("XDG_CACHE_HOME") ?? join(Deno.env.get("HOME") ?? "/root", ".cache");
  return join(cache, "denolith");
}

const HELP = `Usage: deno task image

Makes dist/denolith-image.tar, an archive of the image ${IMAGE} for this kind of machine. It takes a Debian. Debian's part
is kept in $XDG_CACHE_HOME/denolith, or ~/.cache/denolith.`;

if (import.meta.main) {
  if (Deno.args.length > 0) {
    console.log(HELP);
    Deno.exit(Deno.args[0] === "--help" || Deno.args[0] === "-h" ? 0 : 2);
  }
  const output = join(import.meta.dirname!, "../../dist/denolith-image.tar");
  await runTool("image", async () => {
    await makeImageArchive({ output, cache: cacheFolder(), log: console.error });
    console.log(`${output}: ${(await Deno.stat(output)).size >> 20} MiB, ${IMAGE}`);
  });
}
