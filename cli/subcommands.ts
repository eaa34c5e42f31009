/**
 * The subcommands: their flags, their help, and what each of them may access. Their bodies are in the worker.
 *
 * @module
 */

import { parseMountRoots, socketPath } from "../csi/driver_options.ts";
import { requireNodeId } from "../csi/topology.ts";
import { withRealPaths } from "../lvm/host/mounts.ts";
import { apiAccess, clusterAccess } from "./api_access.ts";
import type { Flag, Flags, Subcommand, Subcommands } from "./command_line.ts";
import {
  checkDiskRules,
  checkGroupList,
  choice,
  CLUSTER_FLAGS,
  COMMON_FLAGS,
  CONTROLLER_NAMES,
  controllerNames,
  devicesFileName,
  HOST_NAME,
  httpFlag,
  inWords,
  labelNames,
  LOG_FLAGS,
  lvmSettings,
  MACHINE_FLAGS,
  namespaceName,
  processName,
  SHELLS,
  THIN_POOL_FLAGS,
} from "./shared_flags.ts";
import { cgroupRoot, kubeletPaths, parseKubeletDir } from "./paths.ts";
import { askedHosts, ASKING_FLAGS, TRANSFER_FLAGS, transferHosts, transferOptions } from "./transfers.ts";
import type { AccessScope } from "./permissions.ts";

/** When a process that serves ends well. */
const SERVES = {
  success: "it was asked to end, and completed the calls in progress",
  failure: "it could not start or go on, or calls did not complete in time",
};

const standalone: Subcommand = {
  summary: "Serve all CSI services on one socket, for a plain host or any orchestrator",
  about: "Serves the CSI Identity, Controller and Node services on a Unix socket. All state is in LVM tags, so the " +
    "driver can be stopped, replaced and started at any time. On SIGTERM or SIGINT, it completes the calls in " +
    "progress and exits.",
  exit: SERVES,
  flags: {
    endpoint: COMMON_FLAGS.endpoint,
    "node-id": {
      value: "NAME",
      help: "Name of this node in CSI topologies",
      ...HOST_NAME,
      check: requireNodeId,
    },
    "volume-groups": {
      value: "LIST",
      help: "Volume groups to create volumes in: names, or /patterns/, separated by commas (required)",
      required: '"denolith status" lists those of this host',
      check: checkGroupList,
    },
    "mount-roots": {
      value: "LIST",
      help: "Directories below which volumes may be staged and published, separated by commas",
      default: () => "/var/lib/kubelet,/var/lib/nomad,/opt/nomad,/mnt",
      check: parseMountRoots,
      candidates: "directories",
    },
    ...MACHINE_FLAGS,
    "driver-name": COMMON_FLAGS["driver-name"],
    ...LOG_FLAGS,
  },
  example: "denolith standalone --volume-groups data,/fast-.*/",
  access: async (flags) => ({
    sockets: [socketPath(flags.endpoint!)],
    directories: [...await withRealPaths(parseMountRoots(flags["mount-roots"]!)), ...cgroupDirectories(flags)],
  }),
};

