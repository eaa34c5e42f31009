/**
 * The conditions of LVMVolumes, LVMSnapshots and LVMNodes, and the reasons that they can have. `docs/reference` lists
 * them from here.
 *
 * @module
 */

import type { ErrorKind, Reason } from "../../base/error.ts";
import type { HealthReason } from "../../lvm/health/health.ts";
import type { KeyChangeProblem } from "../../lvm/encryption/key_changes.ts";
import type { RedundancyState } from "../../lvm/model/redundancy.ts";
import type { LimitsReason } from "../../lvm/staging/cgroups.ts";

/** A reason of a condition. */
export interface ReasonDescription {
  /** Status of the condition with this reason. */
  readonly status: "True" | "False";
  /** The meaning of the reason, in Markdown; links are relative to docs/reference. */
  readonly meaning: string;
  /** What to do, in a sentence without markup; absent where nothing is wrong, or the meaning says it. */
  readonly remedy?: string;
}

/** The reasons of a condition. */
type Reasons<Reason extends string = string> = Readonly<Record<Reason, ReasonDescription>>;

/** The end of a meaning that leads to the chapter about IO limits. */
const LIMITS_RUNBOOK = ": [runbook](../guides/runbooks/claims-and-pods.md#io-limits-not-applied).";

/** The reasons of `Healthy` that a volume group has. */
const GROUP_REASONS = {
  PhysicalVolumesPresent: { status: "True", meaning: "The volume group has all its physical volumes." },
  PhysicalVolumesMissing: {
    status: "False",
    meaning: "A physical volume of the volume group is missing. `denolith doctor` on the node names it: " +
      "[runbook](../guides/runbooks/storage.md#missing-physical-volume).",
    remedy: "Attach the disk again, or remove it from the volume group. See kubectl denolith doctor NODE.",
  },
  VolumeGroupReadOnly: {
    status: "False",
    meaning: "The volume group is read-only or exported.",
    remedy: "LVM changes nothing in it. kubectl denolith doctor NODE names the remedy.",
  },
  VolumeGroupUnresponsive: {
    status: "False",
    meaning: "The disks of the volume group do not respond, or LVM cannot read it: " +
      "[runbook](../guides/runbooks/nodes-and-controllers.md#lvm-commands-do-not-complete).",
    remedy: "Find the disk with kubectl denolith doctor NODE, and dmesg on the node.",
  },
} as const satisfies Reasons;

