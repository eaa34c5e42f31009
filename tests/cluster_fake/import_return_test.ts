/**
 * Imports that cannot be undone: whatever is in the way, the claim gets a PersistentVolume, and the volume can be used.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { importedCondition } from "../../k8s/api/volume_conditions.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumes } from "../../k8s/api/objects.ts";
import { lvmImports, objectsOf } from "../../k8s/handover/imports.ts";
import type { Command } from "../../lvm/exec.ts";
import { volumeLvName } from "../../base/ids.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { addForeignLv } from "../fake/machine/foreign_lv.ts";
import { ImportCluster, OTHERS } from "../fake/cluster/import_cluster.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { MiB } from "../fake/cluster/volume_cluster.ts";

/** What dies leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

const { lvName, group } = OTHERS.OpenEBS;

/** Starts a cluster whose volume is imported. */
async function imported(): Promise<ImportCluster> {
  const s = await ImportCluster.start();
  s.startImporter();
  await s.addImport();
  await s.waitForState("Imported");
  return s;
}

/** Has somebody create an LV with the name that the volume had. */
const collide = async (s: ImportCluster) =>
  void await addForeignLv(s.machine, { group, name: lvName, bytes: 4n * MiB });

/** Removes that LV, and lets the agent look again. */
async function makeWay(s: ImportCluster): Promise<void> {
  await s.machine.run({ program: "lvm", args: ["lvremove", "--yes", `${group}/${lvName}`], mutates: true });
  await lookAgain(s);
}

/** Lets the agent look at the volume again, which it does each minute. */
async function lookAgain(s: ImportCluster): Promise<void> {
  const merge = { metadata: { annotations: { looked: "again" } } };
  await s.cluster.client.patch(lvmVolumes, { name: s.id }, { merge });
}

/** Returns the LV of the volume. */
const lvOf = (s: ImportCluster) => s.machine.allLvs().find(({ lv }) => lv.content.data.has("letters"))!.lv;

/** Waits until the claim can be used with the volume of the driver, while the import says why it is not undone. */
async function waitUntilKept(s: ImportCluster, message: string): Promise<void> {
  const said = () => s.import?.status?.message ?? "";
  await waitUntil(() => said().includes(message), () => `${message}: ${JSON.stringify(s.import?.status)}`);
  assertEquals([s.import?.status?.state, s.claim?.status?.phase], ["Undoing", "Bound"]);
  const { spec } = s.persistentVolume!;
  assertEquals([spec?.csi?.driver, spec?.persistentVolumeReclaimPolicy], [DRIVER, "Delete"]);
  const lv = lvOf(s);
  assertEquals(lv.name, volumeLvName(s.id));
  assert(s.machine.groups[0]!.tags.has(`denolith.used=${DRIVER}:${s.id}:${lv.uuid}`), "the record of its use");
  await waitUntil(() => s.volumeState === "Ready", "Ready");
}

/** Waits until the volume is returned. */
async function waitUntilReturned(s: ImportCluster): Promise<void> {
  await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
  assertEquals([lvOf(s).name, lvOf(s).tags.size, s.claim?.status?.phase], [lvName, 0, "Bound"]);
  assertEquals(s.persistentVolume?.spec?.csi?.driver, "local.csi.openebs.io");
}

Deno.test("an import that cannot be undone keeps its PersistentVolume, and is undone when it can", async () => {
  await using s = await imported();
  const { metadata: { uid } } = s.persistentVolume!;
  await collide(s);
  await s.cancel();
  await waitUntilKept(s, `it cannot be returned: returning ${group}/`);
  assertStringIncludes(s.import!.status!.message!, `another logical volume is called ${lvName}`);
  assertEquals(s.persistentVolume?.metadata.uid, uid, "no pod has to end for it");
  await makeWay(s);
  await waitUntilReturned(s);
});

Deno.test("an import that cannot be undone can be finished", async () => {
  await using s = await imported();
  await collide(s);
  await s.cancel();
  await waitUntilKept(s, `another logical volume is called ${lvName}`);
  await s.finish();
  await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
  assertEquals([s.object, s.persistentVolume?.spec?.csi?.driver, s.volumeState], [undefined, DRIVER, "Ready"]);
});

for (const state of ["is being deleted", "is gone"]) {
  Deno.test(`a volume whose object of the other driver ${state} is not returned: it would be removed, or not be known`, async () => {
    await using s = await imported();
    const { metadata: { name, namespace } } = s.object!;
    const resource = objectsOf("OpenEBS")!;
    await s.cluster.client.delete(resource, { name, namespace });
    const merge = { metadata: { finalizers: [] } };
    if (state === "is gone") await s.cluster.client.patch(resource, { name, namespace }, { merge });
    await s.cancel();
    await waitUntilKept(s, `LVMVolume.local.openebs.io ${name} ${state}`);
    await s.finish();
    await waitUntil(() => s.import === undefined, () => `no LVMImport: ${JSON.stringify(s.import?.status)}`);
    assertEquals([s.object, lvOf(s).name], [undefined, volumeLvName(s.id)]);
  });
}

Deno.test("an import that is restored without its status, or applied once more, changes nothing of its volume", async () => {
  await using s = await imported();
  const { metadata: { name }, spec } = s.import!;
  const { api, client } = s.cluster;
  await client.patch(lvmImports, { name }, { merge: { metadata: { finalizers: [] } } });
  await client.delete(lvmImports, { name });
  api.put(lvmImports, { metadata: { name }, spec });
  const { status } = await s.waitForState("Failed");
  assertStringIncludes(status!.error!.message, "is not of OpenEBS LVM LocalPV");
  assertEquals([s.volumeState, lvOf(s).name, s.persistentVolume?.spec?.csi?.driver], [
    "Ready",
    volumeLvName(s.id),
    DRIVER,
  ]);
});

