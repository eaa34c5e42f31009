/**
 * The cases of the troubleshooting pages, with the answer that `kubectl denolith why` must give in each of them.
 *
 * @module
 */

import { LVM_VOLUME_FINALIZER, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims, persistentVolumes } from "../../k8s/api/objects.ts";
import { volumeSnapshotContents } from "../../k8s/api/snapshot_objects.ts";
import type { ClaimScene, SceneOptions } from "./claim_scene.ts";

/** How a case comes about: what is in the API server, and what is asked. */
export interface Case {
  /** The reason of the answer; `undefined` when nothing is wrong. */
  readonly reason: string | undefined;
  /** Puts the objects. @param quote the message that the page quotes, with inserted values */
  readonly play?: (scene: ClaimScene, quote: string) => void | Promise<void>;
  /** What is there before. */
  readonly options?: SceneOptions;
}

/** The cases of a chapter, by the beginning of its list items, without markup. */
export interface Chapter {
  readonly cases: Readonly<Record<string, Case>>;
  /** Plays a case whose message is all that matters. */
  readonly play: (scene: ClaimScene, quote: string) => void | Promise<void>;
  /** What is asked about. */
  readonly target?: string;
}

const DAY_AGO = new Date(Date.now() - 86_400_000);
const GROWING = { spec: { resources: { requests: { storage: "64Mi" } } } };
const UNSCHEDULABLE = {
  conditions: [{
    ...{ type: "PodScheduled", status: "False", reason: "Unschedulable" },
    message: "0/1 nodes are available: 1 node(s) did not have enough free storage.",
  }],
};

