/**
 * Imports whose processes die, stall or are asked to stop, at each of their steps.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims, persistentVolumes, storageClasses } from "../../k8s/api/objects.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { isOurs } from "../../k8s/handover/import_step.ts";
import type { Command } from "../../lvm/exec.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { stallBefore } from "../fake/cluster/fake_controllers.ts";
import { ImportCluster, OTHERS } from "../fake/cluster/import_cluster.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { sampledTests } from "../rig/sample.ts";

/** What dies leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** One in so many of these tests runs in `task test`; all run in `task test:crashes`. */
const crashTest = await sampledTests(16);

/** Calls a function at each change of the objects of an import. */
function watchInvariants(s: ImportCluster): { readonly broken: string[] } {
  const broken: string[] = [];
  const check = () => {
    if (!s.lv?.content.data.has("letters")) broken.push("the data is gone");
    const isTagged = [...s.lv?.tags ?? []].some((tag) => tag === `denolith.volume=${s.id}`);
    const { import: self, persistentVolume } = s;
    if (self === undefined || persistentVolume === undefined) return;
    const isOfDriver = isOurs(self, persistentVolume);
    const isDeleting = persistentVolume.metadata.deletionTimestamp !== undefined;
    const { persistentVolumeReclaimPolicy: policy } = persistentVolume.spec!;
    if (isDeleting && policy !== "Retain") broken.push("the deletion of a PersistentVolume is that of its volume");
    if (isOfDriver && !isDeleting && !isTagged) broken.push("a PersistentVolume of the driver without its LV");
    if (!isOfDriver && !isDeleting && isTagged) broken.push("a PersistentVolume of the other driver without its LV");
  };
  for (const resource of [lvmVolumes, lvmImports, persistentVolumes, storageClasses]) {
    s.cluster.api.collection(resource).listeners.add(check);
  }
  return { broken };
}

/** Asserts that the volume is the driver's, or that it is the other one's, with nothing left of the import. */
async function assertSettled(s: ImportCluster, whose: "ours" | "theirs"): Promise<void> {
  await waitUntil(() => s.claim?.status?.phase === "Bound" && s.persistentVolume?.status?.phase === "Bound", "Bound");
  await waitUntil(() => s.persistentVolume!.spec?.persistentVolumeReclaimPolicy === "Delete", "the policy");
  const { lvName, storageClass } = OTHERS[s.origin];
  const driver = whose === "ours" ? DRIVER : storageClass.provisioner;
  assertEquals([s.persistentVolume!.spec?.csi?.driver, s.storageClass?.provisioner], [driver, driver]);
  assertEquals([...s.lv!.content.data], ["letters"]);
  assertEquals(s.cluster.api.objects(lvmVolumes).length, whose === "ours" ? 1 : 0);
  assertEquals(s.lv!.name === lvName, whose === "theirs");
  assertEquals([...s.machine.groups[0]!.tags].length, whose === "ours" ? 1 : 0);
}

/** Returns how many writes an import takes, until it is complete, or is undone after it was imported. */
async function countWrites(isUndone: boolean): Promise<number> {
  await using s = await ImportCluster.start();
  let writes = 0;
  s.startImporter((index, send) => {
    writes = index + 1;
    return send();
  });
  await s.addImport({ finish: !isUndone });
  if (isUndone) await undo(s);
  else await s.waitForState("Complete");
  return writes;
}

/** Waits until the volume is imported, and undoes it. */
async function undo(s: ImportCluster): Promise<void> {
  await s.waitForState("Imported");
  await s.cancel();
  await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
}

/** Lets the controller die after a write, and starts another one. */
async function killAfter(index: number, isUndone: boolean): Promise<void> {
  await using s = await ImportCluster.start();
  const { broken } = watchInvariants(s);
  const died = Promise.withResolvers<void>();
  const crash = s.startImporter(async (now, send) => {
    if (now > index) return await new Promise(() => {});
    const sent = await send().then((value) => ({ value }), (error) => ({ error }));
    if (now === index) {
      died.resolve();
      return await new Promise(() => {});
    }
    if ("error" in sent) throw sent.error;
    return sent.value;
  });
  await s.addImport({ finish: !isUndone });
  const undoing = isUndone ? undo(s) : undefined;
  await died.promise;
  void crash();
  s.startImporter();
  if (undoing === undefined) await s.waitForState("Complete");
  else await undoing;
  await assertSettled(s, isUndone ? "theirs" : "ours");
  assertEquals([s.object === undefined, broken], [!isUndone, []]);
}

/** Lets a controller stall before a write, another one do all the work, and the first one go on. */
async function stall(index: number): Promise<void> {
  await using s = await ImportCluster.start();
  const { broken } = watchInvariants(s);
  const { onWrite, stalled, resume } = stallBefore((now) => now === index);
  s.startImporter(onWrite);
  await s.addImport({ finish: true });
  await Promise.race([stalled, s.waitForState("Complete")]);
  s.startImporter();
  await s.waitForState("Complete");
  await resume();
  await assertSettled(s, "ours");
  assertEquals([s.import?.status?.state, broken], ["Complete", []]);
}

