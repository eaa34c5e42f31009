/**
 * Takeovers of volumes that other drivers made, by `kubectl denolith import`, with a workload that writes a log.
 *
 * The LVs and objects are as the other drivers write them. In place of their node plugins runs one that mounts and unmounts as they
 * do; volumes of the type `local` are mounted by kubelet itself.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { volumeIdOf, volumeLvName } from "../../../base/ids.ts";
import type { KubeObject, Pod, StorageClass } from "../../../k8s/api/objects.ts";
import {
  addOtherVolume,
  FOREIGN_TAG,
  installDefinitions,
  type Origin,
  OTHER_SIZE,
  type OtherVolume,
  removeOtherVolume,
  startNodePlugin,
} from "./helpers/import_helpers.ts";
import { assertLog, waitForWriter, WRITER, writerOf, writtenLines } from "./helpers/move_helpers.ts";
import { DRIVER, isRunning } from "./helpers/objects.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { WAIT_MS } from "./helpers/object_watcher.ts";
import { runPlugin } from "./helpers/plugin_command.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** Returns the LVs of the group, by name, with their tags. */
async function lvs(ns: TestNamespace): Promise<Record<string, string>> {
  const lines = (await ns.runOnNode("lvs --noheadings --separator '|' -o lv_name,lv_tags data")).trim().split("\n");
  return Object.fromEntries(lines.map((line) => line.trim().split("|") as [string, string]));
}

/** Returns what the cluster has of a class. */
async function classOf(ns: TestNamespace, { className }: OtherVolume): Promise<StorageClass> {
  return JSON.parse(await ns.kubectl("get", "storageclass", className, "--output", "json"));
}

/** The line of the workload that records each start of a container. */
const RECORD_START = "echo start >> /data/starts";

/** Returns the number of times that a container of the workload was started. */
async function startsOf(ns: TestNamespace, pod = WRITER): Promise<number> {
  return Number(await ns.exec(pod, "wc -l < /data/starts"));
}

/** Asserts that the volume is the driver's. */
async function assertOurs(ns: TestNamespace, volume: OtherVolume, claim = "data"): Promise<void> {
  const id = volumeIdOf(volume.persistentVolume);
  const { spec, metadata } = await ns.volumeOf(claim);
  assertEquals(metadata.name, volume.persistentVolume);
  assertEquals([spec?.csi?.driver, spec?.csi?.volumeHandle], [DRIVER, id]);
  assertEquals(spec?.persistentVolumeReclaimPolicy, "Delete");
  const all = await lvs(ns);
  for (const tag of [`denolith.volume=${id}`, FOREIGN_TAG]) {
    assert(all[volumeLvName(id)]?.includes(tag), JSON.stringify(all));
  }
  assertEquals(all[volume.lvName], undefined);
  await ns.waitFor("LVMVolume", id, (object) => object?.status?.state === "Ready", "is Ready");
}

/** Asserts that the volume is the other driver's, as it was. */
async function assertTheirs(
  ns: TestNamespace,
  volume: OtherVolume,
  provisioner: string,
  claim = "data",
): Promise<void> {
  const { spec } = await ns.volumeOf(claim);
  assertEquals([spec?.csi?.driver === DRIVER, spec?.persistentVolumeReclaimPolicy], [false, "Delete"]);
  const all = await lvs(ns);
  assertEquals([all[volume.lvName], all[volumeLvName(volumeIdOf(volume.persistentVolume))]], [FOREIGN_TAG, undefined]);
  assertEquals((await classOf(ns, volume)).provisioner, provisioner);
}

/** The drivers, and the kinds of objects by which they know their volumes. */
const ORIGINS: readonly [Origin, provisioner: string, kind?: string][] = [
  ["Local", "kubernetes.io/no-provisioner"],
  ["OpenEBS", "local.csi.openebs.io", "lvmvolumes.local.openebs.io"],
  ["TopoLVM", "topolvm.io", "logicalvolumes.topolvm.io"],
];

