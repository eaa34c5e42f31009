/**
 * Moves of a claim between two real nodes, by `kubectl denolith move`, with a workload that writes a log. The suite runs in
 * a cluster of its own, with transfers on.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { listDriverLvs } from "./driver_lvs.ts";
import { DriverPods } from "./driver_pods.ts";
import { assertLog, moveClaim, waitForWriter, WRITER, writerOf, writtenLines } from "./move_helpers.ts";
import { pick, runRandom } from "../../rig/seeded_random.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { FULL, TestNamespace } from "./test_namespace.ts";
import { createClasses, SOURCE_NODE } from "./transfer_helpers.ts";

const NODES = [SOURCE_NODE, "node2"] as const;

/** The size of the volume that moves. */
const SIZE = "420Mi";

/** The number of moves that a process does not survive. */
const MOVES = FULL ? 20 : 4;

/** Milliseconds in which a process dies, from the beginning of a move on. */
const WITHIN_MS = 30_000;

/** Makes a claim with a workload that writes, and data that it does not change. @returns the digest of the data */
async function addWriter(ns: TestNamespace, className: string): Promise<string> {
  await ns.createClaim({ name: "data", class: className, size: SIZE });
  await ns.apply(writerOf("data"));
  await ns.waitForRunning(WRITER);
  await ns.exec(WRITER, "dd if=/dev/urandom of=/data/file bs=1M count=100 conv=fsync 2>/dev/null");
  return await ns.exec(WRITER, "sha256sum < /data/file");
}

/** Returns the node of the claim's volume, of which there is one LV alone. */
async function nodeOf(ns: TestNamespace): Promise<string> {
  const id = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  const isAlone = async () => (await lvsOf(ns, id)).length === 1;
  await pollUntil(isAlone, { action: `wait for one LV of ${id}`, timeoutMs: WAIT_MS, intervalMs: 500 });
  const [lv] = await lvsOf(ns, id);
  assertEquals(lv!.tags.filter((tag) => /^denolith\.(?:from|copied|held|source)/.test(tag)), []);
  return lv!.node;
}

async function lvsOf(ns: TestNamespace, id: string) {
  return (await Promise.all(ns.cluster.nodes.map(listDriverLvs))).flat().filter(({ volume }) => volume === id);
}

/** Moves the claim to the other node, and checks what the workload has there. */
async function moveAndCheck(ns: TestNamespace, digest: string, during: () => Promise<void> = () => Promise.resolve()) {
  const from = await nodeOf(ns);
  const to = NODES.find((name) => name !== from)!;
  const { metadata: { name, uid } } = await ns.volumeOf("data");
  const written = await writtenLines(ns);
  const [outcome] = await Promise.all([moveClaim(ns, "data", to), during()]);
  assertEquals([outcome.state, outcome.sourceNode, outcome.targetNode], ["Complete", from, to]);
  await waitForWriter(ns, to);
  await assertLog(ns, written);
  assertEquals(await ns.exec(WRITER, "sha256sum < /data/file"), digest);
  assertEquals(await nodeOf(ns), to);
  const now = await ns.volumeOf("data");
  assertEquals([now.metadata.name, now.spec?.persistentVolumeReclaimPolicy], [name, "Delete"]);
  assert(now.metadata.uid !== uid, "it was made again");
  return `${SIZE} from ${from} to ${to}: nobody could use it for ${outcome.downtimeSeconds} s`;
}

for (const layout of ["thick", "thin"] as const) {
  Deno.test(`a ${layout} claim in use is moved to the other node and back, and nothing is lost`, async () => {
    await using ns = await TestNamespace.open(`move-${layout}`);
    const classes = await createClasses(ns);
    const digest = await addWriter(ns, classes[layout]);
    for (let move = 0; move < 2; move++) console.error(`${layout}: ${await moveAndCheck(ns, digest)}`);
    await ns.kubectl("delete", "statefulset", "store");
    await ns.deleteAndWait("PersistentVolumeClaim", "data");
    await ns.waitForCleanup();
  });
}

Deno.test("moves survive the deaths of agents and controller at any moment, and nothing is lost", async () => {
  await using ns = await TestNamespace.open("move-deaths");
  await using driver = await DriverPods.open(ns.cluster);
  const random = runRandom();
  const classes = await createClasses(ns);
  const digest = await addWriter(ns, classes.thick);
  for (let move = 0; move < MOVES; move++) {
    const afterMs = Math.round(random() * WITHIN_MS);
    const role = pick(random, ["node", "node", "controller"] as const);
    const nodes = role === "node" ? [ns.cluster.node(pick(random, NODES))] : undefined;
    const text = await moveAndCheck(ns, digest, async () => {
      await new Promise((resolve) => setTimeout(resolve, afterMs)); // the moment is random: any must do no harm
      await driver.killProcess(role, undefined, nodes);
    });
    console.error(`${text}; ${role}${nodes === undefined ? "" : ` of ${nodes[0]!.name}`} killed after ${afterMs} ms`);
  }
  await ns.kubectl("delete", "statefulset", "store");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
});
