/**
 * Deaths at random moments of moves between two nodes: of either agent, of the controller, of the network between them, and of
 * either node. The suite runs in a cluster of its own, in which transfers are slow. `SEED=…` repeats the moments.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { pollUntil } from "../../rig/poll_until.ts";
import { pick, type RandomSource, runRandom } from "../../rig/seeded_random.ts";
import { listDriverLvs } from "./driver_lvs.ts";
import { DriverPods } from "./driver_pods.ts";
import { addWriter, lvsOf, moveAndCheck, NODES, removeWriter } from "./move_helpers.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { TestNamespace } from "./test_namespace.ts";
import { createClasses, cutNetwork, type Layout } from "./transfer_helpers.ts";

/** The number of deaths for each layout. */
const DEATHS = 10;

/** The number of deaths that befall one move, at most: an agent takes some seconds to start. */
const DEATHS_PER_MOVE = 2;

/** Milliseconds in which a death befalls a move, from its beginning or from the death before. */
const WITHIN_MS = 30_000;

/** What befalls a move from one node to another. */
type Blow = (ns: TestNamespace, driver: DriverPods) => Promise<void>;

const kill = (node: typeof NODES[number]): Blow => (ns, driver) =>
  driver.killProcess("node", undefined, [ns.cluster.node(node)]);
const cutPower = (node: typeof NODES[number]): Blow => (ns) => ns.cluster.node(node).powerCycle();

const BLOWS: Readonly<Record<string, Blow>> = {
  "the agent of node1 is killed": kill(NODES[0]),
  "the agent of node2 is killed": kill(NODES[1]),
  "both agents are killed": (_ns, driver) => driver.killProcess("node"),
  "the controller is killed": (_ns, driver) => driver.killProcess("controller"),
  "agents and controller are killed": async (_ns, driver) => {
    await Promise.all([driver.killProcess("node"), driver.killProcess("controller")]);
  },
  "the network is away for 5 s": (ns) => cutNetwork(ns, 5),
};

const POWER_CUTS: Readonly<Record<string, Blow>> = {
  "node1 loses power": cutPower(NODES[0]),
  "node2 loses power": cutPower(NODES[1]),
};

/** A claim in use that is moved. */
interface Scene {
  readonly ns: TestNamespace;
  readonly driver: DriverPods;
  readonly random: RandomSource;
  readonly digest: string;
  /** The id of its volume. */
  readonly id: string;
}

async function stateOfMove({ ns, id }: Scene): Promise<string> {
  const state = ["get", "lvmmove", id, "--ignore-not-found", "--output=jsonpath={.status.state}"];
  return await ns.kubectl(...state);
}

/** Moves the claim once, while blows befall the move; checks that they leave nothing. @returns how many there were */
async function moveUnder(scene: Scene, blows: readonly (readonly [string, Blow])[]): Promise<number> {
  const { ns, driver, random, digest } = scene;
  const befallen: string[] = [];
  const text = await moveAndCheck(ns, digest, async (isOver) => {
    const isBegun = async () => isOver() || await stateOfMove(scene) !== "";
    await pollUntil(isBegun, { action: "wait for the move", timeoutMs: WAIT_MS, intervalMs: 500 });
    for (const [name, blow] of blows) {
      const afterMs = Math.round(random() * WITHIN_MS);
      await new Promise((resolve) => setTimeout(resolve, afterMs)); // the moment is random: any must do no harm
      if (isOver()) return;
      const state = await stateOfMove(scene);
      await blow(ns, driver);
      befallen.push(`${state}, ${afterMs} ms: ${name}`);
      const found = await lvsOf(ns, scene.id).catch(() => []); // a node may be away
      assert(found.length <= 1, `two LVs have the id: ${JSON.stringify(found)}`);
    }
  });
  await assertNothingLeft(scene);
  await ns.kubectl("delete", "lvmmove", scene.id);
  console.error(`${text}; ${befallen.join("; ") || "undisturbed"}`);
  return befallen.length;
}

/** Waits until the LV of the volume is all that is there of it on either node; no device may be suspended. */
async function assertNothingLeft({ ns }: Scene): Promise<void> {
  let left: string[] = [];
  const isClean = async () => {
    const lvs = (await Promise.all(ns.cluster.nodes.map(listDriverLvs))).flat();
    const objects = (await ns.kubectl("get", "lvmvolumes,lvmsnapshots", "--output=name")).trim().split("\n");
    const own = lvs.filter(({ tags }) => tags.some((tag) => /^denolith\.(?:volume|snapshot|deleted)=/.test(tag)));
    left = [...objects, ...own.map(({ node, name, tags }) => `${node}: LV ${name} ${tags}`)];
    return objects.length === 1 && own.length === 1;
  };
  await pollUntil(isClean, { action: "wait for one volume alone", timeoutMs: WAIT_MS, intervalMs: 500 }).catch((e) => {
    throw new Error(`${e.message}: ${left.join(", ")}`);
  });
  for (const node of ns.cluster.nodes) {
    const devices = await ns.runOnNode("dmsetup info -c --noheadings --separator ' ' -o name,suspended", node);
    assertEquals(devices.split("\n").filter((line) => line.endsWith("Suspended")), [], `devices of ${node.name}`);
  }
}

async function withScene(layout: Layout, body: (scene: Scene) => Promise<void>): Promise<void> {
  await using ns = await TestNamespace.open(`moves-${layout}`);
  await using driver = await DriverPods.open(ns.cluster);
  const random = runRandom();
  const classes = await createClasses(ns);
  const digest = await addWriter(ns, classes[layout]);
  const id = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  await body({ ns, driver, random, digest, id });
  await removeWriter(ns);
}

for (const layout of ["thick", "thin"] as const) {
  Deno.test(`moves of a ${layout} volume survive ${DEATHS} deaths at any moment, and nothing is lost or left`, async () => {
    await withScene(layout, async (scene) => {
      const names = Object.entries(BLOWS);
      for (let deaths = 0; deaths < DEATHS;) {
        const count = Math.min(DEATHS_PER_MOVE, DEATHS - deaths);
        deaths += await moveUnder(scene, Array.from({ length: count }, () => pick(scene.random, names)));
      }
    });
  });
}

Deno.test("moves survive power cuts of either node, and nothing is lost or left", async () => {
  await withScene("thick", async (scene) => {
    // both nodes are the source of one and the target of another
    for (const cut of [...Object.entries(POWER_CUTS), ...Object.entries(POWER_CUTS).reverse()]) {
      while (await moveUnder(scene, [cut]) === 0); // it was over before
    }
  });
});
