/**
 * A machine with volumes for group snapshots.
 *
 * @module
 */

import { type VolumeId, volumeIdOf } from "../../../base/ids.ts";
import { type Machine, type MachineOptions, openMachine } from "../../../lvm/machine.ts";
import { ANY_GROUP } from "../../../lvm/model/groups.ts";
import { LINEAR } from "../../../lvm/model/layout.ts";
import { DEFAULT_POOL_SIZE } from "../../../lvm/pools/pool.ts";
import type { VolumeRequest } from "../../../lvm/inventory/volume.ts";
import { type FakeLv, FakeMachine } from "./machine.ts";

const MiB = 1n << 20n;

/** Returns a request for a volume of 32 MiB of a name. */
export function volumeRequest(name: string, options: Partial<VolumeRequest> = {}): VolumeRequest {
  return {
    id: volumeIdOf(name),
    range: { required: 32n * MiB },
    groups: ANY_GROUP,
    preference: "mostFree",
    format: { state: "raw" },
    mkfsOptions: [],
    shared: true,
    erase: "none",
    layout: LINEAR,
    limits: {},
    ...options,
  };
}

/** Returns a machine with two thick volumes and a thin one, in two groups. */
export async function machineWithVolumes(): Promise<
  { fake: FakeMachine; machine: Machine; sources: VolumeId[]; lvs: FakeLv[] }
> {
  const fake = new FakeMachine();
  fake.addGroup("a", 1024n * MiB);
  fake.addGroup("b", 1024n * MiB);
  const machine = openDriver(fake);
  await machine.volumes.create(volumeRequest("one", { groups: only("a") }));
  await machine.volumes.create(volumeRequest("two", { groups: only("b"), thin }));
  await machine.volumes.create(volumeRequest("three", { groups: only("b") }));
  const sources = ["one", "two", "three"].map(volumeIdOf);
  const lvs = sources.map((id) => fake.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${id}`))!.lv);
  return { fake, machine, sources, lvs };
}

/** Starts a driver on a machine. */
export function openDriver(exec: FakeMachine, options: Pick<MachineOptions, "earlierGuards"> = {}): Machine {
  return openMachine({ exec, driver: "d", groups: ANY_GROUP, mountRoots: ["/pods"], scratch: "/tmp", ...options });
}

/** The thin pool of a request. */
export const thin = { poolSize: DEFAULT_POOL_SIZE };

/** Matches one volume group. */
export const only = (group: string) => ({ matches: (name: string) => name === group, toString: () => group });
