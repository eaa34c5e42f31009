/**
 * Files and directories in memory, for tests that create many mount points. Their operations take no time of the disk, so
 * they end in the same order in each run.
 *
 * @module
 */

import { dirname } from "@std/path";

/** A function of `Deno` that is replaced. */
type Replaced = "lstat" | "lstatSync" | "realPath" | "mkdir" | "remove" | "writeFile";

/**
 * The files and directories below a folder that does not exist on the disk. Until it is disposed of, the functions of
 * `Deno` that the driver and the fake machine use find them there. Other paths lead to the disk. There are no links.
 */
export class MemoryFiles implements Disposable {
  /** The path of the folder. */
  readonly folder: string;
  /** The paths below the folder, each with whether it is a directory. */
  readonly #entries = new Map<string, boolean>();
  readonly #real: Pick<typeof Deno, Replaced>;

  /** Creates an empty folder. @param folder an absolute path that does not exist */
  constructor(folder = "/memory") {
    this.folder = folder;
    const { lstat, lstatSync, realPath, mkdir, remove, writeFile } = Deno;
    this.#real = { lstat, lstatSync, realPath, mkdir, remove, writeFile };
    const replaced: Partial<Pick<typeof Deno, Replaced>> = {
      lstat: async (path) => this.#has(path) ? await Promise.resolve(this.#info(`${path}`)) : await lstat(path),
      lstatSync: (path) => this.#has(path) ? this.#info(`${path}`) : lstatSync(path),
      realPath: async (path) => {
        if (!this.#has(path)) return await realPath(path);
        this.#info(`${path}`);
        return await Promise.resolve(`${path}`);
      },
      mkdir: async (path, options) => {
        if (!this.#has(path)) return await mkdir(path, options);
        await Promise.resolve(this.#add(`${path}`, true, options?.recursive ?? false));
      },
      remove: async (path, options) => {
        if (!this.#has(path)) return await remove(path, options);
        await Promise.resolve(this.#remove(`${path}`));
      },
      writeFile: async (path, data, options) => {
        if (!this.#has(path)) return await writeFile(path, data, options);
        await Promise.resolve(this.#add(`${path}`, false, false));
      },
    };
    Object.assign(Deno, replaced);
  }

  /** The paths below the folder, relative to it, in order; those of directories end with a slash. */
  get paths(): string[] {
    return [...this.#entries].map(([path, isDirectory]) =>
      path.slice(this.folder.length + 1) + (isDirectory ? "/" : "")
    ).sort();
  }

  /** Sets the paths below the folder, as {@linkcode MemoryFiles.paths} returns them. */
  set paths(paths: readonly string[]) {
    this.#entries.clear();
    for (const path of paths) this.#entries.set(`${this.folder}/${path.replace(/\/$/, "")}`, path.endsWith("/"));
  }

  [Symbol.dispose](): void {
    Object.assign(Deno, this.#real);
  }

  #has(path: string | URL): boolean {
    return path === this.folder || (typeof path === "string" && path.startsWith(`${this.folder}/`));
  }

  #isDirectory(path: string): boolean | undefined {
    return path === this.folder ? true : this.#entries.get(path);
  }

  #info(path: string): Deno.FileInfo {
    const isDirectory = this.#isDirectory(path);
    if (isDirectory === undefined) throw new Deno.errors.NotFound(path);
    return { isDirectory, isFile: !isDirectory, isSymlink: false, size: 0 } as Deno.FileInfo;
  }

  #add(path: string, isDirectory: boolean, recursive: boolean): void {
    const existing = this.#isDirectory(path);
    if (existing !== undefined && !(recursive && existing)) throw new Deno.errors.AlreadyExists(path);
    if (this.#isDirectory(dirname(path)) !== true) throw new Deno.errors.NotFound(path);
    if (existing === undefined) this.#entries.set(path, isDirectory);
  }

  #remove(path: string): void {
    this.#info(path);
    if ([...this.#entries.keys()].some((other) => other.startsWith(`${path}/`))) {
      throw new Error(`${path} is not empty`);
    }
    this.#entries.delete(path);
  }
}
