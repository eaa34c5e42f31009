import { bundle } from "../../deploy/bundle.ts";
import { ensureArtifact } from "../rig/artifact.ts";
import { runGuest } from "../rig/guest.ts";
import { ensureGuestImage } from "../rig/guest_image.ts";
import { TempFolder } from "../rig/temp_folder.ts";
import type { GuestSettings } from "./guest_entry.ts";
import { type Output, Reporter } from "./reporter.ts";

/** Options of {@linkcode runInGuest}. */
export interface GuestDemoOptions {
  /** The output of the demo. */
  readonly output: Output;
  /** Stops the guest and removes everything but the guest's image. */
  readonly signal: AbortSignal;
  /** The folder for temporary folders. */
  readonly tempDir: string;
}

const REMARK =
  "The machine was a kernel that runs as a process: on a real one, each of these calls takes a fraction of the time.";

/**
 * Plays the lifecycle of a volume in a virtual machine, whose image is built on first use and kept.
 *
 * @returns whether everything was as expected; differences were printed @throws {Error} when the guest cannot be built
 * or started @throws the signal's reason, when it was aborted
 */
export async function runInGuest({ output, signal, tempDir }: GuestDemoOptions): Promise<boolean> {
  const reporter = new Reporter(output);
  const image = await unlessAborted(signal, ensureGuestImage((line) => reporter.say(line)));
  await using temp = await TempFolder.create(tempDir, "denolith-demo-");
  const driver = await unlessAborted(signal, ensureArtifact((line) => reporter.say(line)));
  const demo = await unlessAborted(signal, bundle("tests/demo/guest_entry.ts", temp.path));
  const settings: GuestSettings = {
    terminal: output.terminal,
    colors: output.colors,
    driver: "/work/denolith",
    remark: REMARK,
  };
  reporter.say("It starts, which takes about ten seconds.");
  using startupTimer = new StartupTimer(reporter);
  const decoder = new TextDecoder();
  const status = await runGuest({
    image,
    machine: "uml",
    files: {
      deno: { host: Deno.execPath() },
      denolith: { host: driver },
      "demo.js": { host: demo },
    },
    env: { DENOLITH_DEMO: JSON.stringify(settings), DENO_NO_UPDATE_CHECK: "1" },
    script: "exec ./deno run --allow-all --quiet demo.js\n",
    dataDisksGiB: [],
    memMiB: 2048,
    workDir: tempDir,
    signal,
    onOutput: (chunk) => {
      startupTimer[Symbol.dispose]();
      output.write(decoder.decode(chunk, { stream: true }));
    },
  }).catch((error) => {
    throw signal.aborted ? signal.reason : error;
  });
  return status === 0;
}

/** Counts the seconds, on a terminal, until the guest has something to say. */
class StartupTimer implements Disposable {
  readonly #reporter: Reporter;
  readonly #timer: ReturnType<typeof setInterval>;
  readonly #start = performance.now();

  constructor(reporter: Reporter) {
    this.#reporter = reporter;
    this.#timer = setInterval(() => this.#showSeconds(), 1000);
    this.#showSeconds();
  }

  #showSeconds(): void {
    this.#reporter.pending(`starting: ${Math.round((performance.now() - this.#start) / 1000)} s`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#reporter.clear();
  }
}

/**
 * Waits for work, unless the signal is aborted first. The work then ends with the process. @throws the signal's reason
 */
async function unlessAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  signal.throwIfAborted();
  let onAbort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason);
    signal.addEventListener("abort", onAbort);
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
