/**
 * Kills at random moments of a transfer between two nodes: of either agent, of the controller, of the network between them,
 * and of the source's node. The suite runs in a cluster of its own, in which transfers are slow. `SEED=…` repeats the moments.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { transferSnapshotIdOf, volumeIdOf } from "../../../base/ids.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { pick, runRandom } from "../../rig/seeded_random.ts";
import { listDriverLvs } from "./helpers/driver_lvs.ts";
import { DriverPods } from "./helpers/driver_pods.ts";
import { WAIT_MS } from "./helpers/object_watcher.ts";
import { FULL, TestNamespace } from "./helpers/test_namespace.ts";
import {
  addReader,
  addWriter,
  COPY_NODE,
  copyDigest,
  createClasses,
  cutNetwork,
  SOURCE_NODE,
} from "./helpers/transfer_helpers.ts";

/** The number of transfers that something befalls. */
const TRANSFERS = FULL ? 20 : 7;

/** Milliseconds in which something befalls a transfer, from its claim on: it takes some 25 seconds there. */
const WITHIN_MS = 25_000;

/** The size of the volumes of later tenants, in MiB: more than all copies that were there at a time. */
const TENANT_MIB = 1200;

/** What may befall a transfer. */
type Blow = (ns: TestNamespace, driver: DriverPods) => Promise<void>;

const BLOWS: Readonly<Record<string, Blow>> = {
  "the agent of the source is killed": (ns, driver) =>
    driver.killProcess("node", undefined, [ns.cluster.node(SOURCE_NODE)]),
  "the agent of the copy is killed": (ns, driver) =>
    driver.killProcess("node", undefined, [ns.cluster.node(COPY_NODE)]),
  "the controller is killed": (_ns, driver) => driver.killProcess("controller"),
  "the network is away for 5 s": (ns) => cutNetwork(ns, 5),
  "both agents are killed": (_ns, driver) => driver.killProcess("node"),
  "the node of the source loses power": (ns) => ns.cluster.node(SOURCE_NODE).powerCycle(),
  // longer than a connection waits for progress
  "the network is away for 70 s": (ns) => cutNetwork(ns, 70),
};

/** Returns the id of the volume of a claim, which need not be there yet. */
async function copyId(ns: TestNamespace) {
  const { metadata } = await ns.waitFor("PersistentVolumeClaim", "copy", (claim) => claim !== undefined, "is there");
  return volumeIdOf(`pvc-${metadata.uid}`);
}

/** Deletes the copy with its pod, and waits until nothing is left of it on any node. */
async function deleteCopy(ns: TestNamespace): Promise<void> {
  const id = await copyId(ns);
  const snapshot = transferSnapshotIdOf(id);
  await ns.requestDeletion("PersistentVolumeClaim", "copy");
  await ns.deleteAndWait("Pod", "reader");
  await ns.waitForDeletion("PersistentVolumeClaim", "copy");
  let left: string[] = [];
  const isGone = async () => {
    const lvs = (await Promise.all(ns.cluster.nodes.map(listDriverLvs))).flat();
    const objects = (await ns.kubectl("get", "lvmvolumes,lvmsnapshots", "--output=name")).split("\n");
    left = [
      ...objects.filter((name) => name.endsWith(`/${id}`) || name.endsWith(`/${snapshot}`)),
      ...lvs.filter(({ tags }) => tags.some((tag) => tag.endsWith(id) || tag.endsWith(snapshot)))
        .map(({ node, name, tags }) => `${node}: LV ${name} ${tags}`),
    ];
    return left.length === 0;
  };
  await pollUntil(isGone, { action: "wait for the end of a copy", timeoutMs: WAIT_MS, intervalMs: 500 }).catch((e) => {
    throw new Error(`${e.message}: ${left.join(", ")}`);
  });
}

Deno.test("a transfer survives whatever befalls it at any moment, is what the source was, and leaves nothing", async () => {
  await using ns = await TestNamespace.open("blows");
  await using driver = await DriverPods.open(ns.cluster);
  const random = runRandom();
  const classes = await createClasses(ns);
  const sources = { volumeMode: "Block" } as const;
  const layout = pick(random, ["thick", "thin"] as const);
  const digest = await addWriter(ns, classes[layout], sources.volumeMode);
  const names = Object.keys(BLOWS);
  for (let transfer = 0; transfer < TRANSFERS; transfer++) {
    const [name, copy] = [names[transfer % names.length]!, transfer % 2 === 0 ? "thick" : "thin"] as const;
    const afterMs = Math.round(random() * WITHIN_MS);
    const isGivenUp = random() < .2;
    const startedAt = performance.now();
    await addReader(ns, {
      from: { kind: "PersistentVolumeClaim", name: "source" },
      className: classes[copy],
      ...sources,
    });
    await new Promise((resolve) => setTimeout(resolve, afterMs)); // the moment is random: any must do no harm
    const { status } = ns.informer("LVMVolume").get(await copyId(ns)) ?? {};
    await BLOWS[name]!(ns, driver);
    if (!isGivenUp) {
      assertEquals(await copyDigest(ns, sources.volumeMode), digest, name);
      const { tags } = await ns.lvOf("copy");
      assertEquals(tags.filter((tag) => /^denolith\.(?:from|copied)=/.test(tag)), [], "it is complete");
    }
    await deleteCopy(ns);
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    const state = `${status?.state ?? "nothing yet"} ${JSON.stringify(status?.copy ?? {})}`;
    const end = isGivenUp ? "given up" : "complete";
    console.error(`${layout} to ${copy}, after ${afterMs} ms (${state}): ${name}; ${end} and gone after ${seconds} s`);
  }

  for (const node of [SOURCE_NODE, COPY_NODE]) {
    const claim = `tenant-${node}`;
    await ns.createClaim({ name: claim, class: classes.thick, size: `${TENANT_MIB}Mi`, volumeMode: "Block" });
    await ns.createPod({ name: claim, claims: [{ name: claim, devicePath: "/raw" }], node });
    await ns.waitForRunning(claim);
    const data = "dd if=/raw bs=1M 2>/dev/null | tr -d '\\000' | wc -c";
    assertEquals((await ns.exec(claim, data)).trim(), "0", `the next tenant of ${node} reads zeros alone`);
  }
});
