/**
 * Takeovers of volumes that other drivers made, by `kubectl denolith import`, with a workload that writes a log.
 *
 * The LVs and objects are as the other drivers write them. In place of their node plugins runs one that mounts and unmounts as they
 * do; volumes of the type `local` are mounted by kubelet itself.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { volumeIdOf, volumeLvName } from "../../../lvm/ids.ts";
import type { Pod, StorageClass } from "../../../k8s/api/objects.ts";
import {
  addOtherVolume,
  installDefinitions,
  type Origin,
  type OtherVolume,
  startNodePlugin,
} from "./import_helpers.ts";
import { assertLog, waitForWriter, WRITER, writerOf, writtenLines } from "./move_helpers.ts";
import { DRIVER, isRunning } from "./objects.ts";
import { runPlugin } from "./plugin_command.ts";
import { TestNamespace } from "./test_namespace.ts";

/** Returns the LVs of the group, by name, with their tags. */
async function lvs(ns: TestNamespace): Promise<Record<string, string>> {
  const lines = (await ns.runOnNode("lvs --noheadings --separator '|' -o lv_name,lv_tags data")).trim().split("\n");
  return Object.fromEntries(lines.map((line) => line.trim().split("|") as [string, string]));
}

/** Returns what the cluster has of a class. */
async function classOf(ns: TestNamespace, { className }: OtherVolume): Promise<StorageClass> {
  return JSON.parse(await ns.kubectl("get", "storageclass", className, "--output", "json"));
}

/** Returns the number of times that the pod of the workload was started. */
async function startsOf(ns: TestNamespace): Promise<number> {
  return Number(await ns.exec(WRITER, "wc -l < /data/starts"));
}

/** Returns the workload, which also records each of its starts. */
function workload() {
  const object = writerOf("data");
  const [{ command }] = object.spec.template.spec.containers as unknown as [{ command: string[] }];
  command[2] = `echo start >> /data/starts\n${command[2]}`;
  return object;
}

/** Asserts that the volume is the driver's. */
async function assertOurs(ns: TestNamespace, volume: OtherVolume): Promise<void> {
  const id = volumeIdOf(volume.persistentVolume);
  const { spec, metadata } = await ns.volumeOf("data");
  assertEquals(metadata.name, volume.persistentVolume);
  assertEquals([spec?.csi?.driver, spec?.csi?.volumeHandle], [DRIVER, id]);
  assertEquals(spec?.persistentVolumeReclaimPolicy, "Delete");
  const all = await lvs(ns);
  assert(all[volumeLvName(id)]?.includes(`denolith.volume=${id}`), JSON.stringify(all));
  assertEquals(all[volume.lvName], undefined);
  await ns.waitFor("LVMVolume", id, (object) => object?.status?.state === "Ready", "is Ready");
}

/** Asserts that the volume is the other driver's, as it was. */
async function assertTheirs(ns: TestNamespace, volume: OtherVolume, provisioner: string): Promise<void> {
  const { spec } = await ns.volumeOf("data");
  assertEquals([spec?.csi?.driver === DRIVER, spec?.persistentVolumeReclaimPolicy], [false, "Delete"]);
  const all = await lvs(ns);
  assertEquals([all[volume.lvName], all[volumeLvName(volumeIdOf(volume.persistentVolume))]], ["", undefined]);
  assertEquals((await classOf(ns, volume)).provisioner, provisioner);
}

/** The drivers, and the kinds of objects by which they know their volumes. */
const ORIGINS: readonly [Origin, provisioner: string, kind?: string][] = [
  ["Local", "kubernetes.io/no-provisioner"],
  ["OpenEBS", "local.csi.openebs.io", "lvmvolumes.local.openebs.io"],
  ["TopoLVM", "topolvm.io", "logicalvolumes.topolvm.io"],
];

for (const [origin, provisioner, kind] of ORIGINS) {
  Deno.test(`a volume of ${origin} in use is taken over with one restart of its pod, and given back with another one`, async () => {
    await using ns = await TestNamespace.open(`import-${origin.toLowerCase()}`);
    if (kind !== undefined) {
      await installDefinitions(ns);
      await startNodePlugin(ns, origin);
    }
    const volume = await addOtherVolume(ns, origin, "data");
    await ns.apply(workload());
    await waitForWriter(ns, "node1");
    let written = await writtenLines(ns);
    const stopped = kind === undefined ? [] : ["--provisioner-stopped"];
    const plan = await runPlugin(ns, "import", "data", "--dry-run", ...stopped);
    assertEquals([plan.refusals, plan.pods], [[], [`${ns.namespace}/${WRITER}`]]);
    /** Takes the volume over or gives it back, while the workload restarts once. */
    const change = async (starts: number, ...flags: string[]) => {
      const { metadata: { uid } } = await ns.waitForRunning(WRITER);
      const outcome = await runPlugin(ns, "import", "data", "--evict", ...flags);
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
