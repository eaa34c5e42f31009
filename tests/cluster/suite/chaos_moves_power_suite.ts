/**
 * Power cuts during moves between two nodes: as soon as a step is recorded, one of the nodes loses power. The suite runs in a
 * cluster of its own, in which transfers are slow.
 *
 * @module
 */

import { assert } from "@std/assert";

import { isFinished } from "../../../k8s/handover/handover.ts";
import {
  type Blow,
  moveUnder,
  readMove,
  STEP_NAMES,
  type StepName,
  textOf,
  withHarness,
} from "./helpers/disturbed_moves.ts";
import { FULL } from "./helpers/test_namespace.ts";

/** The nodes of a move. */
const ROLES = ["source", "target"] as const;

/** Returns a power cut of a node at a step. One that comes after the end of the move is none, and fails the test. */
function cutAt(when: StepName, role: typeof ROLES[number]): Blow {
  const strike: Blow["strike"] = async (harness, { spec }) => {
    const node = harness.ns.cluster.node(role === "source" ? spec.sourceNode : spec.targetNode);
    await node.powerOff();
    const now = await readMove(harness);
    assert(now !== undefined && !isFinished(now), "the move was over before the power was cut");
    await node.powerOn();
    await node.ready();
    return `${textOf(now)} when it was off`;
  };
  return { name: `the ${role}'s node loses power`, when, strike };
}

for (const layout of FULL ? ["thick", "thin"] as const : ["thick"] as const) {
  Deno.test(`moves of a ${layout} volume survive a power cut at each step, and nothing is lost or left`, async () => {
    await withHarness(layout, async (harness) => {
      for (const [index, step] of STEP_NAMES.entries()) {
        const roles = FULL ? ROLES : [ROLES[index % ROLES.length]!]; // by turns
        for (const role of roles) assert(await moveUnder(harness, [cutAt(step, role)]) === 1, `no cut when ${step}`);
      }
    });
  });
}