/** Forgets the node before a write of the controller; then its agent comes back. */
async function forgetBefore(index: number, isUndone: boolean): Promise<void> {
  await using s = await ImportCluster.start();
  const { broken } = watchInvariants(s);
  s.startImporter(async (now, send) => {
    if (now === index) {
      s.exec.kill();
      s.cluster.crashAgent("node1");
      await s.cluster.forgetNode("node1");
      s.cluster.startAgent("node1", s.machine, { mountRoots: [s.root] });
    }
    return await send();
  });
  await s.addImport({ finish: !isUndone });
  if (isUndone) await undo(s);
  else await s.waitForState("Complete");
  await assertSettled(s, isUndone ? "theirs" : "ours");
  assertEquals(broken, []);
}

/** Deletes the LVMImport before a write of its controller. */
async function undoBefore(index: number): Promise<void> {
  await using s = await ImportCluster.start();
  const { broken } = watchInvariants(s);
  let finishing: boolean | undefined;
  s.startImporter(async (now, send) => {
    if (now === index) {
      finishing = s.import?.status?.finishing ?? false;
      await s.cancel();
    }
    return await send();
  });
  await s.addImport({ finish: true });
  await waitUntil(
    () => s.import === undefined || (finishing === undefined && s.import.status?.state === "Complete"),
    () => `the end: ${JSON.stringify(s.import?.status)}`,
  );
  const isOurs = s.persistentVolume?.spec?.csi?.driver === DRIVER;
  await assertSettled(s, isOurs ? "ours" : "theirs");
  if (finishing !== undefined) assertEquals(isOurs, finishing);
  assertEquals(broken, []);
}

/** Deletes the claim before a write of the controller: by the policy, nothing may be left of its volume. */
async function deleteClaimBefore(index: number): Promise<void> {
  await using s = await ImportCluster.start();
  let isDeleted = false;
  s.startImporter(async (now, send) => {
    if (now === index) {
      isDeleted = true;
      await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
    }
    return await send();
  });
  await s.addImport({ finish: true });
  await waitUntil(() => ["Complete", "Failed"].includes(s.import?.status?.state ?? ""), "the end");
  if (!isDeleted) return; // the import took fewer writes
  if (s.persistentVolume?.spec?.csi?.driver === OTHERS.OpenEBS.storageClass.provisioner) {
    // the provisioner of the other driver deletes it, when it is started again
    const { spec, status } = s.persistentVolume;
    await waitUntil(() => s.persistentVolume?.status?.phase === "Released", () => `Released: ${status?.phase}`);
    assertEquals([spec?.persistentVolumeReclaimPolicy, s.lv?.name], ["Delete", OTHERS.OpenEBS.lvName]);
    return;
  }
  await waitUntil(() => s.persistentVolume === undefined && s.volumeState === undefined, "the end of the volume");
  await s.cluster.agent("node1").machine.background.idle();
  await waitUntil(() => s.lv === undefined, "no LV");
}

const forward = await countWrites(false);
assert(forward >= 16, `${forward} writes`);
for (let index = 0; index < forward; index++) {
  crashTest(
    `an import survives a kill of its controller after write ${index}`,
    UNSANITIZED,
    () => killAfter(index, false),
  );
  crashTest(
    `an import goes on when its node is forgotten before write ${index}, and comes back`,
    UNSANITIZED,
    () => forgetBefore(index, false),
  );
  crashTest(
    `an import survives a controller that stalls before its write ${index}, and sends it late`,
    UNSANITIZED,
    () => stall(index),
  );
  crashTest(
    `an import is undone or completed when it is deleted before write ${index}`,
    UNSANITIZED,
    () => undoBefore(index),
  );
  crashTest(
    `an import leaves nothing half done when its claim is deleted before write ${index}`,
    UNSANITIZED,
    () => deleteClaimBefore(index),
  );
}
for (let index = 0, all = await countWrites(true); index < all; index++) {
  crashTest(
    `an undone import survives a kill of its controller after write ${index}`,
    UNSANITIZED,
    () => killAfter(index, true),
  );
  crashTest(
    `an undone import goes on when its node is forgotten before write ${index}, and comes back`,
    UNSANITIZED,
    () => forgetBefore(index, true),
  );
}

/** The moments at which the agent dies: a command is about to run. */
const MOMENTS = {
  "the tags are added": /lvchange .*--addtag denolith=/,
  "its use is recorded": /vgchange --addtag denolith\.used/,
  "it gets the name of a volume": /lvrename .*\/vol-/,
  "it gets back its name": /lvrename .*\/pvc-/,
  "the record of its use is removed": /vgchange --deltag denolith\.used/,
  "the tags are removed": /lvchange --deltag denolith=/,
};

for (const [moment, pattern] of Object.entries(MOMENTS)) {
  Deno.test(`an import and its undoing survive a kill of the agent when ${moment}`, UNSANITIZED, async () => {
    await using s = await ImportCluster.start();
    const { broken } = watchInvariants(s);
    let kills = 0;
    s.machine.fault = ({ program, args }: Command) => {
      if (kills > 0 || !pattern.test(`${program} ${args.join(" ")}`)) return undefined;
      kills++;
      s.exec.kill();
      s.cluster.agent("node1").crash();
      s.cluster.startAgent("node1", s.machine, { mountRoots: [s.root] });
      return undefined;
    };
    s.startImporter();
    await s.addImport();
    await undo(s);
    await assertSettled(s, "theirs");
    assertEquals([kills, broken], [1, []]);
  });
}
