/**
 * The reasons of the events that denolith records. `docs/reference` lists them from here.
 *
 * @module
 */

import { type ConditionReason, runbook } from "./condition_reasons.ts";

/** A reason of events. */
export interface EventDescription {
  /** Type of the events. */
  readonly type: "Normal" | "Warning";
  /** The meaning of the event, and the remedy, in Markdown; links are relative to docs/reference. */
  readonly meaning: string;
}

/** The reasons of events about objects of one kind. */
type Events = Readonly<Record<string, EventDescription>>;

/** Describes an event that belongs to normal work. */
const normal = (meaning: string): EventDescription => ({ type: "Normal", meaning });
/** Describes an event that asks for attention. */
const warning = (meaning: string): EventDescription => ({ type: "Warning", meaning });

/** The events of LVMVolumes and LVMSnapshots alike. */
const OBJECT_EVENTS = {
  Failed: warning("An operation of the agent failed. The message quotes LVM."),
  Waiting: warning(
    "LVM does not respond, for example because of a disk. The agent tries again" +
      runbook("nodes-and-controllers.md#lvm-commands-do-not-complete"),
  ),
  Lost: warning("Its logical volume is missing: [repair](../guides/volume-repair.md#lost-volume)."),
  Recovered: normal("Its node was removed and is back, with the logical volume."),
} as const satisfies Events;

/** The events of a move, about the claim and about the LVMMove. */
const MOVE_EVENTS = {
  MoveStarted: normal(
    "The volume is being [moved](../guides/move.md) to another node. The message says whether it is online, and " +
      "why it is not.",
  ),
  MoveOffline: warning(
    "The move cannot go on online, and copies the volume while nobody can use it. The message gives the cause.",
  ),
  MoveWaiting: normal(
    "The move waits for others. The message says for what: usually for pods that use the volume; end those.",
  ),
  MoveHeld: normal("Nobody uses the volume any more, and nobody can until the move ends."),
  Moved: normal("The volume is on the other node. The message says what was sent, and how long nobody could use it."),
  MoveFailed: warning(
    "The volume stays where it was. The message gives the cause: [move](../guides/move.md#when-it-does-not-go-on).",
  ),
  MoveUndone: normal("The move was undone, because its LVMMove was deleted."),
} as const satisfies Events;

