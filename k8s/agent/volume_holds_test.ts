import { assertEquals } from "@std/assert";
import { Locks } from "../../base/locks.ts";
import { type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { type ApiClient, ApiError } from "../client/client.ts";
import { VolumeHolds } from "./volume_holds.ts";

Deno.test("a volume that left the node and came back is held again: its LV is another one", async () => {
  const set: boolean[] = [];
  const client = { patch: () => Promise.resolve({}) } as unknown as ApiClient;
  const heldVolumes = {
    set: (_id: string, held: boolean) => Promise.resolve(void set.push(held)),
    userOf: () => Promise.resolve(undefined),
  };
  const holds = new VolumeHolds({ client, heldVolumes, locks: new Locks(), requeue: () => {} });
  const object = (held: boolean, metadata: { deletionTimestamp?: string } = {}) =>
    ({
      ...{ apiVersion: "v1", kind: lvmVolumes.kind, metadata: { name: "v1-a", resourceVersion: "1", ...metadata } },
      ...{ spec: { held }, status: { state: "Ready" } },
    }) as unknown as LvmVolume;
  for (const leaves of [object(true, { deletionTimestamp: "2026-01-01T00:00:00Z" }), object(false)]) {
    await holds.reconcile(object(true));
    await holds.reconcile(leaves);
  }
  await holds.reconcile(object(true));
  assertEquals(set, [true, true, true]);
});

Deno.test("a volume that is held again while it is released keeps its tag and its condition", async () => {
  const set: boolean[] = [];
  const conditions = [{ type: "Held", status: "True", reason: "NotInUse", message: "", lastTransitionTime: "" }];
  const object = (held: boolean, resourceVersion: string) =>
    ({
      metadata: { name: "v1-a", uid: "u", resourceVersion },
      spec: { held },
      status: { state: "Ready", conditions },
    }) as unknown as LvmVolume;
  let patches = 0;
  const client = {
    patch: () => {
      patches++;
      return Promise.reject(new ApiError("changed", { status: 409, reason: "Conflict" }));
    },
    get: () => Promise.resolve(object(true, "2")),
  } as unknown as ApiClient;
  const heldVolumes = {
    set: (_id: string, held: boolean) => Promise.resolve(void set.push(held)),
    userOf: () => Promise.resolve(undefined),
  };
  await new VolumeHolds({ client, heldVolumes, locks: new Locks(), requeue: () => {} }).reconcile(object(false, "1"));
  assertEquals([patches, set], [1, []]);
});
