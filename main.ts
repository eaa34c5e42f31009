/**
 * The command line of denolith: the subcommands, what each may do, and signals. Nothing else exits the process.
 *
 * @module
 */

import manifest from "./deno.json" with { type: "json" };
import { apiAccess, clusterAccess } from "./cli/api_access.ts";
import {
  type Flag,
  type Flags,
  messageOf,
  parseCommandLine,
  type Subcommands,
  UsageError,
} from "./cli/command_line.ts";
import { isSandboxed, runSandboxed, serveWorker, type WorkerRequest } from "./cli/sandbox.ts";
import { socketPath } from "./csi/endpoint.ts";
import { parseMountRoots } from "./csi/mount_roots.ts";
import { cgroupRoot, kubeletPaths } from "./cli/paths.ts";
import { StorageError } from "./lvm/error.ts";
import { withRealPaths } from "./lvm/host/mounts.ts";
import { DEFAULT_SNAPSHOT_AUTOEXTEND } from "./lvm/snapshots/cow_autoextend.ts";
import { type AccessScope, permissionsFor } from "./cli/permissions.ts";
import { THIN_POOL_FLAGS } from "./cli/thin_pool_flags.ts";

/** Flags that mean the same to several subcommands. */
const SHARED_FLAGS = {
  endpoint: {
    value: "unix:///PATH.sock",
    help: "the driver's socket",
    default: () => Deno.env.get("CSI_ENDPOINT") ?? "unix:///run/denolith/csi.sock",
  },
  "driver-name": {
    value: "NAME",
    help: "the driver's name, also the owner in LVM's tags",
    default: () => "lvm.denolith.dev",
  },
  kubeconfig: { value: "PATH", help: "a kubeconfig file that leads to the API server; in a pod none is needed" },
} as const satisfies Record<string, Flag>;

const CGROUP_FLAG: Flag = {
  value: "PATH",
  help: "where cgroup v2 is mounted, not in /sys: for limits of volumes, which otherwise are only recorded",
};

/** A flag that limits the volumes of groups. */
const rateFlag = (what: string, rate: string): Flag => ({
  value: "LIST",
  help:
    `how many ${what} a second volumes have for each GiB where nothing else is said: GROUP=${rate}, separated by commas`,
});
const MACHINE_FLAGS = {
  "snapshot-autoextend": {
    value: "THRESHOLD:PERCENT",
    help: "how full stores of snapshots may be before they grow, and by how much, in percent; or off",
    default: () => DEFAULT_SNAPSHOT_AUTOEXTEND,
  },
} as const satisfies Record<string, Flag>;

const LOG_FLAGS = {
  "log-level": { value: "LEVEL", help: "debug, info, warning or error", default: () => "info" },
  "log-format": { value: "FORMAT", help: "text or json", default: () => "text" },
} as const satisfies Record<string, Flag>;

/** Flags of the processes of a cluster. */
const CLUSTER_FLAGS = {
  "driver-name": SHARED_FLAGS["driver-name"],
  kubeconfig: SHARED_FLAGS.kubeconfig,
  "disable-process-metrics": { help: "leave the process's own figures out of /metrics" },
  ...LOG_FLAGS,
} as const satisfies Record<string, Flag>;

const httpFlag = (address: string): Flag => ({
  value: "ADDRESS",
  help: "where /livez, /readyz and /metrics are, or off",
  default: () => address,
});

