/**
 * The plugin `kubectl denolith`: parses its command line, and runs a subcommand.
 *
 * @module
 */

import { stringify } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };
import { checkFlags, EXIT, exitStatusOf, type Flags, parseCommandLine } from "../../cli/command_line.ts";
import { COMPLETE, completionLines, completionScript } from "../../cli/help/completion.ts";
import { helpColumns, helpText } from "../../cli/help/text.ts";
import { adoptGroup } from "./adopt.ts";
import { PLUGIN, PLUGIN_COMMANDS, type PluginCommand, type SHELLS } from "../subcommands.ts";
import { clusterNames } from "../completion.ts";
import { disks } from "./disks.ts";
import { diagnose } from "./doctor.ts";
import { drainNode } from "./drain.ts";
import { dump } from "./dump.ts";
import { forgetNode } from "./forget_node.ts";
import { HostKubectl, type Kubectl, type KubectlOptions, kubectlOptions } from "../kubectl.ts";
import { KubectlClient } from "../kubectl_client.ts";
import { importClaim } from "./import.ts";
import { NODES, showList, SNAPSHOTS, VOLUMES } from "./list.ts";
import { moveClaim } from "./move.ts";
import { removeOrphan, showOrphans } from "./orphans.ts";
import { processTerminal, type Terminal } from "../output.ts";
import { Session } from "../session.ts";
import { showStatus } from "./status.ts";
import { serveUi } from "./ui.ts";
import { explain } from "./why.ts";

/** Options of {@linkcode runPlugin}. */
export interface PluginOptions {
  /** Creates what runs kubectl. */
  readonly kubectl?: (options: KubectlOptions) => Kubectl;
  /** Where it prints. */
  readonly terminal?: Terminal;
  /** Aborted when it is asked to end. */
  readonly signal?: AbortSignal;
  /** Returns the time. */
  readonly now?: () => Date;
  /** Gives up the right to reach the network, which `ui` needs until it listens, and nothing else. */
  readonly dropNetwork?: () => Promise<void>;
}

/** Runs a subcommand that reads the cluster. */
type Body = (session: Session) => Promise<number>;

/** The subcommands that reach the cluster. */
const BODIES: Readonly<Record<Exclude<PluginCommand, "completion" | "version">, Body>> = {
  status: showStatus,
  nodes: (session) => showList(session, NODES),
  volumes: (session) => showList(session, VOLUMES),
  snapshots: (session) => showList(session, SNAPSHOTS),
  disks,
  why: explain,
  doctor: diagnose,
  dump,
  orphans: (session) => session.flags.remove === undefined ? showOrphans(session) : removeOrphan(session),
  move: moveClaim,
  import: importClaim,
  drain: drainNode,
  adopt: adoptGroup,
  "forget-node": forgetNode,
  ui: serveUi,
};

/**
 * Runs a command line.
 *
 * @returns the exit status, see {@linkcode EXIT}
 */
export function runPlugin(args: readonly string[], options: PluginOptions = {}): Promise<number> {
  const { kubectl = (options) => new HostKubectl(options), terminal = processTerminal, now = () => new Date() } =
    options;
  const { dropNetwork = () => Promise.resolve() } = options;
  return exitStatusOf(async () => {
    if (args[0] === COMPLETE) {
      await dropNetwork();
      terminal.print(await completionLines(PLUGIN, args.slice(1), clusterNames(kubectl)));
      return EXIT.success;
    }
    const request = parseCommandLine(PLUGIN, args);
    if (request.kind === "help" || request.name !== "ui") await dropNetwork();
    if (request.kind === "help") {
      terminal.print(request.text ?? helpText(PLUGIN, request.topic, helpColumns()));
      return request.isRequested ? EXIT.success : EXIT.usage;
    }
    const { flags } = request;
    const name = request.name as PluginCommand;
    await checkFlags(name, PLUGIN_COMMANDS[name], flags);
    if (name === "completion" || name === "version") {
      const shell = flags["SHELL"] as typeof SHELLS[number];
      terminal.print(name === "version" ? versionText(flags) : completionScript(PLUGIN, shell));
      return EXIT.success;
    }
    const runner = kubectl(kubectlOptions(flags));
    const session = await Session.open({
      ...{ flags, terminal, now, dropNetwork, kubectl: runner, client: new KubectlClient(runner) },
      signal: options.signal ?? new AbortController().signal,
    });
    return await BODIES[name](session);
  }, PLUGIN.name);
}

function versionText({ output }: Flags): string {
  const versions = { "kubectl-denolith": manifest.version, deno: Deno.version.deno, v8: Deno.version.v8 };
  if (output === undefined) return `kubectl-denolith ${manifest.version} (deno ${versions.deno}, V8 ${versions.v8})`;
  return output === "json" ? JSON.stringify(versions, null, 2) : stringify(versions).trimEnd();
}
