import { assert, assertEquals, assertMatch } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { LvmVolume, LvmVolumeStatus } from "./lvm_objects.ts";
import {
  failedStatus,
  groupHealth,
  isSameContent,
  isSameStatus,
  lostStatus,
  sortKeys,
  updatedConditions,
  withNewerFields,
} from "./object_status.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { lvmVolumeFor } from "./volume_mapping.ts";

const EARLIER = "2026-01-01T00:00:00Z";

function object(status?: LvmVolumeStatus, generation = 2): LvmVolume {
  const made = lvmVolumeFor(namedRequest("pvc-1", 1n << 30n), { driver: "d", nodeName: "n" });
  return { ...made, metadata: { ...made.metadata, generation }, ...(status && { status }) };
}

function readyStatus(): LvmVolumeStatus {
  const conditions = updatedConditions(object(), {
    Ready: { status: "True", reason: "Created", message: "it is there" },
    Healthy: { status: "True", reason: "PhysicalVolumesPresent", message: "all of them" },
  }).map((condition) => ({ ...condition, lastTransitionTime: EARLIER }));
  return { state: "Ready", observedGeneration: 2, lvUUID: "uuid", conditions };
}

function conditionSummaries({ conditions = [] }: LvmVolumeStatus): string[] {
  return conditions.map(({ type, status, reason }) => `${type} ${status} ${reason}`);
}

Deno.test("failedStatus() is Failed for a volume that was not created; a created one keeps its state, with the error", () => {
  const error = new StorageError("NoSpace", "no room" + ".".repeat(5_000));
  const failed = failedStatus<LvmVolumeStatus>(object(), error);
  assertEquals([failed.state, failed.error?.code, failed.observedGeneration], ["Failed", "NoSpace", 2]);
  assertEquals(failed.error?.message.length, 4_096);
  assertEquals(conditionSummaries(failed), ["Ready False NoSpace"]);
  const { error: reported, ...rest } = failedStatus<LvmVolumeStatus>(object(readyStatus(), 3), error);
  assertEquals(reported?.code, "NoSpace");
  assertEquals(rest, { ...readyStatus(), observedGeneration: 3 });
});

Deno.test("lostStatus() keeps what was recorded of the LV, and the moment at which it stopped being Ready", () => {
  const error = new StorageError("Lost", "its LV is gone");
  const lost = lostStatus<LvmVolumeStatus>(object(readyStatus()), error);
  assertEquals([lost.state, lost.lvUUID, lost.error?.message], ["Lost", "uuid", "its LV is gone"]);
  assertEquals(conditionSummaries(lost), ["Healthy True PhysicalVolumesPresent", "Ready False Lost"]);
  assert(lost.conditions![1]!.lastTransitionTime > EARLIER);
  const earlier = lost.conditions!.map((condition) => ({ ...condition, lastTransitionTime: EARLIER }));
  const lostAgain = lostStatus<LvmVolumeStatus>(object({ ...lost, conditions: earlier }), error);
  assertEquals(lostAgain.conditions?.[1]?.lastTransitionTime, EARLIER);
});

Deno.test("groupHealth() is healthy with all disks, and otherwise reports how many are missing", () => {
  const group: VolumeGroup = {
    name: "data",
    uuid: "",
    size: 0n,
    free: 0n,
    extentSize: 1n,
    missingPvs: 0,
    writeable: true,
    tags: [],
    pvPaths: [],
    pvs: [],
    responsive: true,
    lvs: [],
  };
  assertEquals(groupHealth(group).status, "True");
  for (const problem of [{ missingPvs: 2 }, { writeable: false }, { responsive: false }]) {
    assertEquals(groupHealth({ ...group, ...problem }).status, "False");
  }
  assertMatch(groupHealth({ ...group, missingPvs: 2 }).message, /group data .* 2 missing physical volumes/);
});

Deno.test("failedStatus() cuts messages at the limit of the API server, and never within a character", () => {
  const message = `${"x".repeat(4_094)}😀${"y".repeat(40_000)}`;
  const { error, conditions = [] } = failedStatus<LvmVolumeStatus>(object(), new StorageError("NoSpace", message));
  for (const text of [error!.message, conditions[0]!.message]) {
    assertEquals([text.isWellFormed(), text.length <= 4_096, text.endsWith("x…")], [true, true, true]);
  }
});

Deno.test("withNewerFields() takes fields of a newer version from the object as it is now, and not as it was", () => {
  const newer = (keySlot: number) => ({ encryption: { keySlot } }) as LvmVolumeStatus;
  const decided: LvmVolumeStatus = { state: "Ready", ...newer(1) };
  assertEquals(withNewerFields(decided, { state: "Pending", ...newer(2) }), { state: "Ready", ...newer(2) });
  assertEquals(withNewerFields(decided, { state: "Pending" }), { state: "Ready" });
});

Deno.test("isSameStatus() compares the fields in any order", () => {
  const a: LvmVolumeStatus = { state: "Ready", size: "1Gi", error: { code: "Busy", message: "m" } };
  assert(isSameStatus(a, { error: { message: "m", code: "Busy" }, size: "1Gi", state: "Ready" }));
  assert(!isSameStatus(a, { ...a, size: "2Gi" }));
  assert(!isSameStatus(undefined, a));
});

Deno.test("isSameContent() compares fields in any order, and lists in theirs", () => {
  const a = { b: [{ d: 1, c: null }], a: "x" };
  assert(isSameContent(a, { a: "x", b: [{ c: null, d: 1 }] }));
  assert(isSameContent(a, { ...a, e: undefined }));
  assert(!isSameContent(a, { ...a, a: "y" }));
  assert(!isSameContent([1, 2], [2, 1]));
  assert(!isSameContent(undefined, {}));
});

Deno.test("sortKeys() sorts the fields of all objects", () => {
  assertEquals(JSON.stringify(sortKeys({ b: [{ d: 1, c: 2 }], a: null })), '{"a":null,"b":[{"c":2,"d":1}]}');
});
