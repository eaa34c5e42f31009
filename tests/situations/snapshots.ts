/**
 * Situations of snapshots, clones and backups.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { onMachine } from "./play.ts";
import { by, type Situation } from "./situation.ts";

const MiB = 1n << 20n;

/** The situations. */
export const SNAPSHOTS: readonly Situation[] = [
  {
    seen: ["backsnap#5"],
    happened: "A snapshot reports the size 0, and no claim can be restored from it.",
    here: "It reports the size of its volume.",
    shown: onMachine(async ({ harness }) => {
      const sourceVolumeId = await harness.create();
      const { snapshot } = await harness.csi.controller.createSnapshot({ sourceVolumeId, name: "s" });
      assertEquals(snapshot?.sizeBytes, 32n * MiB);
    }),
  },
  {
    seen: ["external-snapshotter#477"],
    happened: "A user makes a filesystem byte by byte, by a snapshot of a block volume.",
    here: "Only where an administrator allows it.",
    shown: [
      by(
        "k8s/provisioner/content_source_test.ts",
        "findContentSource() takes a snapshot that is bound, ready, ours and of",
      ),
    ],
  },
  {
    seen: ["external-snapshotter#412", "external-snapshotter#629", "external-snapshotter#432"],
    happened: "A VolumeSnapshotClass is deleted before its snapshots, which stay.",
    here: "They can be used and deleted.",
    shown: [
      by(
        "k8s/snapshotter/snapshotter_races_test.ts",
        "completes an uncertain request when class and VolumeSnapshot are",
      ),
    ],
  },
  {
    seen: ["external-snapshotter#1388", "external-snapshotter#1258", "external-snapshotter#880"],
    happened: "A snapshot is deleted while it is taken, and stays.",
    here: "It is taken, and deleted at once.",
    shown: [
      by(
        "k8s/snapshotter/snapshotter_failures_test.ts",
        "was deleted while its snapshot was being taken waits for nothing",
      ),
      by("k8s/snapshotter/snapshotter_races_test.ts", "that is deleted while uncertain, the request is repeated"),
    ],
  },
  {
    seen: ["open-local#184"],
    happened: "A snapshot whose volume is deleted first is Terminating for ever.",
    here: "A volume waits for its thick snapshots, and thin ones outlive it.",
    shown: [
      by("tests/cluster/suite/snapshots_suite.ts", "a volume waits with its deletion for its snapshots"),
      by("tests/contract/thin_suite.ts", "a thin snapshot needs no COW space, and outlives its volume"),
    ],
  },
  {
    seen: ["blksnap#102", "dattobd#87"],
    happened: "A backup fails, since its snapshot overflowed.",
    here: "COW space is extended in time, and by default cannot overflow.",
    shown: [by("tests/cluster/suite/snapshot_autoextend_suite.ts", "COW space that fills is extended in time")],
  },
  {
    seen: ["lvm2#164"],
    happened: "COW space is made too small for what it holds.",
    here: "The driver makes nothing smaller.",
    shown: [by("lvm/snapshots/cow_autoextend_test.ts", "decideCowExtension() extends at the threshold until below it")],
  },
  {
    seen: ["cloudnative-pg#2947", "cloudnative-pg#10029", "mayastor#1792", "velero#7044", "volsync#1019"],
    happened: "A pod that reads a snapshot is scheduled to a node without it.",
    here: "It goes to its source's node, or is refused with that name.",
    shown: [
      by("k8s/provisioner/source_node_test.ts", "a clone is sent to the node of its source at once"),
      by("k8s/provisioner/source_node_test.ts", "is refused with the name of that node"),
    ],
  },
  {
    seen: ["miroir#270", "longhorn#13349"],
    happened: "Snapshots of several volumes are of several moments.",
    here: "A group snapshot is of one moment.",
    shown: [
      by("tests/lvm/group_snapshots_suite.ts", "written to its volumes in turn no later one without the earlier"),
    ],
  },
  {
    seen: ["velero#7561", "velero#4428", "kubevirt#10832"],
    happened: "A restore waits for its claim, and the claim for a first pod.",
    here: "A class with Immediate gives it a volume at once.",
    shown: [by("tests/cluster/suite/lifecycle_suite.ts", "Immediate claims are bound without a pod")],
  },
  {
    seen: ["harvester#11339"],
    happened: "Velero gives a snapshot to another VolumeSnapshotContent.",
    here: "It is found by its handle.",
    shown: [
      by(
        "tests/cluster/suite/snapshots_suite.ts",
        "outlives its VolumeSnapshot, is given to another one, and goes with that",
      ),
    ],
  },
  {
    seen: ["containerized-data-importer#3900", "containerized-data-importer#2254"],
    happened: "A snapshot of a block volume is restored as a filesystem.",
    here: "It is refused, unless the content allows it.",
    shown: [
      by("k8s/provisioner/content_source_test.ts", "takes a snapshot that is bound, ready, ours and of the same mode"),
      by("tests/machine_fake/copies_test.ts", "a copy without the requested filesystem is not returned"),
    ],
  },
  {
    seen: ["external-provisioner#414"],
    happened: "The source of a clone is deleted while it is copied.",
    here: "It stays until the copy is complete.",
    shown: [
      by("tests/cluster_fake/volumes_test.ts", "the source of a running copy is neither deleted nor expanded"),
      by(
        "k8s/provisioner/cloning_protection_test.ts",
        "keeps a claim until no pending claim of its namespace is cloned",
      ),
    ],
  },
  {
    seen: ["csi-driver-host-path#398"],
    happened: "A claim is cloned from one of another driver.",
    here: "An event says that it is, and the claim waits.",
    shown: [
      by("k8s/provisioner/content_source_test.ts", "takes a claim that is bound and ours, protects it, and says"),
    ],
  },
  {
    seen: ["velero#2653", "velero#7778", "velero#6015"],
    happened: "Objects are restored without their status, and get empty volumes.",
    here: "Volumes are found by their tags, or Lost; none is made again.",
    shown: [
      by("tests/cluster_fake/restored_objects_test.ts", "a restored volume whose LV is away is Lost, gets no new one"),
    ],
  },
];
