/**
 * The cases of the chapter "VolumeSnapshot not ready".
 *
 * @module
 */

import { volumeSnapshotContents, volumeSnapshots } from "../../../k8s/api/snapshot_objects.ts";
import { machineWith, MiB } from "../../fake/volume_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import type { Stage, StageOptions } from "./stage.ts";

/** Starts a cluster with a claim, prepares it, and adds a VolumeSnapshot of it. */
function cutting(prepare: (stage: Stage) => void | Promise<void>, options: StageOptions = {}): Play {
  return async (stage) => {
    await stage.start(options);
    await stage.bindClaim();
    await prepare(stage);
    stage.addSnapshot();
  };
}

/** Adds a VolumeSnapshot of a class with these parameters. */
const withParameters = (parameters: Record<string, string>) =>
  cutting((stage) => stage.addSnapshotClass("snap", parameters));

/** How the snapshot-controller names the secret of a class in the content. */
const SECRET = {
  "snapshot.storage.kubernetes.io/deletion-secret-name": "s",
  "snapshot.storage.kubernetes.io/deletion-secret-namespace": "default",
};

/** The chapter. */
export const SNAPSHOTS: Chapter = {
  asks: ["why", "volumesnapshot/cut"],
  cases: {
    "No boundVolumeSnapshotContentName, and no events": once("NoSnapshotController", async (stage) => {
      await stage.start();
      stage.addSnapshot(null);
    }),
    "A content without status and events": once("NoController", async (stage) => {
      await stage.start({ withController: false });
      stage.addSnapshot();
      await stage.setSnapshotStatus({ boundVolumeSnapshotContentName: "content" });
    }),
    "the COW space of … does not fit": {
      reason: "NoSpace",
      plays: {
        "the COW space of … does not fit": cutting(async (stage) => {
          stage.addSnapshotClass();
          await stage.bindClaim({ name: "big", size: "220Mi" });
        }),
      },
    },
    "volumeSnapshotClassName …: there is no such VolumeSnapshotClass": {
      reason: "NoSuchSnapshotClass",
      plays: { "volumeSnapshotClassName …: there is no such VolumeSnapshotClass": cutting(() => {}) },
    },
    "parameter …: unknown; did you mean …?, parameter snapSize …": {
      reason: "WrongParameter",
      plays: {
        "parameter …: unknown; did you mean …?": withParameters({ snapSise: "20%" }),
        "parameter snapSize …": withParameters({ snapSize: "much" }),
      },
    },
    "the agent of node … has not answered within … s": {
      reason: "AgentDoesNotAnswer",
      plays: {
        "the agent of node … has not answered within … s": cutting(async (stage) => {
          stage.addSnapshotClass();
          await stage.cluster.agents.stopAgent("n1");
        }, { nodeWaitMs: 500 }),
      },
    },
    "looking for snapshot …: … has none of that handle": {
      reason: "NoSuchSnapshot",
      plays: {
        "looking for snapshot …: … has none of that handle": async (stage) => {
          await stage.start();
          const snapshotHandle = "v1-00000000000000000000000000000000";
          stage.addSnapshot({ source: { snapshotHandle } });
        },
      },
    },
    "the controller may not read it": {
      reason: "SecretForbidden",
      plays: {
        "the controller may not read it": async (stage) => {
          await stage.start();
          await stage.bindClaim();
          stage.cluster.api.faults.forbidden.add("secrets");
          stage.addSnapshotClass();
          stage.addSnapshot({}, SECRET);
        },
      },
    },
    "A content stays after it was deleted": once("KeptByVolumeSnapshot", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      await stage.takeSnapshot();
      await stage.delete(volumeSnapshotContents, "content");
    }),
    "volume group … does not respond; look for a disk among …": {
      reason: "VolumeGroupUnresponsive",
      plays: {
        "volume group … does not respond; look for a disk among …": cutting((stage) => {
          stage.addSnapshotClass();
          stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
        }, { machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } }),
      },
    },
    "The content has the policy Retain": once("Retained", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.addSnapshotClass();
      stage.addSnapshot({ deletionPolicy: "Retain" });
      await stage.delete(volumeSnapshots, "cut");
    }),
  },
};
