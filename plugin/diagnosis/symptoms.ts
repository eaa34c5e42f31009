/**
 * What the runbooks say of each reason of a failure: the remedy, and the chapters that describe it. Messages of the driver
 * carry their reason as a code, also in the events of Kubernetes' sidecars.
 *
 * @module
 */

import { type Cause, reasonIn } from "../../base/error.ts";
import { type Problem, remedyOf, type Severity } from "../problem.ts";

/** The chapters of the runbooks that describe reasons, by what goes wrong. */
export type SymptomChapter = keyof typeof SYMPTOM_CHAPTERS;

/** The names of the chapters. */
export const SYMPTOM_CHAPTERS = {
  pending: "claim-stays-pending",
  expansion: "claim-does-not-expand",
  limits: "io-limits-not-applied",
  snapshot: "volumesnapshot-not-ready",
  groupSnapshot: "volumegroupsnapshot-not-ready",
  mount: "pod-cannot-mount-its-volume",
  terminating: "volume-stays-terminating",
  full: "volume-group-full",
} as const;

/** What the runbooks say of a reason. */
export interface Symptom {
  /** The chapters that describe it. */
  readonly chapters: readonly [SymptomChapter, ...SymptomChapter[]];
  /** What to do, in a sentence, with commands between backticks. */
  readonly remedy: string;
  /** True if nothing is to be done but waiting. */
  readonly isWait?: boolean;
}

/** The reasons that the runbooks describe: those of the driver, and one that only kubelet gives. */
export type SymptomReason = Cause | "VolumeOnOtherNode";

