import { dirname, join, normalize } from "@std/path";
import { run } from "./process.ts";
import type { TempFolder } from "./temp_folder.ts";

/** A file or folder for the guest: one of this machine (links in the path are followed), or a text. */
export type PayloadFile = { host: string } | { text: string; mode?: number };

const MIB = 1024 * 1024;

const GIB = 1024 ** 3;

/** Free space of the script in /work beyond the files that it is given, in MiB. Sparse: unused space costs nothing. */
const FREE_MIB = 4096;

/**
 * Makes the ext4 image that the guest mounts at /work.
 *
 * @param files by path relative to /work
 * @returns the path of the image, in `temp`
 * @throws {Error} when a path leads out of /work, a file cannot be read, or mkfs.ext4 fails
 */
export async function makePayload(temp: TempFolder, files: Readonly<Record<string, PayloadFile>>): Promise<string> {
  const staging = temp.file("staging");
  await Deno.mkdir(staging);
  let bytes = 0;
  for (const [path, file] of Object.entries(files)) {
    const target = join(staging, requireInside(path));
    await Deno.mkdir(dirname(target), { recursive: true });
    bytes += await placeFile(file, target).catch((cause) => {
      const what = "host" in file ? file.host : "a text";
      throw new Error(`put ${what} into the guest as ${path}: ${cause.message}`, { cause });
    });
  }
  const image = temp.file("payload.img");
  const size = `${Math.ceil((bytes * 1.1) / MIB) + FREE_MIB}M`;
  const options = ["-q", "-d", staging, "-O", "^has_journal", "-m", "0", "-E", "root_owner=0:0"];
  await run("make the guest's payload disk", "mkfs.ext4", [...options, image, size], { guardedBy: temp });
  return image;
}

/** Makes an empty disk: a sparse file. */
export async function makeDisk(file: string, gib: number): Promise<void> {
  await Deno.create(file).then((handle) => handle.close());
  await Deno.truncate(file, gib * GIB);
}

function requireInside(path: string): string {
  const plain = normalize(path);
  if (path === "" || plain.startsWith("/") || plain === "." || plain.split("/").includes("..")) {
    throw new Error(`put a file into the guest as "${path}": the path must be relative to /work and stay inside it`);
  }
  return plain;
}

/** Puts a file or folder at `target`. @returns its size in bytes */
async function placeFile(file: PayloadFile, target: string): Promise<number> {
  if ("host" in file) return await linkOrCopy(await Deno.realPath(file.host), target);
  await Deno.writeTextFile(target, file.text);
  await Deno.chmod(target, file.mode ?? 0o644);
  return diskUsageOf(file.text.length);
}

/** Creates a hard link where possible, because programs are large, and copies across file systems. */
async function linkOrCopy(source: string, target: string): Promise<number> {
  const info = await Deno.lstat(source);
  if (info.isSymlink) {
    await Deno.symlink(await Deno.readLink(source), target);
    return diskUsageOf(0);
  }
  if (info.isFile) {
    await Deno.link(source, target).catch(() => Deno.copyFile(source, target));
    return diskUsageOf(info.size);
  }
  if (!info.isDirectory) throw new Error(`${source} is neither a file, a folder nor a link`);
  await Deno.mkdir(target, { recursive: true });
  let bytes = diskUsageOf(0);
  for await (const entry of Deno.readDir(source)) {
    bytes += await linkOrCopy(join(source, entry.name), join(target, entry.name));
  }
  return bytes;
}

/** Bytes on disk of a file of this size, with its inode. */
function diskUsageOf(size: number): number {
  return Math.ceil(size / 4096) * 4096 + 4096;
}