/** The cases of the chapters, by the titles of these. */
export const RUNBOOK_CASES: Readonly<Record<string, Chapter>> = {
  "Claim stays Pending": {
    play: (scene, quote) => {
      scene.addClaim();
      scene.addEvent("ProvisioningFailed", `choosing a volume group for 1 GiB: ${quote}`);
    },
    cases: {
      "WaitForFirstConsumer, nothing else": {
        reason: "NoConsumer",
        options: { storageClass: { volumeBindingMode: "WaitForFirstConsumer" } },
        play: (scene) => scene.addClaim(),
      },
      "The pod's event has did not have enough free storage": {
        reason: "NoCapacity",
        options: { storageClass: { volumeBindingMode: "WaitForFirstConsumer" } },
        play: (scene) => {
          scene.addClaim();
          scene.addPod({ status: UNSCHEDULABLE });
        },
      },
      "ExternalProvisioning alone": {
        reason: "NoController",
        options: { hasController: false },
        play: (scene) => {
          scene.addClaim();
          scene.addEvent("ExternalProvisioning", "Waiting for a volume to be created");
        },
      },
      "not enough free space in … (… free)": { reason: "NoSpace" },
      "not enough free space in … (… of its physical volumes are missing)": { reason: "PhysicalVolumesMissing" },
      "not enough free space in … (it does not respond)": { reason: "VolumeGroupUnresponsive" },
      "not enough free space in … (it cannot be read: …)": { reason: "VolumeGroupUnreadable" },
      "not enough free space in … (read-only or exported)": { reason: "VolumeGroupReadOnly" },
      "none matches …; there are …": { reason: "NoSuchVolumeGroup" },
      "none of … has an agent of the driver; those that have one: …": { reason: "NodeWithoutAgent" },
      "node …: … is not registered there, …: registered on …": { reason: "DriverNotRegistered" },
      "node …: not in the allowedTopologies of the class": { reason: "NodeExcludedByClass" },
      "the agent of node … has not answered within … s": { reason: "AgentDoesNotAnswer" },
      "a node-local volume is for one node": { reason: "AccessModeUnsupported" },
      "parameter …: unknown; did you mean …?": { reason: "UnknownParameter" },
      "storageClassName …: there is no such class": { reason: "NoSuchClass" },
      "dataSource: … is not bound yet, … is not ready yet, …: does not exist": { reason: "SourceNotReady" },
      "dataSource: … is being deleted, … is of the driver …, … volume (requested: …)": { reason: "SourceUnsuitable" },
      "…: the source is on node …, and volumes from it are created there": { reason: "SourceOnOtherNode" },
      "the controller may not read it": { reason: "SecretForbidden" },
    },
  },
  "Claim does not expand": {
    play: (scene, quote) => {
      scene.addBound({ claim: GROWING });
      scene.addEvent("VolumeResizeFailed", `resizing volume v1-x: ${quote}`);
    },
    cases: {
      // kubectl refuses: the API server records nothing, and the claim has what it requests
      "kubectl refuses with only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize":
        {
          reason: "ExpansionNotAllowed",
          options: { storageClass: { allowVolumeExpansion: false } },
          play: (scene) => scene.addBound(),
        },
      "kubectl refuses with field can not be less than status.capacity or the like": {
        reason: undefined,
        play: (scene) => scene.addBound(),
      },
      "Condition FileSystemResizePending": {
        reason: "FileSystemResizePending",
        play: (scene) =>
          scene.addBound({
            claim: { ...GROWING, status: { conditions: [{ type: "FileSystemResizePending", status: "True" }] } },
          }),
      },
      "VolumeResizeFailed, state ControllerResizeInfeasible": {
        reason: "NoSpace",
        play: (scene) => {
          const status = { allocatedResourceStatuses: { storage: "ControllerResizeInfeasible" } };
          scene.addBound({ claim: { ...GROWING, status } });
          scene.addEvent("VolumeResizeFailed", "something that nobody foresaw");
        },
      },
      "it is in use and has the snapshots …": { reason: "OriginInUse" },
      "of its snapshots …, … is open": { reason: "SnapshotOpen" },
      "the agent of node … has not answered within … s": { reason: "AgentDoesNotAnswer" },
      "Condition NodeResizeError, or kubelet's event VolumeResizeFailed on the pod": {
        reason: "NodeResizeFailed",
        play: (scene) => {
          scene.addBound({ claim: GROWING });
          scene.addPod({ spec: { nodeName: "n1" }, status: { phase: "Running" } });
          scene.addEvent("VolumeResizeFailed", "resize2fs: exit 1", "Pod", "web");
        },
      },
      "Nothing happens": {
        reason: "NoController",
        options: { hasController: false },
        play: (scene) => scene.addBound({ claim: GROWING }),
      },
    },
  },
  "IO limits not applied": {
    play: (scene, quote) => {
      const message = `IO limits do not apply: ${quote}`;
      scene.addBound({ conditions: [{ type: "IOLimitsApplied", status: "False", reason: "Refused", message }] });
    },
    cases: {
      "VolumeModifyFailed: VolumeAttributesClass … does not exist": {
        reason: "NoSuchAttributesClass",
        play: (scene, quote) => {
          scene.addBound({ claim: { spec: { volumeAttributesClassName: "gold" } } });
          scene.addEvent("VolumeModifyFailed", quote);
        },
      },
      "VolumeModifyFailed: cannot change; what can are …, or parameter … must be …": {
        reason: "WrongAttributesClass",
        play: (scene, quote) => {
          scene.addBound({ claim: { spec: { volumeAttributesClassName: "gold" } } });
          scene.addEvent("VolumeModifyFailed", quote);
        },
      },
      "IOLimitsNotApplied: no cgroup v2 is mounted there, no io controller": { reason: "NoCgroup2" },
      "IOLimitsNotApplied: the io controller is not enabled for the cgroups of pods": {
        reason: "IoControllerNotEnabled",
      },
      "IOLimitsNotApplied: the mount point of cgroup v2 is not configured": { reason: "NoCgroupRoot" },
      "IOLimitsNotApplied: has no cgroup below …": { reason: "NoPodCgroup" },
      "A pod is faster than its limit": { reason: undefined, play: (scene) => scene.addBound() },
      "Two pods together are twice as fast": { reason: undefined, play: (scene) => scene.addBound() },
    },
  },
  "VolumeSnapshot not ready": {
    target: "volumesnapshot/cut",
    play: (scene, quote) => {
      scene.addSnapshot({}, { status: { error: { message: quote } } });
      scene.addEvent(
        "SnapshotCreationFailed",
        `Failed to create snapshot: ${quote}`,
        "VolumeSnapshotContent",
        "content",
      );
    },
    cases: {
      "No boundVolumeSnapshotContentName, and no events": {
        reason: "NoSnapshotController",
        play: (scene) => scene.addSnapshot(undefined, null),
      },
      "A content without status and events": {
        reason: "NoController",
        options: { hasController: false },
        play: (scene) => scene.addSnapshot({ boundVolumeSnapshotContentName: "content" }),
      },
      "the COW space of … does not fit": { reason: "NoSpace" },
      "volumeSnapshotClassName …: there is no such VolumeSnapshotClass": { reason: "NoSuchSnapshotClass" },
      "parameter …: unknown; did you mean …?, parameter snapSize …": { reason: "WrongParameter" },
      "the agent of node … has not answered within … s": { reason: "AgentDoesNotAnswer" },
      "looking for snapshot …: … has none of that handle": { reason: "NoSuchSnapshot" },
      "the controller may not read it": { reason: "SecretForbidden" },
      "A content stays after it was deleted": {
        reason: "KeptByVolumeSnapshot",
        play: async (scene) => {
          scene.addSnapshot({ readyToUse: true }, {
            metadata: { name: "content", finalizers: ["snapshot/protection"] },
          });
          await scene.delete(volumeSnapshotContents, "content");
        },
      },
    },
  },
  "Pod cannot mount its volume": {
    play: (scene, quote) => {
      scene.addBound();
      scene.addPod({ spec: { nodeName: "n1" } });
      scene.addEvent("FailedMount", `MountVolume.SetUp failed for volume "pv": ${quote}`, "Pod", "web");
    },
    cases: {
      "The pod has no node, and its event has had volume node affinity conflict": {
        reason: "Unschedulable",
        play: (scene) => {
          const [condition] = UNSCHEDULABLE.conditions;
          const message = "0/2 nodes are available: 1 node(s) had volume node affinity conflict.";
          scene.addBound();
          scene.addPod({ status: { conditions: [{ ...condition, message }] } });
        },
      },
      "kubelet reports driver name lvm.denolith.dev not found in the list of registered CSI drivers": {
        reason: "DriverNotRegistered",
      },
      "Lost: … was the logical volume … in volume group …": { reason: "Lost" },
      "it holds …, it should hold … with the UUID …, but holds …": { reason: "UnexpectedData" },
      "it was created with shared: no": { reason: "NotShared" },
      "the access mode allows one target": { reason: "UsedByAnotherPod" },
      "mounting volume … as …: it was created for …": { reason: "WrongFilesystemType" },
      "e2fsck …: exit …": { reason: "FilesystemDamaged" },
      "volume group … does not respond; look for a disk among …": { reason: "VolumeGroupUnresponsive" },
      "volume group … cannot be read: …; look at its disks … (dmesg)": { reason: "VolumeGroupUnreadable" },
      "… created …, but … was requested, and it would not be mounted as that again; …": { reason: "WrongMkfsOptions" },
      "LVM reported success, but … is not active (see volume_list in lvm.conf)": { reason: "NotActive" },
    },
  },
  "Volume stays Terminating": {
    play: (scene, quote) => {
      scene.addVolume({ phase: "Released" });
      scene.addEvent("VolumeFailedDelete", quote, "PersistentVolume", "pv");
    },
    cases: {
      "The claim has the finalizer kubernetes.io/pvc-protection": {
        reason: "UsedByPods",
        play: async (scene) => {
          scene.addBound({ claim: { metadata: { finalizers: ["kubernetes.io/pvc-protection"] } } });
          scene.addPod({ status: { phase: "Running" }, spec: { nodeName: "n1" } });
          await scene.delete(persistentVolumeClaims, "data", "default");
        },
      },
      "deleting volume …: … is in use; unpublish and unstage it first": { reason: "InUse" },
      "it is the origin of the snapshots …; delete them first": { reason: "HasSnapshots" },
      "node … has no agent of the driver (no LVMNode …)": { reason: "NodeGone", options: { hasAgent: false } },
      "the agent of node … has not answered within … s": { reason: "AgentDoesNotAnswer" },
      "the agent of node … has not reported for minutes; see its log": {
        reason: "AgentSilent",
        options: { seenAt: DAY_AGO },
      },
      "its … was deleted, but not by the driver": {
        reason: "DeletedByOthers",
        play: async (scene, quote) => {
          scene.addVolume({ metadata: { finalizers: [LVM_VOLUME_FINALIZER] } });
          await scene.delete(persistentVolumes, "pv");
          await scene.delete(lvmVolumes, scene.id);
          scene.addEvent("Failed", quote, "LVMVolume", scene.id);
        },
      },
      "… with the UUID … has taken its place": { reason: "Replaced" },
    },
  },
};
