import { EndMark } from "./end_mark.ts";
import { guestFiles } from "./guest_files.ts";
import { type DebianRelease, ensureGuestImage, type GuestImage } from "./guest_image.ts";
import type { Machine, MachineCommand, MachineKind, PortForward } from "./machine.ts";
import { makeDisk, makePayload, type PayloadFile } from "./payload.ts";
import { run, toolEnvironment } from "./process.ts";
import { ensureQemu, qemuCommand } from "./qemu.ts";
import { TempFolder } from "./temp_folder.ts";
import { ensureUml, UML_FILES, umlCommand } from "./uml.ts";

export type { DebianRelease } from "./guest_image.ts";
export type { PayloadFile } from "./payload.ts";
export type { MachineKind, PortForward } from "./machine.ts";

/** Settings of {@linkcode runGuest}. */
export interface GuestOptions {
  /** The kind of machine; qemu by default. User-mode Linux has neither ports nor a network nor a terminal here. */
  machine?: MachineKind;
  /**
   * Run by /bin/sh in /work as root, with nothing on standard input. The paths of the data disks are in DATA_DISKS, separated
   * by blanks. Processes that it leaves behind are killed.
   */
  script: string;
  /** Files and folders for the guest, by path relative to /work. */
  files?: Readonly<Record<string, PayloadFile>>;
  /** Variables for the script, beside HOME=/root, PATH, LC_ALL=C and DATA_DISKS. */
  env?: Readonly<Record<string, string>>;
  /** Sizes of the empty disks in GiB; one of 10 GiB by default. They are sparse and gone after the run. */
  dataDisksGiB?: readonly number[];
  /** The guest's memory in MiB; 4096 by default. */
  memMiB?: number;
  /** Parameters for the kernel, such as `security=selinux`; none by default. */
  kernelParameters?: readonly string[];
  /** Ports of this machine that lead into the guest; none by default. */
  forward?: readonly PortForward[];
  /** True if the guest reaches this machine's 127.0.0.1, as 10.0.2.2, and other networks; false by default. */
  hostAccess?: boolean;
  /** Receives what the script prints, standard output and error in one, as it comes and byte for byte. */
  onOutput?: (chunk: Uint8Array) => void;
  /** Is given the files and folders that the script left in /work/out, however it ended; made if missing. */
  outDir?: string;
  /** The time limit of the guest in milliseconds, with its boot; 20 minutes by default, 0 for no limit. */
  timeoutMs?: number;
  /** Ends the guest at once. */
  signal?: AbortSignal;
  /** The folder for temporary files; the system's by default. */
  workDir?: string;
  /** The Debian of the guest; bookworm by default. */
  debian?: DebianRelease;
  /** The image to boot; that of {@linkcode ensureGuestImage} by default. */
  image?: GuestImage;
  /** Called with the progress when the image must be built; writes to standard error by default. */
  log?: (line: string) => void;
  /** Connects the script to this process's terminal, instead of `onOutput` and `outDir`, with no limit of time by default. */
  terminal?: boolean;
}

const DEFAULT_TIMEOUT_MS = 20 * 60 * 1000;

/** The time in seconds before the time limit at which the guest lists its processes. */
const WATCH_MARGIN = 8;

/** The time limit for the machine to end when it is asked to, in milliseconds. */
const MACHINE_EXIT_TIMEOUT_MS = 10_000;

/** A guest under way. */
interface Guest {
  readonly options: GuestOptions;
  readonly temp: TempFolder;
  readonly timeoutMs: number;
  /** The mark that the guest sends after the script's output. */
  readonly endMark: string;
  /** The last of what the script printed. */
  outputTail: string;
}

/**
 * Boots a guest, runs a script in it and answers the script's exit status. The script starts after about ten seconds. The
 * machine is emulated in software, so that it runs anywhere; each program that starts in it costs tenths of a second.
 *
 * Whatever happens, the guest is stopped and its files are removed, also when this process is killed.
 *
 * @throws {DOMException} named AbortError, when `signal` ended it
 * @throws {Error} when the guest cannot be started, does not come up, ends without a status or takes too long; the message
 * shows what was running and the end of the output, or of the console
 */
