/**
 * The cases of the chapter "Claim does not expand".
 *
 * @module
 */

import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import { type Stage, waitFor } from "./stage.ts";

/** Starts a cluster with a claim, prepares it, and asks for a larger size. */
function growing(prepare: (stage: Stage) => void | Promise<void>, size?: string): Play {
  return async (stage) => {
    await stage.start();
    await stage.bindClaim();
    await prepare(stage);
    await stage.grow(size);
  };
}

/** Waits until the volume was expanded, and its filesystem was not. */
async function waitForNode(stage: Stage): Promise<void> {
  const conditions = () => (stage.claim()?.status?.conditions ?? []) as { type: string }[];
  const isExpanded = () => conditions().some(({ type }) => type === "FileSystemResizePending") || undefined;
  await waitFor("the expansion of the volume", isExpanded);
}

/** Asks for a larger size of a volume that a pod uses, whose filesystem then cannot be resized. @returns the error */
async function failOnNode(stage: Stage): Promise<string> {
  await growing((stage) => stage.startPod())(stage);
  await waitForNode(stage);
  stage.machine.fault = ({ program }) =>
    program === "resize2fs" ? { code: 1, stdout: "", stderr: "resize2fs: Permission denied to resize\n" } : undefined;
  return (await stage.resizeOnNode(64n * MiB))!;
}

/** The chapter. */
export const EXPANSION: Chapter = {
  asks: ["why", "data"],
  cases: {
    // kubectl refuses: the API server records nothing, and the claim has what it requests
    "kubectl refuses with only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize":
      once("ExpansionNotAllowed", async (stage) => {
        await stage.start();
        stage.cluster.addClass("fixed", { volumeBindingMode: "Immediate", allowVolumeExpansion: false });
        await stage.bindClaim({ className: "fixed" });
      }),
    "kubectl refuses with field can not be less than status.capacity or the like": once(undefined, async (stage) => {
      await stage.start();
      await stage.bindClaim();
    }),
    "Condition FileSystemResizePending": once("FileSystemResizePending", growing(() => {})),
    NoSpace: growing(() => {}, "1Gi"),
    OriginInUse: growing(async (stage) => {
      await stage.startPod();
      await stage.takeSnapshot();
    }),
    SnapshotOpen: growing(async (stage) => {
      await stage.takeSnapshot();
      const { lv } = stage.machine.allLvs().find(({ lv }) => lv.origin !== undefined)!;
      stage.machine.openLvs.push(lv);
    }),
    AgentDoesNotAnswer: async (stage) => {
      await stage.start({ nodeWaitMs: 500 });
      await stage.bindClaim();
      await stage.cluster.agents.stopAgent("n1");
      await stage.grow();
    },
    "Condition NodeResizeError, or kubelet's event VolumeResizeFailed on the pod": {
      reason: "NodeResizeFailed",
      plays: [
        async (stage) => {
          const said = await failOnNode(stage);
          stage.addEvent("VolumeResizeFailed", `NodeExpandVolume failed: ${said}`, "Pod", "web");
        },
        async (stage) => {
          const message = await failOnNode(stage);
          const condition = { type: "NodeResizeError", status: "True", message };
          const lastTransitionTime = new Date().toISOString();
          await stage.patchClaimStatus({ conditions: [{ ...condition, lastTransitionTime }] });
        },
      ],
    },
    "Nothing happens": once("NoController", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      await stage.cluster.stopController();
      await stage.grow();
    }),
    VolumeGroupUnresponsive: async (stage) => {
      await stage.start({ machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } });
      await stage.bindClaim();
      stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
      await stage.grow();
    },
  },
};
