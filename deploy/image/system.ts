/**
 * The layer of the image that has Debian's programs.
 *
 * @module
 */

import { join } from "@std/path";
import pickScript from "./pick.sh" with { type: "text" };
import { requireProgram, run } from "../process.ts";
import type { Architecture } from "../runtime.ts";
import { sha256 } from "../self_extracting.ts";
import packageList from "./packages.txt" with { type: "text" };
import { readPackages } from "./packages.ts";
import { makeTar } from "./tar.ts";

/** Debian's release, which the Dockerfile has, too. */
export const DEBIAN_RELEASE = "bookworm";

/** Debian's names of the architectures. */
const DEBIAN_ARCHITECTURES = { x86_64: "amd64", aarch64: "arm64" } as const satisfies Record<Architecture, string>;

/** Namespaces of its own for a program: its mounts and processes are gone when it is, however it ends. */
const NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child"];

/**
 * Returns the path of the layer, a tar file. It is made on first use, in a minute or two, and kept in the folder under
 * a name with a hash of its inputs. A second caller waits while it is made.
 *
 * @param arch this machine's by default; another one takes a kernel that starts its programs by qemu (binfmt_misc)
 * @throws {Error} when a step fails; making it takes root, debootstrap, and a mirror of Debian
 */
export async function systemLayer(
  cache: string,
  log: (line: string) => void,
  arch: Architecture = Deno.build.arch as Architecture,
): Promise<string> {
  await Deno.mkdir(cache, { recursive: true });
  const inputs = JSON.stringify([DEBIAN_RELEASE, arch, packageList, pickScript]);
  const key = sha256(new TextEncoder().encode(inputs)).slice(0, 12);
  const layer = join(cache, `image-system-${key}.tar`);
  if (await fileExists(layer)) return layer;
  // The lock is the kernel's: it goes with the process that holds it.
  using lock = await Deno.open(`${layer}.lock`, { create: true, write: true });
  await lock.lock(true);
  if (await fileExists(layer)) return layer;
  if (Deno.uid() !== 0) throw new Error("make the image's system: debootstrap needs root; run it once as root");
  await requireProgram("make the image's system", "debootstrap");
  await requireStartable(arch);
  log(`image: Debian ${DEBIAN_RELEASE} by debootstrap, once, for ${arch}, into ${cache} (minutes)`);
  const temp = await Deno.makeTempDir({ dir: cache, prefix: "building-" });
  try {
    await makeTar(await installSystem(temp, arch), join(temp, "system.tar"));
    await Deno.rename(join(temp, "system.tar"), layer);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
  return layer;
}

/** Installs Debian in the folder, picks from it what the image has, and answers where that is. */
async function installSystem(temp: string, arch: Architecture): Promise<string> {
  const debian = join(temp, "debian");
  const packages = [...readPackages().keys()].join(",");
  const mirror = await aptMirror();
  const architecture = `--arch=${DEBIAN_ARCHITECTURES[arch]}`;
  const install = ["debootstrap", architecture, "--variant=minbase", `--include=${packages}`, DEBIAN_RELEASE, debian];
  if (mirror !== undefined) install.push(mirror);
  await run("install Debian for the image", "unshare", [...NAMESPACES, ...install]);
  await Deno.writeTextFile(join(debian, "pick.sh"), pickScript);
  await Deno.writeTextFile(join(debian, "packages.txt"), packageList);
  const pick = [...NAMESPACES, "chroot", debian, "/bin/sh", "/pick.sh", "/packages.txt", "/image"];
  await run("pick the image's programs", "unshare", pick);
  return join(debian, "image");
}

/**
 * Checks that this machine can start the programs of an architecture, as debootstrap does with those that it installs.
 *
 * @throws {Error} when it cannot; the message names the packages
 */
async function requireStartable(arch: Architecture): Promise<void> {
  if (arch === Deno.build.arch || await fileExists(`/proc/sys/fs/binfmt_misc/qemu-${arch}`)) return;
  const packages = "qemu-user-static binfmt-support";
  throw new Error(
    `make the image's system for ${arch}: this kernel does not start its programs; run: apt-get install ${packages}`,
  );
}

/** Returns the first Debian mirror in apt's configuration of this machine, if any; debootstrap has a default. */
async function aptMirror(): Promise<string | undefined> {
  const format = "$(REPO_URI) $(COMPONENT)";
  const query = ["indextargets", "--no-release-info", "--format", format, "Created-By: Packages"];
  const targets = await run("read apt's sources", "apt-get", query).catch(() => "");
  return targets.split("\n").map((line) => line.split(" ")).find(([address, component]) =>
    component === "main" && /^https?:/.test(address!) && !address!.includes("security")
  )?.[0];
}

async function fileExists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}