/** The events by the kind of the object that they are about. Those of Kubernetes' kinds are named as by the sidecars. */
export const EVENTS = {
  PersistentVolumeClaim: {
    Provisioning: normal(
      "The controller has been creating a volume for five seconds, or waits for a populator or another operation.",
    ),
    ProvisioningSucceeded: normal("The PersistentVolume exists."),
    ProvisioningFailed: warning("The message gives the cause" + runbook("claims-and-pods.md#claim-stays-pending")),
    Resizing: normal("The volume is being expanded."),
    FileSystemResizeRequired: normal("The volume was expanded. The filesystem is resized when a pod uses it."),
    VolumeResizeSuccessful: normal("The expansion is complete. No step on the node is necessary."),
    VolumeResizeFailed: warning("The message gives the cause" + runbook("claims-and-pods.md#claim-does-not-expand")),
    VolumeModify: normal("The volume is being changed to another VolumeAttributesClass."),
    VolumeModifySuccessful: normal("The change is complete."),
    VolumeModifyFailed: warning("The message gives the cause: [IO limits](../guides/io-limits.md#change-limits)."),
    VolumeModifyCanceled: normal("The change that failed is no longer requested."),
    VolumeLost: warning(
      "The node was [removed](../guides/node-maintenance.md#remove-a-dead-node). Delete the claim and its pods " +
        "to get a new volume.",
    ),
    ...MOVE_EVENTS,
  },
  PersistentVolume: {
    VolumeFailedDelete: warning(
      "The volume is usually still in use, or its node does not respond. It is deleted when it is unmounted, or " +
        "when the node responds.",
    ),
  },
  VolumeSnapshotContent: {
    SnapshotCreationFailed: warning(
      "The snapshot was not created, or the outcome is unknown" +
        runbook("claims-and-pods.md#volumesnapshot-not-ready"),
    ),
    SnapshotContentCheckandUpdateFailed: warning(
      "The controller could not check the snapshot, or the snapshot is missing, or its content is lost.",
    ),
    SnapshotDeleteError: warning(
      "The snapshot was not removed, usually because its node does not respond. The controller tries again.",
    ),
  },
  VolumeGroupSnapshotContent: {
    GroupSnapshotCreationFailed: warning(
      "The group snapshot was not taken, or the outcome is unknown, for example for volumes of several nodes: " +
        "[group snapshots](../guides/snapshots.md#group-snapshots).",
    ),
    GroupSnapshotContentCheckandUpdateFailed: warning(
      "The controller could not check the group snapshot, or some of its snapshots are missing or lost.",
    ),
    GroupSnapshotDeleteError: warning(
      "The group snapshot was not removed, usually because its node does not respond. The controller tries again.",
    ),
  },
  VolumeSnapshot: {
    SnapshotLost: warning(
      "The node was [removed](../guides/node-maintenance.md#remove-a-dead-node), and the content of the " +
        "snapshot with it. Delete the VolumeSnapshot.",
    ),
  },
  LVMVolume: {
    Created: normal("The agent created the logical volume from a snapshot or another volume."),
    Extended: normal("The agent extended the logical volume."),
    Copying: normal(
      "The agent copies data from a snapshot or another volume. `status.copy` has the progress. A volume that " +
        "is created at once has no such event.",
    ),
    ...OBJECT_EVENTS,
    IOLimitsApplied: normal("Its IO limits apply to the pods that use it."),
    IOLimitsNotApplied: warning("Its IO limits do not apply. The message gives the cause and the remedy."),
    Degraded: warning("A RAID volume has no redundancy" + runbook("storage.md#degraded-raid-volume")),
    RaidFailed: warning("A RAID volume has lost too many disks" + runbook("storage.md#degraded-raid-volume")),
    RefreshNeeded: warning(
      "A RAID volume does not use a disk that is present" + runbook("storage.md#degraded-raid-volume"),
    ),
    SharedPhysicalVolume: warning(
      "Several RAID images are on one physical volume" + runbook("storage.md#degraded-raid-volume"),
    ),
    Rebuilding: normal("Its RAID images are being synchronized."),
    Redundant: normal("It survives the loss of a disk again."),
    CacheFailed: warning("Its cache, or the disk of it, has failed" + runbook("storage.md#failed-cache")),
    CacheReadOnly: warning("The metadata of its cache cannot be written" + runbook("storage.md#failed-cache")),
    FilesystemReadOnly: warning(
      "The kernel made its filesystem read-only after an error" + runbook("storage.md#filesystem-read-only"),
    ),
    Partial: warning(
      "A physical volume with its data is missing, and it is not redundant" +
        runbook("storage.md#missing-physical-volume"),
    ),
    Healthy: normal("Its physical volumes are present again, or its filesystem accepts writes again."),
    KeyChangeComplete: normal(
      "Its [passphrase](../guides/encryption.md#rotate-the-passphrase) and its volume key are those that its " +
        "Secret requests.",
    ),
    KeyChangeFailed: warning(
      "Its passphrase or its volume key could not be changed. The message gives the cause: [when it does not " +
        "work](../guides/encryption.md#when-it-does-not-work).",
    ),
    KeyChangeInterrupted: warning(
      "A change of its passphrase was interrupted: [see whether it is " +
        "done](../guides/encryption.md#see-whether-it-is-complete).",
    ),
    KeyChangeRunning: normal(
      "Its data is being encrypted by another [volume key](../guides/encryption.md#rotate-the-volume-key).",
    ),
    ReencryptionInterrupted: warning(
      "A change of its [volume key](../guides/encryption.md#rotate-the-volume-key) was interrupted.",
    ),
    FurtherSignatures: warning(
      "Its device holds more than its filesystem, and it is mounted" +
        runbook("storage.md#volume-mounted-with-a-warning"),
    ),
    FilesystemNotChecked: warning(
      "Its filesystem is mounted without a check, because it is mounted elsewhere on the node, too" +
        runbook("storage.md#volume-mounted-with-a-warning"),
    ),
    FilesystemNotResized: warning(
      "Its filesystem is mounted, and cannot be resized to the volume now" +
        runbook("storage.md#volume-mounted-with-a-warning"),
    ),
    TrimFailed: warning(
      "[fstrim](../guides/thin-volumes.md#discard-and-fstrim) failed at least three times in a row. The message " +
        "quotes it. The agent keeps trying.",
    ),
    TrimUnsupported: warning("Its device does not support discards. Remove `fstrim` from the StorageClass."),
  },
  LVMSnapshot: {
    Created: normal("The agent created the snapshot."),
    ...OBJECT_EVENTS,
    SnapshotExtended: normal(
      "Its COW space was nearly full and [was extended](../guides/snapshots.md#automatic-extension).",
    ),
    SnapshotCannotExtend: warning(
      "Its COW space fills up and cannot be extended" + runbook("storage.md#snapshot-near-full"),
    ),
    SnapshotNearFull: warning(
      "80 % of its COW space are used, and it was not extended, as with `--snapshot-autoextend off`. Extend it, " +
        "as the message says, or delete the snapshot before it is lost.",
    ),
    Overflowed: warning(
      "Its COW space was too small and its content is lost. Delete it, because it still slows down its volume.",
    ),
  },
  LVMMove: MOVE_EVENTS,
  LVMNode: {
    OrphanFound: warning("A logical volume has no object: [orphans](../guides/volume-repair.md#orphans)."),
    DiskAdded: normal(
      "A disk that a [rule](../guides/disks.md) names is there. The message says whether it is proposed.",
    ),
    DiskLost: warning("A disk that a [rule](../guides/disks.md) names is not there any more."),
    DiskRefused: warning(
      "A disk that was [accepted](../guides/disks.md#accept-a-disk) is not taken. The message gives the cause.",
    ),
    DiskTaken: normal(
      "A disk that was [accepted](../guides/disks.md#accept-a-disk) is a physical volume of its volume group.",
    ),
    OrphanRemoved: normal("An orphan is being removed, as requested."),
    OrphanRemovalFailed: warning("The removal of an orphan was requested, and it stays. The message gives the cause."),
    PhysicalVolumesMissing: warning(
      "LVM does not find physical volumes of a volume group. The message has their UUIDs" +
        runbook("storage.md#missing-physical-volume"),
    ),
    PhysicalVolumesPresent: normal("LVM finds all physical volumes again."),
    ThinPoolExtended: normal("A thin pool of the driver, or its metadata, was extended."),
    ThinPoolNearFull: warning(
      "A thin pool is nearly full and was not extended" + runbook("storage.md#thin-pool-near-full"),
    ),
    ThinPoolFull: warning(
      "A thin pool is full or damaged, and its volumes cannot be written" + runbook("storage.md#thin-pool-near-full"),
    ),
  },
} as const satisfies Readonly<Record<string, Events>>;

/** The reasons in the table. */
type TableReason = { [Kind in keyof typeof EVENTS]: keyof typeof EVENTS[Kind] }[keyof typeof EVENTS];

/** A reason of an event: one of the table, or the reason of a condition that changed. */
export type EventReason = TableReason | ConditionReason;