const SUBCOMMANDS: Subcommands = {
  standalone: {
    summary: "serve all of CSI on one socket, for a plain host or any orchestrator",
    about:
      "Serves the CSI Identity, Controller and Node services on one unix socket. All state is in LVM's tags, so the\n" +
      "driver can be stopped, replaced and started at any time. SIGTERM and SIGINT let calls under way end first.",
    flags: {
      endpoint: SHARED_FLAGS.endpoint,
      "node-id": { value: "NAME", help: "the name of this node in topologies", default: () => Deno.hostname() },
      "volume-groups": {
        value: "LIST",
        help: "the volume groups to make volumes in: names, or patterns in slashes, separated by commas (required)",
      },
      "mount-roots": {
        value: "LIST",
        help: "the directories below which volumes may be staged and published, separated by commas",
        default: () => "/var/lib/kubelet,/var/lib/nomad,/opt/nomad,/mnt",
      },
      "cgroup-root": CGROUP_FLAG,
      ...MACHINE_FLAGS,
      "driver-name": SHARED_FLAGS["driver-name"],
      ...THIN_POOL_FLAGS,
      ...LOG_FLAGS,
    },
    example: "denolith standalone --volume-groups data,/fast-.*/",
    access: standaloneAccess,
    run: async (flags, end) => await (await import("./cli/standalone.ts")).standalone(flags, end),
  },
  node: {
    summary: "serve a node of a Kubernetes cluster: mounts, and the node's own volumes",
    about:
      "Serves the CSI Identity and Node services below kubelet's directory, registers with kubelet, makes what the LVMVolumes\n" +
      "of this node ask for, and tells in its LVMNode what the node has. /livez, /readyz and /metrics answer over HTTP.",
    flags: {
      "node-name": { value: "NAME", help: "the name of this node's Node object", default: () => Deno.hostname() },
      "kubelet-dir": {
        value: "PATH",
        help: "kubelet's directory, its own --root-dir",
        default: () => "/var/lib/kubelet",
      },
      "volume-groups": {
        value: "LIST",
        help:
          "the volume groups that classes may use: names, or patterns in slashes, separated by commas; all by default",
      },
      "topology-labels": {
        value: "LIST",
        help: "labels of the Node that classes may choose nodes by, separated by commas",
      },
      "lvm-config": {
        value: "SETTINGS",
        help: "settings for LVM over those of lvm.conf; in a container: activation/udev_sync=0 activation/udev_rules=0",
      },
      "cgroup-root": CGROUP_FLAG,
      "read-iops-per-gib": rateFlag("reads", "100"),
      "write-iops-per-gib": rateFlag("writes", "100"),
      "read-bps-per-gib": rateFlag("bytes read", "4Mi"),
      "write-bps-per-gib": rateFlag("bytes written", "4Mi"),
      ...THIN_POOL_FLAGS,
      ...MACHINE_FLAGS,
      ...CLUSTER_FLAGS,
      "http-address": httpFlag(":9808"),
    },
    example: "denolith node --node-name worker-1 --kubeconfig /etc/denolith/kubeconfig",
    access: nodeAccess,
    run: async (flags, end) => await (await import("./cli/node.ts")).node(flags, end),
  },
  controller: {
    summary: "serve a Kubernetes cluster: turn claims into volumes, and grow them",
    about:
      "Serves the CSI Identity and Controller services on a socket, and does what csi-provisioner and csi-resizer do, each\n" +
      "under the Lease that they use, so that either can take the other's place. It tells the scheduler what nodes have room\n" +
      "for. It needs no rights on the host.",
    flags: {
      endpoint: SHARED_FLAGS.endpoint,
      namespace: {
        value: "NAME",
        help: "the namespace of its Leases and CSIStorageCapacities",
        default: () => "denolith-system",
      },
      identity: { value: "NAME", help: "who it is in Leases and events", default: () => Deno.hostname() },
      "disable-controllers": {
        value: "LIST",
        help: "loops to leave to the official sidecars: provisioner, resizer, snapshotter, capacity",
      },
      ...CLUSTER_FLAGS,
      "http-address": httpFlag(":9809"),
    },
    example: "denolith controller --disable-controllers resizer",
    access: controllerAccess,
    run: async (flags, end) => await (await import("./cli/controller.ts")).controller(flags, end),
  },
  doctor: {
    summary: "look at this host, and say what is wrong and what to do about it",
    about:
      "Checks programs, kernel, locks, filters, volume groups, metadata, thin pools, cgroups, udev and what crashes left. It\n" +
      "changes nothing.\n" +
      "Exit status: 0 nothing worse than warnings, 1 an error was found.",
    flags: {
      "volume-groups": { value: "LIST", help: "as for standalone; by default those that the driver uses, or else all" },
      endpoint: SHARED_FLAGS.endpoint,
      "driver-name": SHARED_FLAGS["driver-name"],
      json: { help: "print JSON" },
    },
    example: "denolith doctor --volume-groups data",
    access: (flags) => Promise.resolve({ sockets: [socketPath(flags.endpoint!)], directories: [] }),
    run: async (flags) => await (await import("./cli/inspect.ts")).doctor(flags),
  },
  status: {
    summary: "show groups, thin pools, volumes and snapshots, how full they are, and what is left over",
    about:
      "Shows what the driver has on this host, and with --node-name also what of it the cluster does not know, and what the\n" +
      "cluster knows that is not there. It changes nothing. Exit status: 1 when it could not be told.",
    flags: {
      "volume-groups": { value: "LIST", help: "which groups; by default those that the driver uses, or else all" },
      "node-name": {
        value: "NAME",
        help: "the name of this node's Node object: compare with the cluster's LVMVolumes",
      },
      kubeconfig: SHARED_FLAGS.kubeconfig,
      "thin-pool-overcommit": THIN_POOL_FLAGS["thin-pool-overcommit"],
      "driver-name": SHARED_FLAGS["driver-name"],
      json: { help: "print JSON; sizes are bytes" },
    },
    example: "denolith status --node-name worker-1",
    access: statusAccess,
    run: async (flags) => await (await import("./cli/inspect.ts")).status(flags),
  },
  "forget-node": {
    summary: "give up a node of a cluster that does not come back, and with it its volumes",
    about:
      "Shows what the cluster has of a node's volumes, and with --yes gives it up: the LVMNode goes, and LVMVolumes that no\n" +
      "PersistentVolume needs; the others become Lost, and no deletion waits for the node any more. What is on its disks is\n" +
      "not touched. A node that lives is refused. To be run by an administrator, anywhere. Exit status: 1 when refused.",
    argument: { name: "NODE", help: "the name of the node" },
    flags: {
      yes: { help: "do it; without this it is only shown" },
      force: { value: "REASON", help: "do it although the node seems to live: why, which is written into its volumes" },
      kubeconfig: SHARED_FLAGS.kubeconfig,
      "driver-name": SHARED_FLAGS["driver-name"],
      json: { help: "print JSON; sizes are bytes" },
    },
    example: "denolith forget-node worker-1 --kubeconfig ~/.kube/config --yes",
    access: async (flags) => ({ programs: [], sockets: [], directories: [], ...await apiAccess(flags) }),
    run: async (flags) => await (await import("./cli/forget_node.ts")).forgetNode(flags),
  },
  version: {
    summary: "print the version",
    about: "Prints the version of denolith, and of what it runs on.",
    flags: {},
    run: () => {
      console.log(`denolith ${manifest.version} (deno ${Deno.version.deno}, V8 ${Deno.version.v8})`);
      return Promise.resolve(0);
    },
  },
};