const node: Subcommand = {
  summary: "Serve a node of a Kubernetes cluster: mounts, and the volumes on the node",
  about: "Serves the CSI Identity and Node services and registers with kubelet. Creates, extends and removes the " +
    "logical volumes that the LVMVolumes and LVMSnapshots of this node ask for, and reports the volume groups of the " +
    "node in its LVMNode.",
  exit: SERVES,
  flags: {
    "node-name": {
      value: "NAME",
      help: "Name of the Node object of this node",
      ...HOST_NAME,
      check: requireNodeId,
    },
    namespace: {
      value: "NAME",
      help: "Namespace of the driver, where the agent renews its Lease",
      default: () => "denolith-system",
      check: namespaceName,
    },
    "kubelet-dir": {
      value: "PATH",
      help: "Root directory of kubelet, as its --root-dir",
      default: () => "/var/lib/kubelet",
      check: parseKubeletDir,
      candidates: "directories",
    },
    "volume-groups": {
      value: "LIST",
      help:
        "Volume groups that StorageClasses may use: names, or /patterns/, separated by commas (default all, but those " +
        "that the node itself uses only for classes that name them)",
      check: checkGroupList,
    },
    "disk-rules": {
      value: "RULES",
      help: "Rules that propose unused disks in the LVMNode: GROUP=/PATTERN/ of names in /dev/disk/by-id, with " +
        ";min=SIZE, ;max=SIZE or ;rotational=no after it, by blanks",
      check: checkDiskRules,
    },
    "topology-labels": {
      value: "LIST",
      help: "Labels of the Node to report to kubelet as its topology, separated by commas",
      check: labelNames,
    },
    "disable-registration": {
      help: "Leave the registration with kubelet to the official node-driver-registrar",
    },
    "lvm-config": {
      value: "SETTINGS",
      help: "LVM settings that override lvm.conf, as of lvm --config; in a container: " +
        "activation/udev_sync=0 activation/udev_rules=0",
      check: lvmSettings,
    },
    "lvm-devices-file": {
      value: "NAME",
      help: "Devices file of LVM in /etc/lvm/devices; auto: system.devices, unless lvm.conf says whether one is used " +
        "(default as LVM is configured)",
      check: devicesFileName,
    },
    "read-iops-per-gib": ioLimitFlag("read-iops-per-gib", "reads per second", "100"),
    "write-iops-per-gib": ioLimitFlag("write-iops-per-gib", "writes per second", "100"),
    "read-bps-per-gib": ioLimitFlag("read-bps-per-gib", "bytes read per second", "4Mi"),
    "write-bps-per-gib": ioLimitFlag("write-bps-per-gib", "bytes written per second", "4Mi"),
    ...MACHINE_FLAGS,
    ...TRANSFER_FLAGS,
    ...CLUSTER_FLAGS,
    "http-address": httpFlag(":9808"),
  },
  example: "denolith node --node-name worker-1 --kubeconfig /etc/denolith/kubeconfig",
  check: (flags) => {
    kubeletPaths(flags); // both flags of it are part of the socket's path, which has a maximum length
    transferOptions(flags);
  },
  access: nodeAccess,
};

const controller: Subcommand = {
  summary: "Serve a Kubernetes cluster: provision, expand and snapshot volumes",
  about:
    "Serves the CSI Identity and Controller services, and runs the controllers provisioner, resizer, snapshotter " +
    "and capacity. The first three do the work of csi-provisioner, csi-resizer and csi-snapshotter, under the same " +
    "Leases, so that either can replace the other. The last one publishes CSIStorageCapacities for the " +
    "scheduler. Needs no privileges on the host.",
  exit: SERVES,
  flags: {
    endpoint: COMMON_FLAGS.endpoint,
    namespace: {
      value: "NAME",
      help: "Namespace of the Leases and the CSIStorageCapacities",
      default: () => "denolith-system",
      check: namespaceName,
    },
    identity: {
      value: "NAME",
      help: "Name of this process in Leases and events",
      ...HOST_NAME,
      check: processName,
    },
    "disable-controllers": {
      value: "LIST",
      help: "Controllers to leave to the official sidecars, separated by commas: provisioner, resizer, snapshotter, " +
        "capacity",
      check: controllerNames,
      candidates: { list: CONTROLLER_NAMES },
    },
    ...ASKING_FLAGS,
    ...CLUSTER_FLAGS,
    "http-address": httpFlag(":9809"),
  },
  example: "denolith controller --disable-controllers resizer",
  access: controllerAccess,
};

const doctor: Subcommand = {
  summary: "Check this host for problems, and suggest remedies",
  about: "Checks whether this host has what the driver needs, and looks for what a crash left behind. Changes nothing.",
  exit: { success: "no error is found", failure: "one is found" },
  flags: {
    "volume-groups": {
      value: "LIST",
      help: "Volume groups to check, as for standalone (default: those that the driver uses, or else all)",
      check: checkGroupList,
    },
    endpoint: COMMON_FLAGS.endpoint,
    "driver-name": COMMON_FLAGS["driver-name"],
    json: { help: "Print JSON" },
  },
  example: "denolith doctor --volume-groups data",
  access: (flags) => Promise.resolve({ sockets: [socketPath(flags.endpoint!)], directories: [] }),
};

