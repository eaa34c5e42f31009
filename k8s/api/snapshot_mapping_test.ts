import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FULL_COW, type SizeOrPercent } from "../../lvm/settings/cow_size.ts";
import type { LvmSnapshot, LvmSnapshotSpec, LvmSnapshotStatus } from "./lvm_objects.ts";
import {
  blocksSourceDeletion,
  lvmSnapshotFor,
  type NamedSnapshotRequest,
  snapshotOf,
  snapshotRequestOf,
} from "./snapshot_mapping.ts";

const MiB = 1n << 20n;
const PLACEMENT = { driver: "lvm.denolith.dev", nodeName: "node-1" };

function request(cowSize: SizeOrPercent = FULL_COW): NamedSnapshotRequest {
  return { id: snapshotIdOf("cut"), name: "cut", source: volumeIdOf("pvc-1"), cowSize };
}

function object(status?: LvmSnapshotStatus, spec: Partial<LvmSnapshotSpec> = {}, name?: string): LvmSnapshot {
  const full = lvmSnapshotFor(request(), PLACEMENT);
  const metadata = { ...full.metadata, ...(name !== undefined && { name }) };
  return { ...full, metadata, spec: { ...full.spec, ...spec }, ...(status && { status }) };
}

Deno.test("a request for a snapshot comes back from its object as it was", () => {
  for (const store of [FULL_COW, { percent: 7n }, { bytes: 1_500_000n }]) {
    const made = lvmSnapshotFor(request(store), PLACEMENT);
    assertEquals(snapshotRequestOf(JSON.parse(JSON.stringify(made))), request(store));
  }
  assertEquals(lvmSnapshotFor(request({ bytes: 10n * MiB }), PLACEMENT), {
    metadata: {
      name: snapshotIdOf("cut"),
      finalizers: ["lvm.denolith.dev/snapshot"],
      annotations: { "lvm.denolith.dev/created": "false" },
    },
    spec: {
      driverName: "lvm.denolith.dev",
      requestName: "cut",
      nodeName: "node-1",
      sourceVolume: volumeIdOf("pvc-1"),
      cowSize: "10Mi",
    },
  });
});

Deno.test("an object without a size of the COW space requests one that cannot overflow", () => {
  const { cowSize: _, ...spec } = object().spec;
  assertEquals(snapshotRequestOf({ ...object(), spec }).cowSize, FULL_COW);
});

Deno.test("a snapshot whose status has values of other types is not taken yet", () => {
  const status = { lvUUID: "u", restoreSize: "1Gi", creationTime: "2026-11-22T00:00:00Z" } as const;
  assertEquals(snapshotOf(object(status))?.size, 1n << 30n);
  for (const field of Object.keys(status)) {
    assertEquals(snapshotOf(object({ ...status, [field]: [{ toString: 0 }] } as never)), undefined, field);
  }
});

Deno.test("a snapshot's object that somebody else wrote is refused with the reason", () => {
  const cases: [LvmSnapshot, string][] = [
    [object(undefined, {}, "cut"), "its name is no snapshot id"],
    [object(undefined, { sourceVolume: "pvc-1" }), `its sourceVolume "pvc-1" is no volume id`],
    [object(undefined, { cowSize: "200%" }), `its cowSize "200%" is not valid`],
    ...(["requestName", "sourceVolume", "cowSize"] as const).map((field): [LvmSnapshot, string] => [
      object(undefined, { [field]: [{ toString: 0 }] }),
      `its ${field} is no text`,
    ]),
  ];
  for (const [wrong, words] of cases) {
    assertEquals(assertThrows(() => snapshotRequestOf(wrong), StorageError, words).kind, "InvalidArgument");
  }
});

Deno.test("a snapshot is one from the moment that its LV is recorded", () => {
  const taken = { state: "Ready", lvUUID: "u", restoreSize: "32Mi", creationTime: "2026-01-01T00:00:00Z" } as const;
  assertEquals(snapshotOf(object({ ...taken, readyToUse: true })), {
    id: snapshotIdOf("cut"),
    source: volumeIdOf("pvc-1"),
    size: 32n * MiB,
    createdAt: Date.UTC(2026, 0, 1) / 1000,
    ready: true,
  });
  assertEquals(snapshotOf(object(taken))?.ready, false);
  const { lvUUID: _, ...unrecorded } = taken;
  assertEquals([undefined, { state: "Pending" } as const, unrecorded].map((status) => snapshotOf(object(status))), [
    undefined,
    undefined,
    undefined,
  ]);
});

Deno.test("a snapshot whose creation time cannot be read is still a snapshot", () => {
  const taken = { state: "Ready", lvUUID: "u", restoreSize: "32Mi", creationTime: "lately" } as const;
  assertEquals(snapshotOf(object(taken))?.createdAt, 0);
});

Deno.test("a snapshot keeps its volume unless it was never taken, or is gone", () => {
  const cases: [LvmSnapshotStatus | undefined, boolean][] = [
    [undefined, true],
    [{ state: "Pending" }, true],
    [{ state: "Ready", lvUUID: "u" }, true],
    [{ state: "Overflowed", lvUUID: "u" }, true],
    [{ state: "Failed" }, false],
    [{ state: "Failed", lvUUID: "u" }, true],
    [{ state: "Lost", lvUUID: "u" }, false],
  ];
  for (const [status, blocks] of cases) assertEquals(blocksSourceDeletion(object(status)), blocks, status?.state);
});
