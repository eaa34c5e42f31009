/**
 * The only code of the plugin that runs a program: the user's own kubectl, with a closed list of its subcommands. So
 * contexts, logins and proxies are those of the user, and the plugin never sees a credential.
 *
 * @module
 */

import { StorageError } from "../base/error.ts";
import { apiVersionOf, type ObjectName, type Resource } from "../k8s/api/objects.ts";
import { readLines } from "../k8s/client/response.ts";
import { processTerminal, withoutControls } from "./output.ts";

/** A command of kubectl. There is none that runs a program in a pod, or that copies files. */
export type KubectlCommand =
  /** Reads a path of the API server. */
  | { readonly verb: "get"; readonly path: string }
  /** Posts an object to a path. */
  | { readonly verb: "create"; readonly path: string; readonly body: unknown }
  /** Puts an object at a path. */
  | { readonly verb: "replace"; readonly path: string; readonly body: unknown }
  /** Deletes the object of a path, under the preconditions of the body. */
  | { readonly verb: "delete"; readonly path: string; readonly body: unknown }
  /** Changes a part of an object, by a merge patch. */
  | {
    readonly verb: "patch";
    readonly resource: Resource;
    readonly at: ObjectName;
    readonly subresource?: "status" | undefined;
    readonly merge: unknown;
    readonly dryRun?: boolean | undefined;
  }
  /** Shows the context that is used, without its credentials. */
  | { readonly verb: "config" }
  /** Lists the names of all contexts. */
  | { readonly verb: "contexts" };

/** The result of a command. */
export interface KubectlOutput {
  /** Its exit status. */
  readonly code: number;
  /** Its standard output. */
  readonly stdout: string;
  /** Its standard error. */
  readonly stderr: string;
}

/** Runs kubectl. */
export interface Kubectl {
  /** Runs a command until it ends, whatever its exit status. @throws {StorageError} `Unavailable` without kubectl */
  run(command: KubectlCommand, signal?: AbortSignal): Promise<KubectlOutput>;
  /**
   * Reads a path that answers line by line, until it ends or the signal is aborted.
   *
   * @returns the lines, and the exit status with what was written on standard error, after the last line
   */
  readLines(path: string, signal?: AbortSignal): KubectlLines;
}

/** The lines of an answer. */
export interface KubectlLines {
  /** The lines as they come. */
  readonly lines: AsyncIterable<string>;
  /** The result, without its standard output; settles after the last line. */
  readonly output: Promise<KubectlOutput>;
}

/** What selects the cluster and the user; kubectl has the defaults. */
export interface KubectlOptions {
  /** Path of a kubeconfig file. */
  readonly kubeconfig?: string | undefined;
  /** Context of the kubeconfig. */
  readonly context?: string | undefined;
  /** User to impersonate. */
  readonly as?: string | undefined;
  /** Group to impersonate. */
  readonly "as-group"?: string | undefined;
  /** Time limit of each request, as kubectl takes it. */
  readonly "request-timeout"?: string | undefined;
}

/** The flags that kubectl gets as they are. */
export const KUBECTL_FLAGS = ["kubeconfig", "context", "as", "as-group", "request-timeout"] as const;

/** Returns what the flags of a command line select. */
export function kubectlOptions(flags: Readonly<Record<string, string | undefined>>): KubectlOptions {
  return Object.fromEntries(KUBECTL_FLAGS.map((name) => [name, flags[name]]));
}

/** The program. Deno finds it in PATH when the plugin starts, and permits no other one. */
const PROGRAM = "kubectl";

/** Returns the arguments of kubectl for a command. They are passed as they are, never through a shell. */
export function kubectlArguments(command: KubectlCommand, options: KubectlOptions = {}): string[] {
  const global = KUBECTL_FLAGS.flatMap((name) => {
    const value = options[name];
    return value === undefined ? [] : [`--${name}=${value}`];
  });
  return [...commandArguments(command), ...global];
}

function commandArguments(command: KubectlCommand): string[] {
  switch (command.verb) {
    case "get":
      return ["get", "--raw", command.path];
    case "create":
    case "replace":
    case "delete":
      return [command.verb, "--raw", command.path, "--filename", "-"];
    case "patch": {
      const { resource, at: { name, namespace }, subresource, merge, dryRun } = command;
      return [
        ...["patch", qualifiedName(resource), name],
        ...["--type=merge", `--patch=${JSON.stringify(merge)}`, "--output=json"],
        ...(namespace === undefined ? [] : [`--namespace=${namespace}`]),
        ...(subresource === undefined ? [] : [`--subresource=${subresource}`]),
        ...(dryRun ? ["--dry-run=server"] : []),
      ];
    }
    case "config":
      return ["config", "view", "--minify", "--output=json"];
    case "contexts":
      return ["config", "get-contexts", "--output=name"];
  }
}