export const SYMPTOMS: Readonly<Record<SymptomReason, Symptom>> = {
  DefinitionsOutdated: {
    chapters: ["pending"],
    remedy: "Run the command at the end of the message, with the CRDs or the chart of the driver's version.",
  },
  PhysicalVolumesMissing: {
    chapters: ["pending"],
    remedy: "Attach the missing disk, or remove it from the volume group: until then LVM creates nothing in it.",
  },
  VolumeGroupUnresponsive: {
    chapters: ["pending", "expansion", "snapshot", "mount", "terminating"],
    remedy: "LVM waits for a disk. Find it with `kubectl denolith doctor NODE`, and dmesg on the node.",
  },
  VolumeGroupUnreadable: {
    chapters: ["pending", "mount"],
    remedy:
      "LVM does not find the volume group on its disks, or refuses to read it. See `kubectl denolith doctor NODE`.",
  },
  VolumeGroupReadOnly: {
    chapters: ["pending"],
    remedy: "The volume group accepts no changes. Run denolith doctor on the node, which names the remedy.",
  },
  MetadataAreaFull: {
    chapters: ["full"],
    remedy: "The metadata area of the volume group is full. Add a disk with a larger one: vgextend --metadatasize 16m.",
  },
  VolumeGroupRefusesChanges: {
    chapters: ["pending"],
    remedy: "The message quotes LVM. Remove the cause, such as a second device of the same disk. The volume group is " +
      "tried again after five minutes.",
  },
  TooManyLogicalVolumes: {
    chapters: ["pending"],
    remedy: "Raise the limit of the volume group on the node: vgchange --maxlogicalvolumes 0 GROUP.",
  },
  SizeUnsuitable: {
    chapters: ["pending"],
    remedy: "A size is a multiple of the volume group's extents. Request another size, or a range that has one.",
  },
  VolumeGroupAmbiguous: {
    chapters: ["pending"],
    remedy: "Rename one of the volume groups on the node, by its UUID: vgrename(8).",
  },
  VolumeGroupOfHost: {
    chapters: ["pending"],
    remedy:
      "Name the volume group in the class, or in volumeGroups of the Helm chart, or add one to the node for volumes alone.",
  },
  NoSpace: {
    chapters: ["pending", "expansion", "snapshot", "groupSnapshot"],
    remedy:
      "Free space in the volume group, or add a disk to it. Or request less, for a snapshot a smaller snapSize, or " +
      "correct the class, if it names the wrong volume group.",
  },
  NoSuchVolumeGroup: {
    chapters: ["pending"],
    remedy: "Correct the volume group in the class, or create the volume group on the node.",
  },
  NodeWithoutAgent: {
    chapters: ["pending"],
    remedy: "Find the pod of the node's agent in the driver's namespace, and read its log.",
  },
  NodeGone: {
    chapters: ["terminating"],
    remedy: "If the node is gone for good: `kubectl denolith forget-node NODE`.",
  },
  AgentDoesNotAnswer: {
    chapters: ["pending", "expansion", "snapshot", "terminating"],
    remedy:
      "`kubectl denolith doctor NODE` shows whether LVM waits for a disk. If it gets no answer, the agent is down: read its " +
      "log. The request is repeated.",
  },
  AgentSilent: {
    chapters: ["pending", "terminating"],
    remedy:
      "`kubectl denolith doctor NODE` shows whether LVM waits for a disk. If it gets no answer, restart the agent. Until it " +
      "reports, the node gets no new volumes.",
  },
  DriverNotRegistered: {
    chapters: ["pending", "mount"],
    remedy:
      "kubelet of the node does not know the driver: check that the agent's pod is ready, and its kubelet directory.",
  },
  NodeExcludedByClass: {
    chapters: ["pending"],
    remedy: "The scheduler chooses again. If it cannot, the pod's node selector contradicts the class.",
  },
  SourceOnOtherNode: {
    chapters: ["pending"],
    remedy: "The scheduler chooses again. Bind the pod to the source's node, or use a class with Immediate.",
  },
  VolumesOnSeveralNodes: {
    chapters: ["groupSnapshot"],
    remedy: "Let the label of the VolumeGroupSnapshot select claims of one node, or take one for each node.",
  },
  AccessModeUnsupported: {
    chapters: ["pending"],
    remedy: "Create the claim with ReadWriteOnce: all pods of the node can share the volume.",
  },
  WrongParameter: {
    chapters: ["pending", "snapshot", "limits"],
    remedy:
      "Delete the class and create it again with the right parameter: what waits uses it at once. In place of a " +
      "VolumeAttributesClass, create another one, and name it in the claim.",
  },
  WrongAttributesClass: {
    chapters: ["limits"],
    remedy: "The class is for another driver. Name a VolumeAttributesClass of this one in the claim.",
  },
  NoSuchClass: {
    chapters: ["pending"],
    remedy: "Create the class, or a claim with another class.",
  },
  NoSuchAttributesClass: {
    chapters: ["limits"],
    remedy: "Create the class, or name another one in the claim.",
  },
  NoSuchSnapshotClass: {
    chapters: ["snapshot"],
    remedy: "Create the class again: waiting snapshots are retried at once.",
  },
  NoSuchSnapshot: {
    chapters: ["snapshot"],
    remedy: "The id in source.snapshotHandle is wrong, or the snapshot is gone: see `kubectl denolith snapshots`.",
  },
  SourceUnsuitable: {
    chapters: ["pending"],
    remedy:
      "The message says what the source has. Request the same mode and filesystem, and no less, or name another source.",
  },
  SourceNotReady: {
    chapters: ["pending"],
    remedy: "Wait for the source of the claim, or create it. The request is repeated.",
    isWait: true,
  },
  SecretForbidden: {
    chapters: ["pending", "snapshot"],
    remedy: "Remove the secret from the class, since the driver needs none, or create the Role.",
  },
  NoSuchSecret: {
    chapters: ["pending"],
    remedy: "Remove the secret from the class, since the driver needs none, or create it.",
  },
  InUse: {
    chapters: ["terminating"],
    remedy: "findmnt, lsof and lsblk on the node show who uses it. The request is repeated as soon as it is unmounted.",
  },
  OriginInUse: {
    chapters: ["expansion"],
    remedy: "Stop the pods, and start them after the expansion, or delete the snapshots.",
  },
  SnapshotOpen: {
    chapters: ["expansion"],
    remedy: "Unmount the snapshot on the node: lsof and findmnt show who uses it.",
  },
  HasSnapshots: {
    chapters: ["terminating"],
    remedy:
      "Delete its snapshots. One without a VolumeSnapshot is an orphan, as after its node was forgotten and came back: " +
      "`kubectl denolith orphans` says how to remove it.",
  },
  DeletedByOthers: {
    chapters: ["terminating"],
    remedy: "Somebody else deleted the object, and the data is kept. To delete the volume, delete the claim.",
  },
  MustNotBeSuspended: {
    chapters: ["groupSnapshot"],
    remedy: "Something else than pods uses the volume, and would have to wait for it: the message says what. End that.",
  },
  SuspendedTooLong: {
    chapters: ["groupSnapshot"],
    remedy:
      "The disks, or LVM, are too slow at the moment. It is tried again; fewer volumes in a group take less time.",
  },
  NotShared: {
    chapters: ["mount"],
    remedy: "Another pod of the node uses the volume, and its class allows one. Stop that pod.",
  },
  UsedByAnotherPod: {
    chapters: ["mount"],
    remedy: "Another pod uses the volume, and the claim has ReadWriteOncePod. Stop that pod.",
  },
  OtherSELinuxContext: {
    chapters: ["mount"],
    remedy: "Pods of the node with another SELinux context use the volume. Stop them, or turn seLinux.mount off.",
  },
  SELinuxNotSeen: {
    chapters: ["mount"],
    remedy: "Set seLinux.mount of the chart, or remove the mount option context from the class.",
  },
  VolumeOnOtherNode: {
    chapters: ["mount"],
    remedy:
      "The volume moved after the pod was scheduled, which happens once. Delete the pod, so that another one is scheduled.",
  },
  Lost: {
    chapters: ["mount"],
    remedy:
      "The logical volume is gone, and nothing is created in its place. Read the runbook before you delete anything.",
  },
  Replaced: {
    chapters: ["mount", "terminating"],
    remedy: "Another logical volume has the volume's tags. Read the runbook before you delete anything.",
  },
  UnexpectedData: {
    chapters: ["mount"],
    remedy:
      "Something else wrote to the device, and nothing is overwritten. Look at the data before you delete the claim.",
  },
  VolumeUnreadable: {
    chapters: ["mount"],
    remedy: "Compare with lvs on the node, and file an issue with the message. Nothing of the volume is changed.",
  },
  NotActive: {
    chapters: ["mount"],
    remedy: "The host's LVM configuration keeps the volume group inactive: denolith doctor names the setting.",
  },
  WrongFilesystemType: {
    chapters: ["mount"],
    remedy: "Create the PersistentVolume again with the right fsType.",
  },
  WrongMkfsOptions: {
    chapters: ["mount"],
    remedy: "Correct mke2fs.conf of the node, or mkfsOptions of the class. The volume has no data yet.",
  },
  CheckKilled: {
    chapters: ["mount"],
    remedy: "The check of the filesystem needs more memory: free some, or raise node.resources of the chart.",
  },
  FilesystemDamaged: {
    chapters: ["mount"],
    remedy: "Run e2fsck -f on the node while no pod uses the volume. The pod then starts by itself.",
  },
  NoPassphrase: {
    chapters: ["mount"],
    remedy: "Name a Secret with the key passphrase in the class, or in the PersistentVolume (nodeStageSecretRef).",
  },
  WrongPassphrase: {
    chapters: ["mount"],
    remedy: "Give the Secret the passphrase of the volume. Nothing was changed.",
  },
  WrongPassphrases: {
    chapters: ["mount"],
    remedy: "Give the Secret the passphrase of the volume as previousPassphrase. Nothing was changed.",
  },
  PassphraseChangeInterrupted: {
    chapters: ["mount"],
    remedy: "Put the passphrase from before the change back into the Secret, as previousPassphrase.",
  },
  CannotEncryptAgain: {
    chapters: ["mount"],
    remedy: "Delete the snapshots of the volume, or take volumeKey back from the Secret. A thin volume cannot.",
  },
};

