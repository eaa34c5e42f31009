/**
 * The cases of the chapter "Volume stays Terminating".
 *
 * @module
 */

import { lvmNodes, lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import { nodes, persistentVolumeClaims, pods } from "../../../k8s/api/objects.ts";
import { newUuid } from "../../fake/machine/machine.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import type { Stage, StageOptions } from "./stage.ts";

/** Starts a cluster with a claim, prepares it, and deletes the claim. */
function deleting(prepare: (stage: Stage) => unknown, options: StageOptions = {}): Play {
  return async (stage) => {
    await stage.start(options);
    await stage.bindClaim();
    await prepare(stage);
    await stage.delete(persistentVolumeClaims, "data");
  };
}

/** The chapter. */
export const TERMINATING: Chapter = {
  asks: ["why", "data"],
  cases: {
    "The claim has the finalizer kubernetes.io/pvc-protection": once(
      "UsedByPods",
      deleting(async (stage) => {
        await stage.startPod();
        stage.keepClaim("kubernetes.io/pvc-protection");
      }),
    ),
    InUse: deleting(async (stage) => {
      await stage.startPod();
      await stage.delete(pods, "web"); // and kubelet has not unmounted the volume
    }),
    HasSnapshots: deleting((stage) => stage.takeSnapshot()),
    NodeGone: deleting(async (stage) => {
      await stage.cluster.agents.stopAgent("n1");
      await stage.delete(lvmNodes, "n1");
      await stage.delete(nodes, "n1");
    }),
    AgentDoesNotAnswer: deleting((stage) => stage.cluster.agents.stopAgent("n1"), { nodeWaitMs: 500 }),
    AgentSilent: deleting((stage) => stage.silence()),
    DeletedByOthers: async (stage) => {
      await stage.start();
      await stage.bindClaim();
      await stage.delete(lvmVolumes, stage.volume()!.spec!.csi!.volumeHandle);
    },
    Replaced: deleting(({ lv }) => lv.uuid = newUuid()),
    "The claim has finalizers of another program": once(
      "KeptByFinalizers",
      deleting((stage) => stage.keepClaim("backup.example.com/keep")),
    ),
    "The reclaim policy is Retain": once("Retained", async (stage) => {
      await stage.start();
      stage.cluster.addClass("kept", { volumeBindingMode: "Immediate", reclaimPolicy: "Retain" });
      await stage.bindClaim({ className: "kept" });
      await stage.delete(persistentVolumeClaims, "data");
    }),
    VolumeGroupUnresponsive: deleting(async (stage) => {
      stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
      await stage.report();
    }, { machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } }),
  },
};
