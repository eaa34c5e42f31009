/**
 * The messages that the runbooks describe, with the cause and what to do. A message of an event, a condition or an
 * object is looked up here, so that the answer says more than its words.
 *
 * @module
 */

import {
  AGENT_DOES_NOT_ANSWER,
  AGENT_SILENT,
  METADATA_AREA_FULL,
  NO_COW_SPACE,
  NO_SUCH_SECRET,
  SECRET_FORBIDDEN,
  type Symptom,
  UNEXPECTED_DATA,
  VOLUME_GROUP_UNREADABLE,
  VOLUME_GROUP_UNRESPONSIVE,
} from "../problem.ts";

/** The chapters of the runbooks that describe messages, by what goes wrong. */
export type SymptomChapter =
  | "pending"
  | "expansion"
  | "limits"
  | "snapshot"
  | "groupSnapshot"
  | "mount"
  | "terminating";

/** The chapters, as the pages of the runbooks have them. */
export const SYMPTOM_CHAPTERS: Readonly<Record<SymptomChapter, string>> = {
  pending: "claims-and-pods.md#claim-stays-pending",
  expansion: "claims-and-pods.md#claim-does-not-expand",
  limits: "claims-and-pods.md#io-limits-not-applied",
  snapshot: "claims-and-pods.md#volumesnapshot-not-ready",
  groupSnapshot: "claims-and-pods.md#volumegroupsnapshot-not-ready",
  mount: "claims-and-pods.md#pod-cannot-mount-its-volume",
  terminating: "claims-and-pods.md#volume-stays-terminating",
};

