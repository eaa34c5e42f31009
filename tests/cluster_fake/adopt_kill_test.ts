/**
 * Volumes that follow their disks to another node, while processes die at each step, or the old node comes back.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { isForgotten, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { watchInvariants } from "../fake/cluster/move_checks.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import type { OnWrite } from "../fake/cluster/fake_controllers.ts";
import { sampledTests } from "../rig/sample.ts";

/** What dies leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** One in so many of these tests runs in `task test`; all run in `task test:crashes`. */
const crashTest = await sampledTests(16);

/** A cluster whose first node is dead, and its disks are in the second one. */
interface Carried {
  readonly s: MoveCluster;
  /** The UUID of the LV of the volume. */
  readonly uuid: string;
  readonly broken: readonly string[];
}

async function startCarried(mutableAffinity = false): Promise<Carried> {
  const targetGroups = { other: 1n << 30n };
  const s = await MoveCluster.start({ targetGroups, transfers: false, ...(mutableAffinity && { mutableAffinity }) });
  const { uuid } = s.lv(0)!;
  await s.cluster.stopAgent("node-1");
  s.machines[1].groups.push(...s.machines[0].groups.splice(0));
  await s.cluster.agent("node-2").node.refresh();
  return { s, uuid, broken: watchInvariants(s).broken };
}

/** Asks for the adoption of the volume. */
function addAdoption(s: MoveCluster): void {
  s.addMove({ adopt: true });
}

/** Asserts that the volume has the LV that it had, on the second node, as a claim has it. */
async function assertAdopted({ s, uuid, broken }: Carried): Promise<void> {
  await waitUntil(() => s.lvmVolumes.join() === "volume node-2 Ready", () => `the volume alone: ${s.lvmVolumes}`);
  await waitUntil(() => s.claim?.status?.phase === "Bound" && s.persistentVolume?.status?.phase === "Bound", "Bound");
  assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), "node-2");
  const lvs = s.machines.flatMap((machine) => machine.allLvs());
  assertEquals(lvs.map(({ lv }) => [lv.uuid, [...lv.content.data ?? []]]), [[uuid, ["letters"]]]);
  const isRestored = () => s.persistentVolume?.spec?.persistentVolumeReclaimPolicy === "Delete";
  await waitUntil(isRestored, "the policy as it was");
  assertEquals(broken, []);
}

/** Adopts the volume. @returns the number of writes of the controller */
async function adopt(carried: Carried, onWrite: OnWrite = (_, send) => send()): Promise<number> {
  const { s } = carried;
  await s.forgetNode("node-1");
  let count = 0;
  s.startMover((index, send, call) => {
    count = index + 1;
    return onWrite(index, send, call);
  });
  addAdoption(s);
  await s.waitForState("Complete");
  await assertAdopted(carried);
  return count;
}

async function killAfter(index: number, mutableAffinity: boolean): Promise<void> {
  const carried = await startCarried(mutableAffinity);
  await using s = carried.s;
  await s.forgetNode("node-1");
  const died = Promise.withResolvers<void>();
  const crash = s.startMover(async (now, send) => {
    if (now > index) return await new Promise(() => {});
    if (now < index) return await send();
    await send().catch(() => {});
    died.resolve();
    return await new Promise(() => {});
  });
  addAdoption(s);
  await Promise.race([died.promise, s.waitForState("Complete")]);
  void crash();
  s.startMover();
  await s.waitForState("Complete");
  await assertAdopted(carried);
}

async function agentDiesBefore(index: number): Promise<void> {
  const carried = await startCarried();
  await using s = carried.s;
  let kills = 0;
  await adopt(carried, (now, send) => {
    if (now === index) {
      kills++;
      s.execs[1]!.kill();
      s.cluster.agent("node-2").crash();
      s.cluster.startAgent("node-2", s.machines[1], { mountRoots: [s.root] });
    }
    return send();
  });
  assertEquals(kills, 1);
}

/** Forgets the first node once more before a write. */
async function forgetBefore(index: number): Promise<void> {
  const carried = await startCarried();
  await using s = carried.s;
  await adopt(carried, async (now, send) => {
    if (now === index) await s.forgetNode("node-1");
    return await send();
  });
}

/** Deletes the LVMMove before a write: the volume follows, or stays as it was, and can follow then. */
async function undoBefore(index: number): Promise<void> {
  const carried = await startCarried();
  await using s = carried.s;
  await s.forgetNode("node-1");
  s.startMover(async (now, send) => {
    if (now === index) await s.cluster.client.delete(lvmMoves, { name: MOVED });
    return await send();
  });
  addAdoption(s);
  const isOver = () => s.move === undefined || s.move.status?.state === "Complete";
  await waitUntil(isOver, () => `the end: ${JSON.stringify(s.move?.status)}`);
  if (s.lvmVolumes.join().includes("node-1")) {
    assertEquals([s.lvmVolumes, nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY)], [["volume node-1 Lost"], "node-1"]);
    assert(isForgotten(s.cluster.api.objects(lvmVolumes)[0]!));
    addAdoption(s);
    await s.waitForState("Complete");
  }
  await assertAdopted(carried);
}

