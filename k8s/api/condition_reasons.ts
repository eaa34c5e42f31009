/**
 * The conditions of LVMVolumes, LVMSnapshots and LVMNodes, and the reasons that they can have. `docs/reference` lists
 * them from here.
 *
 * @module
 */

import type { ErrorKind } from "../../lvm/error.ts";
import type { HealthReason } from "../../lvm/health/health.ts";
import type { RedundancyState } from "../../lvm/model/redundancy.ts";
import type { LimitsReason } from "../../lvm/staging/cgroups.ts";

/** A reason of a condition. */
export interface ReasonDescription {
  /** Status of the condition with this reason. */
  readonly status: "True" | "False";
  /** The meaning of the reason, and the remedy, in Markdown; links are relative to docs/reference. */
  readonly meaning: string;
}

/** The reasons of a condition. */
type Reasons<Reason extends string = string> = Readonly<Record<Reason, ReasonDescription>>;

/** The reasons of `Healthy` that a volume group has. */
const GROUP_REASONS = {
  PhysicalVolumesPresent: { status: "True", meaning: "The volume group has all its physical volumes." },
  PhysicalVolumesMissing: {
    status: "False",
    meaning: "A physical volume of the volume group is missing. `denolith doctor` on the node names it.",
  },
  VolumeGroupReadOnly: { status: "False", meaning: "The volume group is read-only or exported." },
  VolumeGroupUnresponsive: {
    status: "False",
    meaning: "The disks of the volume group do not respond, or LVM cannot read it.",
  },
} as const satisfies Reasons;

/** The conditions of LVMVolumes. `Ready` also has the kinds of errors as its reasons. */
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
    },
    ThinPoolNearFull: {
      status: "False",
      meaning: "Its thin pool is nearly full: [runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
    },
    ThinPoolFull: {
      status: "False",
      meaning: "Its thin pool is full: [runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
    },
    ThinPoolDamaged: {
      status: "False",
      meaning:
        "The metadata of its thin pool needs repair: [runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
    },
    FilesystemReadOnly: {
      status: "False",
      meaning: "The kernel made its filesystem read-only after an error: " +
        "[runbook](../guides/runbooks/storage.md#filesystem-read-only).",
    },
  } satisfies Reasons<
    Exclude<HealthReason, RedundancyState | "Lost" | "ForeignData" | "NodeNotFound"> | "PhysicalVolumesPresent"
  >,
  IOLimitsApplied: {
    Applied: { status: "True", meaning: "Its [IO limits](../guides/io-limits.md) apply to each pod that uses it." },
    NoCgroup2: {
      status: "False",
      meaning: "The node has no cgroup v2. Boot it with the unified hierarchy.",
    },
    NoIoController: {
      status: "False",
      meaning: "The io controller of the node belongs to cgroup v1. Boot the node with the unified hierarchy.",
    },
    NoCgroupRoot: { status: "False", meaning: "The agent was started without `--cgroup-root`." },
    IoControllerNotEnabled: {
      status: "False",
      meaning: "The io controller is not enabled for the cgroups of pods. The message names the cgroup.",
    },
    NoPodCgroup: {
      status: "False",
      meaning: "The cgroup of the pod was not found within half a minute. The agent keeps looking for it.",
    },
    NotAPod: { status: "False", meaning: "The volume is published at a path that is not kubelet's." },
    Refused: { status: "False", meaning: "The kernel refused the limits. The message gives the cause." },
  } satisfies Reasons<Exclude<LimitsReason, ErrorKind>>,
  Redundant: {
    InSync: { status: "True", meaning: "It survives the loss of a disk." },
    Mismatches: {
      status: "True",
      meaning: "The last check (`lvchange --syncaction check`) found RAID images that differ.",
    },
    Rebuilding: { status: "False", meaning: "Its RAID images are being synchronized. Wait." },
    Degraded: {
      status: "False",
      meaning:
        "It works without a missing physical volume: [runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
    },
    RefreshNeeded: {
      status: "False",
      meaning: "It works without a physical volume that is present: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
    },
    SharedPhysicalVolume: {
      status: "False",
      meaning: "Several of its RAID images are on one physical volume, because it was extended or changed by hand: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
    },
    RaidFailed: {
      status: "False",
      meaning: "More physical volumes are missing than it tolerates: " +
        "[runbook](../guides/runbooks/storage.md#degraded-raid-volume).",
    },
  } satisfies Reasons<RedundancyState>,
} as const satisfies Readonly<Record<string, Reasons>>;

/** The conditions of LVMSnapshots. `Ready` also has the kinds of errors as its reasons. */
export const SNAPSHOT_CONDITIONS = {
  Ready: {
    Created: { status: "True", meaning: "The snapshot exists." },
    Overflowed: { status: "False", meaning: "Its COW space was too small and its content is lost. Delete it." },
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
    },
    Overflowed: { status: "False", meaning: "Its COW space was too small and its content is lost. Delete it." },
  },
} as const satisfies Readonly<Record<string, Reasons>>;

/** The conditions of LVMNodes. */
export const NODE_CONDITIONS = {
  Orphans: {
    NoOrphans: { status: "False", meaning: "Each logical volume of the driver has its object." },
    OrphansFound: { status: "True", meaning: "Some have none: [orphans](../guides/orphans.md)." },
  },
  PhysicalVolumesMissing: {
    PhysicalVolumesPresent: { status: "False", meaning: "LVM finds all physical volumes of the volume groups." },
    PhysicalVolumesMissing: {
      status: "True",
      meaning: "LVM does not find some. The message names the volume groups and the UUIDs: " +
        "[runbook](../guides/runbooks/storage.md#missing-physical-volume).",
    },
  },
  ThinPoolsNearFull: {
    Ok: { status: "False", meaning: "No thin pool with volumes of the driver is nearly full." },
    ThinPoolNearFull: {
      status: "True",
      meaning: "A thin pool is nearly full. The message names it: " +
        "[runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
    },
    ThinPoolFull: {
      status: "True",
      meaning: "A thin pool is full or damaged. The message names it: " +
        "[runbook](../guides/runbooks/storage.md#thin-pool-near-full).",
    },
  },
} as const satisfies Readonly<Record<string, Reasons>>;

/** The reasons in a table of conditions. */
type ReasonOf<Conditions> = { [Type in keyof Conditions]: keyof Conditions[Type] }[keyof Conditions];

/** A reason of a condition of our own kinds: one of the tables above, or a kind of error. */
export type ConditionReason =
  | ReasonOf<typeof VOLUME_CONDITIONS>
  | ReasonOf<typeof SNAPSHOT_CONDITIONS>
  | ReasonOf<typeof NODE_CONDITIONS>
  | ErrorKind;
