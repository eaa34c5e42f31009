import { join } from "@std/path";

/** The end of a keeper: removes the folder $1, in which something may be written still. */
export const REMOVE = `
for try in 1 2 3 4 5; do
  rm -rf -- "$1" && exit 0
  sleep 1
done
echo "$1 could not be removed" >&2
exit 1
`;

/**
 * The keeper of one temporary folder. It reads process ids from its standard input, one a line. That input ends when
 * the folder is released or when the process that created it ends (Ctrl-C, SIGKILL, a test runner that exits at once).
 * Then the keeper kills the last process named, if the line was not empty, and removes the folder. Signals and finally
 * blocks cannot ensure that.
 */
const WATCHDOG = `
trap '' HUP INT TERM
last=
while read -r line; do last=$line; done
[ -z "$last" ] || kill -9 "$last" 2>/dev/null
${REMOVE}`;

/** A temporary folder that is removed, with the process that works in it, when its creator releases it or ends. */
export class TempFolder implements AsyncDisposable {
  /** Absolute path of the folder. */
  readonly path: string;
  readonly #watchdog: Deno.ChildProcess;
  readonly #watchdogInput: WritableStreamDefaultWriter<Uint8Array>;

  private constructor(path: string, watchdog: Deno.ChildProcess) {
    this.path = path;
    this.#watchdog = watchdog;
    this.#watchdogInput = watchdog.stdin.getWriter();
  }

  /**
   * Makes a folder with a new name below `parent`, which is made as well where it is missing.
   *
   * @throws {Error} when the folder cannot be made
   */
  static async create(parent: string, prefix: string): Promise<TempFolder> {
    await Deno.mkdir(parent, { recursive: true });
    const path = await Deno.realPath(await Deno.makeTempDir({ dir: parent, prefix }));
    // A session of its own, so that signals to the terminal's process group do not reach the keeper.
    const watchdog = new Deno.Command("/bin/sh", {
      args: ["-c", WATCHDOG, "denolith-temp-folder", path],
      stdin: "piped",
      stdout: "null",
      stderr: "inherit",
      detached: true,
    }).spawn();
    return new TempFolder(path, watchdog);
  }

  /** Returns the path of `name` in the folder. */
  file(name: string): string {
    return join(this.path, name);
  }

  /** Sets the process to kill when this one ends; undefined when that process has ended. One at a time. */
  async guard(pid: number | undefined): Promise<void> {
    await this.#watchdogInput.write(new TextEncoder().encode(`${pid ?? ""}\n`));
  }

  /** Kills the guarded process, if there is one, and removes the folder. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#watchdogInput.close();
    await this.#watchdog.status;
  }
}
