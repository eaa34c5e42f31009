/**
 * A run of a subcommand: its flags, the cluster that they select, the terminal, and `--watch`, which shows an answer again whenever
 * an object that it depends on changes.
 *
 * @module
 */

import { requireDriverName } from "../csi/driver_options.ts";
import { type Clock, nextTurn, sleep, systemClock } from "../base/clock.ts";
import { messageOf, StorageError } from "../base/error.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import type { KubeObject, Resource } from "../k8s/api/objects.ts";
import type { ApiClient, Selection } from "../k8s/client/client.ts";
import { Informer } from "../k8s/runtime/informer.ts";
import { EXIT, type Flags, UsageError } from "../cli/command_line.ts";
import type { Kubectl } from "./kubectl.ts";
import type { KubectlClient } from "./kubectl_client.ts";
import { type Answer, coloursOf, formatAnswer, type Subject, type Terminal, withoutControls } from "./output.ts";

/** What a session consists of. */
export interface SessionOptions {
  /** The flags. */
  readonly flags: Flags;
  /** The terminal. */
  readonly terminal: Terminal;
  /** Returns the time. */
  readonly now: () => Date;
  /** Runs kubectl. */
  readonly kubectl: Kubectl;
  /** The API server. */
  readonly client: KubectlClient;
  /** Aborted when the plugin is asked to end. */
  readonly signal: AbortSignal;
  /** Gives up the right to reach the network. */
  readonly dropNetwork: () => Promise<void>;
}

/** The namespace of a context that names none. */
export const DEFAULT_NAMESPACE = "default";

/** A run of a subcommand. */
export class Session {
  readonly #options: SessionOptions;
  readonly #noted = new Set<string>();
  #lastText = "";
  /** The cluster and the namespace. */
  readonly subject: Subject;

  private constructor(options: SessionOptions, subject: Subject) {
    this.#options = options;
    this.subject = subject;
  }

  /** Opens a session: reads the context that kubectl uses. @throws {StorageError} `Unavailable` */
  static async open(options: SessionOptions): Promise<Session> {
    const { code, stdout } = await options.kubectl.run({ verb: "config" }, options.signal);
    if (options.signal.aborted) throw new StorageError("Unavailable", "interrupted"); // kubectl was, too
    const current = code === 0 ? contextOf(stdout) : undefined; // in a pod there is no context, and kubectl works
    return new Session(options, {
      context: options.flags.context ?? current?.name ?? "",
      namespace: options.flags.namespace ?? current?.namespace ?? DEFAULT_NAMESPACE,
    });
  }

  /** The flags. */
  get flags(): Flags {
    return this.#options.flags;
  }

  /** The API server. */
  get client(): KubectlClient {
    return this.#options.client;
  }

  /** The driver. */
  get driver(): string {
    return requireDriverName(this.flags["driver-name"]!);
  }

  /** The time. */
  get now(): Date {
    return this.#options.now();
  }

  /** Aborted when the plugin is asked to end. */
  get signal(): AbortSignal {
    return this.#options.signal;
  }

  /** Gives up the right to reach the network. */
  dropNetwork(): Promise<void> {
    return this.#options.dropNetwork();
  }

  /** Prints a text for people. */
  say(text: string): void {
    this.#lastText = text;
    this.#options.terminal.print(withoutControls(text));
  }

