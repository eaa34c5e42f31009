/**
 * `kubectl denolith why` of a claim while its PersistentVolume is made anew: at each step of a move and of an import, on the way
 * there and back, whoever believes it deletes nothing.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { type KubeObject, persistentVolumes } from "../../k8s/api/objects.ts";
import { type ApiClient, ApiError } from "../../k8s/client/client.ts";
import { readClaimState } from "../../plugin/diagnosis/claim_state.ts";
import { explainClaim, type WhyAnswer } from "../../plugin/diagnosis/why.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { ClaimHarness } from "../fake/cluster/claim_harness.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { ImportCluster } from "../fake/cluster/import_cluster.ts";
import type { OnWrite } from "../fake/cluster/fake_controllers.ts";
import { MoveCluster, MOVED } from "../fake/cluster/move_cluster.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";

/** Explains the claim. */
async function why(client: ApiClient): Promise<WhyAnswer> {
  return explainClaim(
    await readClaimState(client, { driver: DRIVER, namespace: "shop", name: "data", now: new Date() }),
  );
}

/** Returns what asks before each write, once the claim is Lost, and what it was told. */
function asking(s: MoveCluster | ImportCluster): { readonly onWrite: OnWrite; readonly answers: WhyAnswer[] } {
  const answers: WhyAnswer[] = [];
  const onWrite: OnWrite = async (_, send) => {
    if (s.cluster.api.objects(persistentVolumes).length === 0) {
      await waitUntil(() => s.claim?.status?.phase === "Lost", "a Lost claim");
      answers.push(await why(s.cluster.client));
    }
    return await send();
  };
  return { onWrite, answers };
}

/** Asserts that each answer names what is under way and its step, and that nothing is to be deleted. */
function assertHarmless(answers: readonly WhyAnswer[], reason: string, object: string): void {
  assert(answers.length > 0, "the claim was never Lost");
  for (const { problems, state } of answers) {
    const [problem, ...others] = problems;
    assertEquals([state, others, problem?.severity, problem?.reason], ["Lost", [], "info", reason]);
    assertMatch(problem!.message, new RegExp(`${object}: (Switching|Removing|Undoing)`));
    assertMatch(problem!.remedy!, /^Delete nothing: |Do not delete the claim/);
  }
}

for (const offline of [true, false]) {
  Deno.test(`why: of a claim that is Lost while its volume is moved ${offline ? "offline" : "online"}, nothing is to be deleted`, async () => {
    await using s = await MoveCluster.start({ offline });
    const { onWrite, answers } = asking(s);
    s.startMover(onWrite);
    s.addMove();
    await s.waitForState("Complete");
    assertHarmless(answers, "BeingMoved", "from node node-1 to node node-2");
    assertEquals((await why(s.cluster.client)).state, "Bound");
  });
}

Deno.test("why: of a claim that is Lost while a move is undone, nothing is to be deleted", async () => {
  await using s = await MoveCluster.start();
  const { onWrite, answers } = asking(s);
  let isAsked = false;
  s.startMover(async (index, send, call) => {
    if (!isAsked && s.claim?.status?.phase === "Lost") {
      isAsked = true;
      await s.cluster.client.delete(lvmMoves, { name: MOVED });
    }
    return await onWrite(index, send, call);
  });
  s.addMove();
  await waitUntil(() => s.move === undefined, "no LVMMove");
  assertHarmless(answers, "BeingMoved", "from node node-1 to node node-2");
});

Deno.test("why: of a claim that is Lost while its volume is imported or returned, nothing is to be deleted", async () => {
  await using s = await ImportCluster.start();
  const { onWrite, answers } = asking(s);
  s.startImporter(onWrite);
  await s.addImport();
  await s.waitForState("Imported");
  assertHarmless(answers, "BeingImported", `LVMImport ${s.id}`);
  answers.length = 0;
  await s.cancel();
  await waitUntil(() => s.import === undefined, "no LVMImport");
  assertHarmless(answers, "BeingImported", `LVMImport ${s.id}`);
});

Deno.test("why: of a claim that is Lost after its move was complete, its import failed, or another claim moves, the cause is told", async () => {
  const ends = [[lvmMoves, "Complete", "u"], [lvmImports, "Failed", "u"], [lvmMoves, "Switching", "other"]] as const;
  for (const [resource, state, uid] of ends) {
    await using harness = new ClaimHarness();
    harness.addClaim({ metadata: { uid: "u" }, spec: { volumeName: "gone" }, status: { phase: "Lost" } });
    const spec = { claim: { namespace: "default", name: "data", uid } };
    harness.api.put<KubeObject>(resource, { metadata: { name: MOVED }, spec, status: { state } } as KubeObject);
    assertEquals((await harness.why()).problems.map(({ reason }) => reason), ["ClaimLost"]);
  }
});

for (const resource of [lvmMoves, lvmImports, lvmVolumes]) {
  Deno.test(`why: who may not read ${resource.plural} is not told to delete a claim that is Lost`, async () => {
    await using s = await MoveCluster.start();
    const stalled = Promise.withResolvers<void>();
    const resumed = Promise.withResolvers<void>();
    s.startMover(async (_, send) => {
      if (s.persistentVolume === undefined) {
        stalled.resolve();
        await resumed.promise;
      }
      return await send();
    });
    s.addMove();
    await stalled.promise;
    await waitUntil(() => s.claim?.status?.phase === "Lost", "a Lost claim");
    const refusing = new Proxy(s.cluster.client, {
      get: (target, name) => {
        const method = Reflect.get(target, name) as (...args: unknown[]) => Promise<unknown>;
        return (asked: unknown, ...rest: unknown[]) => {
          if (asked !== resource) return method.call(target, asked, ...rest);
          return Promise.reject(new ApiError(`${resource.plural}: Forbidden`, { status: 403, reason: "Forbidden" }));
        };
      },
    });
    const { problems: [problem] } = await why(refusing);
    assertMatch(problem!.remedy!, /^Delete nothing|Do not delete the claim/);
    resumed.resolve();
    await s.waitForState("Complete");
  });
}
