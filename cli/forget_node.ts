/**
 * `denolith forget-node`: giving up a node of a cluster.
 *
 * @module
 */

import { apiClient } from "./api_client.ts";
import type { Flags } from "./command_line.ts";
import { requireDriverName } from "../csi/identity.ts";
import { requireNodeId } from "../csi/topology.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { forget } from "../k8s/node_removal/forget_node.ts";
import { forgettingJson, forgettingText } from "../k8s/node_removal/text.ts";
import { planForgetting, readRemains } from "../k8s/node_removal/plan.ts";

/** How long events that are due may take at the end, in milliseconds. */
const EVENTS_MS = 30_000;

/** How many events may follow each other at once: a node may have hundreds of volumes, with two events for each. */
const EVENTS = 1_000;

/** Shows what the cluster has of the node, and gives it up when it is told to. */
export async function forgetNode(flags: Flags): Promise<number> {
  const driver = requireDriverName(flags["driver-name"]!);
  const nodeName = requireNodeId(flags["NODE"]!);
  using client = await apiClient(flags, "forget-node");
  const remains = await readRemains(client, { driver, nodeName });
  const now = new Date();
  const done = flags.yes !== undefined;
  const print = flags.json === undefined ? forgettingText : forgettingJson;
  if (!done) {
    console.log(print(planForgetting(remains, now), done));
    return 0;
  }
  const events = new EventRecorder(client, { component: `${driver}/forget-node`, instance: nodeName, burst: EVENTS });
  try {
    console.log(print(await forget(client, remains, { events, reason: flags.force, now }), done));
  } finally {
    await events.stop(EVENTS_MS);
  }
  return 0;
}