  /** Prints a line of progress for people, unless it is the last text that they got. */
  sayProgress(line: string): void {
    if (line !== this.#lastText && this.flags.output === undefined) this.say(line);
  }

  /** Requires that standard output is no terminal. @param example how the subcommand is called @throws {UsageError} */
  requirePipe(example: string): void {
    if (!this.#options.terminal.isInteractive) return;
    throw new UsageError(`standard output is a terminal, and the output no text: ${example}`);
  }

  /** Writes bytes on standard output. */
  async write(stream: ReadableStream<Uint8Array>): Promise<void> {
    for await (const bytes of stream) this.#options.terminal.write(bytes);
  }

  /** Tells a person who waits what for. */
  note(text: string): void {
    this.#options.terminal.note(withoutControls(text));
  }

  /** Tells it once, however often it is found. */
  noteOnce(text: string): void {
    if (!this.#noted.has(text)) this.note(text);
    this.#noted.add(text);
  }

  /** Prints an answer in the format of `--output`. */
  print(answer: Answer): void {
    this.#printFormatted(this.#format(answer));
  }

  /** Prints a text, if there is one: of no rows, there are no names. */
  #printFormatted(text: string): void {
    if (text !== "") this.#options.terminal.print(text);
  }

  /**
   * Prints an answer; with `--watch` again whenever one of the watched objects changes.
   *
   * @param read reads and decides
   * @returns 0
   */
  async show(watched: readonly Watched[], read: (now: Date) => Promise<Answer>): Promise<number> {
    const { flags, terminal, client, signal } = this.#options;
    const text = this.#format(await read(this.now)); // what fails at once ends the subcommand
    if (flags.watch === undefined) {
      this.#printFormatted(text);
      return EXIT.success;
    }
    let first: string | undefined = text;
    await showWhenChanged(async () => {
      terminal.replace(first ?? await this.#readAgain(read));
      first = undefined;
    }, { client, watched, signal });
    return EXIT.success;
  }

  /**
   * Asks before something is changed, unless `--yes` is given.
   *
   * @returns whether it may be changed
   */
  confirm(question: string): boolean {
    const { flags, terminal } = this.#options;
    if (flags.yes !== undefined) return true;
    if (terminal.confirm(withoutControls(question))) return true;
    terminal.print(terminal.isInteractive ? "Nothing was changed." : "Nothing was changed: use --yes, or a terminal.");
    return false;
  }

  async #readAgain(read: (now: Date) => Promise<Answer>): Promise<string> {
    try {
      return this.#format(await read(this.now));
    } catch (error) {
      return withoutControls(messageOf(error)); // the next change, or the next half minute, may succeed
    }
  }

  #format(answer: Answer): string {
    const { flags, terminal } = this.#options;
    return formatAnswer(answer, this.subject, { format: flags.output ?? "", colours: coloursOf(terminal) });
  }
}

/** Returns the context in the output of `kubectl config view --minify`. */
export function contextOf(json: string): { name: string; namespace?: string } | undefined {
  const config = JSON.parse(json) as Record<string, unknown>;
  const name = config["current-context"];
  if (typeof name !== "string" || name === "") return undefined;
  const contexts = Array.isArray(config["contexts"]) ? config["contexts"] : [];
  const namespace = contexts.find((one) => one?.name === name)?.context?.namespace;
  return { name, ...(typeof namespace === "string" && namespace !== "" && { namespace }) };
}

/** Objects on which an answer depends. */
export interface Watched {
  /** Their kind. */
  readonly resource: Resource;
  /** Which of them. */
  readonly selection?: Selection;
}

/** Options of {@linkcode showWhenChanged}. */
export interface WatchOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The objects on which the answer depends. */
  readonly watched: readonly Watched[];
  /** Aborted to end it. */
  readonly signal: AbortSignal;
  /** Time. */
  readonly clock?: Clock;
}

/** The kinds on which lists depend. */
export const LISTED: readonly Watched[] = [lvmNodes, lvmVolumes, lvmSnapshots].map((resource) => ({ resource }));

/** The time during which changes are gathered, in milliseconds: each answer is some ten requests. */
const BATCH_MS = 1_000;

/** The interval after which it is shown again without a change, in milliseconds: ages grow, and agents fall silent. */
const REFRESH_MS = 30_000;

/** The time to wait for the first lists, in milliseconds. A kind that may not be watched has none. */
const SYNC_MS = 10_000;

/** Shows an answer now and after each change, until the signal is aborted. */
export async function showWhenChanged(
  show: () => Promise<void>,
  { client, watched, signal, clock = systemClock }: WatchOptions,
): Promise<void> {
  const informers = watched.map(({ resource, selection }) =>
    new Informer<KubeObject>(client, resource, { ...selection, clock })
  );
  const running = informers.map((informer) => informer.start(signal));
  const synced = Promise.all(informers.map(({ synced }) => synced));
  const hasSynced = new AbortController();
  synced.then(() => hasSynced.abort());
  await sleep(clock, SYNC_MS, signal, hasSynced.signal);
  let changed = new AbortController();
  for (const informer of informers) informer.subscribe(() => changed.abort(), { replay: false });
  while (!signal.aborted) {
    changed = new AbortController();
    await show();
    await sleep(clock, REFRESH_MS, signal, changed.signal);
    await sleep(clock, BATCH_MS, signal);
  }
  await nextTurn();
  await Promise.all(running);
}
