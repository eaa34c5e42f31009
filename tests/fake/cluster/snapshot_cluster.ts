/**
 * A cluster with a fake machine and a volume on it, for tests of snapshots.
 *
 * @module
 */

import { type LvmSnapshot, lvmSnapshots } from "../../../k8s/api/lvm_objects.ts";
import { events } from "../../../k8s/api/objects.ts";
import type { NamedSnapshotRequest } from "../../../k8s/api/snapshot_mapping.ts";
import { StorageError } from "../../../base/error.ts";
import { type SnapshotId, snapshotIdOf } from "../../../base/ids.ts";
import type { LockRequest } from "../../../base/locks.ts";
import { FakeCluster } from "./node_cluster.ts";
import { waitUntil } from "./control_plane.ts";
import type { FakeLv } from "../machine/machine.ts";
import { machineWith, MiB, waitUntilFormatted } from "./volume_cluster.ts";
import { namedRequest } from "../request.ts";

/** The name of the cluster's only node. */
export const NODE = "node-1";

/** Starts a cluster with one machine and a volume of 32 MiB on it. @param free the size of the volume group in bytes */
export async function startSnapshotCluster({ free = 1n << 30n } = {}) {
  const machine = machineWith({ data: free });
  const cluster = await FakeCluster.start({ [NODE]: machine });
  const source = (await cluster.volumes.create(namedRequest("pvc-1", 32n * MiB), { preferred: [] })).id;
  await waitUntilFormatted(machine);
  return {
    machine,
    cluster,
    source,
    request: (name = "cut", more: Partial<NamedSnapshotRequest> = {}): NamedSnapshotRequest => ({
      id: snapshotIdOf(name),
      name,
      source,
      cowSize: { bytes: 8n * MiB },
      ...more,
    }),
    /** Returns the logical volumes of the snapshots. */
    snapshotLvs: (): FakeLv[] => machine.allLvs().map(({ lv }) => lv).filter(({ origin }) => origin !== undefined),
    objects: (): LvmSnapshot[] => cluster.api.objects(lvmSnapshots),
    /** Has the node read its groups, and waits until the predicate holds for the LVMSnapshot. @returns the object */
    refreshUntil: async (predicate: (object: LvmSnapshot | undefined) => boolean, name = "cut") => {
      await cluster.agent(NODE).node.refresh();
      return (await cluster.snapshotObjects.waitFor(snapshotIdOf(name), predicate, { timeoutMs: 5_000 }))!;
    },
    /** Takes a lock of the agent after its next reconcile attempt. @returns a function that releases the lock */
    holdLock: async (lock: LockRequest, id: string) => {
      const { reconciliations, machine: { locks } } = cluster.agent(NODE);
      await waitUntil(
        () => reconciliations.some(({ key, error }) => key === id && error === undefined),
        "the end of a reconcile attempt",
      );
      const { promise, resolve } = Promise.withResolvers<void>();
      const lockHeld = locks.run("something", [lock], () => promise);
      return () => {
        resolve();
        return lockHeld;
      };
    },
    /** Waits until a reconcile attempt of the snapshot failed with Busy. */
    waitUntilBusy: (id: SnapshotId) => {
      const { reconciliations } = cluster.agent(NODE);
      const [before, isBusy] = [
        reconciliations.length,
        (error: unknown) => error instanceof StorageError && error.kind === "Busy",
      ];
      return waitUntil(
        () => reconciliations.slice(before).some(({ key, error }) => key === id && isBusy(error)),
        "a reconcile attempt that fails",
      );
    },
    /** Waits until deleted volumes are removed. @returns how many LVMSnapshots are left, and the kinds of the LVs */
    remaining: async () => {
      await cluster.agent(NODE).machine.background.idle();
      return [
        cluster.api.objects(lvmSnapshots).length,
        machine.allLvs().map(({ lv }) => lv.name.split("-")[0]).join(" "),
      ];
    },
    /** Waits for an event with this reason. @returns its message */
    waitForEvent: async (reason: string) => {
      const find = () => cluster.api.objects(events).find((event) => event.reason === reason);
      await waitUntil(() => find() !== undefined, `an event ${reason}`);
      return find()!.message!;
    },
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

/** Returns the conditions of an LVMSnapshot as `TYPE STATUS REASON`. */
export function conditionsOf({ status }: LvmSnapshot): string[] {
  return status?.conditions?.map(({ type, status, reason }) => `${type} ${status} ${reason}`) ?? [];
}
