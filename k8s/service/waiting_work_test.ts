import { assertEquals } from "@std/assert";
import { FORGOTTEN_ANNOTATION, type LvmNode, type LvmSnapshot, type LvmVolume } from "../api/lvm_objects.ts";
import { FakeInformer } from "../../tests/fake/cluster/informer.ts";
import type { WakeUpKind } from "../runtime/wake_ups.ts";
import { wakeWaitingDeletions } from "./waiting_work.ts";

function setUp() {
  const [volumes, snapshots, nodes] = [
    new FakeInformer<LvmVolume>(),
    new FakeInformer<LvmSnapshot>(),
    new FakeInformer<LvmNode>(),
  ];
  const woken: unknown[] = [];
  const wake = (kind: WakeUpKind, handle: unknown) => void woken.push(kind === "deletion" ? handle : kind);
  wakeWaitingDeletions({ volumes, snapshots, nodes }, { wake });
  return { volumes, snapshots, nodes, takeWoken: () => woken.splice(0) };
}

const lost: LvmVolume = {
  metadata: { name: "vol-1" },
  spec: { nodeName: "a" } as LvmVolume["spec"],
  status: { state: "Lost", lvUUID: "uuid", error: { code: "Lost", message: "its logical volume is missing" } },
};
const forgotten = { ...lost, metadata: { ...lost.metadata, annotations: { [FORGOTTEN_ANNOTATION]: "2026" } } };

Deno.test("wakeWaitingDeletions() wakes a Lost volume when its node is forgotten and when the LVMNode is gone", () => {
  const node = (name: string): LvmNode => ({ metadata: { name }, spec: { driverName: "d" } });
  const { volumes, nodes, takeWoken } = setUp();
  for (const name of ["a", "b"]) nodes.set(name, node(name));
  volumes.set("vol-1", lost);
  volumes.set("vol-2", { ...lost, metadata: { name: "vol-2" }, spec: { nodeName: "b" } as LvmVolume["spec"] });
  assertEquals(takeWoken(), []);
  volumes.set("vol-1", forgotten);
  assertEquals(takeWoken(), ["vol-1"]);
  volumes.set("vol-1", { ...forgotten });
  nodes.set("a", node("a"));
  assertEquals(takeWoken(), []);
  nodes.set("a", undefined);
  assertEquals(takeWoken(), ["vol-1"]);
});

Deno.test("wakeWaitingDeletions() wakes the source of a snapshot only when the snapshot stops to need it", () => {
  const snapshot = (state: "Ready" | "Lost"): LvmSnapshot => ({
    metadata: { name: "snap-1" },
    spec: { sourceVolume: "vol-1" } as LvmSnapshot["spec"],
    status: { state },
  });
  const { snapshots, takeWoken } = setUp();
  const wokenBy = (now: LvmSnapshot | undefined) => {
    snapshots.set("snap-1", now);
    return takeWoken();
  };
  assertEquals(wokenBy(snapshot("Lost")), [], "it never needed its source");
  assertEquals(wokenBy(undefined), []);
  assertEquals(wokenBy(snapshot("Ready")), []);
  assertEquals(wokenBy(snapshot("Ready")), []);
  assertEquals(wokenBy(snapshot("Lost")), ["vol-1"]);
  assertEquals(wokenBy(snapshot("Lost")), []);
  assertEquals(wokenBy(snapshot("Ready")), []);
  assertEquals(wokenBy(undefined), ["vol-1"]);
});

Deno.test("wakeWaitingDeletions() wakes a volume when the error that was the reason is another one, or gone", () => {
  const { volumes, takeWoken } = setUp();
  const failing = (message: string | undefined): LvmVolume => ({
    ...{ metadata: { name: "vol-1" }, spec: { nodeName: "a" } as LvmVolume["spec"] },
    status: { lvUUID: "uuid", ...(message === undefined ? {} : { error: { code: "InUse", message } }) },
  });
  const wokenBy = (now: LvmVolume) => {
    volumes.set("vol-1", now);
    return takeWoken();
  };
  assertEquals(wokenBy(failing(undefined)), []);
  assertEquals(wokenBy(failing("it is mounted")), [], "the refusal itself");
  assertEquals(wokenBy(failing("it is mounted")), []);
  assertEquals(wokenBy(failing("it has a snapshot")), ["vol-1"]);
  const { status: _, ...withoutStatus } = failing(undefined);
  assertEquals(wokenBy(withoutStatus), ["vol-1"]);
  assertEquals(wokenBy(withoutStatus), []);
});

Deno.test("wakeWaitingDeletions() wakes the source of a clone when the clone is created, has failed, or is gone", () => {
  const { volumes, takeWoken } = setUp();
  const clone = (status: LvmVolume["status"]): LvmVolume => ({
    metadata: { name: "clone" },
    spec: { nodeName: "a", source: { volume: "vol-1" } } as LvmVolume["spec"],
    status: status!,
  });
  for (const now of [clone({ lvUUID: "uuid" }), clone({ state: "Failed" }), undefined]) {
    volumes.set("clone", clone({ state: "Pending" }));
    takeWoken();
    volumes.set("clone", now);
    assertEquals(takeWoken().includes("vol-1"), true);
  }
});
