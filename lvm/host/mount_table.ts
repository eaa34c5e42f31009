/**
 * The mount table of the kernel, read from a file instead of by a program.
 *
 * Deno refuses `/proc` to the driver, and must: it shows the environment of every process. So mount(8) binds one file of
 * it, the mount table of the driver's own process, to a path in a directory of the driver, which opens it and unmounts it
 * at once. The open file stays: the kernel writes the table anew for each read from its start, always that of the mount
 * namespace in which the driver, and so each command that it starts, mounts and unmounts.
 *
 * @module
 */

import { withinDeadline } from "../../base/clock.ts";
import { StorageError } from "../../base/error.ts";
import { DEFAULT_DEADLINES, type Exec } from "../exec.ts";
import { bindMount } from "./mounts.ts";
import { mountPoints } from "./mount_info.ts";

/** The bytes that one read asks for. The kernel returns a part of the table, of about a page. */
const BUFFER_BYTES = 1 << 16;

/** The part of a file that is used here. */
type Readable = Pick<Deno.FsFile, "read" | "seek">;

/** How often the table is read until two reads are equal. */
const MAX_READS = 8;

/** What the names of the files begin with on which tables are mounted. */
const FILE_PREFIX = "mountinfo.";

/**
 * Opens the mount table of this process.
 *
 * @param directory a directory of the driver, which is created if it does not exist; nothing stays in it
 * @param onFailure called when the table cannot be read any more
 * @returns a function that reads it, as {@linkcode Exec.readMountTable}
 * @throws {Error} when it cannot be opened
 */
export async function openMountTable(
  exec: Exec,
  directory: string,
  onFailure: (error: unknown) => void,
): Promise<() => Promise<string | undefined>> {
  await Deno.mkdir(directory, { recursive: true });
  await removeLeftovers(exec, directory);
  const file = await openThroughMount(exec, directory);
  return readerOf(file, onFailure);
}

async function openThroughMount(exec: Exec, directory: string): Promise<Deno.FsFile> {
  const name = `${FILE_PREFIX}${Deno.pid}`;
  const path = `${directory}/${name}`;
  await Deno.writeFile(path, new Uint8Array(), { createNew: true, mode: 0o600 });
  let file: Deno.FsFile | undefined;
  try {
    await bindMount(exec, `/proc/${Deno.pid}/mountinfo`, path, []);
    file = await Deno.open(path);
    // only a table of the namespace in which mount(8) has just acted shows that mount
    const target = `${await Deno.realPath(directory)}/${name}`;
    if (mountPoints(await readStable(file) ?? "").includes(target)) return file;
    throw new StorageError("FailedPrecondition", `reading ${path}: it is not the table in which the driver mounts`);
  } catch (error) {
    file?.close();
    throw error;
  } finally {
    await removeMounted(exec, path);
  }
}

/** Removes what processes left that were killed while they opened their tables. */
async function removeLeftovers(exec: Exec, directory: string): Promise<void> {
  for await (const { name } of Deno.readDir(directory)) {
    const isOurs = name.startsWith(FILE_PREFIX) && /^\d+$/.test(name.slice(FILE_PREFIX.length)); // a process id
    if (isOurs) await removeMounted(exec, `${directory}/${name}`);
  }
}

/** Unmounts a table, and removes the file on which it was mounted. The mount may be missing, and the table open. */
async function removeMounted(exec: Exec, path: string): Promise<void> {
  await exec.run({ program: "umount", args: ["--lazy", path], mutates: true });
  await Deno.remove(path).catch(() => {}); // if it is still mounted, the next start tries again
}

/** Returns a function that reads the table after all earlier calls. After a failure it returns `undefined` forever. */
function readerOf(file: Deno.FsFile, onFailure: (error: unknown) => void): () => Promise<string | undefined> {
  let last: Promise<unknown> = Promise.resolve();
  let hasFailed = false;
  const read = async () => {
    if (hasFailed) return undefined;
    try {
      return await readStable(file);
    } catch (error) {
      hasFailed = true;
      file.close();
      onFailure(error);
      return undefined;
    }
  };
  return async () => {
    if (hasFailed) return undefined;
    const result = last.then(read).then((text) => ({ text }));
    last = result;
    const outcome = await withinDeadline(result, DEFAULT_DEADLINES.readMs);
    if (outcome === undefined && !hasFailed) {
      hasFailed = true; // the file stays open: its read has not ended
      onFailure(new StorageError("Unavailable", "reading the mount table: no answer"));
    }
    return outcome?.text;
  };
}

/**
 * Reads the table until two reads in a row are equal.
 *
 * The kernel returns the table in parts, and it may change between two of them. Since Linux 5.8 such a read has each mount
 * once that exists for all its time; before, it can skip or repeat one when another one disappears or appears. A change
 * that does so shows in the next read: what has disappeared is not in it any more, what has appeared is. So two equal reads
 * are complete, and show what was mounted when the second one began.
 *
 * @returns the table; `undefined` when it changed all the time
 * @throws {StorageError} `CommandFailed` when it is empty or does not end with a whole line
 */
export async function readStable(file: Readable): Promise<string | undefined> {
  let previous: string | undefined;
  for (let reads = 0; reads < MAX_READS; reads++) {
    const text = await readOnce(file);
    if (!text.endsWith("\n")) {
      throw new StorageError("CommandFailed", `reading the mount table: it is not complete: ${text.length} characters`);
    }
    if (text === previous) return text;
    previous = text;
  }
  return undefined;
}

async function readOnce(file: Readable): Promise<string> {
  await file.seek(0, Deno.SeekMode.Start);
  const decoder = new TextDecoder();
  const buffer = new Uint8Array(BUFFER_BYTES);
  let text = "";
  for (let bytes = await file.read(buffer); bytes !== null; bytes = await file.read(buffer)) {
    text += decoder.decode(buffer.subarray(0, bytes), { stream: true });
  }
  return text + decoder.decode();
}
