/**
 * The conditions of LVMVolumes, LVMSnapshots and LVMNodes, and the reasons that they can have. `docs/reference` lists
 * them from here.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
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

/** Describes a reason with which a condition is true. */
const isTrue = (meaning: string, remedy?: string): ReasonDescription => described("True", meaning, remedy);
/** Describes a reason with which a condition is false. */
const isFalse = (meaning: string, remedy?: string): ReasonDescription => described("False", meaning, remedy);

function described(status: "True" | "False", meaning: string, remedy: string | undefined): ReasonDescription {
  return { status, meaning, ...defined({ remedy }) };
}

/** Returns the end of a meaning that leads to a chapter of the runbooks. */
export function runbook(chapter: string): string {
  return `: [runbook](../guides/runbooks/${chapter}).`;
}

/** The reasons of `Healthy` that a volume group has. */
const GROUP_REASONS = {
  PhysicalVolumesPresent: isTrue("The volume group has all its physical volumes."),
  PhysicalVolumesMissing: isFalse(
    "A physical volume of the volume group is missing. `denolith doctor` on the node names it" +
      runbook("storage.md#missing-physical-volume"),
    "Attach the disk again, or remove it from the volume group. See `kubectl denolith doctor NODE`.",
  ),
  VolumeGroupReadOnly: isFalse(
    "The volume group is read-only or exported.",
    "LVM changes nothing in it. `kubectl denolith doctor NODE` names the remedy.",
  ),
  VolumeGroupUnresponsive: isFalse(
    "The disks of the volume group do not respond, or LVM cannot read it" +
      runbook("nodes-and-controllers.md#lvm-commands-do-not-complete"),
    "Find the disk with `kubectl denolith doctor NODE`, and dmesg on the node.",
  ),
} as const satisfies Reasons;

