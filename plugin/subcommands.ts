/**
 * The subcommands of the plugin, with their flags and their help. The completion of shells comes from the same table.
 *
 * @module
 */

import { requireNodeId } from "../csi/topology.ts";
import { quote } from "../base/error.ts";
import { ERASURES } from "../lvm/model/tags.ts";
import {
  CACHE_VARIABLES,
  type CheckedHelp,
  EXIT_STATUS_TOPIC,
  type Program,
  type Subcommands,
  UsageError,
} from "../cli/command_line.ts";
import { choice, inWords, reasonText, SHELLS as SHELLS_OF_ALL } from "../cli/shared_flags.ts";
import { chapterRows, chapters, chapterText } from "./runbooks.ts";
import {
  CLAIM,
  CLAIM_OR_ALL,
  CLUSTER_FLAGS,
  diskName,
  groupName,
  LIST_FLAGS,
  namesArgument,
  NAMESPACE,
  NODE,
  NODE_ARGUMENT,
  objectListFlags,
  OUTPUT,
  poolName,
  portNumber,
  requireClaimOrDryRun,
  requireNodeOrAll,
  requireTargetOrCancel,
  seconds,
  WATCH,
  YES,
} from "./plugin_flags.ts";

/** The formats of `version --output`. */
const VERSION_FORMATS = ["json", "yaml"] as const;

/** The shells of `completion`; `kubectl` stands for the completion of `kubectl denolith` itself. */
export const SHELLS = [...SHELLS_OF_ALL, "powershell", "kubectl"] as const;

/** When a subcommand that reads the cluster ends well. */
const READS = { success: "the cluster answered", failure: "it did not, or refused" };

/** The same where names may be given. */
const READS_NAMED = { ...READS, failure: "it did not, refused, or lacks one of the names" };

const DRY_RUN = { help: "Only show what would be done" };

/** The same where a request can be undone, which nothing shows before. */
const DRY_RUN_OR_CANCEL = { ...DRY_RUN, excludes: "cancel" };

const EVICT = { help: "Evict the pods that use the claim; their budgets hold" };

const TIMEOUT = { value: "SECONDS", help: "Time to wait for an agent", default: () => "90", check: seconds };

const FORCE = { help: "Evict also pods that nobody creates again", needs: "evict" };

/** Returns the flag that says whether to follow what the controller does. */
function waitFlag(what: string) {
  return {
    value: "BOOLEAN",
    help: `Whether to follow the ${what} to its end: true or false`,
    default: () => "true",
    ...choice(["true", "false"]),
  };
}

/** The kinds that `why` explains: the words for them, as kubectl has them, and the resource that completes their names. */
const KINDS = {
  claim: {
    words: ["pvc", "claim", "persistentvolumeclaim", "persistentvolumeclaims"],
    resource: "persistentvolumeclaims",
  },
  pod: { words: ["po", "pod", "pods"], resource: "pods" },
  persistentvolume: { words: ["pv", "persistentvolume", "persistentvolumes"], resource: "persistentvolumes" },
  node: { words: ["no", "node", "nodes", "dnode", "lvmnode", "lvmnodes"], resource: "lvmnodes" },
  volume: { words: ["dvol", "volume", "lvmvolume", "lvmvolumes"], resource: "lvmvolumes" },
  snapshot: { words: ["dsnap", "snapshot", "lvmsnapshot", "lvmsnapshots"], resource: "lvmsnapshots" },
  volumesnapshot: { words: ["vs", "volumesnapshot", "volumesnapshots"], resource: "volumesnapshots" },
  volumesnapshotcontent: {
    words: ["vsc", "volumesnapshotcontent", "volumesnapshotcontents"],
    resource: "volumesnapshotcontents",
  },
  volumegroupsnapshot: { words: ["volumegroupsnapshot", "volumegroupsnapshots"], resource: "volumegroupsnapshots" },
} as const;

/** What `why` explains beside claims. */
const WHY_FORMS =
  "pod/NAME, pv/NAME, node/NAME, volume/NAME, snapshot/NAME, volumesnapshot/NAME and volumegroupsnapshot/NAME";

