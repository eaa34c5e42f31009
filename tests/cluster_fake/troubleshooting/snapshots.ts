/**
 * The cases of the chapter "VolumeSnapshot not ready".
 *
 * @module
 */

import { volumeSnapshotContents, volumeSnapshots } from "../../../k8s/api/snapshot_objects.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
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
    NoSpace: cutting(async (stage) => {
      stage.addSnapshotClass();
      await stage.bindClaim({ name: "big", size: "220Mi" });
    }),
    NoSuchSnapshotClass: cutting(() => {}),
    WrongParameter: [withParameters({ snapSise: "20%" }), withParameters({ snapSize: "much" })],
    AgentDoesNotAnswer: cutting(async (stage) => {
      stage.addSnapshotClass();
      await stage.cluster.agents.stopAgent("n1");
    }, { nodeWaitMs: 500 }),
    NoSuchSnapshot: async (stage) => {
      await stage.start();
      const snapshotHandle = "v1-00000000000000000000000000000000";
      stage.addSnapshot({ source: { snapshotHandle } });
    },
    SecretForbidden: async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.cluster.api.faults.forbidden.add("secrets");
      stage.addSnapshotClass();
      stage.addSnapshot({}, SECRET);
    },
    "A content stays after it was deleted": once("KeptByVolumeSnapshot", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      await stage.takeSnapshot();
      await stage.delete(volumeSnapshotContents, "content");
    }),
    VolumeGroupUnresponsive: cutting((stage) => {
      stage.addSnapshotClass();
      stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
    }, { machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } }),
    "The content has the policy Retain": once("Retained", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      stage.addSnapshotClass();
      stage.addSnapshot({ deletionPolicy: "Retain" });
      await stage.delete(volumeSnapshots, "cut");
    }),
  },
};
