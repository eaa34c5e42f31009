/**
 * Situations of claims and the scheduler.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const CLAIMS: readonly Situation[] = [
  {
    seen: ["lvm-localpv#31", "external-provisioner#697"],
    happened: "The chosen node is full, and the claim stays with it.",
    here: "The node is given back, and the scheduler chooses again.",
    shown: [
      by(
        "k8s/provisioner/provisioner_failures_test.ts",
        "the selected node is withdrawn when the scheduler knows that",
      ),
      by("tests/cluster_fake/capacity_test.ts", "a node that was chosen too often gives a claim back"),
    ],
  },
  {
    seen: ["longhorn#12014", "open-local#269"],
    happened: "The scheduler is wrong about the free space of a node.",
    here: "Published capacity follows each change, less what is pending.",
    shown: [
      by("tests/cluster_fake/capacity_test.ts", "the published capacity of each class is that of its groups"),
      by("k8s/scheduling/free_capacity_test.ts", "what remains when all requested volumes are created"),
    ],
  },
  {
    seen: [
      "velero#9053",
      "velero#5631",
      "kubernetes#100485",
      "sig-storage-lib-external-provisioner#121",
      "karpenter-provider-aws#3262",
    ],
    happened: "A claim keeps a selected node that is gone or has no driver.",
    here: "The node is given back, with an event.",
    shown: [
      by(
        "k8s/provisioner/provisioner_failures_test.ts",
        "a chosen node without the driver is given back to the scheduler",
      ),
    ],
  },
  {
    seen: ["lvm-localpv#379", "local-path-provisioner#383", "local-csi-driver#466", "volsync#361"],
    happened: "A pod names its node, and its claim waits for the scheduler.",
    here: "why names it SchedulerSkipped, with the remedy.",
    shown: [by("tests/cluster_fake/troubleshooting/pending.ts", "SchedulerSkipped")],
  },
  {
    seen: ["topolvm#120", "topolvm#235", "topolvm#334"],
    happened: "A missing or wrong scheduler extender schedules no pods.",
    here: "None is needed: the scheduler reads published capacity.",
    shown: [by("deploy/manifests_test.ts", "the scheduler uses published capacity")],
  },
  {
    seen: ["zfs-localpv#101", "volsync#420", "sig-storage-local-static-provisioner#434"],
    happened: "The name of a node is not its host name.",
    here: "Volumes have a label of the driver, with the node's name.",
    shown: [
      by("csi/topology_test.ts", "topologyOf() adds the labels of the node, and no label replaces the node's name"),
    ],
  },
  {
    seen: ["external-provisioner#1333"],
    happened: "The name of a node is too long for a label.",
    here: "The agent ends, and says so.",
    shown: [by("csi/topology_test.ts", "requireNodeId() accepts what can be the value of a label")],
  },
  {
    seen: ["openebs#2630", "pvmigrate#171"],
    happened: "Claims have long names, and what is named after them is not valid.",
    here: "Names of events are cut.",
    shown: [by("k8s/runtime/event_correlator_test.ts", "EventCorrelator names events as the API requires")],
  },
  {
    seen: ["external-provisioner#68", "external-provisioner#211", "ibm-spectrum-scale-csi#1038"],
    happened: "Thousands of claims at once delay all others.",
    here: "Namespaces take turns.",
    shown: [by("k8s/runtime/queue_test.ts", "namespaces take turns, however many keys one of them has")],
  },
  {
    seen: ["cloudnative-pg#3671", "clickhouse-operator#702", "mongodb-kubernetes-operator#489", "topolvm#194"],
    happened: "A pod may not run on the node of its volume.",
    here: "why names the node, and the command that moves the volume.",
    shown: [by("plugin/diagnosis/problems_test.ts", "and the volumes of a pod's other claims")],
  },
  {
    seen: ["kubernetes#92598", "kubeflow/pipelines#4506", "ods-pipeline#647"],
    happened: "Pods that have ended keep a claim Terminating.",
    here: "why names them.",
    shown: [by("tests/cluster_fake/troubleshooting/terminating.ts", "UsedByPods")],
  },
  {
    seen: ["alibaba-cloud-csi-driver#126"],
    happened: "A PersistentVolume without affinity is used on another node.",
    here: "why names the node that has it.",
    shown: [by("tests/cluster_fake/troubleshooting/mounts.ts", "VolumeOnOtherNode")],
  },
  {
    seen: ["containerized-data-importer#1467", "lvm-localpv#224"],
    happened: "A PersistentVolume is written by hand, or given to another claim.",
    here: "It is used, guarded and removed as any other.",
    shown: [
      by("k8s/provisioner/reclaimer_test.ts", "a PersistentVolume that was written by hand is guarded, and removed"),
      by("tests/cluster/suite/examples_suite.ts", "a logical volume that was there before is given to a pod"),
    ],
  },
  {
    seen: ["csi-driver-lvm#21"],
    happened: "Volumes of another driver, or of an earlier one, must be copied.",
    here: "Those of OpenEBS, TopoLVM and local paths are imported in place.",
    shown: [by("tests/cluster_fake/import_test.ts", "is imported, finished, and used as any other")],
  },
];
