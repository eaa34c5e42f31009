import { assertEquals } from "@std/assert";
import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import { FakeInformer } from "../../tests/fake/cluster/informer.ts";
import { wakeSettledRequests } from "./waiting_work.ts";

function setUp() {
  const [volumes, snapshots] = [new FakeInformer<LvmVolume>(), new FakeInformer<LvmSnapshot>()];
  const woken: string[] = [];
  wakeSettledRequests({ volumes, snapshots }, { wake: (kind, subject) => void woken.push(`${kind} ${subject}`) });
  return { volumes, snapshots, takeWoken: () => woken.splice(0) };
}

const volume = (generation: number, observedGeneration: number): LvmVolume => ({
  metadata: { name: "v", generation },
  spec: { requestName: "pvc-1", nodeName: "a" } as LvmVolume["spec"],
  status: { state: "Ready", lvUUID: "u", observedGeneration },
});

const snapshot = (state: "Pending" | "Ready"): LvmSnapshot => ({
  metadata: { name: "s", generation: 1 },
  spec: { requestName: "snapshot-1", nodeName: "a" } as LvmSnapshot["spec"],
  status: { state, observedGeneration: 1 },
});

Deno.test("wakeSettledRequests() wakes what waits when the agent has reported its outcome, once", () => {
  const { volumes, snapshots, takeWoken } = setUp();
  volumes.set("v", volume(2, 1));
  snapshots.set("s", snapshot("Pending"));
  assertEquals(takeWoken(), []);
  volumes.set("v", volume(2, 2));
  assertEquals(takeWoken(), ["request pvc-1", "expansion v"]);
  snapshots.set("s", snapshot("Ready"));
  assertEquals(takeWoken(), ["request snapshot-1"]);
  volumes.set("v", volume(2, 2));
  snapshots.set("s", snapshot("Ready"));
  assertEquals(takeWoken(), []);
});

Deno.test("wakeSettledRequests() wakes what waits when a list after an outage shows the outcome alone", () => {
  const { volumes, snapshots, takeWoken } = setUp();
  volumes.set("v", volume(1, 1)); // created during the outage
  assertEquals(takeWoken(), ["request pvc-1", "expansion v"]);
  volumes.set("v", volume(2, 2)); // an expansion was requested and carried out
  assertEquals(takeWoken(), ["request pvc-1", "expansion v"]);
  snapshots.set("s", snapshot("Ready"));
  assertEquals(takeWoken(), ["request snapshot-1"]);
});

function member(): LvmSnapshot {
  const { spec, ...rest } = snapshot("Ready");
  return { ...rest, spec: { ...spec, groupSnapshot: { name: "g", sourceVolumes: ["v"] } } };
}

Deno.test("wakeSettledRequests() wakes a group snapshot when one of its snapshots has an outcome, or is gone", () => {
  const { snapshots, takeWoken } = setUp();
  snapshots.set("s", member());
  assertEquals(takeWoken(), ["request snapshot-1"]);
  snapshots.set("s", undefined);
  assertEquals(takeWoken(), ["deletion g"]);
});

Deno.test("wakeSettledRequests() wakes what waits for a copy of a snapshot, and of one of a group", () => {
  const { volumes, snapshots, takeWoken } = setUp();
  const copy = volume(1, 0);
  const pending = { ...copy, spec: { ...copy.spec, source: { snapshot: "s" } }, status: { state: "Pending" } } as const;
  for (const [object, awaited] of [[snapshot("Ready"), "deletion s"], [member(), "deletion g"]] as const) {
    snapshots.set("s", object);
    volumes.set("v", pending);
    takeWoken();
    volumes.set("v", undefined);
    assertEquals(takeWoken(), [awaited]);
    snapshots.set("s", undefined);
  }
});