/** The conditions of LVMVolumes. `Ready` also has the reasons of errors. */
export const VOLUME_CONDITIONS = {
  Ready: {
    Created: isTrue("The logical volume exists."),
    Lost: isFalse("The logical volume is missing, or was replaced."),
  },
  Healthy: {
    ...GROUP_REASONS,
    Partial: isFalse(
      "A physical volume with data of the volume is missing, and the volume is not redundant" +
        runbook("storage.md#missing-physical-volume"),
      "Attach the disk again. If it is lost, so is the data on it: restore it from a backup.",
    ),
    ThinPoolNearFull: isFalse(
      "Its thin pool is nearly full" + runbook("storage.md#thin-pool-near-full"),
      "Extend the pool, or add a disk to its volume group. Deleted volumes and fstrim free space, too.",
    ),
    ThinPoolFull: isFalse(
      "Its thin pool is full" + runbook("storage.md#thin-pool-near-full"),
      "Extend the pool, or add a disk to its volume group. Then restart pods whose filesystems are read-only.",
    ),
    ThinPoolDamaged: isFalse(
      "The metadata of its thin pool needs repair" + runbook("storage.md#thin-pool-near-full"),
      "Stop the pods that use the pool, and have LVM check its metadata, as the runbook describes.",
    ),
    CacheFailed: isFalse(
      "Its cache, or the disk of it, has failed" + runbook("storage.md#failed-cache"),
      "Read the cause in dmesg on the node. Take the cache away from the volume, as the runbook describes.",
    ),
    CacheReadOnly: isFalse(
      "The metadata of its cache cannot be written" + runbook("storage.md#failed-cache"),
      "Read the cause in dmesg on the node. Take the cache away from the volume, as the runbook describes.",
    ),
    FilesystemReadOnly: isFalse(
      "The kernel made its filesystem read-only after an error" + runbook("storage.md#filesystem-read-only"),
      "Read the cause in dmesg on the node, and then delete the pods: the next mount checks the filesystem.",
    ),
  } satisfies Reasons<
    | Exclude<HealthReason, RedundancyState | KeyChangeProblem["reason"] | "Lost" | "ForeignData" | "NodeNotFound">
    | "PhysicalVolumesPresent"
  >,
  IOLimitsApplied: {
    Applied: isTrue("Its [IO limits](../guides/io-limits.md) apply to each pod that uses it."),
    NoCgroup2: isFalse(
      "The node has no cgroup v2. Boot it with the unified hierarchy" +
        runbook("claims-and-pods.md#io-limits-not-applied"),
    ),
    NoIoController: isFalse(
      "The io controller of the node belongs to cgroup v1. Boot the node with the unified hierarchy" +
        runbook("claims-and-pods.md#io-limits-not-applied"),
    ),
    NoCgroupRoot: isFalse(
      "The agent was started without `--cgroup-root`" + runbook("claims-and-pods.md#io-limits-not-applied"),
      "Apply the manifests of this version, or start the agent with --cgroup-root.",
    ),
    IoControllerNotEnabled: isFalse(
      "The io controller is not enabled for the cgroups of pods. Restart kubelet, and then the pod" +
        runbook("claims-and-pods.md#io-limits-not-applied"),
    ),
    NoPodCgroup: isFalse(
      "The cgroup of the pod was not found within half a minute. The agent keeps looking for it" +
        runbook("claims-and-pods.md#io-limits-not-applied"),
      "Search for the pod's UID below /sys/fs/cgroup, and report a bug.",
    ),
    NotAPod: isFalse("The volume is published at a path that is not kubelet's."),
    Refused: isFalse("The kernel refused the limits. The message gives the cause."),
  } satisfies Reasons<Exclude<LimitsReason, ErrorKind>>,
  KeysChanged: {
    KeyChangeComplete: isTrue(
      "The [passphrase](../guides/encryption.md#rotate-the-passphrase) and the volume key are those that its " +
        "Secret requests. After a change of the passphrase, the message says that the previous one opens nothing.",
    ),
    KeyChangeFailed: isFalse(
      "The [passphrase](../guides/encryption.md#when-it-does-not-work) or the volume key could not be changed. " +
        "The message gives the cause.",
      "Correct the Secret, as the message says. The volume is used as before.",
    ),
    KeyChangeInterrupted: isFalse(
      "A change of the [passphrase](../guides/encryption.md#see-whether-it-is-complete) was interrupted, and " +
        "the former one may still open the volume.",
      "Start a pod with the volume, with the new passphrase in its Secret, and the former one there as " +
        "previousPassphrase.",
    ),
    KeyChangeRunning: isFalse(
      "Its data is being encrypted by another [volume key](../guides/encryption.md#rotate-the-volume-key), and " +
        "its pods wait for that.",
      "Wait. It takes as long as reading and writing the whole volume.",
    ),
    ReencryptionInterrupted: isFalse(
      "A change of the [volume key](../guides/encryption.md#rotate-the-volume-key) was interrupted. It can be " +
        "neither moved nor copied.",
      "Start a pod with the volume, with its passphrase and the volumeKey in its Secret.",
    ),
  } satisfies Reasons<KeyChangeProblem["reason"] | "KeyChangeComplete">,
  Held: {
    NotInUse: isTrue("It is being [moved](../guides/move.md): nobody uses it here, and nobody may begin to."),
    InUse: isFalse(
      "It is being [moved](../guides/move.md): nobody may begin to use it here, and who uses it is in the message.",
      "Wait until the pods that use it end, or delete them.",
    ),
  },
  Imported: {
    Imported: isTrue("It was [imported](../guides/import.md), and is a volume like others."),
    Returnable: isTrue("It was [imported](../guides/import.md), and can be returned."),
    NotReturnable: isTrue(
      "It was imported, and cannot be [returned](../guides/import.md#when-it-does-not-go-on) now. The message " +
        "gives the cause. It is used as any other volume meanwhile.",
    ),
    Inspected: isFalse("It can be [imported](../guides/import.md), and nobody uses it."),
    InUse: isFalse(
      "It can be [imported](../guides/import.md), or returned, when it is not in use any more. Who uses it is " +
        "in the message.",
      "Wait until the pods that use it end, or delete them.",
    ),
    Refused: isFalse("It cannot be [imported](../guides/import.md), or returned. The message gives the cause."),
    Returned: isFalse("It was [returned](../guides/import.md), and no longer has the driver's tags."),
  },
  Redundant: {
    InSync: isTrue("It survives the loss of a disk."),
    Mismatches: isTrue(
      "The last check (`lvchange --syncaction check`) found RAID images that differ" +
        runbook("storage.md#degraded-raid-volume"),
      "Compare the data with a backup before you let LVM make the images equal: it does not know which is right.",
    ),
    Rebuilding: isFalse(
      "Its RAID images are being synchronized" + runbook("storage.md#degraded-raid-volume"),
      "Wait. It takes as long as a copy of the volume.",
    ),
    Degraded: isFalse(
      "It works without a missing physical volume" + runbook("storage.md#degraded-raid-volume"),
      "Attach the disk again and refresh the volume, or add another disk and repair the volume.",
    ),
    RefreshNeeded: isFalse(
      "It works without a physical volume that is present" + runbook("storage.md#degraded-raid-volume"),
      "If the disk is sound: lvchange --refresh on the node. If not, move the volume to another disk.",
    ),
    SharedPhysicalVolume: isFalse(
      "Several of its RAID images are on one physical volume, because it was extended or changed by hand" +
        runbook("storage.md#degraded-raid-volume"),
      "Move one of the images to a disk of its own: lvconvert --replace on the node.",
    ),
    RaidFailed: isFalse(
      "More physical volumes are missing than it tolerates" + runbook("storage.md#degraded-raid-volume"),
      "Attach the missing disks again: the volume cannot be mounted before. If they are lost, restore a backup.",
    ),
  } satisfies Reasons<RedundancyState>,
} as const satisfies Readonly<Record<string, Reasons>>;

