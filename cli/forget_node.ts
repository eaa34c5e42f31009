/**
 * `denolith forget-node`, which gives up a node of a cluster.
 *
 * @module
 */

import { apiClient } from "./api_client.ts";
import { EXIT, type Flags } from "./command_line.ts";
import { requireDriverName } from "../csi/driver_options.ts";
import { requireNodeId } from "../csi/topology.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { forget } from "../k8s/node_removal/forget_node.ts";
import { forgetPlanJson, forgetPlanText } from "../k8s/node_removal/text.ts";
import { planForget, readNodeObjects } from "../k8s/node_removal/plan.ts";

/** The time that pending events may take at the end, in milliseconds. */
const EVENT_DRAIN_MS = 30_000;

/** The number of events that may be sent at once: a node may have hundreds of volumes, with two events for each. */
const EVENT_BURST = 1_000;

/** Prints what the cluster has of a node, and gives it up with `--yes`. @returns the exit status */
export async function forgetNode(flags: Flags): Promise<number> {
  const driver = requireDriverName(flags["driver-name"]!);
  const nodeName = requireNodeId(flags["NODE"]!);
  using client = await apiClient(flags, "forget-node");
  const nodeObjects = await readNodeObjects(client, { driver, nodeName });
  const now = new Date();
  const isConfirmed = flags.yes !== undefined;
  const format = flags.json === undefined ? forgetPlanText : forgetPlanJson;
  if (!isConfirmed) {
    console.log(format(planForget(nodeObjects, now), isConfirmed));
    return EXIT.success;
  }
  const events = new EventRecorder(client, {
    component: `${driver}/forget-node`,
    instance: nodeName,
    burst: EVENT_BURST,
  });
  try {
    console.log(format(await forget(client, nodeObjects, { events, reason: flags.force, now }), isConfirmed));
  } finally {
    await events.stop(EVENT_DRAIN_MS);
  }
  return EXIT.success;
}
