import { assertEquals } from "@std/assert";
import { FORGOTTEN_ANNOTATION, type LvmNode, type LvmSnapshot, type LvmVolume } from "../api/lvm_objects.ts";
import { FakeInformer } from "../../tests/fake/informer.ts";
import { requeueWaitingDeletions } from "./waiting_deletions.ts";

function setUp() {
  const [volumes, snapshots, nodes] = [
    new FakeInformer<LvmVolume>(),
    new FakeInformer<LvmSnapshot>(),
    new FakeInformer<LvmNode>(),
  ];
  const requeued: string[] = [];
  requeueWaitingDeletions({ volumes, snapshots, nodes }, { requeueDeletion: (handle) => void requeued.push(handle) });
  return { volumes, snapshots, nodes, takeRequeued: () => requeued.splice(0) };
}

const lost: LvmVolume = {
  metadata: { name: "vol-1" },
  spec: { nodeName: "a" } as LvmVolume["spec"],
  status: { state: "Lost", lvUUID: "uuid", error: { code: "Lost", message: "its logical volume is missing" } },
};
const forgotten = { ...lost, metadata: { ...lost.metadata, annotations: { [FORGOTTEN_ANNOTATION]: "2026" } } };

Deno.test("requeueWaitingDeletions() wakes a Lost volume when its node is forgotten and when the LVMNode is gone", () => {
  const node = (name: string): LvmNode => ({ metadata: { name }, spec: { driverName: "d" } });
  const { volumes, nodes, takeRequeued } = setUp();
  for (const name of ["a", "b"]) nodes.set(name, node(name));
  volumes.set("vol-1", lost);
  volumes.set("vol-2", { ...lost, metadata: { name: "vol-2" }, spec: { nodeName: "b" } as LvmVolume["spec"] });
  assertEquals(takeRequeued(), []);
  volumes.set("vol-1", forgotten);
  assertEquals(takeRequeued(), ["vol-1"]);
  volumes.set("vol-1", { ...forgotten });
  nodes.set("a", node("a"));
  assertEquals(takeRequeued(), []);
  nodes.set("a", undefined);
  assertEquals(takeRequeued(), ["vol-1"]);
});

Deno.test("requeueWaitingDeletions() wakes the source of a snapshot only when the snapshot stops to need it", () => {
  const snapshot = (state: "Ready" | "Lost"): LvmSnapshot => ({
    metadata: { name: "snap-1" },
    spec: { sourceVolume: "vol-1" } as LvmSnapshot["spec"],
    status: { state },
  });
  const { snapshots, takeRequeued } = setUp();
  const requeuedBy = (now: LvmSnapshot | undefined) => {
    snapshots.set("snap-1", now);
    return takeRequeued();
  };
  assertEquals(requeuedBy(snapshot("Lost")), [], "it never needed its source");
  assertEquals(requeuedBy(undefined), []);
  assertEquals(requeuedBy(snapshot("Ready")), []);
  assertEquals(requeuedBy(snapshot("Ready")), []);
  assertEquals(requeuedBy(snapshot("Lost")), ["vol-1"]);
  assertEquals(requeuedBy(snapshot("Lost")), []);
  assertEquals(requeuedBy(snapshot("Ready")), []);
  assertEquals(requeuedBy(undefined), ["vol-1"]);
});

Deno.test("requeueWaitingDeletions() wakes a volume when the error that was the reason is another one, or gone", () => {
  const { volumes, takeRequeued } = setUp();
  const failing = (message: string | undefined): LvmVolume => ({
    ...{ metadata: { name: "vol-1" }, spec: { nodeName: "a" } as LvmVolume["spec"] },
    status: { lvUUID: "uuid", ...(message === undefined ? {} : { error: { code: "InUse", message } }) },
  });
  const requeuedBy = (now: LvmVolume) => {
    volumes.set("vol-1", now);
    return takeRequeued();
  };
  assertEquals(requeuedBy(failing(undefined)), []);
  assertEquals(requeuedBy(failing("it is mounted")), [], "the refusal itself");
  assertEquals(requeuedBy(failing("it is mounted")), []);
  assertEquals(requeuedBy(failing("it has a snapshot")), ["vol-1"]);
  const { status: _, ...withoutStatus } = failing(undefined);
  assertEquals(requeuedBy(withoutStatus), ["vol-1"]);
  assertEquals(requeuedBy(withoutStatus), []);
});

Deno.test("requeueWaitingDeletions() wakes the source of a clone when the clone is created, has failed, or is gone", () => {
  const { volumes, takeRequeued } = setUp();
  const clone = (status: LvmVolume["status"]): LvmVolume => ({
    metadata: { name: "clone" },
    spec: { nodeName: "a", source: { volume: "vol-1" } } as LvmVolume["spec"],
    status: status!,
  });
  for (const now of [clone({ lvUUID: "uuid" }), clone({ state: "Failed" }), undefined]) {
    volumes.set("clone", clone({ state: "Pending" }));
    takeRequeued();
    volumes.set("clone", now);
    assertEquals(takeRequeued().includes("vol-1"), true);
  }
});