/** Carries the disks back, and starts their node, before a write: the volume stays there, or waits for them where it is to be. */
async function carryBackBefore(index: number): Promise<void> {
  const { s, uuid } = await startCarried();
  await using _ = s;
  await s.forgetNode("node-1");
  const isBack = Promise.withResolvers<void>();
  s.startMover(async (now, send) => {
    if (now === index) {
      const [first, second] = s.machines;
      first.groups.push(...second.groups.splice(second.groups.findIndex(({ name }) => name === "data"), 1));
      await s.cluster.agent("node-2").node.refresh();
      s.cluster.startAgent("node-1", first, {});
      await s.cluster.nodes.waitFor("node-1", (node) => node?.status?.volumeGroups !== undefined, { timeoutMs: 5_000 });
      isBack.resolve();
    }
    return await send();
  });
  addAdoption(s);
  await isBack.promise;
  const isStaying = () => s.move?.status?.state === "Failed" && s.lvmVolumes.join() === "volume node-1 Ready";
  const isWaiting = () => /^volume node-2 (?:Lost|undefined)$/.test(s.lvmVolumes.join());
  await waitUntil(() => isStaying() || isWaiting(), () => `${s.lvmVolumes} ${JSON.stringify(s.move?.status)}`);
  if (isStaying()) assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), "node-1");
  await s.idle();
  const lvs = s.machines.flatMap((machine) => machine.allLvs());
  assertEquals(lvs.map(({ lv }) => [lv.uuid, [...lv.content.data ?? []]]), [[uuid, ["letters"]]]);
}

for (const mutableAffinity of [false, true]) {
  const carried = await startCarried(mutableAffinity);
  const writes = await adopt(carried).finally(() => carried.s[Symbol.asyncDispose]());
  assert(writes >= 6, `${writes} writes`);
  const how = mutableAffinity ? "patched" : "made again";
  for (let index = 0; index < writes; index++) {
    const name = `an adoption whose PersistentVolume is ${how} survives a kill of its controller after write ${index}`;
    crashTest(name, UNSANITIZED, () => killAfter(index, mutableAffinity));
    if (mutableAffinity) continue;
    crashTest(
      `an adoption survives a kill of the agent before write ${index}`,
      UNSANITIZED,
      () => agentDiesBefore(index),
    );
    crashTest(
      `an adoption goes on when its first node is forgotten once more before write ${index}`,
      UNSANITIZED,
      () => forgetBefore(index),
    );
    crashTest(
      `an adoption loses no data when the disks are carried back before write ${index}`,
      UNSANITIZED,
      () => carryBackBefore(index),
    );
    crashTest(
      `an adoption that is deleted before write ${index} is undone or completed`,
      UNSANITIZED,
      () => undoBefore(index),
    );
  }
}

Deno.test("a volume is not adopted while its node is alive, or before it is forgotten", UNSANITIZED, async () => {
  const carried = await startCarried();
  await using s = carried.s;
  s.startMover();
  const refusal = async () => {
    addAdoption(s);
    const { status } = await s.waitForState("Failed");
    await s.cluster.client.delete(lvmMoves, { name: MOVED });
    await waitUntil(() => s.move === undefined, "no LVMMove");
    return status!.error!.message;
  };
  assertMatch(await refusal(), /node node-1 is not forgotten/); // it is dead, and nobody has said so
  s.cluster.startAgent("node-1", s.machines[0], {}); // without its disks
  assertMatch(await refusal(), /node node-1 is not forgotten/);
  await s.cluster.stopAgent("node-1");
  await s.forgetNode("node-1");
  s.cluster.startAgent("node-1", s.machines[0], {}); // it comes back once more
  await s.cluster.nodes.waitFor("node-1", (node) => node?.status?.volumeGroups !== undefined, { timeoutMs: 5_000 });
  assertMatch(await refusal(), /node node-1 (?:is not forgotten|has an agent again)/);
  assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), "node-1");
  await s.cluster.stopAgent("node-1");
  await s.forgetNode("node-1");
  addAdoption(s);
  await s.waitForState("Complete");
  s.cluster.startAgent("node-1", s.machines[0], {}); // nothing is its own any more
  await s.cluster.nodes.waitFor("node-1", (node) => node?.status?.volumeGroups !== undefined, { timeoutMs: 5_000 });
  await assertAdopted(carried);
});