/** Returns the name of a resource with its version and group, which kubectl takes for no other one. */
function qualifiedName(resource: Resource): string {
  return resource.group === ""
    ? `${resource.plural}.${resource.version}.`
    : `${resource.plural}.${apiVersionOf(resource).split("/").reverse().join(".")}`;
}

/** The time after which the user sees what a command has said that goes on, in milliseconds. */
const NOTICE_MS = 3_000;

/** The time after which a command ends that says nothing at all, in milliseconds. kubectl itself would wait for ever. */
const SILENCE_MS = 60_000;

/** The time in which a command ends after its signal, in milliseconds. */
const END_MS = 1_000;

/** How {@linkcode HostKubectl} waits. */
export interface KubectlPatience {
  /** Milliseconds until the user sees what a command has said, or that it says nothing. */
  readonly noticeMs: number;
  /** Milliseconds until a command is ended that says nothing. */
  readonly silenceMs: number;
  /** Shows a person what is waited for. */
  readonly note: (text: string) => void;
}

const PATIENCE: KubectlPatience = { noticeMs: NOTICE_MS, silenceMs: SILENCE_MS, note: processTerminal.note };

/** A kubectl that is running. */
export type KubectlProcess = Pick<Deno.ChildProcess, "stdin" | "stdout" | "stderr" | "status">;

/**
 * Starts kubectl.
 *
 * @param hasInput whether it has a standard input
 * @param signal ends it
 * @throws {StorageError} `Unavailable` without kubectl
 */
export type StartKubectl = (args: readonly string[], hasInput: boolean, signal?: AbortSignal) => KubectlProcess;

/** Runs the user's kubectl, with the user's environment. */
export class HostKubectl implements Kubectl {
  readonly #options: KubectlOptions;
  readonly #patience: KubectlPatience;
  readonly #start: StartKubectl;
  /** What was shown of commands that take long: several may say the same. */
  readonly #shown = new Set<string>();

  /** Creates it; nothing runs before it is used. */
  constructor(options: KubectlOptions, patience = PATIENCE, start = startKubectl) {
    this.#options = options;
    this.#patience = patience;
    this.#start = start;
  }

  /** Implements {@linkcode Kubectl}. */
  async run(command: KubectlCommand, signal?: AbortSignal): Promise<KubectlOutput> {
    const body = "body" in command ? JSON.stringify(command.body) : undefined;
    const { noticeMs, silenceMs, note } = this.#patience;
    const show = (text: string) => this.#once(text, console.error);
    const seconds = Math.ceil(silenceMs / 1000);
    const notice = `Waiting for the API server, for up to ${seconds} s …`;
    using silence = new Silence(this.#patience, () => this.#once(notice, note));
    const ended = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
    const child = this.#start(kubectlArguments(command, this.#options), body !== undefined, ended);
    if (body !== undefined) await write(child.stdin, body);
    const answer = Promise.all([
      child.status,
      readText(child.stdout, () => silence.restart()),
      readAndShow(child.stderr, { afterMs: noticeMs, show, onPiece: () => silence.end() }),
    ]).then(([{ code }, stdout, stderr]) => ({ code, stdout, stderr }));
    // a program that kubectl started may keep its streams open
    await Promise.race([answer, silence.isOver]);
    if (!silence.signal.aborted) return await answer;
    const stderr = `kubectl had no answer from the API server within ${seconds} s; try: kubectl get nodes`;
    return { code: 1, stdout: "", stderr };
  }

  /** Shows a text that was not shown yet. */
  #once(text: string, show: (text: string) => void): void {
    if (!this.#shown.has(text)) show(withoutControls(text.trimEnd()));
    this.#shown.add(text);
  }

  /** Implements {@linkcode Kubectl}. */
  readLines(path: string, signal?: AbortSignal): KubectlLines {
    const child = this.#start(kubectlArguments({ verb: "get", path }, this.#options), false, signal);
    const errors = new Response(child.stderr).text();
    const output = Promise.all([child.status, errors]).then(([{ code }, stderr]) => ({ code, stdout: "", stderr }));
    return { lines: readLines(child.stdout), output };
  }
}

function startKubectl(args: readonly string[], hasInput: boolean, signal?: AbortSignal): KubectlProcess {
  const streams = { stdin: hasInput ? "piped" : "null", stdout: "piped", stderr: "piped" } as const;
  try {
    return new Deno.Command(PROGRAM, { args: [...args], ...streams, ...(signal && { signal }) }).spawn();
  } catch (cause) {
    throw new StorageError("Unavailable", spawnFailure(cause), { cause });
  }
}

/**
 * Waits for the first word of a command. A program that logs the user in may wait for that as long as it wants, once it
 * has said so.
 */
class Silence implements Disposable {
  readonly #silenceMs: number;
  readonly #stop = new AbortController();
  readonly #isOver = Promise.withResolvers<void>();
  readonly #notice: ReturnType<typeof setTimeout>;
  #limit: ReturnType<typeof setTimeout>;

