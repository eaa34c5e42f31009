/**
 * Moves whose processes die, or are asked to stop, at each of their steps.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import type { Command } from "../../lvm/exec.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { assertOnOneNode, countWrites, watchInvariants } from "../fake/cluster/move_checks.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import { sampledTests } from "../rig/sample.ts";

/** What dies leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** One in so many of these tests runs in `task test`; all run in `task test:crashes`. */
const crashTest = await sampledTests(16);

/** Has the controller of a move die after a write, whether it was refused or not; another one goes on. */
async function killAfter(index: number): Promise<void> {
  await using s = await MoveCluster.start();
  const { broken } = watchInvariants(s);
  const died = Promise.withResolvers<void>();
  const crash = s.startMover(async (now, send) => {
    if (now > index) return await new Promise(() => {});
    if (now < index) return await send();
    await send().catch(() => {});
    died.resolve();
    return await new Promise(() => {});
  });
  s.addMove();
  await Promise.race([died.promise, s.waitForState("Complete")]);
  void crash();
  s.startMover();
  await s.waitForState("Complete");
  await assertOnOneNode(s, "node-2");
  assertEquals(broken, []);
}

/** Deletes the LVMMove before a write of its controller. */
async function undoBefore(index: number): Promise<void> {
  await using s = await MoveCluster.start();
  const { broken } = watchInvariants(s);
  let removing: boolean | undefined;
  s.startMover(async (now, send) => {
    if (now === index) {
      removing = s.move?.status?.removing ?? false;
      await s.cluster.client.delete(lvmMoves, { name: MOVED });
    }
    return await send();
  });
  s.addMove();
  await waitUntil(
    () => s.move === undefined || (removing === undefined && s.move.status?.state === "Complete"),
    "the end",
  );
  const node = s.lvmVolumes.join().includes("node-2") ? "node-2" : "node-1";
  await assertOnOneNode(s, node);
  assertEquals(broken, []);
  if (removing !== undefined) assertEquals(node, removing ? "node-2" : "node-1");
}

/** Deletes the claim before a write of the controller: nothing of its volume may be left on either node. */
async function deleteClaimBefore(index: number): Promise<void> {
  await using s = await MoveCluster.start();
  s.startMover(async (now, send) => {
    if (now === index) {
      await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
    }
    return await send();
  });
  s.addMove();
  await waitUntil(() => ["Complete", "Failed"].includes(s.move?.status?.state ?? ""), "the end");
  if (s.claim !== undefined) return; // the move took fewer writes
  await waitUntil(
    () => s.lvmVolumes.length === 0 && s.persistentVolume === undefined,
    () => `nothing: ${s.lvmVolumes}`,
  );
  await s.idle();
  await waitUntil(() => s.machines.every((machine) => machine.allLvs().length === 0), "no LV");
}

const writes = await countWrites();
assert(writes >= 12, `${writes} writes`);
for (let index = 0; index < writes; index++) {
  crashTest(
    `a move leaves nothing when its claim is deleted before write ${index}`,
    UNSANITIZED,
    () => deleteClaimBefore(index),
  );
  crashTest(
    `a move survives a kill of its controller after write ${index}`,
    UNSANITIZED,
    () => killAfter(index),
  );
  crashTest(
    `a move is undone or completed when it is deleted before write ${index}`,
    UNSANITIZED,
    () => undoBefore(index),
  );
}

/** The moments at which an agent dies: a command is about to run. */
const MOMENTS = {
  "the volume is held": /lvchange .*--addtag denolith\.held/,
  "the temporary snapshot is taken": /lvcreate .*--snapshot/,
  "the copy is created": /lvcreate .*denolith\.from/,
  "the source is read": /^dd if=.* bs=4194304 .*iflag=direct,fullblock/,
  "the copy is written": /^dd of=.* bs=4194304 .*oflag=direct/,
  "the snapshot that the copy is filled from is recorded": /lvchange .*--deltag denolith\.base=\S+ --addtag/,
  "it is recorded that the copy is filled": /lvchange .*--deltag denolith\.copied=0 --addtag/,
  "the last snapshot is taken": /lvcreate (?=.*--snapshot).*--size 4194304b/,
  "what differs is listed": /^dd if=.*-cow /,
  "what differs is read": /^dd if=.* bs=65536 .*iflag=direct,fullblock/,
  "what differs is written": /^dd of=.* bs=65536 .*oflag=direct/,
  "it is recorded that the copy has what differs": /lvchange .*--deltag denolith\.base=\S+:\S+ --addtag/,
  "the copy is completed": /lvchange .*--deltag denolith\.copied/,
  "the source is marked as deleted": new RegExp(`lvchange .*--addtag denolith\\.deleted=${MOVED}`),
  "the source is removed": /lvremove .*vol-/,
  "the volume takes the logical volume of the copy": new RegExp(`lvchange .*--addtag denolith\\.volume=${MOVED}`),
};

for (const [moment, pattern] of Object.entries(MOMENTS)) {
  for (const index of [0, 1]) {
    crashTest(`a move survives a kill of the agent of node-${index + 1} when ${moment}`, UNSANITIZED, async () => {
      await using s = await MoveCluster.start();
      const { broken } = watchInvariants(s);
      let [kills, isWritten] = [0, false];
      const fault = ({ program, args }: Command) => {
        if (!isWritten && MOMENTS["the source is read"].test(`${program} ${args.join(" ")}`)) {
          isWritten = true;
          void s.write("/pod/during"); // after the first snapshot was taken
        }
        if (kills > 0 || !pattern.test(`${program} ${args.join(" ")}`)) return undefined;
        kills++;
        const name = `node-${index + 1}`;
        s.execs[index]!.kill();
        s.cluster.agent(name).crash();
        s.cluster.startAgent(name, s.machines[index]!, { transfers: true, mountRoots: [s.root] });
        return undefined;
      };
      for (const machine of s.machines) machine.fault = fault;
      s.startMover();
      s.addMove();
      await s.waitForState("Complete");
      await assertOnOneNode(s, "node-2", ["letters", "/pod/during"]);
      assertEquals([kills, broken], [1, []]);
    });
  }
}

Deno.test(
  "what a pod writes while a volume is not held is moved, too: the copy is made again",
  UNSANITIZED,
  async () => {
    await using s = await MoveCluster.start({});
    let isInterrupted = false;
    s.startMover(async (_now, send) => {
      if (!isInterrupted && s.lvmVolumes.includes("copy node-2 Ready")) {
        isInterrupted = true;
        await s.cluster.client.patch(lvmVolumes, { name: MOVED }, { merge: { spec: { held: null } } });
        await waitUntil(() => !s.lv(0)!.tags.has("denolith.held"), "no tag");
        await using _pod = await FakePod.start(s);
        s.lv(0)!.content.data!.add("later");
      }
      return await send();
    });
    s.addMove();
    await s.waitForState("Complete");
    assert(isInterrupted);
    assertEquals([...s.lv(1)!.content.data!], ["letters", "later"]);
  },
);