const status: Subcommand = {
  summary: "Show the volume groups, thin pools, volumes and snapshots of this host",
  about:
    "Shows the volumes and snapshots of the driver on this host, the space that they use, and inconsistencies. With " +
    "--node-name, compares them with the LVMVolumes and LVMSnapshots of the node. Changes nothing.",
  exit: { success: "the state can be read", failure: "it cannot" },
  flags: {
    "volume-groups": {
      value: "LIST",
      help: "Volume groups to show, as for standalone (default: those that the driver uses, or else all)",
      check: checkGroupList,
    },
    "node-name": {
      value: "NAME",
      help: "Name of the Node object of this node; compare with its LVMVolumes",
      check: requireNodeId,
    },
    kubeconfig: { ...COMMON_FLAGS.kubeconfig, needs: "node-name" },
    "thin-pool-overcommit": THIN_POOL_FLAGS["thin-pool-overcommit"],
    "driver-name": COMMON_FLAGS["driver-name"],
    json: { help: "Print JSON, with sizes in bytes" },
  },
  example: "denolith status --node-name worker-1",
  access: statusAccess,
};

const completion: Subcommand = {
  summary: "Print the completion script of a shell",
  about:
    "Prints a script that completes the commands of denolith, their flags, and the values of flags. The packaged " +
    "files have it, too.",
  argument: { name: "SHELL", help: inWords(SHELLS), ...choice(SHELLS) },
  flags: {},
  example: "denolith completion bash > /usr/local/share/bash-completion/completions/denolith",
};

const ui: Subcommand = {
  summary: "Show a cluster as a page in a browser on this machine",
  about: "The same as kubectl denolith ui, which the executable starts for it, with the permissions of the kubectl " +
    "plugin. Its flags are those of the plugin: see kubectl denolith ui --help.",
  flags: {},
};

/** The summaries of the subcommands that change where, or whose, volumes are, or give them up; the plugin has them. */
const MOVING = {
  move: "Move the volume of a claim to another node of a cluster",
  drain: "Move the volumes of a node of a cluster to other nodes",
  adopt: "Let volumes follow their disks to another node of a cluster",
  import: "Import the volume of a claim from another driver",
  "forget-node": "Give up a node of a cluster that is gone for good, and its volumes",
};

const moving = Object.entries(MOVING).map(([name, summary]): [string, Subcommand] => [name, {
  summary,
  about:
    `The same as kubectl denolith ${name}, which the executable starts for it, with the permissions of the kubectl ` +
    `plugin. Its argument and flags are those of the plugin: see kubectl denolith ${name} --help.`,
  flags: {},
}]);

const version: Subcommand = {
  summary: "Print the version",
  about: "Prints the versions of denolith and of its runtime.",
  flags: { json: { help: "Print JSON" } },
};

/** The subcommands that are the kubectl plugin's. */
export const PLUGIN_SUBCOMMANDS: readonly string[] = [...Object.keys(MOVING), "ui"];

/** The subcommands by name, in the order of the help. */
export const SUBCOMMANDS: Subcommands = {
  standalone,
  node,
  controller,
  doctor,
  status,
  ...Object.fromEntries(moving),
  ui,
  completion,
  version,
};

/** Returns a flag of the default IO limits by volume group. */
function ioLimitFlag(flag: string, unit: string, rate: string): Flag {
  return {
    value: "LIST",
    check: async (text) => (await import("../csi/group_limits.ts")).parseGroupLimits({ [flag]: text }),
    help: `Default limit of ${unit} for each GiB of a volume, by volume group: GROUP=${rate}, separated by commas`,
  };
}

function cgroupDirectories(flags: Flags): string[] {
  const root = cgroupRoot(flags);
  return root === undefined ? [] : [root];
}

async function nodeAccess(flags: Flags): Promise<AccessScope> {
  const { kubeletDir, socket, registrationSocket } = kubeletPaths(flags);
  const { hosts = [], ...cluster } = await clusterAccess(flags);
  return {
    sockets: flags["disable-registration"] === undefined ? [socket, registrationSocket] : [socket],
    directories: [...await withRealPaths([kubeletDir]), ...cgroupDirectories(flags)],
    ...cluster,
    hosts: [...hosts, ...transferHosts(flags)],
  };
}

async function statusAccess(flags: Flags): Promise<AccessScope> {
  const host = { sockets: [], directories: [] };
  return flags["node-name"] === undefined ? host : { ...host, ...await apiAccess(flags) };
}

async function controllerAccess(flags: Flags): Promise<AccessScope> {
  const { hosts = [], ...cluster } = await clusterAccess(flags);
  return {
    programs: [],
    sockets: [socketPath(flags.endpoint!)],
    directories: [],
    ...cluster,
    hosts: [...hosts, ...askedHosts(flags)],
  };
}
