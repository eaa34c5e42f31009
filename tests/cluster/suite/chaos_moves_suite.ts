/**
 * Kills during moves between two nodes: of either agent, of the controller, and of the network between them, as soon as a
 * step is recorded, and at random moments after that. The suite runs in a cluster of its own, in which transfers are slow.
 * `SEED=…` repeats what dies, and when.
 *
 * @module
 */

import { pick } from "../../rig/seeded_random.ts";
import type { DriverPods } from "./helpers/driver_pods.ts";
import { type Blow, moveUnder, STEP_NAMES, withHarness } from "./helpers/disturbed_moves.ts";
import { NODES } from "./helpers/move_helpers.ts";
import type { TestNamespace } from "./helpers/test_namespace.ts";
import { cutNetwork } from "./helpers/transfer_helpers.ts";

/** The number of kills for each layout, at least: two for each step. */
const KILLS = 2 * STEP_NAMES.length;

/** Milliseconds in which the second kill of a move follows the first one: an agent takes some seconds to start. */
const WITHIN_MS = 30_000;

const killAgents = (ns: TestNamespace, driver: DriverPods, nodes: readonly string[]) =>
  driver.killProcess("node", undefined, nodes.map((node) => ns.cluster.node(node)));

const DEATH: Readonly<Record<string, Blow["strike"]>> = {
  "the agent of the source is killed": ({ ns, driver }, { spec }) => killAgents(ns, driver, [spec.sourceNode]),
  "the agent of the target is killed": ({ ns, driver }, { spec }) => killAgents(ns, driver, [spec.targetNode]),
  "both agents are killed": ({ ns, driver }) => killAgents(ns, driver, NODES),
  "the controller is killed": ({ driver }) => driver.killProcess("controller"),
  "agents and controller are killed": async ({ driver }) => {
    await Promise.all([driver.killProcess("node"), driver.killProcess("controller")]);
  },
  "the network is away for 5 s": ({ ns }) => cutNetwork(ns, 5),
};

for (const layout of ["thick", "thin"] as const) {
  Deno.test(`moves of a ${layout} volume survive ${KILLS} kills at each step, and nothing is lost or left`, async () => {
    await withHarness(layout, async (harness) => {
      const killAt = (when: Blow["when"]): Blow => {
        const [name, strike] = pick(harness.random, Object.entries(DEATH));
        return { name, when, strike };
      };
      let kills = 0;
      for (let move = 0; kills < KILLS; move++) {
        const first = killAt(STEP_NAMES[move % STEP_NAMES.length]!);
        kills += await moveUnder(harness, [first, killAt(Math.round(harness.random() * WITHIN_MS))]);
      }
    });
  });
}