/** The conditions of LVMVolumes. `Ready` also has the reasons of errors. */
export const VOLUME_CONDITIONS = {
  Ready: {
    Created: { status: "True", meaning: "The logical volume exists." },
    Lost: { status: "False", meaning: "The logical volume is missing, or was replaced." },
  },
  Healthy: {
    ...GROUP_REASONS,
    Partial: {
      status: "False",
      meaning: "A physical volume with data of the volume is missing, and the volume is not redundant: " +
        "[runbook](../guides/runbooks/storage.md#missing-physical-volume).",
      remedy: "Attach the disk again. If it is lost, so is the data on it: restore it from a backup.",
    },
    ThinPoolNearFull: {
      status: "False",
      meaning: "Its thin pool is nearly full: [runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
      remedy: "Extend the pool, or add a disk to its volume group. Deleted volumes and fstrim free space, too.",
    },
    ThinPoolFull: {
      status: "False",
      meaning: "Its thin pool is full: [runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
      remedy: "Extend the pool, or add a disk to its volume group. Then restart pods whose filesystems are read-only.",
    },
    ThinPoolDamaged: {
      status: "False",
      meaning:
        "The metadata of its thin pool needs repair: [runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
      remedy: "Stop the pods that use the pool, and have LVM check its metadata, as the runbook describes.",
    },
    CacheFailed: {
      status: "False",
      meaning: "Its cache, or the disk of it, has failed: [runbook](../guides/runbooks/storage.md#failed-cache).",
      remedy: "Read the cause in dmesg on the node. Take the cache away from the volume, as the runbook describes.",
    },
    CacheReadOnly: {
      status: "False",
      meaning: "The metadata of its cache cannot be written: [runbook](../guides/runbooks/storage.md#failed-cache).",
      remedy: "Read the cause in dmesg on the node. Take the cache away from the volume, as the runbook describes.",
    },
    FilesystemReadOnly: {
      status: "False",
      meaning: "The kernel made its filesystem read-only after an error: " +
        "[runbook](../guides/runbooks/storage.md#filesystem-read-only).",
      remedy: "Read the cause in dmesg on the node, and then delete the pods: the next mount checks the filesystem.",
    },
  } satisfies Reasons<
    | Exclude<HealthReason, RedundancyState | KeyChangeProblem["reason"] | "Lost" | "ForeignData" | "NodeNotFound">
    | "PhysicalVolumesPresent"
  >,
  IOLimitsApplied: {
    Applied: { status: "True", meaning: "Its [IO limits](../guides/io-limits.md) apply to each pod that uses it." },
    NoCgroup2: {
      status: "False",
      meaning: `The node has no cgroup v2. Boot it with the unified hierarchy${LIMITS_RUNBOOK}`,
    },
    NoIoController: {
      status: "False",
      meaning:
        `The io controller of the node belongs to cgroup v1. Boot the node with the unified hierarchy${LIMITS_RUNBOOK}`,
    },
    NoCgroupRoot: {
      status: "False",
      meaning: `The agent was started without \`--cgroup-root\`${LIMITS_RUNBOOK}`,
      remedy: "Apply the manifests of this version, or start the agent with --cgroup-root.",
    },
    IoControllerNotEnabled: {
      status: "False",
      meaning:
        `The io controller is not enabled for the cgroups of pods. Restart kubelet, and then the pod${LIMITS_RUNBOOK}`,
    },
    NoPodCgroup: {
      status: "False",
      meaning:
        `The cgroup of the pod was not found within half a minute. The agent keeps looking for it${LIMITS_RUNBOOK}`,
      remedy: "Search for the pod's UID below /sys/fs/cgroup, and report a bug.",
    },
    NotAPod: { status: "False", meaning: "The volume is published at a path that is not kubelet's." },
    Refused: { status: "False", meaning: "The kernel refused the limits. The message gives the cause." },
  } satisfies Reasons<Exclude<LimitsReason, ErrorKind>>,
  KeysChanged: {
    KeyChangeComplete: {
      status: "True",
      meaning:
        "The [passphrase](../guides/encryption.md#rotate-the-passphrase) and the volume key are those that its Secret requests. After a change " +
        "of the passphrase, the message says that the previous one opens nothing.",
    },
    KeyChangeFailed: {
      status: "False",
      meaning:
        "The [passphrase](../guides/encryption.md#when-it-does-not-work) or the volume key could not be changed. The " +
        "message gives the cause.",
      remedy: "Correct the Secret, as the message says. The volume is used as before.",
    },
    KeyChangeInterrupted: {
      status: "False",
      meaning:
        "A change of the [passphrase](../guides/encryption.md#see-whether-it-is-complete) was interrupted, and the former " +
        "one may still open the volume.",
      remedy:
        "Start a pod with the volume, with the new passphrase in its Secret, and the former one there as previousPassphrase.",
    },
    KeyChangeRunning: {
      status: "False",
      meaning:
        "Its data is being encrypted by another [volume key](../guides/encryption.md#rotate-the-volume-key), and its pods wait for that.",
      remedy: "Wait. It takes as long as reading and writing the whole volume.",
    },
    ReencryptionInterrupted: {
      status: "False",
      meaning:
        "A change of the [volume key](../guides/encryption.md#rotate-the-volume-key) was interrupted. It can be neither moved nor copied.",
      remedy: "Start a pod with the volume, with its passphrase and the volumeKey in its Secret.",
    },
  } satisfies Reasons<KeyChangeProblem["reason"] | "KeyChangeComplete">,
  Held: {
    NotInUse: {
      status: "True",
      meaning: "It is being [moved](../guides/move.md): nobody uses it here, and nobody may begin to.",
    },
    InUse: {
      status: "False",
      meaning:
        "It is being [moved](../guides/move.md): nobody may begin to use it here, and who uses it is in the message.",
      remedy: "Wait until the pods that use it end, or delete them.",
    },
  },
  Imported: {
    Imported: { status: "True", meaning: "It was [imported](../guides/import.md), and is a volume like others." },
    Returnable: {
      status: "True",
      meaning: "It was [imported](../guides/import.md), and can be returned.",
    },
    NotReturnable: {
      status: "True",
      meaning:
        "It was imported, and cannot be [returned](../guides/import.md#when-it-does-not-go-on) now. The message " +
        "gives the cause. It is used as any other volume meanwhile.",
    },
    Inspected: { status: "False", meaning: "It can be [imported](../guides/import.md), and nobody uses it." },
    InUse: {
      status: "False",
      meaning:
        "It can be [imported](../guides/import.md), or returned, when it is not in use any more. Who uses it is in " +
        "the message.",
      remedy: "Wait until the pods that use it end, or delete them.",
    },
    Refused: {
      status: "False",
      meaning: "It cannot be [imported](../guides/import.md), or returned. The message gives the cause.",
    },
    Returned: {
      status: "False",
      meaning: "It was [returned](../guides/import.md), and no longer has the driver's tags.",
    },
  },
  Redundant: {
    InSync: { status: "True", meaning: "It survives the loss of a disk." },
    Mismatches: {
      status: "True",
      meaning: "The last check (`lvchange --syncaction check`) found RAID images that differ: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
      remedy:
        "Compare the data with a backup before you let LVM make the images equal: it does not know which is right.",
    },
    Rebuilding: {
      status: "False",
      meaning: "Its RAID images are being synchronized: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
      remedy: "Wait. It takes as long as a copy of the volume.",
    },
    Degraded: {
      status: "False",
      meaning:
        "It works without a missing physical volume: [runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
      remedy: "Attach the disk again and refresh the volume, or add another disk and repair the volume.",
    },
    RefreshNeeded: {
      status: "False",
      meaning: "It works without a physical volume that is present: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
      remedy: "If the disk is sound: lvchange --refresh on the node. If not, move the volume to another disk.",
    },
    SharedPhysicalVolume: {
      status: "False",
      meaning: "Several of its RAID images are on one physical volume, because it was extended or changed by hand: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
      remedy: "Move one of the images to a disk of its own: lvconvert --replace on the node.",
    },
    RaidFailed: {
      status: "False",
      meaning: "More physical volumes are missing than it tolerates: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
      remedy:
        "Attach the missing disks again: the volume cannot be mounted before. If they are lost, restore a backup.",
    },
  } satisfies Reasons<RedundancyState>,
} as const satisfies Readonly<Record<string, Reasons>>;

