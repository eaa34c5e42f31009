/**
 * The cases of the chapters about nodes and controllers.
 *
 * @module
 */

import { lvmNodes } from "../../../k8s/api/lvm_objects.ts";
import { nodes } from "../../../k8s/api/objects.ts";
import { pluginOver } from "../../fake/cluster/plugin_run.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import type { Stage } from "./stage.ts";

const STATUS = ["status"];

/** Starts a cluster with a claim whose node then has a problem; it is asked about when the agent was silent for minutes. */
function down(change: (stage: Stage) => unknown): Play {
  return async (stage) => {
    await stage.start();
    await stage.bindClaim();
    await stage.cluster.agents.stopAgent("n1");
    await change(stage);
    return new Date(Date.now() + 600_000);
  };
}

/** The Node is not Ready. */
async function notReady({ cluster }: Stage): Promise<void> {
  const merge = { status: { conditions: [{ type: "Ready", status: "Unknown" }] } };
  await cluster.agents.client.patch(nodes, { name: "n1" }, { merge, subresource: "status" });
}

/** The Node was deleted, and with it its LVMNode. */
async function gone(stage: Stage): Promise<void> {
  await stage.delete(lvmNodes, "n1");
  await stage.delete(nodes, "n1");
}

/** Starts a cluster whose volume group `data` waits for a disk. */
const hung: Play = async (stage) => {
  await stage.start({ machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } });
  stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
  stage.cluster.addClaim();
};

const READ_IN_LOG = "it is read in the log of a controller";

/** The chapters. */
export const NODES: Readonly<Record<string, Chapter>> = {
  "Node does not come back": {
    asks: ["why", "data"],
    cases: {
      "why CLAIM: NodeDown": once("NodeDown", down(notReady)),
      "why CLAIM: NodeGone": once("NodeGone", down(gone)),
      "why CLAIM: NodeWithoutAgent": once("NodeWithoutAgent", down((stage) => stage.delete(lvmNodes, "n1"))),
      "why CLAIM: AgentSilent": once("AgentSilent", down(() => {})),
      "why CLAIM: NodeForgotten": once(
        "NodeForgotten",
        down(async (stage) => {
          await notReady(stage);
          const forget = pluginOver(stage.cluster.api, { role: "operator", now: new Date(Date.now() + 600_000) });
          const { status, errors } = await forget(["forget-node", "n1", "--yes"]);
          if (status !== 0) throw new Error(errors);
        }),
      ),
      "status: NodeDown": once("NodeDown", down(notReady), STATUS),
      "status: NodeWithoutAgent": once("NodeWithoutAgent", down(gone), STATUS),
      "status: AgentSilent": once("AgentSilent", down(() => {}), STATUS),
    },
  },
  "Reconcile failing": {
    asks: ["why", "data"],
    cases: {
      "why CLAIM: VolumeGroupUnresponsive": once("VolumeGroupUnresponsive", hung),
      "Forbidden in the log": READ_IN_LOG,
    },
  },
  "etcd was restored from a backup": { asks: ["status"], cases: {} },
};