/** The conditions of LVMSnapshots. `Ready` also has the reasons of errors. */
export const SNAPSHOT_CONDITIONS = {
  Ready: {
    Created: isTrue("The snapshot exists."),
    Overflowed: isFalse(
      "Its COW space was too small and its content is lost" + runbook("storage.md#snapshot-near-full"),
      "Delete it: it still slows down its volume. A larger snapSize prevents it.",
    ),
    Lost: isFalse("Its logical volume is missing, was replaced, or was split off its volume."),
  },
  Healthy: {
    ...GROUP_REASONS,
    SnapshotNearFull: isFalse(
      "80 % of its COW space are used. Extend it, as the message says, or delete the snapshot. COW space that " +
        "is large enough for the whole volume cannot overflow.",
    ),
    SnapshotCannotExtend: isFalse(
      "80 % of its COW space are used, and its volume group has no free space to extend it" +
        runbook("storage.md#snapshot-near-full"),
      "Free space in the volume group, or delete snapshots. The agent then extends the COW space by itself.",
    ),
    Overflowed: isFalse(
      "Its COW space was too small and its content is lost" + runbook("storage.md#snapshot-near-full"),
      "Delete it: it still slows down its volume. A larger snapSize prevents it.",
    ),
  },
} as const satisfies Readonly<Record<string, Reasons>>;

/** The conditions of LVMNodes. */
export const NODE_CONDITIONS = {
  DefinitionsOutdated: {
    DefinitionsCurrent: isFalse("The CRDs are as new as the agent."),
    DefinitionsOutdated: isTrue(
      "Upgrade the CRDs: until then, no volume is created or moved" + runbook("claims-and-pods.md#claim-stays-pending"),
    ),
  },
  Orphans: {
    NoOrphans: isFalse("Each logical volume of the driver has its object."),
    OrphansFound: isTrue(
      "Some have none: [orphans](../guides/volume-repair.md#orphans).",
      "`kubectl denolith orphans` lists them. Use their data again, or remove them.",
    ),
  },
  DisksLost: {
    DisksPresent: isFalse("All disks that the driver has taken are there."),
    DisksLost: isTrue(
      "A disk that the driver has taken is not there any more. The message names it" +
        runbook("storage.md#missing-physical-volume"),
      "Attach the disk again. If it is gone for good, remove it from the volume group, and withdraw its " +
        "acceptance: `kubectl denolith disks --withdraw DISK`.",
    ),
  },
  DisksRefused: {
    DisksTaken: isFalse("No disk that was accepted waits to be taken."),
    DisksRefused: isTrue(
      "A disk that was [accepted](../guides/disks.md#accept-a-disk) is not taken. The message gives the cause.",
      "Remove the cause, or withdraw the acceptance: `kubectl denolith disks --withdraw DISK`.",
    ),
  },
  PhysicalVolumesMissing: {
    PhysicalVolumesPresent: isFalse("LVM finds all physical volumes of the volume groups."),
    PhysicalVolumesMissing: isTrue(
      "LVM does not find some. The message names the volume groups and the UUIDs" +
        runbook("storage.md#missing-physical-volume"),
      "Attach the disk again, or remove it from the volume group. See `kubectl denolith doctor NODE`.",
    ),
  },
  ThinPoolsNearFull: {
    Ok: isFalse("No thin pool with volumes of the driver is nearly full."),
    ThinPoolNearFull: isTrue(
      "A thin pool is nearly full. The message names it" + runbook("storage.md#thin-pool-near-full"),
      "Extend the pool, or add a disk to its volume group. Deleted volumes and fstrim free space, too.",
    ),
    ThinPoolFull: isTrue(
      "A thin pool is full or damaged. The message names it" + runbook("storage.md#thin-pool-near-full"),
      "Extend the pool, or add a disk to its volume group. Then restart pods whose filesystems are read-only.",
    ),
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