/** The conditions of LVMSnapshots. `Ready` also has the reasons of errors. */
export const SNAPSHOT_CONDITIONS = {
  Ready: {
    Created: { status: "True", meaning: "The snapshot exists." },
    Overflowed: {
      status: "False",
      meaning: "Its COW space was too small and its content is lost: " +
        "[runbook](../guides/runbooks/storage.md#snapshot-near-full).",
      remedy: "Delete it: it still slows down its volume. A larger snapSize prevents it.",
    },
    Lost: {
      status: "False",
      meaning: "Its logical volume is missing, was replaced, or was split off its volume.",
    },
  },
  Healthy: {
    ...GROUP_REASONS,
    SnapshotNearFull: {
      status: "False",
      meaning: "80 % of its COW space are used. Extend it, as the message says, or delete the snapshot. COW space " +
        "that is large enough for the whole volume cannot overflow.",
    },
    SnapshotCannotExtend: {
      status: "False",
      meaning: "80 % of its COW space are used, and its volume group has no free space to extend it: " +
        "[runbook](../guides/runbooks/storage.md#snapshot-near-full).",
      remedy: "Free space in the volume group, or delete snapshots. The agent then extends the COW space by itself.",
    },
    Overflowed: {
      status: "False",
      meaning: "Its COW space was too small and its content is lost: " +
        "[runbook](../guides/runbooks/storage.md#snapshot-near-full).",
      remedy: "Delete it: it still slows down its volume. A larger snapSize prevents it.",
    },
  },
} as const satisfies Readonly<Record<string, Reasons>>;

/** The conditions of LVMNodes. */
export const NODE_CONDITIONS = {
  Orphans: {
    NoOrphans: { status: "False", meaning: "Each logical volume of the driver has its object." },
    OrphansFound: {
      status: "True",
      meaning: "Some have none: [orphans](../guides/volume-repair.md#orphans).",
      remedy: "kubectl denolith orphans lists them. Use their data again, or remove them.",
    },
  },
  DisksLost: {
    DisksPresent: { status: "False", meaning: "All disks that the driver has taken are there." },
    DisksLost: {
      status: "True",
      meaning: "A disk that the driver has taken is not there any more. The message names it: " +
        "[runbook](../guides/runbooks/storage.md#missing-physical-volume).",
      remedy:
        "Attach the disk again. If it is gone for good, remove it from the volume group, and withdraw its acceptance: " +
        "kubectl denolith disks --withdraw DISK.",
    },
  },
  DisksRefused: {
    DisksTaken: { status: "False", meaning: "No disk that was accepted waits to be taken." },
    DisksRefused: {
      status: "True",
      meaning:
        "A disk that was [accepted](../guides/disks.md#accept-a-disk) is not taken. The message gives the cause.",
      remedy: "Remove the cause, or withdraw the acceptance: kubectl denolith disks --withdraw DISK.",
    },
  },
  PhysicalVolumesMissing: {
    PhysicalVolumesPresent: { status: "False", meaning: "LVM finds all physical volumes of the volume groups." },
    PhysicalVolumesMissing: {
      status: "True",
      meaning: "LVM does not find some. The message names the volume groups and the UUIDs: " +
        "[runbook](../guides/runbooks/storage.md#missing-physical-volume).",
      remedy: "Attach the disk again, or remove it from the volume group. See kubectl denolith doctor NODE.",
    },
  },
  ThinPoolsNearFull: {
    Ok: { status: "False", meaning: "No thin pool with volumes of the driver is nearly full." },
    ThinPoolNearFull: {
      status: "True",
      meaning: "A thin pool is nearly full. The message names it: " +
        "[runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
      remedy: "Extend the pool, or add a disk to its volume group. Deleted volumes and fstrim free space, too.",
    },
    ThinPoolFull: {
      status: "True",
      meaning: "A thin pool is full or damaged. The message names it: " +
        "[runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
      remedy: "Extend the pool, or add a disk to its volume group. Then restart pods whose filesystems are read-only.",
    },
  },
} as const satisfies Readonly<Record<string, Reasons>>;

/** The reasons in a table of conditions. */
type ReasonOf<Conditions> = { [Type in keyof Conditions]: keyof Conditions[Type] }[keyof Conditions];

/** A reason of a condition of our own kinds: one of the tables above, or the reason of an error. */
export type ConditionReason =
  | ReasonOf<typeof VOLUME_CONDITIONS>
  | ReasonOf<typeof SNAPSHOT_CONDITIONS>
  | ReasonOf<typeof NODE_CONDITIONS>
  | Reason;
