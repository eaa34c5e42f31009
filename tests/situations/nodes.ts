/**
 * Situations of nodes that are gone, new, or full, and of autoscalers.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const NODES: readonly Situation[] = [
  {
    seen: [
      "autoscaler#4923",
      "AKS#2991",
      "local-path-provisioner#215",
      "cloudnative-pg#5233",
      "cloudnative-pg#6139",
      "tidb-operator#402",
      "cloud-on-k8s#9247",
    ],
    happened: "Claims stay bound to nodes that are gone.",
    here: "why and status name them; forget-node lets them be deleted.",
    shown: [
      by("tests/cluster_fake/troubleshooting/nodes.ts", "NodeGone"),
      by("tests/cluster/suite/two_nodes_suite.ts", "a node that failed for good blocks nothing after the steps for it"),
    ],
  },
  {
    seen: ["topolvm#715"],
    happened: "Objects of dead nodes slow down everything.",
    here: "They delay nothing, and forget-node removes them.",
    shown: [
      by("tests/cluster_fake/volume_faults_test.ts", "a node that is gone delays no other requests"),
      by("plugin/node_removal/forget_node_test.ts", "removes what no PersistentVolume or VolumeSnapshotContent needs"),
    ],
  },
  {
    seen: ["ceph-csi#5409"],
    happened: "A node is marked as out of service while its pods still write.",
    here: "Its volumes are on it alone; forget-node refuses while the node is Ready.",
    shown: [by("plugin/node_removal/plan_test.ts", "that is out of service, unless the Node is Ready")],
  },
  {
    seen: ["ubicloud#5355"],
    happened: "A node does not answer, and gets volumes.",
    here: "It offers no space after five minutes.",
    shown: [
      by(
        "k8s/scheduling/capacity_test.ts",
        "the capacity of a node is published again when its agent has become silent",
      ),
      by("k8s/scheduling/agent_liveness_test.ts", "while the API server does not answer, and for five minutes"),
    ],
  },
  {
    seen: ["autoscaler#9700", "autoscaler#5093", "karpenter#3224", "local-csi-driver#463"],
    happened: "Pending pods add no node, since one that does not exist has no capacity.",
    here: "The same: keep a spare node.",
    shown: [by("tests/cluster_fake/troubleshooting/pending.ts", "NoCapacity")],
  },
  {
    seen: ["autoscaler#4369", "autoscaler#6417"],
    happened: "An autoscaler removes a node whose pods are scaled to 0, with their data.",
    here: "The same without its annotation on the node.",
    shown: [
      by("tests/cluster_fake/forget_node_test.ts", "the deletion of a volume waits for its node, until the node"),
    ],
  },
  {
    seen: ["descheduler#6", "descheduler#424", "csi-driver-lvm#117", "cluster-api#12403", "cluster-api#9489"],
    happened: "Evicted pods can only come back to their node.",
    here: "drain moves their volumes; why names a cordoned node.",
    shown: [
      by("tests/cluster_fake/plugin_move_test.ts", "drain: shows where volumes can go and which stay, asks, and moves"),
      by("tests/cluster_fake/troubleshooting/mounts.ts", "Unschedulable"),
    ],
  },
];
