/**
 * Picks from Debian's packages what the image has: a system without a shell, a package manager or anything else that
 * nobody starts.
 *
 * @module
 */

import { basename, dirname, join } from "@std/path";
import type { Architecture } from "../runtime.ts";
import { MERGED_FOLDERS, type UnpackedDebian } from "./debian.ts";
import { readNeeds } from "./elf.ts";

/** Mount points, and writable folders. */
const FOLDERS = [
  ...["dev", "proc", "sys", "run", "run/lock/lvm", "run/udev", "etc/lvm", "tmp"],
  ...["var/cache/denolith", "var/lib/kubelet"],
];

/** How many links may lead to one another, as in the kernel. */
const MAX_LINKS = 40;

/**
 * Copies files, with all that they are linked with, into a folder. Further: what dpkg knows of the packages that
 * something was taken of, for scanners, and their licences.
 *
 * @param files names of programs and libraries, and paths of other files
 * @throws {Error} when a file or a library is in no package
 */
export async function pickSystem(
  debian: UnpackedDebian,
  files: readonly string[],
  { arch, out }: { arch: Architecture; out: string },
): Promise<void> {
  await makeFolders(out);
  const picker = new Picker(debian, arch, out);
  for (const name of files) await picker.pick(await picker.find(name));
  await picker.writeStatus();
  await setFolderModes(out);
}

/** Makes the folders and links that the image has in any case. */
async function makeFolders(out: string): Promise<void> {
  for (const name of [...FOLDERS, ...MERGED_FOLDERS.map((name) => `usr/${name}`)]) {
    await Deno.mkdir(join(out, name), { recursive: true });
  }
  // where programs, and the loader of programs, are looked for as well
  for (const name of MERGED_FOLDERS) await Deno.symlink(`usr/${name}`, join(out, name));
  await Deno.symlink("../run", join(out, "var/run"));
}

/** Sets who may enter and write the folders, whatever the umask. */
async function setFolderModes(out: string, path = ""): Promise<void> {
  for await (const { name, isDirectory } of Deno.readDir(join(out, path))) {
    if (isDirectory) await setFolderModes(out, join(path, name));
  }
  await Deno.chmod(join(out, path), path === "tmp" ? 0o1777 : 0o755);
}

class Picker {
  readonly #debian: UnpackedDebian;
  readonly #out: string;
  /** The folder of libraries. */
  readonly #libraries: string;
  /** The packages of which something was taken. */
  readonly #packages = new Set<string>();
  readonly #picked = new Set<string>();

  constructor(debian: UnpackedDebian, arch: Architecture, out: string) {
    this.#debian = debian;
    this.#out = out;
    this.#libraries = `/usr/lib/${arch}-linux-gnu`;
  }

  /** Returns the path of a file: as it is given, or where programs and libraries are. @throws {Error} when there is none */
  async find(name: string, folders: readonly string[] = ["/usr/sbin", "/usr/bin", this.#libraries]): Promise<string> {
    const paths = name.startsWith("/") ? [name] : folders.map((folder) => join(folder, name));
    for (const path of paths) if (await this.#exists(path)) return path;
    throw new Error(`pick the image's programs: no package has the file ${name}`);
  }

  /** Copies a file, its target if it is a link, and what it is linked with. */
  async pick(path: string): Promise<void> {
    const from = join(await this.#resolve(dirname(path)), basename(path));
    if (this.#picked.has(from)) return;
    this.#picked.add(from);
    const [source, target] = [join(this.#debian.root, from), join(this.#out, from)];
    await Deno.mkdir(dirname(target), { recursive: true });
    const owner = this.#debian.owners.get(from);
    if (owner !== undefined) this.#packages.add(owner);
    const { isSymlink, mode } = await Deno.lstat(source);
    if (isSymlink) {
      const link = await Deno.readLink(source);
      await Deno.symlink(link, target);
      return await this.pick(link.startsWith("/") ? link : join(dirname(from), link));
    }
    await Deno.copyFile(source, target);
    await Deno.chmod(target, mode! & 0o777); // no setuid: only root runs it, and nobody may become root by it
    await this.#pickNeeds(from, await Deno.readFile(source));
  }

  /** Writes dpkg's list of the packages that something was taken of, and their licences. */
  async writeStatus(): Promise<void> {
    const names = [...this.#packages].sort();
    for (const name of names) {
      const folder = join("/usr/share/doc", name);
      await Deno.mkdir(join(this.#out, folder), { recursive: true });
      const copyright = await this.#resolve(join(folder, "copyright"));
      await Deno.copyFile(join(this.#debian.root, copyright), join(this.#out, folder, "copyright"));
    }
    await Deno.mkdir(join(this.#out, "var/lib/dpkg"), { recursive: true });
    const status = names.map((name) => `${this.#debian.status.get(name)}\n\n`).join("");
    const file = join(this.#out, "var/lib/dpkg/status");
    await Deno.writeTextFile(file, status);
    await Deno.chmod(file, 0o644);
  }

  async #pickNeeds(from: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const needs = readNeeds(bytes);
    if (needs === undefined) return;
    if (needs.loader !== undefined) await this.pick(needs.loader);
    const folders = needs.folders.map((folder) => folder.replace(/^\$(ORIGIN|\{ORIGIN\})/, dirname(from)));
    for (const name of needs.libraries) {
      await this.pick(await this.find(name, [...folders, this.#libraries, "/usr/lib"]));
    }
  }

  async #exists(path: string): Promise<boolean> {
    return await this.#resolve(path).then(() => true, () => false);
  }

  /** Returns a path without links, as a process would see it whose root is that of the packages. */
  async #resolve(path: string, links = 0): Promise<string> {
    if (links > MAX_LINKS) throw new Error(`pick the image's programs: too many links lead to ${path}`);
    let resolved = "/";
    const parts = path.split("/").filter((part) => part !== "");
    for (const [index, part] of parts.entries()) {
      const next = join(resolved, part);
      const { isSymlink } = await Deno.lstat(join(this.#debian.root, next));
      if (isSymlink) {
        const target = await Deno.readLink(join(this.#debian.root, next));
        const rest = parts.slice(index + 1);
        return await this.#resolve(join(target.startsWith("/") ? target : join(resolved, target), ...rest), links + 1);
      }
      resolved = next;
    }
    return resolved;
  }
}
