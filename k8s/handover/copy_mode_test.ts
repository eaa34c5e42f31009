import { assertEquals } from "@std/assert";
import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import { chooseCopyMode, hasSpaceForSnapshot } from "./copy_mode.ts";

const volume = (thinProvision: boolean) =>
  ({
    metadata: { name: "v" },
    spec: { nodeName: "a", ...(thinProvision && { thinProvision, thinPool: "p" }) },
    status: { volumeGroup: "g", size: "1Gi" },
  }) as unknown as LvmVolume;

function node(free: string, availableVirtual = "0"): LvmNode {
  const thinPools = [{ name: "o", size: "1Gi", availableVirtual: "0" }, { name: "p", size: "1Gi", availableVirtual }];
  const other = { name: "f", extentSize: "4Mi", free: "0", thinPools: [] };
  const volumeGroups = [other, { name: "g", extentSize: "4Mi", free, thinPools }];
  return { spec: { driverName: "d" }, status: { volumeGroups } } as unknown as LvmNode;
}

Deno.test("a thick volume is moved online when there is space for a snapshot that cannot overflow, and a small one", () => {
  assertEquals(chooseCopyMode(volume(false), node("1036Mi")), { mode: "Online" });
  assertEquals(chooseCopyMode(volume(false), node("1032Mi")), {
    mode: "Offline",
    reason: "temporary snapshots of a volume in use take 1.01 GiB, and the volume group g has 1 GiB free",
  });
  for (const source of [undefined, { spec: { driverName: "d" } } as LvmNode]) {
    assertEquals(chooseCopyMode(volume(false), source), {
      mode: "Offline",
      reason: "node a does not report volume group g",
    });
  }
});

Deno.test("a thin volume is moved online when its pool may have two more of its size", () => {
  assertEquals(chooseCopyMode(volume(true), node("0", "2Gi")), { mode: "Online" });
  assertEquals(chooseCopyMode(volume(true), node("0", "2047Mi")), {
    mode: "Offline",
    reason: "temporary snapshots of a volume in use take 2 GiB, and the thin pool g/p has 1.99 GiB free",
  });
  assertEquals([node("0", "1Gi"), node("0", "1023Mi")].map((each) => hasSpaceForSnapshot(volume(true), each)), [
    true,
    false,
  ]);
});

Deno.test("a move that is asked to be offline is that", () => {
  assertEquals(chooseCopyMode(volume(false), node("9Gi"), { offline: true }), {
    mode: "Offline",
    reason: "it was asked for",
  });
});
