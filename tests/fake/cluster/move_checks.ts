/**
 * What holds at any moment of a move, and at its end.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import { persistentVolumes } from "../../../k8s/api/objects.ts";
import { lvmMoves } from "../../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../../k8s/handover/persistent_volume.ts";
import { PROVISIONED_BY_ANNOTATION } from "../../../k8s/provisioner/persistent_volume.ts";
import { TOPOLOGY_KEY, waitUntil } from "./control_plane.ts";
import { MoveCluster, type MoveClusterOptions, MOVED } from "./move_cluster.ts";
import { DRIVER, type FakeAgent } from "./node_cluster.ts";

/** Checks at each change of the objects of a move that no data can be lost. @returns what was wrong */
export function watchInvariants(s: MoveCluster): { readonly broken: string[] } {
  const broken: string[] = [];
  const check = () => {
    const lvs = [s.lv(0), s.lv(1)];
    if (lvs.every((lv) => lv !== undefined)) broken.push("both nodes have an LV of the volume");
    const copies = s.machines.flatMap((machine) => machine.allLvs()).filter(({ lv }) =>
      lv.content.data?.has("letters")
    );
    if (copies.length === 0) broken.push("no LV has the data");
    const { reclaimPolicy = "Delete" } = s.options;
    const object = s.cluster.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === MOVED);
    const isDeletable = s.persistentVolume?.spec?.persistentVolumeReclaimPolicy === "Delete";
    if (object === undefined && isDeletable) {
      broken.push("a PersistentVolume may be deleted while its volume does not exist");
    }
    if (reclaimPolicy === "Retain" && isDeletable) broken.push("a PersistentVolume is no longer retained");
  };
  for (const resource of [lvmVolumes, lvmMoves, persistentVolumes]) {
    s.cluster.api.collection(resource).listeners.add(check);
  }
  return { broken };
}

/** Asserts that the volume is on a node alone, with its data, and nothing is left of the move. */
export async function assertOnOneNode(
  s: MoveCluster,
  node: "node-1" | "node-2",
  data: readonly string[] = ["letters"],
): Promise<void> {
  await (s.cluster.agent("node-1") as FakeAgent | undefined)?.machine.background.idle(); // unless it is dead
  await waitUntil(() => s.claim?.status?.phase === "Bound" && s.persistentVolume?.status?.phase === "Bound", "Bound");
  const isThere = () =>
    s.lvmVolumes.join() === `volume ${node} Ready` && s.machines.flatMap((each) => each.allLvs()).length === 1;
  await waitUntil(isThere, () => `the volume on ${node} alone: ${s.lvmVolumes}`);
  const lv = s.lv(node === "node-1" ? 0 : 1)!;
  await waitUntil(() => !lv.tags.has("denolith.held"), "no tag");
  assertEquals([...lv.content.data!], data);
  assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), node);
  const policy = s.options.reclaimPolicy ?? "Delete";
  const now = () => [s.persistentVolume?.spec?.persistentVolumeReclaimPolicy, s.persistentVolume?.metadata.annotations];
  const isAsBefore = () => JSON.stringify(now()) === JSON.stringify([policy, { [PROVISIONED_BY_ANNOTATION]: DRIVER }]);
  await waitUntil(isAsBefore, () => `the PersistentVolume as it was: ${JSON.stringify(now())}`);
  const { metadata: { deletionTimestamp }, spec } = s.persistentVolume!;
  assertEquals([deletionTimestamp, spec?.claimRef?.uid], [undefined, s.claim!.metadata.uid]);
}

/** Returns the number of writes of a move that nobody disturbs. */
export async function countWrites(options: MoveClusterOptions = {}): Promise<number> {
  await using s = await MoveCluster.start(options);
  let count = 0;
  s.startMover((index, send) => {
    count = index + 1;
    return send();
  });
  s.addMove();
  await s.waitForState("Complete");
  return count;
}
