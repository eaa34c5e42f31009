/**
 * Runs the plugin in this process, over a fake API server.
 *
 * @module
 */

import type { Terminal } from "../../../plugin/output.ts";
import { runPlugin } from "../../../plugin/subcommands/run.ts";
import { FakeKubectl, type FakeKubectlOptions } from "./kubectl.ts";

/** Options of {@linkcode pluginOver}. */
export interface PluginRunOptions extends Partial<Pick<FakeKubectlOptions, "role" | "namespace">> {
  /** What the user answers; a program is not asked. */
  readonly answer?: boolean;
  /** Whether the terminal has colours. */
  readonly hasColours?: boolean;
  /** The time. */
  readonly now?: Date | undefined;
  /** Aborted to end `--watch`. */
  readonly signal?: AbortSignal;
  /** Called with each text that is printed. */
  readonly onPrint?: (text: string) => void;
  /** Called when the plugin gives up the network. */
  readonly onDropNetwork?: () => void;
}

/** What a run of the plugin did. */
export interface PluginRun {
  /** The exit status. */
  readonly status: number;
  /** What it printed. */
  readonly output: string;
  /** What it said on standard error. */
  readonly errors: string;
  /** The questions that it asked. */
  readonly questions: readonly string[];
  /** The bytes that it wrote. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The arguments of the kubectl commands that it ran. */
  readonly commands: readonly (readonly string[])[];
}

/** The beginning of a line of the driver's log. */
const LOG_LINE = /^\d{4}-\d\d-\d\dT[\d:.]+Z \w+ /;

/** Returns a function that runs the plugin over a fake API server. */
export function pluginOver({ url }: { readonly url: string }, defaults: PluginRunOptions = {}) {
  return async (args: readonly string[], more: PluginRunOptions = {}): Promise<PluginRun> => {
    const options = { ...defaults, ...more };
    const {
      answer,
      hasColours = false,
      role = "operator",
      namespace = "default",
      now,
      signal,
      onPrint,
      onDropNetwork,
    } = options;
    const [printed, errors, questions]: [string[], string[], string[]] = [[], [], []];
    const written: Uint8Array<ArrayBuffer>[] = [];
    const print = (text: string) => {
      printed.push(text);
      onPrint?.(text);
    };
    const terminal: Terminal = {
      ...{
        isInteractive: answer !== undefined,
        hasColours,
        print,
        note: (text) => console.error(text),
        replace: print,
        write: (bytes) => void written.push(bytes.slice()),
      },
      confirm: (question) => {
        questions.push(question);
        return answer === true;
      },
    };
    let kubectl: FakeKubectl | undefined;
    const { error } = console;
    // what runs beside the plugin in this process logs, too
    console.error = (text: string) => LOG_LINE.test(text) ? error(text) : void errors.push(text);
    try {
      const status = await runPlugin(args, {
        terminal,
        kubectl: (flags) => kubectl = new FakeKubectl({ url, role, namespace, flags }),
        ...(now && { now: () => now }),
        ...(signal && { signal }),
        dropNetwork: () => Promise.resolve(onDropNetwork?.()),
      });
      const commands = kubectl?.commands ?? [];
      const bytes = await new Blob(written).bytes();
      return { status, output: printed.join("\n"), errors: errors.join("\n"), questions, commands, bytes };
    } finally {
      console.error = error;
    }
  };
}
