/**
 * Moves of volumes that were imported from somebody else: they keep their layout, and can be returned on their first node.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { layoutOf } from "../../lvm/model/layout.ts";
import { lvmVolumes, MOVE_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumes } from "../../k8s/api/objects.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { MoveCluster, MOVED, PV_NAME } from "../fake/cluster/move_cluster.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";

const SIZE = ["--size", `${32n << 20n}b`];

/** What LVM made the LV with, and the layout of the volume that it becomes. */
const LAYOUTS = [
  ["linear", [], undefined],
  ["striped", ["--type", "striped", "--stripes", "2", "--stripesize", "65536b"], {
    type: "striped",
    stripes: 2,
    stripeSize: "64Ki",
  }],
  ["raid1", ["--type", "raid1", "--mirrors", "1"], { type: "raid1", mirrors: 1 }],
] as const;

/** Starts a cluster with a volume that was imported. */
async function start(lvcreate: readonly string[], more: { readonly offline?: boolean } = {}): Promise<MoveCluster> {
  const s = await MoveCluster.start({ imported: [...lvcreate, ...SIZE], pvCount: 3, ...more });
  s.startMover();
  return s;
}

/** Moves the volume, and checks what there is then. */
async function move(s: MoveCluster, from: 1 | 2, to: 1 | 2): Promise<void> {
  await completeMove(s, from, to);
  await waitUntil(() => s.move === undefined, "no LVMMove");
  await s.idle();
  assertEquals(s.lvmVolumes, [`volume node-${to} Ready`]);
  assertEquals(s.machines.map((machine) => machine.allLvs().length > 0), [to === 1, to === 2]);
  assertEquals([...s.lv(to === 1 ? 0 : 1)!.content.data], ["letters"]);
  assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), `node-${to}`);
}

/** Moves the volume. */
async function completeMove(s: MoveCluster, from: 1 | 2, to: 1 | 2): Promise<void> {
  s.addMove({ sourceNode: `node-${from}`, targetNode: `node-${to}` });
  const { status } = await waitUntilEnded(s);
  assertEquals(status?.state, "Complete", status?.message);
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
}

async function waitUntilEnded(s: MoveCluster) {
  const hasEnded = () => ["Complete", "Failed"].includes(s.move?.status?.state ?? "");
  await waitUntil(hasEnded, () => `the end of the move: ${JSON.stringify(s.move?.status)}`);
  return s.move!;
}

for (const [type, lvcreate, layout] of LAYOUTS) {
  for (const offline of [false, true]) {
    Deno.test(`a ${type} volume that was imported moves ${offline ? "offline" : "online"}, with its layout`, async () => {
      await using s = await start(lvcreate, { offline });
      await move(s, 1, 2);
      const [object] = s.cluster.api.objects(lvmVolumes);
      assertEquals<object | undefined>(object!.spec.layout, layout);
      const lvs = (await s.cluster.agent("node-2").machine.lvm.report()).flatMap(({ lvs }) => lvs);
      assertEquals(lvs.map((lv) => layoutOf(lv)?.type), [type]);
      assertEquals(s.persistentVolume?.spec?.csi?.driver, DRIVER);
    });
  }
}

Deno.test("an import is not undone while its volume is on another node, and is when it was moved back", async () => {
  await using s = await start([]);
  await move(s, 1, 2);
  await s.cluster.client.delete(lvmImports, { name: MOVED });
  const message = () => s.cluster.api.objects(lvmImports)[0]?.status?.message ?? "";
  await waitUntil(() => message().startsWith("the volume was moved"), message);
  assertStringIncludes(message(), "the volume was moved to node node-2; move it back, or finish");
  await completeMove(s, 2, 1); // it is undone at once then
  await waitUntil(
    () => s.cluster.api.objects(lvmImports).length === 0,
    () => `no LVMImport: ${JSON.stringify([message(), s.lvmVolumes, s.cluster.api.objects(lvmVolumes)])}`,
  );
  const { lv } = s.machines[0].allLvs()[0]!;
  assertEquals([lv.name, [...lv.tags], [...lv.content.data]], ["archive", [], ["letters"]]);
  assertEquals([s.persistentVolume?.spec?.local?.path, s.claim?.status?.phase], ["/dev/data/archive", "Bound"]);
  assertEquals([s.cluster.api.objects(lvmVolumes), s.machines[0].groups[0]!.tags.size], [[], 0]);
});

Deno.test("an import is finished while its volume is on another node", async () => {
  await using s = await start([]);
  await move(s, 1, 2);
  await s.cluster.client.patch(lvmImports, { name: MOVED }, { merge: { spec: { finish: true } } });
  const state = () => s.cluster.api.objects(lvmImports)[0]?.status?.state;
  await waitUntil(() => state() === "Complete", () => `${state()}`);
  assertEquals(s.lvmVolumes, ["volume node-2 Ready"]);
});

Deno.test("an import that waits to be finished does not touch the policy of a PersistentVolume that is moved, or that a user sets", async () => {
  await using s = await start([]);
  const { api, client } = s.cluster;
  const policy = () => s.persistentVolume?.spec?.persistentVolumeReclaimPolicy;
  const broken: string[] = [];
  api.collection(persistentVolumes).listeners.add(() => {
    const isMarked = s.persistentVolume?.metadata.annotations?.[MOVE_ANNOTATION] !== undefined;
    if (isMarked && policy() === "Delete") broken.push("who deletes it deletes the volume");
  });
  await move(s, 1, 2);
  assertEquals([broken, policy()], [[], "Delete"]);
  const merge = { spec: { persistentVolumeReclaimPolicy: "Retain" } };
  await client.patch(persistentVolumes, { name: PV_NAME }, { merge });
  await client.patch(lvmImports, { name: MOVED }, { merge: { metadata: { annotations: { looked: "again" } } } });
  await new Promise((resolve) => setTimeout(resolve, 500));
  assertEquals(policy(), "Retain");
});
