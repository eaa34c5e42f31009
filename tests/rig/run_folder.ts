import { join } from "@std/path";
import { toolEnvironment } from "./process.ts";
import { REMOVE } from "./temp_folder.ts";

/** A shell function that reports whether the process of a file "PID START" still runs. START excludes later processes. */
const IS_ALIVE = `
is_alive() {
  read -r pid start <"$1" || return 1
  state=$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null) || return 1
  set -- $state
  [ $# -ge 20 ] && [ "$1" != Z ] && [ "\${20}" = "$start" ]
}
`;

/** Kills all processes of the folder $1, waits for that, and removes the folder. */
const KILL_AND_REMOVE = `${IS_ALIVE}
for file in "$1"/*.pid; do
  [ -e "$file" ] && is_alive "$file" && kill -9 "$pid"
done
for file in "$1"/*.pid; do
  while [ -e "$file" ] && is_alive "$file"; do sleep .02; done
done
${REMOVE}`;

/**
 * The watchdog of a folder while its creator runs. When its standard input ends, which any end of the creator causes, it kills
 * the folder's processes and removes the folder, unless a line came before.
 */
const WATCHDOG = `
trap '' HUP INT TERM
read -r keep && exit 0
${KILL_AND_REMOVE}`;

/** A script that becomes a process of its own, writes its id to NAME.pid, and executes the other arguments. */
const EXEC_WITH_PID_FILE = `
name=$1
shift
state=$(sed 's/.*) //' "/proc/$$/stat")
args_start() { shift 19; echo "$1"; }
echo "$$ $(args_start $state)" >"$name.pid.new"
mv "$name.pid.new" "$name.pid"
exec "$@" </dev/null >>"$name.log" 2>&1
`;

const START = `
rm -f "$1.pid"
setsid /bin/sh -c "$0" become "$@" &
while [ ! -e "$1.pid" ]; do sleep .01; done
`;

/**
 * A folder with processes that outlive the one that started them, each with a file of its id and one of what it prints. Until
 * {@linkcode RunFolder.keep} is called, everything ends with the maker, however that ends.
 */
export class RunFolder implements AsyncDisposable {
  /** Absolute path of the folder. */
  readonly path: string;
  #watchdog: Deno.ChildProcess | undefined;
  #isRemoved = false;

  private constructor(path: string, watchdog?: Deno.ChildProcess) {
    this.path = path;
    this.#watchdog = watchdog;
  }

  /**
   * Makes the folder.
   *
   * @throws {Error} when it is there already, or cannot be made
   */
  static async create(path: string): Promise<RunFolder> {
    await Deno.mkdir(join(path, ".."), { recursive: true });
    await Deno.mkdir(path, { mode: 0o700 });
    const real = await Deno.realPath(path);
    const watchdog = new Deno.Command("/bin/sh", {
      args: ["-c", WATCHDOG, "denolith-run-folder", real],
      stdin: "piped",
      stdout: "null",
      stderr: "inherit",
      detached: true,
    }).spawn();
    return new RunFolder(real, watchdog);
  }

  /** Makes one with a new name in the system's folder for temporary files. */
  static async createTemp(prefix: string): Promise<RunFolder> {
    return await RunFolder.create(join(Deno.env.get("TMPDIR") ?? "/tmp", `${prefix}${crypto.randomUUID()}`));
  }

  /** Opens a folder that another process made and kept. */
  static open(path: string): RunFolder {
    return new RunFolder(path);
  }

  /** Returns the path of `name` in the folder. */
  file(name: string): string {
    return join(this.path, name);
  }

  /** Returns the path of what a process printed. */
  log(name: string): string {
    return this.file(`${name}.log`);
  }

  /**
   * Starts a program. One that cannot run is seen by {@linkcode RunFolder.isRunning}.
   *
   * @param name its name here; what ran before under that name must have ended
   * @throws {Error} when the folder is being removed
   */
  async start(name: string, program: string, args: readonly string[]): Promise<void> {
    if (this.#isRemoved) throw new Error(`start ${name}: its folder is being removed`);
    await this.#shell("start", START, [EXEC_WITH_PID_FILE, name, program, ...args]);
  }

  /** Returns the names of the processes that were started and not stopped. */
  async names(): Promise<string[]> {
    const names: string[] = [];
    for await (const entry of Deno.readDir(this.path)) {
      if (entry.name.endsWith(".pid")) names.push(entry.name.slice(0, -".pid".length));
    }
    return names.sort();
  }

  /** Reports whether a process runs. */
  async isRunning(name: string): Promise<boolean> {
    return await this.pid(name) !== undefined;
  }

  /** Returns the id of a process, undefined when it does not run. */
  async pid(name: string): Promise<number | undefined> {
    const pidRecord = await Deno.readTextFile(this.file(`${name}.pid`)).catch(() => "");
    const [pid, start] = pidRecord.trim().split(" ");
    if (!pid || !start) return undefined;
    const stat = await Deno.readTextFile(`/proc/${pid}/stat`).catch(() => "");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return fields[0] !== "Z" && fields[19] === start ? Number(pid) : undefined;
  }

  /** Sends a signal to a process, if it runs. */
  async signal(name: string, signal: Deno.Signal): Promise<void> {
    const pid = await this.pid(name);
    if (pid !== undefined) Deno.kill(pid, signal);
  }

  /** Kills a process hard and waits until it is gone. */
  async stop(name: string): Promise<void> {
    await this.signal(name, "SIGKILL");
    while (await this.isRunning(name)) await new Promise((resolve) => setTimeout(resolve, 20));
    await Deno.remove(this.file(`${name}.pid`)).catch(() => {});
  }

  /** Lets the folder and its processes outlive this one. */
  async keep(): Promise<void> {
    if (this.#watchdog === undefined) return;
    const writer = this.#watchdog.stdin.getWriter();
    await writer.write(new TextEncoder().encode("keep\n"));
    await writer.close();
    await this.#watchdog.status;
    this.#watchdog = undefined;
  }

  /** Kills all processes and removes the folder. */
  async remove(): Promise<void> {
    this.#isRemoved = true;
    if (this.#watchdog === undefined) {
      return await this.#shell("end", KILL_AND_REMOVE, ["denolith-run-folder", this.path]);
    }
    await this.#watchdog.stdin.close();
    await this.#watchdog.status;
    this.#watchdog = undefined;
  }

  /** {@linkcode RunFolder.remove}, unless the folder is kept. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#watchdog !== undefined) await this.remove();
  }

  async #shell(what: string, script: string, args: readonly string[]): Promise<void> {
    const output = await new Deno.Command("/bin/sh", {
      args: ["-c", script, ...args],
      cwd: this.path,
      env: toolEnvironment(),
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).output();
    if (output.success) return;
    throw new Error(`${what} processes of ${this.path}: ${new TextDecoder().decode(output.stderr).trim()}`);
  }
}

/** Returns the last lines of what a process printed, indented, for an error. */
export async function logTail(folder: RunFolder, name: string, count = 15): Promise<string> {
  const text = await Deno.readTextFile(folder.log(name)).catch(() => "");
  return text.trimEnd().split(/\r?\n/).slice(-count).map((line) => `  ${line}`).join("\n");
}