/** The subcommands by name, in the order of the help. */
export const PLUGIN_COMMANDS = {
  status: {
    summary: "Show the whole cluster: how full it is, and its problems, with their age",
    about: "Shows the nodes with their volume groups and thin pools, how full they are, how many volumes, snapshots " +
      "and orphans there are, and every problem, the worst first. With --output wide also what to do about each.",
    exit: READS,
    flags: LIST_FLAGS,
    example: "kubectl denolith status --output wide",
  },
  nodes: {
    summary: "List the nodes, with their volume groups and thin pools",
    about: "Lists the nodes that have storage, and whether their agents are alive.",
    exit: READS_NAMED,
    argument: namesArgument("Only these nodes", "lvmnodes"),
    flags: objectListFlags("Nodes"),
    example: "kubectl denolith nodes worker-1 worker-2",
  },
  volumes: {
    summary: "List the volumes",
    about: "Lists the volumes with their claims, nodes, sizes and states.",
    exit: READS_NAMED,
    argument: namesArgument(
      "Only these: claims, as NAME or NAMESPACE/NAME, volumes, or PersistentVolumes",
      "persistentvolumeclaims",
    ),
    flags: {
      node: NODE,
      namespace: { ...NAMESPACE, help: "Only those of claims of this namespace", excludes: "all-namespaces" },
      ...objectListFlags("those of claims"),
    },
    example: "kubectl denolith volumes --node worker-1",
  },
  snapshots: {
    summary: "List the snapshots",
    about: "Lists the snapshots with their VolumeSnapshots, nodes, sizes and states.",
    exit: READS_NAMED,
    argument: namesArgument("Only these: VolumeSnapshots, as NAME or NAMESPACE/NAME, or snapshots", "volumesnapshots"),
    flags: {
      node: NODE,
      namespace: { ...NAMESPACE, help: "Only those of VolumeSnapshots of this namespace", excludes: "all-namespaces" },
      ...objectListFlags("those of VolumeSnapshots"),
    },
    example: "kubectl denolith snapshots --output wide",
  },
  disks: {
    summary: "List the disks that rules name, and let agents take one",
    about:
      "Lists the disks of the nodes that the rules of the chart (diskRules) match, as their agents report them: those that " +
      "are proposed for a volume group, the checks that others failed, and the states of those that are accepted. With " +
      "--accept, shows what would be done with a disk, asks, and lets its agent make a physical volume of it. The agent " +
      "checks again right before, and writes nothing to a disk that is not as it was accepted.",
    exit: {
      success: "the disks are listed, or one is accepted or withdrawn, or only shown",
      failure: "the cluster does not answer or refuses, the disk cannot be accepted, or you said no",
    },
    flags: {
      node: NODE,
      accept: { value: "DISK", help: "Let the agent take this disk, by its name in /dev/disk/by-id", check: diskName },
      withdraw: {
        value: "DISK",
        help: "Withdraw the acceptance of this disk; what is in a volume group stays there",
        ...{ check: diskName, excludes: "accept" },
      },
      "dry-run": DRY_RUN,
      yes: YES,
      ...LIST_FLAGS,
      watch: { ...WATCH, excludes: "accept" },
    },
    example: "kubectl denolith disks --accept nvme-Samsung_SSD_990_S1 --node worker-1",
  },
  why: {
    summary: "Explain why a claim is Pending, does not grow, or is Lost",
    about:
      "Reads a claim, or those of a pod or a volume, with everything that has a part in it: its class, pods, events, volume, node, and the " +
      "capacities that the scheduler reads. It reports the problems, since when they exist, and what to do. Of a node, it " +
      "reports those of its agent, volume groups, volumes and snapshots.",
    exit: READS,
    argument: {
      name: "CLAIM",
      help: `Name of the claim, or one of ${WHY_FORMS}`,
      check: requireTarget,
      candidates: {
        resource: "persistentvolumeclaims",
        kinds: new Map(Object.values(KINDS).flatMap(({ words, resource }) => words.map((word) => [word, resource]))),
      },
    },
    flags: { namespace: NAMESPACE, output: OUTPUT, watch: WATCH, ...CLUSTER_FLAGS },
    example: "kubectl denolith why data-db-0 --namespace shop",
  },
  doctor: {
    summary: "Have a node, or all, checked by the agents, and show what they find",
    about: "Asks the agent of a node for what denolith doctor finds there. The agent is asked " +
      "by an annotation of the LVMNode, and changes nothing on the node. It also answers while LVM hangs.",
    exit: { success: "no error is found", failure: "one is found, or an agent does not answer" },
    argument: { ...NODE_ARGUMENT, isOptional: true },
    check: requireNodeOrAll,
    flags: {
      all: { help: "All nodes: a table with their errors and warnings" },
      timeout: TIMEOUT,
      output: OUTPUT,
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith doctor worker-1",
  },
  dump: {
    summary: "Write an archive for a support case: objects, events, logs, status and doctor",
    about:
      "Writes a compressed tar file on standard output: the objects of the driver, and those of others that have a " +
      "part in it, with their events; the ends of the logs of the driver's pods; status, why for claims with problems, and " +
      "doctor for all nodes. It has no Secrets and no environment of pods. dump.json in it says what could not be read: logs " +
      "need the right to get pods/log, which neither ClusterRole of the chart has.",
    exit: { success: "the archive is written", failure: "the cluster does not answer, or refuses" },
    flags: {
      mask: {
        help:
          "Replace the names of claims, namespaces, pods, nodes, snapshots, classes and the context, and addresses, " +
          "by others, and leave labels and annotations out that are not of Kubernetes",
      },
      "skip-doctor": { help: "Do not ask the agents, for which the right to patch LVMNodes is needed" },
      timeout: TIMEOUT,
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith dump --mask > denolith.tar.gz",
  },
  orphans: {
    summary: "List the logical volumes without objects, and remove one of them",
    about: "Lists the logical volumes of the driver that no object stands for, as their agents report them. With " +
      "--remove, asks the agent to remove one, with its data. The agent refuses it if an object stands for it.",
    exit: {
      success: "the orphans are listed, or the agent is asked",
      failure: "the cluster does not answer or refuses, no agent names the orphan, or you said no",
    },
    flags: {
      remove: { value: "UUID", help: "Remove the logical volume with this UUID, and its data", check: requireLvUuid },
      "allow-empty": {
        help:
          "Confirm that the cluster has no volume, or no snapshot, of the node at all; without it, such a node is " +
          "taken for one whose objects were lost",
        needs: "remove",
      },
      yes: { ...YES, needs: "remove" },
      ...LIST_FLAGS,
      watch: { ...WATCH, excludes: "remove" },
    },
    example: "kubectl denolith orphans",
  },
  move: {
    summary: "Move the volume of a claim to another node",
    about:
      "Shows what the move would do, asks the controller for it by an LVMMove, and follows it. The volume is copied " +
      "while it is used, but for what changed last. The PersistentVolume of the same name gets the affinity to the other node. With --evict, " +
      "pods that use the claim are evicted, as far as their budgets allow it; without it, the move waits for them. Until the " +
      "volume on the first node is deleted, --cancel undoes the move.",
    exit: {
      success: "the volume is on the other node, the move is undone as requested, or only shown",
      failure: "it cannot be moved, the move failed, or the cluster does not answer",
    },
    argument: CLAIM,
    check: requireTargetOrCancel,
    flags: {
      to: {
        value: "NODE",
        help: "Node that the volume moves to",
        check: requireNodeId,
        candidates: { resource: "lvmnodes" },
      },
      namespace: NAMESPACE,
      "dry-run": DRY_RUN_OR_CANCEL,
      evict: EVICT,
      force: FORCE,
      offline: { help: "Copy the volume only while nobody may use it, with less temporary space and less to send" },
      cancel: { help: "Undo the move of the claim", excludes: "to" },
      wait: waitFlag("move"),
      output: OUTPUT,
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith move data-db-0 --namespace shop --to worker-2 --evict",
  },
  import: {
    summary: "Import the volume of a claim from another driver, in place",
    about:
      "For volumes of OpenEBS LVM LocalPV and TopoLVM, and local volumes on logical volumes. Shows what becomes what, and what " +
      "is lost, asks the controller for it by an LVMImport, and follows it. Nothing is copied, and the claim keeps its name. " +
      "While the pods that use the claim run, the import waits for them, and no new one starts; with --evict, they are " +
      "evicted. Until --finish removes what is left of the other driver, --cancel returns the volume.",
    exit: {
      success: "the volume is imported, finished or returned as requested, or only shown",
      failure: "it cannot be imported, it failed, or the cluster does not answer",
    },
    argument: CLAIM_OR_ALL,
    check: requireClaimOrDryRun,
    flags: {
      namespace: NAMESPACE,
      "dry-run": DRY_RUN_OR_CANCEL,
      "volume-group": { value: "GROUP", help: "Volume group, where no object names it (TopoLVM)", check: groupName },
      "thin-pool": { value: "POOL", help: "Thin pool of a thin volume, where no object names it", check: poolName },
      erase: {
        value: "HOW",
        help: `How its data is erased on deletion: ${inWords(ERASURES)} (default: ${ERASURES[0]})`,
        ...choice(ERASURES),
      },
      "provisioner-stopped": { help: "You have stopped the provisioner of the other driver" },
      evict: EVICT,
      force: FORCE,
      finish: { help: "Remove what is left of the other driver, too" },
      cancel: { help: "Give the volume back", excludes: "finish" },
      wait: waitFlag("import"),
      output: OUTPUT,
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith import data-db-0 --namespace shop --evict",
  },
  drain: {
    summary: "Move the volumes of a node to other nodes",
    about:
      "Shows to which nodes the volumes of a node can go, and which stay and why, asks, and moves them one after the " +
      "other, as move does. Cordon the node before, so that no pod comes back to it.",
    exit: {
      success: "all volumes are moved, or can be",
      failure: "one stays, a move failed, the cluster does not answer, or you said no",
    },
    argument: NODE_ARGUMENT,
    flags: {
      "dry-run": DRY_RUN,
      evict: { help: "Evict the pods that use the claims; their budgets hold" },
      force: FORCE,
      yes: YES,
      output: OUTPUT,
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith drain worker-1 --evict",
  },
  adopt: {
    summary: "Let the volumes of a volume group follow their disks to another node",
    about:
      "For disks that were carried to another node. Shows the volumes of the volume group, asks, and gives them to " +
      "the node that reports the group now. The node where they were must be forgotten before.",
    exit: { success: "all volumes follow, or can", failure: "one cannot, or you said no" },
    argument: { name: "GROUP", help: "Name of the volume group", check: groupName },
    flags: { node: NODE, "dry-run": { help: "Only show the volumes" }, yes: YES, output: OUTPUT, ...CLUSTER_FLAGS },
    example: "kubectl denolith adopt data",
  },
  "forget-node": {
    summary: "Give up a node that is gone for good, and its volumes",
    about: "Shows the LVMNode, LVMVolumes and LVMSnapshots of a node, asks, and gives them up. The LVMNode is " +
      "removed, and each LVMVolume without a PersistentVolume. Every other LVMVolume becomes Lost, and its deletion " +
      "no longer waits for the node. The data on the disks of the node is not changed. A node that seems to be alive " +
      "is refused.",
    exit: {
      success: "the node is given up, or only shown",
      failure: "it is refused, the cluster does not answer, or you said no",
    },
    argument: NODE_ARGUMENT,
    flags: {
      yes: YES,
      force: {
        value: "REASON",
        help: "Give up the node even if it seems to be alive; the reason is recorded in its volumes and snapshots",
        check: reasonText,
      },
      output: OUTPUT,
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith forget-node worker-1",
  },
  ui: {
    summary: "Show the cluster as a page in a browser on this machine",
    about:
      "Serves a page on a loopback address: nodes with their volume groups, thin pools and volumes as bars, what is " +
      "wrong, and all there is to know of a volume. It changes nothing, and follows the cluster until Ctrl-C. The address " +
      "that it prints has a token, opens the page once, and is of no use to anybody else after that.",
    exit: { success: "it was ended", failure: "the cluster did not answer, or the port is not free" },
    flags: {
      port: {
        value: "PORT",
        help: "Port of the loopback address; 0 for a free one",
        default: () => "0",
        check: portNumber,
      },
      ...CLUSTER_FLAGS,
    },
    example: "kubectl denolith ui --port 8080",
  },
  completion: {
    summary: "Print the completion script of a shell",
    about:
      "Prints a script that completes the subcommands, flags and names of kubectl-denolith. That of kubectl is a " +
      "program: kubectl asks it when it completes kubectl denolith.",
    argument: {
      name: "SHELL",
      help: inWords(SHELLS),
      ...choice(SHELLS),
    },
    flags: {},
    example: "kubectl denolith completion bash > ~/.local/share/bash-completion/completions/kubectl-denolith",
  },
  version: {
    summary: "Print the version",
    about: "Prints the versions of denolith and of its runtime.",
    flags: {
      output: { ...OUTPUT, help: `Format of the output: ${inWords(VERSION_FORMATS)}`, ...choice(VERSION_FORMATS) },
    },
  },
} as const satisfies Subcommands<CheckedHelp>;

/** The plugin, as kubectl runs it. */
export const PLUGIN: Program = {
  name: "kubectl denolith",
  executable: "kubectl-denolith",
  summary: "kubectl denolith: what the denolith driver has in a cluster, and why something does not work",
  commands: PLUGIN_COMMANDS,
  topics: {
    "exit-status": EXIT_STATUS_TOPIC,
    environment: {
      summary: "The environment variables that have an effect",
      about: "The plugin passes its environment on to kubectl, and reads none of it but these.",
      rows: [
        ["KUBECONFIG, HTTPS_PROXY, and others", "Those of kubectl, and of the programs by which it logs in."],
        ["NO_COLOR", "If it is set, there are no colours on terminals."],
        [
          "LD_LIBRARY_PATH, and others that load code",
          "With them, the plugin refuses to run kubectl: unset them for the call.",
        ],
        ...CACHE_VARIABLES,
      ],
    },
    runbook: {
      summary: "What to do about a problem: the chapters of the runbooks, and the guides",
      about:
        "kubectl denolith help runbook NAME prints a chapter, as it is in this version. The last names are guides, and " +
        "move/turn-transfers-on is one chapter of a guide.",
      get rows() {
        return chapterRows();
      },
      chapters: { names: () => [...chapters().keys()], text: chapterText },
    },
    filters: {
      summary: "How flags select what is shown",
      about: "Without these flags, a command shows what the driver has in the cluster of the current context.",
      rows: [
        ["--context, --kubeconfig, --as, --as-group", "The cluster and the user. kubectl gets them as they are."],
        ["--driver-name", "The driver, where a cluster has several."],
        ["--node", "Volumes and snapshots on this node."],
        ["-n, --namespace", "Volumes of claims, and snapshots of VolumeSnapshots, in this namespace."],
        ["-l, --selector", "Nodes, and volumes and snapshots whose claims and VolumeSnapshots have these labels."],
      ],
    },
  },
};

/** The name of a subcommand. */
export type PluginCommand = keyof typeof PLUGIN_COMMANDS;

/** What `why` explains: its kind, and its name. */
export interface Target {
  readonly kind: keyof typeof KINDS;
  readonly name: string;
}

/** Parses the argument of `why`. @throws {UsageError} for another kind, or an invalid name */
export function requireTarget(text: string, field: string): Target {
  const [, kindName = "claim", name = ""] = /^(?:([a-z]+)\/)?([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)$/.exec(text) ??
    [];
  const kind = (Object.keys(KINDS) as Target["kind"][]).find((kind) =>
    KINDS[kind].words.some((word) => word === kindName)
  );
  if (kind !== undefined && name !== "") return { kind, name };
  throw new UsageError(
    `${field} ${quote(text)}: must be the name of a claim, or one of ${WHY_FORMS}`,
  );
}

/** Returns the UUID of a logical volume if it is one (lvs(8), lv_uuid). */
export function requireLvUuid(text: string, field: string): string {
  if (/^[A-Za-z0-9]{6}(?:-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6}$/.test(text)) return text;
  throw new UsageError(
    `${field} ${quote(text)}: must be the UUID of a logical volume, as kubectl denolith orphans has it`,
  );
}
