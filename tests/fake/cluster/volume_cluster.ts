/**
 * Requests and checks of the tests of volumes in a cluster.
 *
 * @module
 */

import { assertEquals, assertRejects } from "@std/assert";
import { type LvmVolume, lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import type { NamedVolumeRequest } from "../../../k8s/api/volume_mapping.ts";
import { type ErrorKind, StorageError } from "../../../base/error.ts";
import type { FakeCluster } from "./node_cluster.ts";
import { FakeMachine } from "../machine/machine.ts";
import { namedRequest } from "../request.ts";
import { waitUntil } from "../wait_until.ts";

/** A mebibyte in bytes. */
export const MiB = 1n << 20n;

/** Creates a fake machine with volume groups of these sizes in bytes. */
export function machineWith(groups: Record<string, bigint>, pvCount = 1): FakeMachine {
  const machine = new FakeMachine();
  for (const [name, bytes] of Object.entries(groups)) machine.addGroup(name, bytes, 4n * MiB, pvCount);
  return machine;
}

/** Returns a request for a volume of 30 MiB. */
export function request(name: string, more: Partial<NamedVolumeRequest> = {}): NamedVolumeRequest {
  return namedRequest(name, 30n * MiB, more);
}

/** A placement that prefers no node. */
export const ANYWHERE = { preferred: [] };

/** Asserts that a call fails with this kind of error, and with these words in the message. @returns the error */
export async function assertFailsWith(kind: ErrorKind, call: Promise<unknown>, words = ""): Promise<StorageError> {
  const error = await assertRejects(() => call, StorageError, words);
  assertEquals(error.kind, kind, error.message);
  return error;
}

/** Returns how many LVMVolumes and how many logical volumes exist. */
export function remaining(cluster: FakeCluster, ...machines: FakeMachine[]): [number, number] {
  return [cluster.api.objects(lvmVolumes).length, machines.flatMap((machine) => machine.allLvs()).length];
}

/** Returns the only LVMVolume of a cluster. */
export function onlyObject(cluster: FakeCluster): LvmVolume {
  const [object, ...more] = cluster.api.objects(lvmVolumes);
  assertEquals(more, []);
  return object!;
}

/** Waits until the agent has formatted the new volumes of its machine, which it does in the background. */
export async function waitUntilFormatted(machine: FakeMachine): Promise<void> {
  const isUnformatted = (tag: string) => /^denolith\.fs=(?:wanted|formatting):/.test(tag);
  await waitUntil(() => !machine.allLvs().some(({ lv }) => [...lv.tags].some(isUnformatted)), "the filesystems");
}