/** Texts of Kubernetes' own components, which have no codes, with the reasons that they stand for. No others are matched. */
const KUBERNETES_TEXTS = {
  "did not have enough free storage": "NoCapacity", // kube-scheduler, plugin VolumeBinding
  "not found in the list of registered CSI drivers": "DriverNotRegistered", // kubelet
  ".NodeAffinity check failed": "VolumeOnOtherNode", // kubelet, of MountVolume and MapVolume
} as const;

/** Returns the reason that a message has as a code, or that a text of Kubernetes stands for. */
export function reasonOf(message: string): SymptomReason | "NoCapacity" | undefined {
  const code = reasonIn(message);
  return code ?? Object.entries(KUBERNETES_TEXTS).find(([text]) => message.includes(text))?.[1];
}

/** Returns a message without the code at its end. */
export function withoutReason(message: string): string {
  const code = reasonIn(message);
  return code === undefined ? message : message.replace(new RegExp(` \\[${code}\\](?="?$)`), "");
}

/**
 * Returns what the runbooks say of a reason; nothing for one that they do not describe.
 *
 * @param chapter the chapter that the answer belongs to, which is named if it describes the reason
 */
export function adviceFor(
  reason: string,
  chapter?: SymptomChapter,
): Pick<Problem, "remedy" | "commands" | "runbook"> & { readonly severity?: Severity } {
  const symptom: Symptom | undefined = Object.hasOwn(SYMPTOMS, reason) ? SYMPTOMS[reason as SymptomReason] : undefined;
  if (symptom === undefined) return {};
  const { chapters, remedy, isWait } = symptom;
  const described = chapters.find((one) => one === chapter) ?? chapters[0];
  return { ...remedyOf(remedy), runbook: SYMPTOM_CHAPTERS[described], ...(isWait && { severity: "info" }) };
}
