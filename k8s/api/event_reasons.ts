/**
 * The reasons of the events that denolith records. `docs/reference` lists them from here.
 *
 * @module
 */

import type { ConditionReason } from "./condition_reasons.ts";

/** A reason of events. */
export interface EventDescription {
  /** Type of the events. */
  readonly type: "Normal" | "Warning";
  /** The meaning of the event, and the remedy, in Markdown; links are relative to docs/reference. */
  readonly meaning: string;
}

/** The reasons of events about objects of one kind. */
type Events = Readonly<Record<string, EventDescription>>;

const RUNBOOKS = "../guides/runbooks";
const MOVE_CHAPTER = "when-it-does-not-go-on";
const DEGRADED = `[runbook](${RUNBOOKS}/storage.md#degraded-raid-volume)`;

/** The events of LVMVolumes and LVMSnapshots alike. */
const OBJECT_EVENTS = {
  Failed: { type: "Warning", meaning: "An operation of the agent failed. The message quotes LVM." },
  Waiting: {
    type: "Warning",
    meaning: "LVM does not respond, for example because of a disk. The agent tries again: " +
      `[runbook](${RUNBOOKS}/nodes-and-controllers.md#lvm-commands-do-not-complete).`,
  },
  Lost: {
    type: "Warning",
    meaning: "Its logical volume is missing: [repair](../guides/volume-repair.md#lost-volume).",
  },
  Recovered: { type: "Normal", meaning: "Its node was removed and is back, with the logical volume." },
} as const satisfies Events;

/** The events of a move, about the claim and about the LVMMove. */
const MOVE_EVENTS = {
  MoveStarted: {
    type: "Normal",
    meaning: "The volume is being [moved](../guides/move.md) to another node. The message says whether it is online, " +
      "and why it is not.",
  },
  MoveOffline: {
    type: "Warning",
    meaning:
      "The move cannot go on online, and copies the volume while nobody can use it. The message gives the cause.",
  },
  MoveWaiting: {
    type: "Normal",
    meaning: "The move waits for others. The message says for what: usually for pods that use the volume; end those.",
  },
  MoveHeld: { type: "Normal", meaning: "Nobody uses the volume any more, and nobody can until the move ends." },
  Moved: {
    type: "Normal",
    meaning: "The volume is on the other node. The message says what was sent, and how long nobody could use it.",
  },
  MoveFailed: {
    type: "Warning",
    meaning: `The volume stays where it was. The message gives the cause: [move](../guides/move.md#${MOVE_CHAPTER}).`,
  },
  MoveUndone: { type: "Normal", meaning: "The move was undone, because its LVMMove was deleted." },
} as const satisfies Events;

