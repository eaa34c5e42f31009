/**
 * Moves of which a node dies, and is forgotten, before any of their writes: what the other node has whole is never removed.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { isForgotten, lvmVolumes, REMOVE_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { copyIdOf, lvmMoves } from "../../k8s/handover/moves.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { assertOnOneNode, countWrites } from "../fake/cluster/move_checks.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import { sampledTests } from "../rig/sample.ts";

/** What is dead leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** One in so many of these tests runs in `task test`; all run in `task test:crashes`. */
const crashTest = await sampledTests(16);

/** Reports whether the deletion of the volume on the first node has not begun: the annotation is its first write. */
function isLeft(s: MoveCluster): boolean {
  return s.cluster.api.objects(lvmVolumes).some(({ metadata: { name, deletionTimestamp, annotations }, spec }) =>
    name === MOVED && spec.nodeName === "node-1" && deletionTimestamp === undefined &&
    annotations?.[REMOVE_ANNOTATION] === undefined
  );
}

/** Forgets a node before a write of the controller. */
async function forgetBefore(index: number, lost: 0 | 1): Promise<void> {
  await using s = await MoveCluster.start();
  let [isLost, isWhole] = [false, false];
  s.startMover(async (now, send) => {
    if (now !== index) return await send();
    await s.loseNode(lost);
    isWhole = s.lvmVolumes.some((text) => text.endsWith("node-2 Ready"));
    try {
      return await send(); // may be refused: the object has changed
    } finally {
      // what was decided before may be the deletion of the first one: a node whose agent answers is forgotten by force alone
      if (lost === 1) isWhole = isLeft(s);
      isLost = true;
    }
  });
  s.addMove();
  const isBlocked = () => isLost && s.move?.status?.message?.includes(`node node-${lost + 1}`) === true;
  const isOver = () => ["Complete", "Failed"].includes(s.move?.status?.state ?? "");
  await waitUntil(() => isOver() || isBlocked(), () => `the end: ${JSON.stringify(s.move?.status)}`);
  // what waits for a node that does not come back is ended by who knows that
  if (s.move?.status?.removing) await s.forgetNode(`node-${lost === 0 ? 1 : 2}`);
  else if (!isOver()) await s.cluster.client.delete(lvmMoves, { name: MOVED });
  // a copy that has an earlier snapshot is kept until somebody has saved its data
  const isKept = () => s.move?.status?.message?.includes("may be all that is left") === true;
  await waitUntil(
    () => s.move === undefined || isOver() || isKept(),
    () => `the end: ${JSON.stringify(s.move?.status)}`,
  );
  if (s.move !== undefined && isKept()) await s.cluster.client.delete(lvmVolumes, { name: copyIdOf(s.move) });
  await waitUntil(() => s.move === undefined || isOver(), () => `the end: ${JSON.stringify(s.move?.status)}`);
  if (!isLost) return; // the move took fewer writes
  if (isWhole) return await assertOnOneNode(s, lost === 0 ? "node-2" : "node-1");
  const left = () => s.cluster.api.objects(lvmVolumes).map(({ metadata: { name } }) => name);
  await waitUntil(() => left().join() === MOVED, () => s.lvmVolumes.join());
  assertEquals(isForgotten(s.cluster.api.objects(lvmVolumes)[0]!), true);
  assertEquals(s.claim?.spec?.volumeName, s.persistentVolume?.metadata.name);
}

const writes = await countWrites();
assert(writes >= 12, `${writes} writes`);
for (let index = 0; index < writes; index++) {
  for (const lost of [0, 1] as const) {
    crashTest(
      `a move keeps what is whole when its ${lost === 0 ? "source" : "target"} is forgotten before write ${index}`,
      UNSANITIZED,
      () => forgetBefore(index, lost),
    );
  }
}
