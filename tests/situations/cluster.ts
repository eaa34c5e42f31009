/**
 * Situations of clusters: claims, schedulers, snapshots, backups, other programs.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const CLUSTER: readonly Situation[] = [
  {
    seen: ["external-snapshotter#412", "external-snapshotter#629"],
    happened: "A VolumeSnapshotClass is deleted before its snapshots, which then cannot be deleted.",
    here: "The snapshot is deleted.",
    shown: [
      by(
        "k8s/snapshotter/snapshotter_races_test.ts",
        "completes an uncertain request when class and VolumeSnapshot are gone",
      ),
    ],
  },
  {
    seen: ["external-provisioner#546"],
    happened: "A PersistentVolume is deleted before its claim, and the volume stays for ever.",
    here: "The volume goes when the claim goes.",
    shown: [by("k8s/provisioner/reclaimer_test.ts", "is guarded, and removed by its policy")],
  },
  {
    seen: ["cloudnative-pg#2947", "cloudnative-pg#10029", "mayastor#1792"],
    happened: "Replicas are restored from a snapshot on other nodes.",
    here: "A copy is sent to the node of its source, or refused with the name of that node.",
    shown: [
      by("k8s/provisioner/source_node_test.ts", "a clone is sent to the node of its source at once"),
      by("k8s/provisioner/source_node_test.ts", "is refused with the name of that node"),
    ],
  },
  {
    seen: ["lvm-localpv#379", "local-path-provisioner#383", "local-csi-driver#466"],
    happened: "A pod names its node, so that the scheduler never chooses one for its claim.",
    here: "why names it SchedulerSkipped, with the remedy.",
    shown: [by("tests/cluster_fake/troubleshooting/pending.ts", "SchedulerSkipped")],
  },
  {
    seen: ["moosefs-csi#34"],
    happened: "umount succeeds, and the mount is still there.",
    here: "Unpublishing fails while something is mounted, and the next try unmounts it.",
    shown: [by("tests/contract/stale_mounts.ts", "a volume that is mounted more than once at its places")],
  },
  {
    seen: ["openebs#2630", "pvmigrate#171"],
    happened: "Claims have long names, and names derived from them are not valid.",
    here: "Names of events are cut so that the API accepts them.",
    shown: [
      by("k8s/runtime/event_correlator_test.ts", "EventCorrelator names events as the API requires"),
    ],
  },
  {
    seen: ["openshift-docs#33930"],
    happened: "etcd is restored from a backup, and watches are silent for ever.",
    here: "A watch on which nothing comes is begun again with a list.",
    shown: [
      by("k8s/runtime/informer_test.ts", "Informer: lists again after a restore of etcd"),
    ],
  },
];