/** Undoes an import, while an LV with the name appears as soon as the PersistentVolume is deleted. */
async function undoRefused(s: ImportCluster): Promise<void> {
  let isColliding = false;
  s.cluster.api.collection(persistentVolumes).listeners.add(() => {
    if (isColliding || s.persistentVolume !== undefined || s.import?.status?.imported !== true) return;
    isColliding = true;
    queueMicrotask(() => void collide(s));
  });
  await s.cancel();
  await waitUntilKept(s, `another logical volume is called ${lvName}`);
  await makeWay(s);
  await waitUntilReturned(s);
}

/** Returns the number of writes of an import up to its import, and up to its undoing. */
async function countWrites(): Promise<readonly [number, number]> {
  await using s = await ImportCluster.start();
  let writes = 0;
  s.startImporter((index, send) => {
    writes = index + 1;
    return send();
  });
  await s.addImport();
  await s.waitForState("Imported");
  const before = writes;
  await undoRefused(s);
  return [before, writes];
}

const [begin, end] = await countWrites();
for (let index = begin; index < end; index++) {
  Deno.test(
    `a return that is refused after its PersistentVolume was deleted survives a kill of its controller after write ${index}`,
    UNSANITIZED,
    async () => {
      await using s = await ImportCluster.start();
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
      await s.addImport();
      await s.waitForState("Imported");
      const undone = undoRefused(s);
      await Promise.race([died.promise, undone]);
      void crash();
      s.startImporter();
      await undone;
    },
  );
}

for (const dies of [false, true]) {
  const what = dies ? "before its agent dies" : "and reported too late";
  Deno.test(
    `a return that succeeds while the controller has it inspected again, ${what}, is a return`,
    UNSANITIZED,
    async () => {
      await using s = await ImportCluster.start();
      const goOn = Promise.withResolvers<void>();
      const volumeObject = () => s.cluster.api.objects(lvmVolumes)[0];
      const isRefused = () => volumeObject() !== undefined && importedCondition(volumeObject()!)?.reason === "Refused";
      s.startImporter(async (_index, send) => {
        if (isRefused()) await goOn.promise; // it has read the refusal, and not yet asked for the inspection
        return await send();
      });
      await s.addImport();
      await s.waitForState("Imported");
      const states: (string | undefined)[] = [];
      s.cluster.api.collection(lvmVolumes).listeners.add(() => states.push(s.volumeState));
      let isColliding = false;
      s.cluster.api.collection(persistentVolumes).listeners.add(() => {
        if (isColliding || s.persistentVolume !== undefined) return;
        isColliding = true;
        queueMicrotask(() => void collide(s));
      });
      await s.cancel();
      await waitUntil(isRefused, "the refusal");
      s.machine.fault = async ({ program, args }: Command) => {
        if (!/^lvm lvchange --deltag denolith=/.test(`${program} ${args.join(" ")}`)) return undefined;
        s.machine.fault = undefined;
        const merge = { spec: { imports: { action: "InspectReturn" as const } } };
        await s.cluster.client.patch(lvmVolumes, { name: s.id }, { merge });
        if (dies) {
          s.exec.kill();
          s.cluster.agent("node1").crash();
          setTimeout(() => s.cluster.startAgent("node1", s.machine, { mountRoots: [s.root] }));
        }
        setTimeout(goOn.resolve, 200);
        return undefined;
      };
      await makeWay(s);
      await waitUntilReturned(s);
      assertEquals(states.includes("Lost"), false, "it was never reported as Lost");
    },
  );
}

/** The commands of a return before which the agent dies, and whether something can still refuse it after them. */
const MOMENTS = [
  ["lvrename .*/pvc-", true],
  ["vgchange --deltag denolith\\.used", true],
  ["lvchange --deltag denolith=", false],
] as const;

/** Has an administrator take a snapshot of the LV, under whichever name it has. */
async function backUp(s: ImportCluster): Promise<void> {
  const args = [
    "lvcreate",
    "--yes",
    "--snapshot",
    "--name",
    "backup",
    "--size",
    `${4n * MiB}b`,
    `${group}/${lvOf(s).name}`,
  ];
  const { code, stderr } = await s.machine.run({ program: "lvm", args, mutates: true });
  if (code !== 0) throw new Error(stderr);
}

for (const [moment, isRefused] of MOMENTS) {
  Deno.test(
    `a return survives a kill of its agent at ${moment}, and a snapshot that somebody takes then`,
    UNSANITIZED,
    async () => {
      await using s = await imported();
      const died = Promise.withResolvers<void>();
      let kills = 0;
      s.machine.fault = ({ program, args }: Command) => {
        if (kills > 0 || !new RegExp(moment).test(`${program} ${args.join(" ")}`)) return undefined;
        kills++;
        s.exec.kill();
        s.cluster.agent("node1").crash();
        died.resolve();
        return undefined; // LVM carries it out nevertheless
      };
      await s.cancel();
      await died.promise;
      await waitUntil(() => lvOf(s).name === lvName, "the name that it had");
      await backUp(s);
      s.cluster.startAgent("node1", s.machine, { mountRoots: [s.root] });
      if (isRefused) {
        await waitUntilKept(s, "it is the origin of backup; delete that first");
        await s.machine.run({ program: "lvm", args: ["lvremove", "--yes", `${group}/backup`], mutates: true });
        await lookAgain(s);
      }
      await waitUntilReturned(s);
      assertEquals([kills, s.cluster.api.objects(lvmImports)], [1, []]);
    },
  );
}