async function standaloneAccess(flags: Flags): Promise<AccessScope> {
  return {
    sockets: [socketPath(flags.endpoint!)],
    directories: [...await withRealPaths(parseMountRoots(flags["mount-roots"]!)), ...cgroupDirectories(flags)],
  };
}

function cgroupDirectories(flags: Flags): string[] {
  const root = cgroupRoot(flags);
  return root === undefined ? [] : [root];
}

async function nodeAccess(flags: Flags): Promise<AccessScope> {
  const { kubeletDir, socket, registrationSocket } = kubeletPaths(flags);
  return {
    sockets: [socket, registrationSocket],
    directories: [...await withRealPaths([kubeletDir]), ...cgroupDirectories(flags)],
    ...await clusterAccess(flags),
  };
}

async function statusAccess(flags: Flags): Promise<AccessScope> {
  const host = { sockets: [], directories: [] };
  return flags["node-name"] === undefined ? host : { ...host, ...await apiAccess(flags) };
}

async function controllerAccess(flags: Flags): Promise<AccessScope> {
  return { programs: [], sockets: [socketPath(flags.endpoint!)], directories: [], ...await clusterAccess(flags) };
}

/** How long after the first request to end a further SIGINT counts as the same one, in milliseconds. */
const SIGNAL_ECHO_MS = 1_000;

/**
 * Is aborted when the process is asked to end. A supervisor may ask twice (timeout(1) does), so further SIGTERMs change
 * nothing; a second Ctrl-C, if it is not the echo of the first, ends the process at once.
 */
function abortOnSignals(): AbortSignal {
  const end = new AbortController();
  const onSignal = () => {
    if (!end.signal.aborted) {
      Deno.unrefTimer(setTimeout(() => Deno.removeSignalListener("SIGINT", onSignal), SIGNAL_ECHO_MS));
    }
    end.abort();
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) Deno.addSignalListener(signal, onSignal);
  return end.signal;
}

/** Runs the command line and answers the exit status: 0 done, 1 failed, 2 not understood. */
function main(args: readonly string[]): Promise<number> {
  return exitStatusOf(async () => {
    const request = parseCommandLine(SUBCOMMANDS, args);
    if (request.kind === "help") {
      console.log(request.text);
      return request.isRequested ? 0 : 2;
    }
    const { name, flags } = request;
    const { access } = SUBCOMMANDS[name]!;
    const end = abortOnSignals();
    if (access === undefined) return await execute({ name, flags }, end);
    const permissions = permissionsFor(await access(flags), import.meta.filename!);
    return await runSandboxed({ name, flags }, { module: import.meta.url, permissions, end });
  });
}

/** Runs a subcommand's body. */
function execute({ name, flags }: WorkerRequest, end: AbortSignal): Promise<number> {
  return exitStatusOf(() => SUBCOMMANDS[name]!.run(flags, end));
}

/** The exit status that the body answers, or that its error stands for; the error is told on standard error. */
async function exitStatusOf(body: () => Promise<number>): Promise<number> {
  try {
    return await body();
  } catch (error) {
    console.error(`denolith: ${messageOf(error)}`);
    if (error instanceof UsageError) return 2;
    return error instanceof StorageError && error.kind === "InvalidArgument" ? 2 : 1;
  }
}

if (isSandboxed()) serveWorker(execute);
else if (import.meta.main) Deno.exit(await main(Deno.args));
