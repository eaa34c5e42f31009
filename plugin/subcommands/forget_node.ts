/**
 * `kubectl denolith forget-node`: shows what the cluster has of a node, asks, and gives it up.
 *
 * @module
 */

import { EXIT } from "../../cli/command_line.ts";
import { requireNodeId } from "../../csi/topology.ts";
import { forget } from "../node_removal/forget_node.ts";
import { type ForgetPlan, planForget, readNodeObjects } from "../node_removal/plan.ts";
import { forgetPlanText } from "../node_removal/text.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";

/** The time that pending events may take at the end, in milliseconds. */
const EVENT_DRAIN_MS = 60_000;

/** The number of events that may be sent at once. */
const EVENT_BURST = 1_000;

/** Gives up a node; with `--output` and without `--yes` only shows the plan. @returns 0; 1 if the answer is no */
export async function forgetNode(session: Session): Promise<number> {
  const { client, driver, flags, subject } = session;
  const nodeName = requireNodeId(flags["NODE"]!);
  const nodeObjects = await readNodeObjects(client, { driver, nodeName });
  const plan = planForget(nodeObjects, session.now);
  const isEmpty = !plan.lvmNode && plan.volumes.length === 0 && plan.snapshots.length === 0;
  const isForProgram = flags.output !== undefined && flags.yes === undefined; // a program cannot be asked
  if (isEmpty || isForProgram) {
    session.print(planAnswer(plan, false));
    return EXIT.success;
  }
  if (flags.yes === undefined) session.print(planAnswer(plan, false));
  if (!session.confirm(`Give up node ${nodeName} of context ${subject.context}?`)) return EXIT.failure;
  const options = { component: `${driver}/forget-node`, instance: nodeName, burst: EVENT_BURST };
  const events = new EventRecorder(client, options);
  try {
    // the question may have been open for long, and the node be back
    const latest = flags.yes === undefined ? await readNodeObjects(client, { driver, nodeName }) : nodeObjects;
    const done = await forget(client, latest, { events, reason: flags.force, now: session.now });
    session.print(planAnswer(done, true));
  } finally {
    await events.stop(EVENT_DRAIN_MS);
  }
  return EXIT.success;
}

function planAnswer(plan: ForgetPlan, done: boolean): Answer {
  return { data: { ...plan, done }, text: () => forgetPlanText(plan, done) };
}
