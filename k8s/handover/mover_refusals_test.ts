import { assertEquals, assertStringIncludes } from "@std/assert";
import { snapshotIdOf, transferSnapshotName } from "../../base/ids.ts";
import { KEY, NAME, RECORD } from "../../tests/fake/cluster/move_objects.ts";
import {
  begun,
  complete,
  COPY,
  heldVolume,
  lvmNodeOf,
  movableVolume,
  MoverHarness,
  removing,
} from "../../tests/fake/cluster/mover_harness.ts";
import { FORGOTTEN_ANNOTATION, lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { csiNodes, type PersistentVolumeClaim, persistentVolumeClaims, storageClasses } from "../api/objects.ts";
import { lvmMoves } from "./moves.ts";
import { MAX_MESSAGE_LENGTH } from "./handover.ts";

const WHILE_USED = "copies it while it may be used";

Deno.test("a Mover fails a move of which nothing is left, and cuts long reasons", async () => {
  await using s = await MoverHarness.start((s) => s.remove(lvmVolumes, NAME));
  s.addMove({}, begun());
  const gone = await s.waitForState("Failed");
  assertEquals(gone.status?.error?.message, `LVMVolume ${NAME} does not exist any more`);
  s.remove(lvmMoves, NAME);
  const message = "x".repeat(MAX_MESSAGE_LENGTH + 1);
  s.restore(lvmVolumes, movableVolume({ status: { state: "Failed", error: { code: "NoSpace", message } } }));
  s.addMove();
  const long = await s.waitForState("Failed");
  assertEquals(long.status?.error?.message.length, MAX_MESSAGE_LENGTH);
  assertEquals(long.status?.error?.message.startsWith("the volume is Failed: xxx"), true);
});

Deno.test("a Mover refuses a class that does not allow the node, before anything is changed, and not later", async () => {
  const allowedTopologies = [{ matchLabelExpressions: [{ key: KEY, values: ["c"] }] }];
  const forbid = (s: MoverHarness) =>
    s.change(storageClasses, "local", (object) => ({ ...object, allowedTopologies } as never));
  await using s = await MoverHarness.start(forbid);
  s.addMove();
  const { status } = await s.waitForState("Failed");
  assertStringIncludes(status!.error!.message, "not in the allowedTopologies of the class");
  await using t = await MoverHarness.start();
  t.addMove();
  await t.waitForMessage(WHILE_USED);
  forbid(t);
  t.setVolume({ size: "36Mi" });
  await t.waitForReconcile();
  assertEquals(t.move?.status?.error, undefined);
});

Deno.test("a Mover does not refuse the node any more when the volume is held", async () => {
  await using s = await MoverHarness.start((s) => {
    s.restore(lvmVolumes, heldVolume());
    const allowedTopologies = [{ matchLabelExpressions: [{ key: KEY, values: ["c"] }] }];
    s.change(storageClasses, "local", (object) => ({ ...object, allowedTopologies } as never));
  });
  s.addMove({}, begun());
  await s.waitForMessage("copies it");
  assertEquals([s.move?.status?.error, s.calls], [undefined, ["begin copy on b", "take small snapshot"]]);
});

Deno.test("a Mover counts what volumes of the other node alone take", async () => {
  const pending = (name: string, nodeName: string) => {
    const { metadata, spec } = movableVolume();
    return { metadata: { ...metadata, name }, spec: { ...spec, nodeName, size: "1000Mi" } } as LvmVolume;
  };
  const other = `v1-${"c".repeat(32)}`;
  await using s = await MoverHarness.start((s) => s.restore(lvmVolumes, pending(other, "c")));
  s.addMove();
  await s.waitForMessage(WHILE_USED);
  await using t = await MoverHarness.start((t) => t.restore(lvmVolumes, pending(other, "b")));
  t.addMove();
  const { status } = await t.waitForState("Failed");
  assertStringIncludes(status!.error!.message, "node b: ");
});

Deno.test("a Mover adopts a volume when the driver is registered on the node with its disks, whose agent restarts", async () => {
  await using s = await MoverHarness.start((s) => {
    s.remove(lvmNodes, "a");
    s.register("b", ["other"]);
    const { metadata } = movableVolume();
    const annotations = { "lvm.denolith.dev/forgotten": "2026-01-01T00:00:00Z" };
    s.restore(lvmVolumes, movableVolume({ metadata: { ...metadata, annotations } }));
  });
  s.addMove({ adopt: true });
  await s.waitForMessage("waits until the driver is registered on node b");
  assertEquals(s.move?.status?.persistentVolume, undefined);
  s.register("b", ["other", "d"]);
  await s.waitForState("Switching");
});

const SWITCHED = begun({ ...RECORD, state: "Switching" });

for (const [when, begunMove] of [["is replaced", SWITCHED], ["was replaced", removing]] as const) {
  Deno.test(`a Mover undoes an adoption when the disks may be back while the PersistentVolume ${when}`, async () => {
    for (const isReported of [false, true]) {
      await using s = await MoverHarness.start((s) => {
        const annotations = isReported ? {} : { [FORGOTTEN_ANNOTATION]: "2026-01-01T00:00:00Z" };
        s.restore(lvmVolumes, movableVolume({ metadata: { ...movableVolume().metadata, annotations } }));
        if (isReported) s.remove(lvmNodes, "a");
      });
      s.addMove({ adopt: true }, begunMove);
      const { status } = await s.waitForState("Failed");
      assertStringIncludes(status!.error!.message, isReported ? "is not forgotten" : "has an agent again");
      assertEquals([s.volume?.metadata.uid, s.deleted], ["v", []]);
    }
  });
}

/** Returns a snapshot of the volume. */
const snapshot = (name: string, requestName: string, more: object = {}) =>
  ({
    metadata: { name, uid: name, ...more },
    spec: { driverName: "d", requestName, nodeName: "a", sourceVolume: NAME },
  }) as never;
const DELETED = { deletionTimestamp: "2026-01-01T00:00:00Z" };

Deno.test("a Mover releases a thick volume of which somebody takes a snapshot, and the move fails", async () => {
  const theirs = `v1-${"e".repeat(32)}`;
  await using s = await MoverHarness.start((s) => {
    complete(s);
    s.restore(lvmSnapshots, snapshot(theirs, "theirs"));
  });
  s.addMove({}, begun());
  const { status } = await s.waitForState("Failed");
  assertStringIncludes(status!.error!.message, `the origin of the snapshots ${theirs}; delete them first`);
  assertEquals(s.volume?.spec.held, undefined);
});

Deno.test("a Mover waits for a snapshot that is being deleted, and discards its own when it is held", async () => {
  const own = transferSnapshotName(COPY, 0, 7);
  const theirs = `v1-${"e".repeat(32)}`;
  await using s = await MoverHarness.start((s) => {
    complete(s);
    s.restore(lvmSnapshots, snapshot(snapshotIdOf(own), own));
    s.restore(lvmSnapshots, snapshot(theirs, "theirs", DELETED));
  });
  s.addMove({}, begun());
  await s.waitForMessage(`waits until snapshots ${theirs} are deleted`);
  assertEquals(s.calls, ["discard snapshot"]);
  s.restore(lvmSnapshots, snapshot(snapshotIdOf(own), own, { ...DELETED, finalizers: ["f"] }));
  s.remove(lvmSnapshots, theirs);
  await s.waitForMessage(`waits until snapshots ${snapshotIdOf(own)} are deleted`);
  assertEquals(s.calls, ["discard snapshot"], "one that is being deleted is not deleted again");
});

Deno.test("a Mover looks at the moves of a claim and a node alone when these change", async () => {
  await using s = await MoverHarness.start();
  s.addMove();
  await s.waitForMessage(WHILE_USED);
  await s.waitUntilIdle();
  const { length } = s.reconciled;
  const claim = { metadata: { namespace: "n", name: "other", uid: "w" } } as PersistentVolumeClaim;
  s.restore(persistentVolumeClaims, claim);
  s.restore(lvmNodes, lvmNodeOf("c", { free: "4Mi" }));
  s.restore(csiNodes, { metadata: { name: "c" }, spec: { drivers: [] } });
  s.restore(lvmVolumes, { ...movableVolume(), metadata: { name: `v1-${"f".repeat(32)}`, uid: "f" } });
  await s.waitUntilIdle();
  assertEquals(s.reconciled.length, length);
  const reconciled = s.waitForReconcile();
  s.restore(lvmNodes, lvmNodeOf("a", { free: "512Mi" }));
  await reconciled;
});
