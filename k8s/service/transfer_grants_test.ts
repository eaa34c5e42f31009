import { assertEquals } from "@std/assert";
import { snapshotIdOf, transferSnapshotName, volumeIdOf } from "../../base/ids.ts";
import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import { decideGrant } from "./transfer_grants.ts";

const COPY = volumeIdOf("copy");
const idOf = (...parts: number[]) => snapshotIdOf(transferSnapshotName(COPY, ...parts));

function snapshot(...parts: number[]): LvmSnapshot {
  const spec = { driverName: "d", nodeName: "a", requestName: transferSnapshotName(COPY, ...parts) };
  return { metadata: { name: idOf(...parts) }, spec } as unknown as LvmSnapshot;
}

/** Returns a copy that should have its third snapshot. */
function copy({ has, status = {} }: { has?: string; status?: object } = {}): LvmVolume {
  return {
    metadata: { name: COPY },
    spec: {
      ...{ driverName: "d", nodeName: "b", sourceNode: "a", source: { volume: volumeIdOf("v") } },
      copy: { round: 2, snapshot: idOf(2), base: idOf(1) },
    },
    status: { state: "Pending", copy: { copied: "1", ...(has && { snapshot: has }) }, ...status },
  } as unknown as LvmVolume;
}

const decide = (object: LvmSnapshot, target: LvmVolume | undefined, until = 1e9) =>
  decideGrant({ volume: COPY, node: "b", until }, object, target, 0);

Deno.test("the snapshots from which a copy is filled one after the other are kept as long as they are needed", () => {
  const isKept = (target: LvmVolume) =>
    [[0], [1], [2], [2, 7], [3], [3, 7]].map((parts) => decide(snapshot(...parts), target) === "keep");
  assertEquals(isKept(copy()), [false, true, true, false, true, true]);
  assertEquals(isKept(copy({ has: idOf(1) })), [false, true, true, false, true, true]);
  assertEquals(isKept(copy({ has: idOf(2) })), [false, false, true, false, true, true]);
  assertEquals(isKept(copy({ status: { state: "Failed" } })), [false, true, true, false, true, true]);
  const complete = copy({ status: { state: "Ready", lvUUID: "u", size: "1" } });
  assertEquals(isKept(complete), [false, false, false, false, false, false]);
});

Deno.test("a permission is renewed while a copy is filled, and over without it", () => {
  assertEquals([decide(snapshot(2), copy(), 1), decide(snapshot(2), undefined, 1), decide(snapshot(2), undefined, 0)], [
    ...["renew", "keep", "withdraw"],
  ]);
});

Deno.test("a permission of a node that the copy is not on any more is withdrawn, and not renewed", () => {
  const moved = copy();
  assertEquals(decide(snapshot(2), { ...moved, spec: { ...moved.spec, nodeName: "c" } }, 1), "withdraw");
});