for (const [origin, provisioner, kind] of ORIGINS) {
  Deno.test(`a volume of ${origin} in use is imported with one restart of its pod, and returned with another one`, async () => {
    await using ns = await TestNamespace.open(`import-${origin.toLowerCase()}`);
    if (kind !== undefined) {
      await installDefinitions(ns);
      await startNodePlugin(ns, origin);
    }
    const volume = await addOtherVolume(ns, origin, "data");
    await ns.apply(writerOf("data", { first: RECORD_START }));
    await waitForWriter(ns, "node1");
    let written = await writtenLines(ns);
    const stopped = kind === undefined ? [] : ["--provisioner-stopped"];
    const plan = await runPlugin(ns, "import", "data", "--dry-run", ...stopped);
    assertEquals([plan.refusals, plan.pods], [[], [`${ns.namespace}/${WRITER}`]]);
    /** Imports the volume or returns it, while the workload restarts once. */
    const change = async (starts: number, ...flags: string[]) => {
      const { metadata: { uid } } = await ns.waitForRunning(WRITER);
      const outcome = await runPlugin(ns, "import", "data", "--evict", "--force", ...flags);
      const isNext = (pod: Pod | undefined) => isRunning(pod) && pod?.metadata.uid !== uid;
      await ns.waitFor("Pod", WRITER, isNext, "runs again");
      await assertLog(ns, written);
      assertEquals(await startsOf(ns), starts);
      written = await writtenLines(ns);
      return outcome;
    };
    assertEquals((await change(2, ...stopped)).state, "Imported");
    await assertOurs(ns, volume);
    assertEquals((await change(3, "--cancel")).undone, true);
    await assertTheirs(ns, volume, provisioner);
    assertEquals((await change(4, "--finish", ...stopped)).state, "Complete");
    await assertOurs(ns, volume);
    await ns.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "128Mi" } } } });
    await ns.waitFor(
      "PersistentVolumeClaim",
      "data",
      (claim) => claim?.status?.capacity?.storage === "128Mi",
      "is larger",
    );
    if (kind !== undefined) {
      assertEquals((await ns.kubectl("get", kind, "--output", "name")).trim(), "");
      const { provisioner: replacing, parameters } = await classOf(ns, volume);
      assertEquals([replacing, parameters?.volumeGroup], [DRIVER, "data"]);
      await ns.createClaim({ name: "new", class: volume.className });
      await ns.createPod({ name: "new", claims: [{ name: "new", path: "/new" }] });
      await ns.waitForRunning("new");
      await ns.deleteAndWait("Pod", "new");
      await ns.deleteAndWait("PersistentVolumeClaim", "new");
    }
    await ns.kubectl("delete", "statefulset", "store");
    await ns.deleteAndWait("PersistentVolumeClaim", "data");
    await ns.waitForDeletion("PersistentVolume", volume.persistentVolume);
    await ns.waitForCleanup();
  });
}

/** The pods of a StatefulSet with several replicas, and their claims. */
const REPLICAS = ["store-0", "store-1", "store-2"].map((pod) => ({ pod, claim: `data-${pod}` }));

for (const [origin, provisioner, kind] of ORIGINS.filter(([origin]) => origin !== "Local")) {
  Deno.test(`the volumes of ${origin} of a StatefulSet are imported with one restart of each of its pods, and returned at once`, async () => {
    await using ns = await TestNamespace.open(`import-set-${origin.toLowerCase()}`);
    await installDefinitions(ns);
    await startNodePlugin(ns, origin);
    const volumes: OtherVolume[] = [];
    for (const { claim } of REPLICAS) volumes.push(await addOtherVolume(ns, origin, claim));
    const objects = async () => {
      const { items } = JSON.parse(await ns.kubectl("get", kind!, "--output", "json")) as { items: KubeObject[] };
      return items.filter(({ metadata }) => volumes.some((one) => one.persistentVolume === metadata.name))
        .map(({ metadata: { name, uid, finalizers }, ...rest }) => JSON.stringify([name, uid, finalizers, rest]))
        .sort();
    };
    const before = await objects();
    assertEquals(before.length, REPLICAS.length);
    const { className } = volumes[0]!;
    const data = { name: "data", class: className, size: OTHER_SIZE };
    await ns.apply(writerOf(data, { replicas: REPLICAS.length, first: RECORD_START }));
    for (const { pod } of REPLICAS) await ns.waitForRunning(pod);
    const uids = async () =>
      await Promise.all(REPLICAS.map(async ({ pod }) => (await ns.waitForRunning(pod)).metadata.uid));
    /** Changes the owner of a replica's volume, and waits until its next pod runs with the same log. */
    const change = async ({ pod, claim }: typeof REPLICAS[number], starts: number, ...flags: string[]) => {
      const { metadata: { uid } } = await ns.waitForRunning(pod);
      const written = await writtenLines(ns, pod);
      const outcome = await runPlugin(ns, "import", claim, "--evict", "--force", ...flags);
      await ns.waitFor("Pod", pod, (next) => isRunning(next) && next?.metadata.uid !== uid, "runs again");
      await assertLog(ns, written, pod);
      assertEquals([pod, await startsOf(ns, pod)], [pod, starts]);
      return outcome;
    };
    for (const [index, replica] of REPLICAS.entries()) {
      const others = (await uids()).filter((_, other) => other !== index);
      assertEquals((await change(replica, 2, "--provisioner-stopped")).state, "Imported");
      await assertOurs(ns, volumes[index]!, replica.claim);
      assertEquals((await uids()).filter((_, other) => other !== index), others, "the other pods run on");
    }
    assertEquals((await classOf(ns, volumes[0]!)).provisioner, DRIVER);
    assertEquals(await objects(), before, "the objects of the other driver stay as they are");
    const outcomes = await Promise.all(REPLICAS.map((replica) => change(replica, 3, "--cancel")));
    assertEquals(outcomes.map(({ undone }) => undone), [true, true, true]);
    for (const [index, { claim, pod }] of REPLICAS.entries()) {
      await assertTheirs(ns, volumes[index]!, provisioner, claim);
      const lines = await writtenLines(ns, pod);
      const goesOn = async () => await writtenLines(ns, pod) > lines;
      await pollUntil(goesOn, { action: `wait for ${pod} to write on`, timeoutMs: WAIT_MS, intervalMs: 500 });
    }
    assertEquals(await objects(), before);
    assertEquals(await startsOf(ns), 3);
    await ns.kubectl("delete", "statefulset", "store");
    for (const [index, { claim, pod }] of REPLICAS.entries()) {
      await ns.waitForDeletion("Pod", pod);
      await removeOtherVolume(ns, volumes[index]!, { claim, kind: kind! });
    }
    await ns.waitForCleanup();
  });
}