/** The events by the kind of the object that they are about. Those of Kubernetes' kinds are named as by the sidecars. */
export const EVENTS = {
  PersistentVolumeClaim: {
    Provisioning: {
      type: "Normal",
      meaning:
        "The controller has been creating a volume for five seconds, or waits for a populator or another operation.",
    },
    ProvisioningSucceeded: { type: "Normal", meaning: "The PersistentVolume exists." },
    ProvisioningFailed: {
      type: "Warning",
      meaning: `The message gives the cause: [runbook](${RUNBOOKS}/claims-and-pods.md#claim-stays-pending).`,
    },
    Resizing: { type: "Normal", meaning: "The volume is being expanded." },
    FileSystemResizeRequired: {
      type: "Normal",
      meaning: "The volume was expanded. The filesystem is resized when a pod uses it.",
    },
    VolumeResizeSuccessful: {
      type: "Normal",
      meaning: "The expansion is complete. No step on the node is necessary.",
    },
    VolumeResizeFailed: {
      type: "Warning",
      meaning: `The message gives the cause: [runbook](${RUNBOOKS}/claims-and-pods.md#claim-does-not-expand).`,
    },
    VolumeModify: { type: "Normal", meaning: "The volume is being changed to another VolumeAttributesClass." },
    VolumeModifySuccessful: { type: "Normal", meaning: "The change is complete." },
    VolumeModifyFailed: {
      type: "Warning",
      meaning: "The message gives the cause: [IO limits](../guides/io-limits.md#change-limits).",
    },
    VolumeModifyCanceled: { type: "Normal", meaning: "The change that failed is no longer requested." },
    VolumeLost: {
      type: "Warning",
      meaning:
        "The node was [removed](../guides/node-maintenance.md#remove-a-dead-node). Delete the claim and its pods to get a new volume.",
    },
    ...MOVE_EVENTS,
  },
  PersistentVolume: {
    VolumeFailedDelete: {
      type: "Warning",
      meaning:
        "The volume is usually still in use, or its node does not respond. It is deleted when it is unmounted, or when the node responds.",
    },
  },
  VolumeSnapshotContent: {
    SnapshotCreationFailed: {
      type: "Warning",
      meaning: "The snapshot was not created, or the outcome is unknown: " +
        `[runbook](${RUNBOOKS}/claims-and-pods.md#volumesnapshot-not-ready).`,
    },
    SnapshotContentCheckandUpdateFailed: {
      type: "Warning",
      meaning: "The controller could not check the snapshot, or the snapshot is missing, or its content is lost.",
    },
    SnapshotDeleteError: {
      type: "Warning",
      meaning: "The snapshot was not removed, usually because its node does not respond. The controller tries again.",
    },
  },
  VolumeGroupSnapshotContent: {
    GroupSnapshotCreationFailed: {
      type: "Warning",
      meaning:
        "The group snapshot was not taken, or the outcome is unknown, for example for volumes of several nodes: " +
        "[group snapshots](../guides/snapshots.md#group-snapshots).",
    },
    GroupSnapshotContentCheckandUpdateFailed: {
      type: "Warning",
      meaning: "The controller could not check the group snapshot, or some of its snapshots are missing or lost.",
    },
    GroupSnapshotDeleteError: {
      type: "Warning",
      meaning:
        "The group snapshot was not removed, usually because its node does not respond. The controller tries again.",
    },
  },
  VolumeSnapshot: {
    SnapshotLost: {
      type: "Warning",
      meaning:
        "The node was [removed](../guides/node-maintenance.md#remove-a-dead-node), and the content of the snapshot with it. Delete " +
        "the VolumeSnapshot.",
    },
  },
  LVMVolume: {
    Created: { type: "Normal", meaning: "The agent created the logical volume from a snapshot or another volume." },
    Extended: { type: "Normal", meaning: "The agent extended the logical volume." },
    Copying: {
      type: "Normal",
      meaning: "The agent copies data from a snapshot or another volume. `status.copy` has the progress. A volume " +
        "that is created at once has no such event.",
    },
    ...OBJECT_EVENTS,
    IOLimitsApplied: { type: "Normal", meaning: "Its IO limits apply to the pods that use it." },
    IOLimitsNotApplied: {
      type: "Warning",
      meaning: "Its IO limits do not apply. The message gives the cause and the remedy.",
    },
    Degraded: { type: "Warning", meaning: `A RAID volume has no redundancy: ${DEGRADED}.` },
    RaidFailed: { type: "Warning", meaning: `A RAID volume has lost too many disks: ${DEGRADED}.` },
    RefreshNeeded: { type: "Warning", meaning: `A RAID volume does not use a disk that is present: ${DEGRADED}.` },
    SharedPhysicalVolume: {
      type: "Warning",
      meaning: `Several RAID images are on one physical volume: ${DEGRADED}.`,
    },
    Rebuilding: { type: "Normal", meaning: "Its RAID images are being synchronized." },
    Redundant: { type: "Normal", meaning: "It survives the loss of a disk again." },
    CacheFailed: {
      type: "Warning",
      meaning: `Its cache, or the disk of it, has failed: [runbook](${RUNBOOKS}/storage.md#failed-cache).`,
    },
    CacheReadOnly: {
      type: "Warning",
      meaning: `The metadata of its cache cannot be written: [runbook](${RUNBOOKS}/storage.md#failed-cache).`,
    },
    FilesystemReadOnly: {
      type: "Warning",
      meaning:
        `The kernel made its filesystem read-only after an error: [runbook](${RUNBOOKS}/storage.md#filesystem-read-only).`,
    },
    Partial: {
      type: "Warning",
      meaning: "A physical volume with its data is missing, and it is not redundant: " +
        `[runbook](${RUNBOOKS}/storage.md#missing-physical-volume).`,
    },
    Healthy: {
      type: "Normal",
      meaning: "Its physical volumes are present again, or its filesystem accepts writes again.",
    },
    KeyChangeComplete: {
      type: "Normal",
      meaning:
        "Its [passphrase](../guides/encryption.md#rotate-the-passphrase) and its volume key are those that its Secret requests.",
    },
    KeyChangeFailed: {
      type: "Warning",
      meaning: "Its passphrase or its volume key could not be changed. The message gives the cause: " +
        "[when it does not work](../guides/encryption.md#when-it-does-not-work).",
    },
    KeyChangeInterrupted: {
      type: "Warning",
      meaning: "A change of its passphrase was interrupted: " +
        "[see whether it is done](../guides/encryption.md#see-whether-it-is-complete).",
    },
    KeyChangeRunning: {
      type: "Normal",
      meaning: "Its data is being encrypted by another [volume key](../guides/encryption.md#rotate-the-volume-key).",
    },
    ReencryptionInterrupted: {
      type: "Warning",
      meaning: "A change of its [volume key](../guides/encryption.md#rotate-the-volume-key) was interrupted.",
    },
    FurtherSignatures: {
      type: "Warning",
      meaning:
        `Its device holds more than its filesystem, and it is mounted: [runbook](${RUNBOOKS}/storage.md#volume-mounted-with-a-warning).`,
    },
    FilesystemNotChecked: {
      type: "Warning",
      meaning:
        `Its filesystem is mounted without a check, because it is mounted elsewhere on the node, too: [runbook](${RUNBOOKS}/storage.md#volume-mounted-with-a-warning).`,
    },
    FilesystemNotResized: {
      type: "Warning",
      meaning:
        `Its filesystem is mounted, and cannot be resized to the volume now: [runbook](${RUNBOOKS}/storage.md#volume-mounted-with-a-warning).`,
    },
    TrimFailed: {
      type: "Warning",
      meaning:
        "[fstrim](../guides/thin-volumes.md#discard-and-fstrim) failed at least three times in a row. The message quotes it. The " +
        "agent keeps trying.",
    },
    TrimUnsupported: {
      type: "Warning",
      meaning: "Its device does not support discards. Remove `fstrim` from the StorageClass.",
    },
  },
  LVMSnapshot: {
    Created: { type: "Normal", meaning: "The agent created the snapshot." },
    ...OBJECT_EVENTS,
    SnapshotExtended: {
      type: "Normal",
      meaning: "Its COW space was nearly full and [was extended](../guides/snapshots.md#automatic-extension).",
    },
    SnapshotCannotExtend: {
      type: "Warning",
      meaning: `Its COW space fills up and cannot be extended: [runbook](${RUNBOOKS}/storage.md#snapshot-near-full).`,
    },
    SnapshotNearFull: {
      type: "Warning",
      meaning: "80 % of its COW space are used, and it was not extended, as with `--snapshot-autoextend off`. Extend " +
        "it, as the message says, or delete the snapshot before it is lost.",
    },
    Overflowed: {
      type: "Warning",
      meaning: "Its COW space was too small and its content is lost. Delete it, because it still slows down its " +
        "volume.",
    },
  },
  LVMMove: MOVE_EVENTS,
  LVMNode: {
    OrphanFound: {
      type: "Warning",
      meaning: "A logical volume has no object: [orphans](../guides/volume-repair.md#orphans).",
    },
    DiskAdded: {
      type: "Normal",
      meaning: "A disk that a [rule](../guides/disks.md) names is there. The message says whether it is proposed.",
    },
    DiskLost: { type: "Warning", meaning: "A disk that a [rule](../guides/disks.md) names is not there any more." },
    DiskRefused: {
      type: "Warning",
      meaning:
        "A disk that was [accepted](../guides/disks.md#accept-a-disk) is not taken. The message gives the cause.",
    },
    DiskTaken: {
      type: "Normal",
      meaning: "A disk that was [accepted](../guides/disks.md#accept-a-disk) is a physical volume of its volume group.",
    },
    OrphanRemoved: { type: "Normal", meaning: "An orphan is being removed, as requested." },
    OrphanRemovalFailed: {
      type: "Warning",
      meaning: "The removal of an orphan was requested, and it stays. The message gives the cause.",
    },
    PhysicalVolumesMissing: {
      type: "Warning",
      meaning: "LVM does not find physical volumes of a volume group. The message has their UUIDs: " +
        `[runbook](${RUNBOOKS}/storage.md#missing-physical-volume).`,
    },
    PhysicalVolumesPresent: { type: "Normal", meaning: "LVM finds all physical volumes again." },
    ThinPoolExtended: { type: "Normal", meaning: "A thin pool of the driver, or its metadata, was extended." },
    ThinPoolNearFull: {
      type: "Warning",
      meaning:
        `A thin pool is nearly full and was not extended: [runbook](${RUNBOOKS}/storage.md#thin-pool-near-full).`,
    },
    ThinPoolFull: {
      type: "Warning",
      meaning: "A thin pool is full or damaged, and its volumes cannot be written: " +
        `[runbook](${RUNBOOKS}/storage.md#thin-pool-near-full).`,
    },
  },
} as const satisfies Readonly<Record<string, Events>>;

/** The reasons in the table. */
type TableReason = { [Kind in keyof typeof EVENTS]: keyof typeof EVENTS[Kind] }[keyof typeof EVENTS];

/** A reason of an event: one of the table, or the reason of a condition that changed. */
export type EventReason = TableReason | ConditionReason;
