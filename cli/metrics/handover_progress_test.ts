import { assertEquals } from "@std/assert";
import { FakeInformer } from "../../tests/fake/cluster/informer.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import type { LvmMove, LvmMoveStatus } from "../../k8s/handover/moves.ts";
import { HandoverProgress } from "./handover_progress.ts";

const DRIVER = "d";

function move(name: string, status: LvmMoveStatus, driverName = DRIVER): LvmMove {
  const claim = { namespace: "shop", name: `claim-of-${name}`, uid: "u" };
  const spec = { driverName, persistentVolume: "pv", claim, sourceNode: "a", targetNode: "b" };
  return { metadata: { name, uid: name }, spec, status };
}

Deno.test("HandoverProgress: a move got further when more than its message changes", () => {
  const moves = new FakeInformer<LvmMove>();
  const clock = new FakeClock();
  const progress = new HandoverProgress(moves, { driver: DRIVER, clock });
  const start = clock.date().getTime() / 1_000;
  const now = () => progress.unfinished().map(({ state, progressedAt }) => [state, progressedAt - start]);
  const after60s = (status: LvmMoveStatus) => {
    clock.stall(60_000);
    moves.set("v1-a", move("v1-a", status));
    return now();
  };
  moves.set("v1-a", move("v1-a", {}));
  assertEquals(progress.unfinished().map(({ volume, claim }) => [volume, claim]), [["v1-a", "shop/claim-of-v1-a"]]);
  assertEquals(now(), [["Pending", 0]]);
  assertEquals(after60s({ state: "Copying" }), [["Copying", 60]]);
  assertEquals(after60s({ state: "Copying", message: "waits for the agent" }), [["Copying", 60]]);
  assertEquals(after60s({ state: "Copying", message: "waits", copy: { copied: "1Gi" } }), [["Copying", 180]]);
  assertEquals(after60s({ state: "Copying", copy: { copied: "1Gi" } }), [["Copying", 180]]);
  assertEquals(after60s({ state: "Copying", copy: { copied: "1Gi", lastError: "no route" } }), [["Copying", 180]]);
  assertEquals(after60s({ state: "Copying", copy: { copied: "1Gi", lastError: "timed out" } }), [["Copying", 180]]);
  assertEquals(after60s({ state: "Complete" }), []);
});

Deno.test("HandoverProgress: another move of the name begins anew, and one of another driver is not counted", () => {
  const moves = new FakeInformer<LvmMove>();
  const clock = new FakeClock();
  const progress = new HandoverProgress(moves, { driver: DRIVER, clock });
  moves.set("v1-a", move("v1-a", {}));
  moves.set("v1-b", move("v1-b", {}, "other.example.com"));
  clock.stall(60_000);
  moves.set("v1-a", undefined);
  moves.set("v1-a", move("v1-a", {}));
  const at = clock.date().getTime() / 1_000;
  assertEquals(progress.unfinished().map(({ volume, progressedAt }) => [volume, progressedAt]), [["v1-a", at]]);
});
