/**
 * Situations of distributions and hosts.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const HOSTS: readonly Situation[] = [
  {
    seen: ["rook#6873", "talos#1315", "kURL#712"],
    happened: "The host has no lvm2.",
    here: "The image has it; the agent needs none of the host.",
    shown: [by("tests/cluster/suite/bare_host_suite.ts", "on a host without lvm2 and with a read-only /etc")],
  },
  {
    seen: ["csi-driver-lvm#86", "csi-driver-lvm#83"],
    happened: "/etc is read-only, as on Talos, and LVM changes nothing.",
    here: "The doctor names the value of the chart that mends it.",
    shown: [
      by("tests/lvm/hosts_suite.ts", "where LVM's settings are read-only, LVM changes nothing, unless its archives"),
    ],
  },
  {
    seen: ["pmem-csi#656"],
    happened: "LVM needs a writable root filesystem in the container.",
    here: "It writes to the locks and records of the host alone.",
    shown: [by("deploy/manifests_test.ts", "the agent has the host's paths that LVM needs, kubelet's for its mounts")],
  },
  {
    seen: ["csi-driver-lvm#161"],
    happened: "The agent does not run on tainted nodes, such as a control plane.",
    here: "It tolerates all taints, and runs on Linux alone.",
    shown: [by("deploy/manifests_test.ts", "the agent has the host's paths that LVM needs, kubelet's for its mounts")],
  },
  {
    seen: ["proxmox-csi-plugin#241", "hetznercloud/csi-driver#98", "synology-csi-talos#12", "openebs/charts#274"],
    happened: "Pod Security refuses the pods of a driver.",
    here: "The namespace of the manifests permits them.",
    shown: [by("deploy/manifests_test.ts", "everything is in the namespace that comes first")],
  },
  {
    seen: ["k3s#3184", "synology-csi#51", "ibm-block-csi-driver#661"],
    happened: "kubelet has no figures of the used space of volumes.",
    here: "It has them, in bytes and inodes.",
    shown: [by("tests/contract/staging_suite.ts", "nodeGetVolumeStats() counts bytes and inodes")],
  },
  {
    seen: ["open-local#177"],
    happened: "IO limits do nothing with cgroup v1.",
    here: "A condition and an event say NoCgroup2.",
    shown: [by("lvm/staging/cgroups_test.ts", "limit() reports why it cannot limit a device")],
  },
  {
    seen: ["hwameistor#740", "kubernetes#92287"],
    happened: "IO limits are lost when a device gets another number, or a node restarts.",
    here: "They are found from the mounts, and set again.",
    shown: [
      by("lvm/staging/io_limiter_test.ts", "finds the users of limited volumes in the mount table"),
      by("lvm/staging/io_limiter_test.ts", "limits that were changed by hand are set again"),
    ],
  },
  {
    seen: ["kind, --cgroup-root"],
    happened: "The cgroups of pods are below one of kubelet's.",
    here: "They are found there, too.",
    shown: [by("lvm/staging/cgroups_test.ts", "limit() finds a pod's cgroup")],
  },
  {
    seen: ["rook#7575", "talos#14182", "hetznercloud/csi-driver#582"],
    happened: "With SELinux, a pod waits until each file has a label.",
    here: "A value of the chart has it mounted with that label.",
    shown: [
      by("tests/contract/selinux_suite.ts", "has the SELinux context that is requested, one at a time"),
      by("deploy/chart_test.ts", "mounts with SELinux contexts need what mount(8) must see"),
    ],
  },
  {
    seen: ["kata-containers#12842", "topolvm#1199"],
    happened: "A pod in a virtual machine wants the device of its volume.",
    here: "volumeMode Block gives it; direct volumes of Kata do not exist.",
    shown: [by("tests/contract/staging_suite.ts", "a block volume is published as a device, for reading and writing")],
  },
];