export async function runGuest(options: GuestOptions): Promise<number> {
  throwIfAborted(options.signal);
  const image = options.image ?? await ensureGuestImage(options.log ?? ((line) => console.error(line)), options.debian);
  await using temp = await TempFolder.create(options.workDir ?? Deno.env.get("TMPDIR") ?? "/tmp", "denolith-guest-");
  const guest: Guest = {
    options,
    temp,
    timeoutMs: options.timeoutMs ?? (options.terminal ? 0 : DEFAULT_TIMEOUT_MS),
    endMark: `\0denolith-end-${crypto.randomUUID()}\n`,
    outputTail: "",
  };
  const payload = await makePayload(temp, payloadFiles(guest));
  const command = await machineCommand(options, {
    image,
    payload,
    dataDisks: await makeDataDisks(guest),
    memMiB: options.memMiB ?? 4096,
    kernelParameters: options.kernelParameters ?? [],
    forward: options.forward ?? [],
    hostAccess: options.hostAccess ?? false,
    terminal: options.terminal ?? false,
    console: temp.file("console"),
    readReport: temp.file("report"),
    out: temp.file("out.tar"),
    rootChanges: temp.file("root.changes"),
  });
  throwIfAborted(options.signal);
  const machineErrors = await boot(guest, command);
  const status = await exitStatus(guest, machineErrors);
  if (options.outDir !== undefined) await extract(guest, options.outDir);
  return status;
}

async function machineCommand(options: GuestOptions, machine: Machine): Promise<MachineCommand> {
  const log = options.log ?? ((line: string) => console.error(line));
  if (options.machine === "uml") return umlCommand(machine, await ensureUml(log));
  await ensureQemu(log);
  return qemuCommand(machine);
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (!signal?.aborted) return;
  throw new DOMException(
    `run a guest: stopped by the caller: ${signal.reason?.message ?? signal.reason}`,
    "AbortError",
  );
}

function payloadFiles(guest: Guest): Record<string, PayloadFile> {
  const { options, timeoutMs } = guest;
  return {
    ...options.files,
    ...(options.machine === "uml" ? UML_FILES : {}),
    ...guestFiles({
      script: options.script,
      env: options.env ?? {},
      dataDisks: dataDiskSizes(options).length,
      endMark: guest.endMark.slice(1, -1),
      sendsOut: options.outDir !== undefined,
      terminal: options.terminal ?? false,
      watch: Math.max(0, Math.floor(timeoutMs / 1000) - WATCH_MARGIN),
      slowModules: true,
    }),
  };
}

function dataDiskSizes(options: GuestOptions): readonly number[] {
  return options.dataDisksGiB ?? [10];
}

async function makeDataDisks(guest: Guest): Promise<string[]> {
  const files: string[] = [];
  for (const gib of dataDiskSizes(guest.options)) {
    const file = guest.temp.file(`data${files.length}.img`);
    await makeDisk(file, gib);
    files.push(file);
  }
  return files;
}

/**
 * Runs the machine until the script has ended.
 *
 * @returns what it had to say
 * @throws {Error} when it took too long, {DOMException} when it was aborted
 */