export const SYMPTOMS: Readonly<Record<SymptomChapter, readonly Symptom[]>> = {
  pending: [
    {
      reason: "PhysicalVolumesMissing",
      quotes: ["not enough free space in … (… of its physical volumes are missing)"],
      remedy: "Attach the missing disk, or remove it from the volume group: until then LVM creates nothing in it.",
    },
    VOLUME_GROUP_UNRESPONSIVE,
    VOLUME_GROUP_UNREADABLE,
    {
      reason: "VolumeGroupReadOnly",
      quotes: ["not enough free space in … (read-only or exported)"],
      remedy: "The volume group accepts no changes. Run denolith doctor on the node, which names the remedy.",
    },
    METADATA_AREA_FULL,
    {
      reason: "VolumeGroupRefusesChanges",
      quotes: ["not enough free space in … (LVM refuses to change it: …)"],
      remedy:
        "The message quotes LVM. Remove the cause, such as a second device of the same disk. The volume group is " +
        "tried again after five minutes.",
    },
    {
      reason: "TooManyLogicalVolumes",
      quotes: ["not enough free space in … (it has as many logical volumes as it may, …)"],
      remedy: "Raise the limit of the volume group on the node: vgchange --maxlogicalvolumes 0 GROUP.",
    },
    {
      reason: "SizeUnsuitable",
      quotes: ["not enough free space in … (no number of its extents of … is in the requested range)"],
      remedy: "A size is a multiple of the volume group's extents. Request another size, or a range that has one.",
    },
    {
      reason: "VolumeGroupAmbiguous",
      quotes: ["not enough free space in … (several volume groups have this name)"],
      remedy: "Rename one of the volume groups on the node, by its UUID: vgrename(8).",
    },
    {
      reason: "VolumeGroupOfHost",
      quotes: ["not enough free space in … (the host uses … of it, so it must be named"],
      remedy:
        "Name the volume group in the class, or in volumeGroups of the Helm chart, or add one to the node for volumes alone.",
    },
    {
      reason: "NoSpace",
      quotes: ["not enough free space in … (… free"],
      remedy: "Free space in the volume group, add a disk to it, or correct the class, if it names the wrong one.",
    },
    {
      reason: "NoSuchVolumeGroup",
      quotes: ["none matches …; there are …"],
      remedy: "Correct the volume group in the class, or create the volume group on the node.",
    },
    {
      reason: "NodeWithoutAgent",
      quotes: ["none of … has an agent of the driver; those that have one: …"],
      remedy: "Find the pod of the node's agent in the driver's namespace, and read its log.",
    },
    {
      reason: "DriverNotRegistered",
      quotes: ["node …: … is not registered there", "…: registered on …"],
      remedy:
        "kubelet of the node does not know the driver: check that the agent's pod is ready, and its kubelet directory.",
    },
    {
      reason: "NodeExcludedByClass",
      quotes: ["node …: not in the allowedTopologies of the class"],
      remedy: "The scheduler chooses again. If it cannot, the pod's node selector contradicts the class.",
    },
    AGENT_DOES_NOT_ANSWER,
    AGENT_SILENT,
    {
      reason: "AccessModeUnsupported",
      quotes: ["a node-local volume is for one node"],
      remedy: "Create the claim with ReadWriteOnce: all pods of the node can share the volume.",
    },
    {
      reason: "UnknownParameter",
      quotes: ["parameter …: unknown; did you mean …?"],
      remedy: "Delete the class and create it again with the right parameter. Waiting claims use it at once.",
    },
    {
      reason: "NoSuchClass",
      quotes: ["storageClassName …: there is no such class"],
      remedy: "Create the class, or a claim with another class.",
    },
    {
      reason: "SourceUnsuitable",
      quotes: [
        ...["dataSource: … is being deleted", "… is of the driver …", "… volume (requested: …)"],
        ...["the source has … (requested: …)", "the source is … (requested: …)"],
      ],
      remedy: "The claim cannot be created from this source. Name another source, or ask for the same volume mode.",
    },
    {
      reason: "SourceNotReady",
      quotes: ["dataSource: … is not bound yet", "… is not ready yet", "…: does not exist", "… has no handle yet"],
      remedy: "Wait for the source of the claim, or create it. The request is repeated.",
      isWait: true,
    },
    {
      reason: "SourceOnOtherNode",
      quotes: [
        "…: the source is on node …, and volumes from it are created there",
        "the source of the volume is on node …, and the volume is created there",
      ],
      remedy: "The scheduler chooses again. Bind the pod to the source's node, or use a class with Immediate.",
    },
    SECRET_FORBIDDEN,
    NO_SUCH_SECRET,
  ],
  expansion: [
    {
      reason: "OriginInUse",
      quotes: ["it is in use and has the snapshots …"],
      remedy: "Stop the pods, and start them after the expansion, or delete the snapshots.",
    },
    {
      reason: "SnapshotOpen",
      quotes: ["of its snapshots …, … is open"],
      remedy: "Unmount the snapshot on the node: lsof and findmnt show who uses it.",
    },
    AGENT_DOES_NOT_ANSWER,
    AGENT_SILENT,
    VOLUME_GROUP_UNRESPONSIVE,
    VOLUME_GROUP_UNREADABLE,
    {
      reason: "NoSpace",
      quotes: ["not enough free space", "Insufficient free space", "does not fit"],
      remedy: "Ask for less, down to the current size, or extend the volume group.",
    },
  ],
  limits: [
    {
      reason: "NoSuchAttributesClass",
      quotes: ["VolumeAttributesClass … does not exist"],
      remedy: "Create the class, or name another one in the claim.",
    },
    {
      reason: "WrongAttributesClass",
      quotes: ["cannot change; what can are …", "parameter … must be …"],
      remedy: "Create another class, since its parameters cannot be changed, and name it in the claim.",
    },
    {
      reason: "IoControllerNotEnabled",
      quotes: ["the io controller is not enabled for the cgroups of pods"],
      remedy: "Restart kubelet, which enables it, and then the pod.",
    },
    {
      reason: "NoCgroup2",
      quotes: ["no cgroup v2 is mounted there", "no io controller"],
      remedy: "Boot the node with the unified hierarchy (systemd.unified_cgroup_hierarchy=1).",
    },
    {
      reason: "NoCgroupRoot",
      quotes: ["the mount point of cgroup v2 is not configured"],
      remedy: "Apply the manifests of this version, or start the agent with --cgroup-root.",
    },
    {
      reason: "NoPodCgroup",
      quotes: ["has no cgroup below …"],
      remedy: "Search for the pod's UID below /sys/fs/cgroup, and report a bug.",
    },
  ],
  snapshot: [
    NO_COW_SPACE,
    {
      reason: "NoSuchSnapshotClass",
      quotes: ["volumeSnapshotClassName …: there is no such VolumeSnapshotClass"],
      remedy: "Create the class again: waiting snapshots are retried at once.",
    },
    {
      reason: "WrongParameter",
      quotes: ["parameter …: unknown; did you mean …?", "parameter snapSize …"],
      remedy: "Delete the class and create it again with the right parameter.",
    },
    AGENT_DOES_NOT_ANSWER,
    AGENT_SILENT,
    VOLUME_GROUP_UNRESPONSIVE,
    VOLUME_GROUP_UNREADABLE,
    {
      reason: "NoSuchSnapshot",
      quotes: ["looking for snapshot …: … has none of that handle"],
      remedy: "The id in source.snapshotHandle is wrong, or the snapshot is gone: see kubectl denolith snapshots.",
    },
    SECRET_FORBIDDEN,
    NO_SUCH_SECRET,
  ],
  groupSnapshot: [
    {
      reason: "VolumesOnSeveralNodes",
      quotes: ["snapshots are taken at one point in time on one node alone"],
      remedy: "Let the label of the VolumeGroupSnapshot select claims of one node, or take one for each node.",
    },
    {
      reason: "MustNotBeSuspended",
      quotes: ["suspending volume …"],
      remedy:
        "Something else than pods uses the volume, and would have to wait for it: the message says what. End that.",
    },
    {
      reason: "SuspendedTooLong",
      quotes: ["suspending devices: not done within … s, so they were resumed"],
      remedy:
        "The disks, or LVM, are too slow at the moment. It is tried again; fewer volumes in a group take less time.",
    },
    NO_COW_SPACE,
    AGENT_DOES_NOT_ANSWER,
    AGENT_SILENT,
    VOLUME_GROUP_UNRESPONSIVE,
    VOLUME_GROUP_UNREADABLE,
  ],
  mount: [
    {
      reason: "DriverNotRegistered",
      quotes: ["driver name … not found in the list of registered CSI drivers"],
      remedy: "Check that the agent's pod on the node is ready, and its kubelet directory.",
    },
    {
      reason: "VolumeOnOtherNode",
      quotes: ["MountVolume.NodeAffinity check failed", "MapVolume.NodeAffinity check failed"],
      remedy:
        "The volume moved after the pod was scheduled, which happens once. Delete the pod, so that another one is scheduled.",
    },
    {
      reason: "Lost",
      quotes: ["Lost: … was the logical volume … in volume group …"],
      remedy:
        "The logical volume is gone, and nothing is created in its place. Read the runbook before you delete anything.",
    },
    UNEXPECTED_DATA,
    {
      reason: "NotShared",
      quotes: ["it was created with shared: no"],
      remedy: "Another pod of the node uses the volume, and its class allows one. Stop that pod.",
    },
    {
      reason: "UsedByAnotherPod",
      quotes: ["the access mode allows one target"],
      remedy: "Another pod uses the volume, and the claim has ReadWriteOncePod. Stop that pod.",
    },
    {
      reason: "OtherSELinuxContext",
      quotes: ["it is staged at … with …, and can have one at a time"],
      remedy: "Pods of the node with another SELinux context use the volume. Stop them, or turn seLinux.mount off.",
    },
    {
      reason: "SELinuxNotSeen",
      quotes: ["mount(8) left it out, because it does not see that SELinux is enabled"],
      remedy: "Set seLinux.mount of the chart, or remove the mount option context from the class.",
    },
    {
      reason: "WrongFilesystemType",
      quotes: ["mounting volume … as …: it was created for …"],
      remedy: "Create the PersistentVolume again with the right fsType.",
    },
    {
      reason: "NoPassphrase",
      quotes: ["it is encrypted, and the request has no secret with the key passphrase"],
      remedy: "Name a Secret with the key passphrase in the class, or in the PersistentVolume (nodeStageSecretRef).",
    },
    {
      reason: "WrongPassphrase",
      quotes: ["the passphrase in its secret opens none of its key slots"],
      remedy: "Give the Secret the passphrase of the volume. Nothing was changed.",
    },
    {
      reason: "WrongPassphrases",
      quotes: ["neither the passphrase nor the previousPassphrase in its secret opens one of its key slots"],
      remedy: "Give the Secret the passphrase of the volume as previousPassphrase. Nothing was changed.",
    },
    {
      reason: "PassphraseChangeInterrupted",
      quotes: ["a change of its passphrase was interrupted"],
      remedy: "Put the passphrase from before the change back into the Secret, as previousPassphrase.",
    },
    {
      reason: "CannotEncryptAgain",
      quotes: ["encrypting volume … again, as the volumeKey in its secret requests: …"],
      remedy: "Delete the snapshots of the volume, or take volumeKey back from the Secret. A thin volume cannot.",
    },
    {
      reason: "CheckKilled",
      quotes: ["e2fsck …: exit 137 (SIGKILL, as when memory runs out)"],
      remedy: "The check of the filesystem needs more memory: free some, or raise node.resources of the chart.",
    },
    {
      reason: "FilesystemDamaged",
      quotes: ["e2fsck …: exit …"],
      remedy: "Run e2fsck -f on the node while no pod uses the volume. The pod then starts by itself.",
    },
    VOLUME_GROUP_UNRESPONSIVE,
    VOLUME_GROUP_UNREADABLE,
    {
      reason: "VolumeUnreadable",
      quotes: ["LVM's report of … cannot be read (…)"],
      remedy: "Compare with lvs on the node, and file an issue with the message. Nothing of the volume is changed.",
    },
    {
      reason: "WrongMkfsOptions",
      quotes: ["… created …, but … was requested, and it would not be mounted as that again; …"],
      remedy: "Correct mke2fs.conf of the node, or mkfsOptions of the class. The volume has no data yet.",
    },
    {
      reason: "NotActive",
      quotes: ["LVM reported success, but … is not active (see volume_list in lvm.conf)"],
      remedy: "The host's LVM configuration keeps the volume group inactive: denolith doctor names the setting.",
    },
  ],
  terminating: [
    {
      reason: "InUse",
      quotes: ["deleting volume …: … is in use; unpublish and unstage it first"],
      remedy: "It is deleted as soon as it is unmounted. findmnt, lsof and lsblk on the node show who uses it.",
    },
    {
      reason: "HasSnapshots",
      quotes: ["it is the origin of the snapshots …; delete them first"],
      remedy: "Delete its snapshots.",
    },
    {
      reason: "NodeGone",
      quotes: ["node … has no agent of the driver (no LVMNode …)"],
      remedy: "If the node is gone for good: kubectl denolith forget-node NODE.",
    },
    AGENT_DOES_NOT_ANSWER,
    AGENT_SILENT,
    VOLUME_GROUP_UNRESPONSIVE,
    VOLUME_GROUP_UNREADABLE,
    {
      reason: "DeletedByOthers",
      quotes: ["its … was deleted, but not by the driver"],
      remedy: "Somebody else deleted the object, and the data is kept. To delete the volume, delete the claim.",
    },
    {
      reason: "Replaced",
      quotes: ["… with the UUID … has taken its place"],
      remedy: "Another logical volume has the volume's tags. Read the runbook before you delete anything.",
    },
  ],
};

/**
 * Reports whether a message has the pieces of a quote in their order: `…` stands for anything. It takes one pass, since
 * whoever may write events chooses the message.
 */
function hasQuote(message: string, quote: string): boolean {
  let end = 0;
  return quote.split("…").every((piece) => {
    const start = message.indexOf(piece, end);
    end = start + piece.length;
    return start >= 0;
  });
}

/** Returns the symptom that a message has; `undefined` for a message that the runbooks do not describe. */
export function symptomOf(chapter: SymptomChapter, message: string): Symptom | undefined {
  return SYMPTOMS[chapter].find(({ quotes }) => quotes.some((quote) => hasQuote(message, quote)));
}
