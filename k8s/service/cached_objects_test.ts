import { assertEquals } from "@std/assert";
import { parseGroupList } from "../../csi/group_list.ts";
import { claimObject, lvmNodeObject, lvmVolumeObject } from "../../tests/bench/scale/objects.ts";
import { strictCachedObjects } from "../../tests/fake/cluster/strict_cache.ts";
import type { LvmVolume } from "../api/lvm_objects.ts";
import { persistentVolumeClaims } from "../api/objects.ts";
import { requireCompatible } from "../api/volume_mapping.ts";
import { freeCapacityOf, freeSpaceGrowth } from "../scheduling/free_capacity.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { isDeleting, isObserved } from "./remote_objects.ts";
import { clusterVolumeOf, isCreated, volumeHealthOf } from "./stored_volume.ts";
import { blocksSource } from "./waiting_work.ts";

const GiB = 1n << 30n;
const claim = claimObject(persistentVolumeClaims, 0, "n");

/** Returns an LVMVolume that was created, with another status. */
function volume(status: Partial<LvmVolume["status"] & object> = {}, spec: Partial<LvmVolume["spec"]> = {}): LvmVolume {
  const object = lvmVolumeObject(0, claim, "n");
  return { ...object, spec: { ...object.spec, ...spec }, status: { ...object.status, ...status } };
}

const time = { lastTransitionTime: "2026-03-01T08:00:00Z", message: "m" };
const volumes: Readonly<Record<string, LvmVolume>> = {
  healthy: volume(),
  lost: volume({ state: "Lost", error: { code: "Lost", message: "gone" } }),
  full: volume({ error: { code: "NoSpace", message: "full" } }, { size: "2Gi", sizeLimit: "3Gi" }),
  partial: volume({ problems: [{ reason: "Partial", message: "a disk is missing" }] }),
  early: volume({ conditions: [{ type: "Healthy", status: "False", reason: "Partial", ...time }] }),
  degraded: volume({ conditions: [{ type: "Redundant", status: "False", reason: "Degraded", ...time }] }),
  thin: volume({}, { thinProvision: true, thinPool: "pool" }),
  copy: volume({}, { source: { volume: "v1-0123456789abcdef0123456789abcdef" } }),
  block: volume({}, { volumeMode: "Block" }),
  encrypted: volume({}, { encryption: "luks2" }),
  requested: { ...volume(), status: { state: "Pending" } },
};

Deno.test("what the controller decides by an LVMVolume is the same by what it keeps of it", () => {
  const cached = strictCachedObjects();
  const node = lvmNodeObject(0, []);
  const decisions = (object: LvmVolume, report = node) => ({
    states: [isCreated(object), isObserved(object), isDeleting(object), blocksSource(object)],
    stored: clusterVolumeOf(object),
    health: volumeHealthOf(object, true).problems,
    free: freeCapacityOf(report, [object], parseGroupList),
    refusal: refusalOf(object),
  });
  for (const [name, object] of Object.entries(volumes)) {
    assertEquals(decisions(cached.lvmVolume(object), cached.lvmNode(node)), decisions(object), name);
  }
  const [group] = node.status!.volumeGroups!;
  for (
    const more of [{ hostUse: "/" }, { spare: "1Gi" }, { refusal: "r" }, { writeable: false }, { missingPVCount: 1 }]
  ) {
    const odd = { ...node, status: { ...node.status, volumeGroups: [{ ...group!, ...more }] } };
    const object = volumes.healthy!;
    assertEquals(
      decisions(cached.lvmVolume(object), cached.lvmNode(odd)),
      decisions(object, odd),
      JSON.stringify(more),
    );
  }
  assertEquals(freeSpaceGrowth(undefined, cached.lvmNode(node)), freeSpaceGrowth(undefined, node));
});

function refusalOf(object: LvmVolume): string {
  try {
    requireCompatible(object, namedRequest(object.spec.requestName, 5n * GiB), ["m"]);
    return "";
  } catch (error) {
    return String(error);
  }
}