async function boot(guest: Guest, machine: MachineCommand): Promise<string> {
  const { options, temp, timeoutMs } = guest;
  // The input stays open without data: at its end, qemu would treat the script's line as closed.
  const line = options.terminal ? "inherit" : "piped";
  const env = { ...toolEnvironment(), TMPDIR: temp.path, ...machine.env };
  const args = [...machine.args];
  const command = new Deno.Command(machine.program, { args, env, stdin: line, stdout: line, stderr: "piped" });
  const child = command.spawn();
  await temp.guard(child.pid);
  let isTimedOut = false;
  const kill = () => signalMachine(child, "SIGKILL");
  const timer = timeoutMs > 0 && setTimeout(() => {
    isTimedOut = true;
    kill();
  }, timeoutMs);
  options.signal?.addEventListener("abort", kill);
  if (options.signal?.aborted) kill();
  const machineErrors = new Response(child.stderr).text();
  try {
    if (!options.terminal) await readOutput(guest, child);
    await child.status;
  } finally {
    kill();
    await child.status;
    if (timer) clearTimeout(timer);
    options.signal?.removeEventListener("abort", kill);
    await temp.guard(undefined);
  }
  throwIfAborted(options.signal);
  if (isTimedOut) {
    throw new Error(
      `run a guest: not done after ${timeoutMs / 1000} s, its timeoutMs; ${await describeProgress(guest)}`,
    );
  }
  return await machineErrors;
}

function signalMachine(child: Deno.ChildProcess, signal: Deno.Signal): void {
  try {
    child.kill(signal);
  } catch {
    // It has ended by itself.
  }
}

/** Hands on what the script prints, and ends the machine when that is all. */
async function readOutput(guest: Guest, child: Deno.ChildProcess): Promise<void> {
  const mark = new EndMark(new TextEncoder().encode(guest.endMark));
  const decoder = new TextDecoder();
  let killTimer: ReturnType<typeof setTimeout> | undefined;
  for await (const chunk of child.stdout) {
    const { output, isEnded } = mark.push(chunk);
    if (output.length > 0) guest.options.onOutput?.(output);
    guest.outputTail = (guest.outputTail + decoder.decode(output, { stream: true })).slice(-4096);
    if (!isEnded) continue;
    signalMachine(child, "SIGTERM");
    killTimer = setTimeout(() => signalMachine(child, "SIGKILL"), MACHINE_EXIT_TIMEOUT_MS);
  }
  clearTimeout(killTimer);
  await child.stdin.close();
}

async function exitStatus(guest: Guest, machineErrors: string): Promise<number> {
  const [, status] = /^exit (\d+)$/m.exec(await readReport(guest)) ?? [];
  if (status !== undefined) return Number(status);
  const machineMessage = machineErrors.trim() === "" ? "" : `\nthe machine said:\n${lastLines(machineErrors, 20)}`;
  throw new Error(`run a guest: it ended without an exit status; ${await describeProgress(guest)}${machineMessage}`);
}

/** Describes for an error how far the guest came. */
async function describeProgress(guest: Guest): Promise<string> {
  const console = await Deno.readTextFile(guest.temp.file("console")).catch(() => "");
  const reported = await readReport(guest);
  if (!/^up /m.test(reported)) return `its script had not started. The end of its console:\n${lastLines(console, 40)}`;
  const [, running] = /^running\n(.*)/ms.exec(reported) ?? [];
  const processes = running === undefined ? "" : `\nWhat was running shortly before:\n${lastLines(running, 60)}`;
  const output = `its script was running. The end of the output:\n${lastLines(guest.outputTail, 20)}`;
  return `${output}${processes}\nThe end of its console:\n${lastLines(console, 10)}`;
}

async function readReport(guest: Guest): Promise<string> {
  return await Deno.readTextFile(guest.temp.file("report")).catch(() => "");
}

/** Returns the last lines of a text, indented. */
function lastLines(text: string, count: number): string {
  const lines = text.trimEnd().split(/\r?\n/).slice(-count);
  return lines.map((line) => `  ${line}`).join("\n");
}

/** Unpacks what the script left in /work/out. */
async function extract(guest: Guest, outDir: string): Promise<void> {
  await Deno.mkdir(outDir, { recursive: true });
  const archive = guest.temp.file("out.tar");
  if ((await Deno.stat(archive)).size === 0) return;
  await run("unpack what the guest left in /work/out", "tar", ["-C", outDir, "-xf", archive], {
    guardedBy: guest.temp,
  });
}
