import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../base/error.ts";
import { groupSnapshotIdOf, snapshotIdOf } from "../base/ids.ts";
import { Locks, snapshotLock } from "../base/locks.ts";
import type { GroupSnapshotService } from "../lvm/volume_service.ts";
import { groupControllerHandlers } from "./group_controller.ts";

Deno.test("deleteVolumeGroupSnapshot() deletes no snapshot that another call uses, named or not", async () => {
  const [used, other] = ["used", "other"].map(snapshotIdOf) as [ReturnType<typeof snapshotIdOf>, string];
  const deleted: string[] = [];
  const service: Partial<GroupSnapshotService> = {
    members: () => Promise.resolve([used]),
    delete: (id) => Promise.resolve(void deleted.push(id)),
  };
  const locks = new Locks();
  const handlers = groupControllerHandlers(service as GroupSnapshotService, locks);
  const id = groupSnapshotIdOf("group");
  const remove = (snapshotIds: string[]) =>
    handlers.deleteVolumeGroupSnapshot!({ groupSnapshotId: id, snapshotIds } as never);
  await locks.run("creation", [snapshotLock(used, "shared")], async () => {
    for (const snapshotIds of [[], [used], [other]]) {
      assertEquals((await assertRejects(() => Promise.resolve(remove(snapshotIds)), StorageError)).kind, "Busy");
    }
  });
  assertEquals(deleted, []);
  await remove([]);
  assertEquals(deleted, [id]);
});
