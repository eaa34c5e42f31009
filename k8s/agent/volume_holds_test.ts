import { assertEquals } from "@std/assert";
import { Locks } from "../../lvm/locks.ts";
import type { ApiClient } from "../client/client.ts";
import { type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { VolumeHolds } from "./volume_holds.ts";

Deno.test("a volume that left the node and came back is held anew: its LV is another one", async () => {
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
