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
import { type ClusterState, readClusterState } from "../diagnosis/cluster_state.ts";
import { nodeViews } from "../diagnosis/nodes.ts";
import { overviewOf } from "../diagnosis/overview.ts";
import { snapshotViews, volumeViews } from "../diagnosis/volumes.ts";
import { adoptGroup } from "./adopt.ts";
import { PLUGIN, PLUGIN_COMMANDS, type PluginCommand, type SHELLS } from "../commands.ts";
import { clusterNames } from "../completion.ts";
import { disks } from "./disks.ts";
import { diagnoseNode } from "./doctor.ts";
import { drainNode } from "./drain.ts";
import { forgetNode } from "./forget_node.ts";
import { HostKubectl, type Kubectl, type KubectlOptions, kubectlOptions } from "../kubectl.ts";
import { KubectlClient } from "../kubectl_client.ts";
import { importClaim } from "./import.ts";
import { moveClaim } from "./move.ts";
import { removeOrphan, showOrphans } from "./orphans.ts";
import { type Answer, processTerminal, type Terminal } from "../output.ts";
import { LISTED, Session } from "../session.ts";
import { nodesTable, overviewText, snapshotsTable, type TableOptions, volumesTable, withUnread } from "./tables.ts";
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
  status: list((state) => {
    const overview = overviewOf(state);
    return { data: overview, text: (options) => overviewText(overview, options) };
  }, { withClaims: true }),
  nodes: list((state) => {
    const nodes = nodeViews(state);
    return { data: { nodes, unread: state.unread }, text: (options) => nodesTable(nodes, options) };
  }),
  volumes: list((state, flags) => {
    const volumes = volumeViews(state).filter(({ node, claim }) => isSelected({ node, owner: claim }, flags));
    const where = selectionText(state, flags, "claims");
    return { data: { volumes, unread: state.unread }, text: (options) => volumesTable(volumes, { ...options, where }) };
  }),
  snapshots: list((state, flags) => {
    const snapshots = snapshotViews(state)
      .filter(({ node, volumeSnapshot }) => isSelected({ node, owner: volumeSnapshot }, flags));
    const where = selectionText(state, flags, "VolumeSnapshots");
    return {
      data: { snapshots, unread: state.unread },
      text: (options) => snapshotsTable(snapshots, { ...options, where }),
    };
  }),
  disks,
  why: explain,
  doctor: diagnoseNode,
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

/** Returns the body of a subcommand that shows what it makes of the state of the cluster. */
function list(
  view: (state: ClusterState, flags: Flags) => { data: object; text: (options: TableOptions) => string },
  reading: { readonly withClaims?: boolean } = {},
): Body {
  return (session) =>
    session.show(LISTED, async (now): Promise<Answer> => {
      const { client, driver, flags } = session;
      const state = await readClusterState(client, driver, now, reading);
      const { data, text } = view(state, flags);
      const unread = "problems" in data ? [] : state.unread; // the overview itself shows what could not be read
      return { data, text: (options) => withUnread(text({ ...options, now }), unread) };
    });
}

/** Returns what `--node` and `--namespace` select, after a blank. @param owners what the namespace is of */
function selectionText({ nodes, lvmNodes, unread }: ClusterState, { node, namespace }: Flags, owners: string): string {
  const isKnown = [...nodes, ...lvmNodes].some(({ metadata }) => metadata.name === node);
  const unknown = isKnown || unread.some((what) => what.startsWith("nodes:")) ? "" : ", which does not exist";
  return [
    ...(node === undefined ? [] : [` on node ${node}${unknown}`]),
    ...(namespace === undefined ? [] : [` of ${owners} of namespace ${namespace}`]),
  ].join(",");
}

/** Reports whether an object is one that `--node` and `--namespace` select. @param owner its owner, `namespace/name` */
function isSelected(one: { node: string; owner: string | undefined }, { node, namespace }: Flags): boolean {
  return (node === undefined || one.node === node) &&
    (namespace === undefined || one.owner?.startsWith(`${namespace}/`) === true);
}

function versionText({ output }: Flags): string {
  const versions = { "kubectl-denolith": manifest.version, deno: Deno.version.deno, v8: Deno.version.v8 };
  if (output === undefined) return `kubectl-denolith ${manifest.version} (deno ${versions.deno}, V8 ${versions.v8})`;
  return output === "json" ? JSON.stringify(versions, null, 2) : stringify(versions).trimEnd();
}