  /** @param notice called when the command has said nothing for some time */
  constructor({ noticeMs, silenceMs }: Pick<KubectlPatience, "noticeMs" | "silenceMs">, notice: () => void) {
    this.#silenceMs = silenceMs;
    this.#notice = setTimeout(notice, noticeMs);
    this.#limit = this.#start();
  }

  /** Aborted when the silence has lasted too long. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Settles when the command should have ended after that. */
  get isOver(): Promise<void> {
    return this.#isOver.promise;
  }

  /** Notes a piece of the answer, which may take long as a whole. */
  restart(): void {
    this.end();
    this.#limit = this.#start();
  }

  /** Waits no more. */
  end(): void {
    clearTimeout(this.#notice);
    clearTimeout(this.#limit);
  }

  [Symbol.dispose](): void {
    this.end();
  }

  #start(): ReturnType<typeof setTimeout> {
    return setTimeout(() => {
      this.#stop.abort();
      this.#limit = setTimeout(() => this.#isOver.resolve(), END_MS);
    }, this.#silenceMs);
  }
}

/** Reads a text to its end. @param onPiece called with each piece of it */
async function readText(stream: ReadableStream<Uint8Array<ArrayBuffer>>, onPiece: () => void): Promise<string> {
  let text = "";
  for await (const piece of stream.pipeThrough(new TextDecoderStream())) {
    text += piece;
    onPiece();
  }
  return text;
}

/**
 * Reads a text to its end, and shows what came of it some time ago: a program that logs the user in may wait for what it asks
 * for there. What a command says at its end is not shown.
 *
 * @param options.afterMs the time, in milliseconds
 * @param options.onPiece called with each piece
 */
export async function readAndShow(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  { afterMs, show, onPiece }: {
    readonly afterMs: number;
    readonly show: (text: string) => void;
    readonly onPiece?: () => void;
  },
): Promise<string> {
  let [text, shownLength] = ["", 0];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const showMore = () => {
    show(text.slice(shownLength));
    shownLength = text.length;
  };
  try {
    for await (const piece of stream.pipeThrough(new TextDecoderStream())) {
      text += piece;
      onPiece?.();
      clearTimeout(timer);
      timer = setTimeout(showMore, afterMs);
    }
  } finally {
    clearTimeout(timer);
  }
  return text;
}

/** Returns why kubectl does not start. Deno does not permit a program that it did not find in PATH. */
export function spawnFailure(cause: unknown): string {
  const message = cause instanceof Error ? cause.message : String(cause);
  const [, variable] = /with (LD_\w+|DYLD_\w+) environment variable/.exec(message) ?? [];
  if (variable !== undefined) {
    return `${PROGRAM}: it is not run with the environment variable ${variable}, which may load other code; unset it`;
  }
  if (cause instanceof Deno.errors.NotFound || cause instanceof Deno.errors.NotCapable) {
    return `${PROGRAM}: not found in PATH; install it, since the cluster is reached by it alone`;
  }
  return `${PROGRAM}: cannot be run: ${message}`;
}

/** Writes a text and closes the stream. Who does not read it has failed, and says so on standard error. */
async function write(stream: WritableStream<Uint8Array>, text: string): Promise<void> {
  const writer = stream.getWriter();
  try {
    await writer.write(new TextEncoder().encode(text));
    await writer.close();
  } catch (error) {
    if (!(error instanceof Deno.errors.BrokenPipe)) throw error;
  }
}
