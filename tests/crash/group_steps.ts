/**
 * The steps of a group snapshot during whose life the driver crashes: of the volume of other steps, and of a second one.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { groupSnapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { VOLUME } from "../../lvm/model/tags.ts";
import { blockCapability } from "../contract/helpers/host.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import { describeContent } from "./invariants.ts";
import type { Lifecycle, Step } from "./orchestrator.ts";
import type { VolumeSteps } from "./volume_steps.ts";

const MiB = 1n << 20n;

const NAMES = { second: "second", group: "both" } as const;

/** The steps of a group snapshot. */
export class GroupSteps {
  readonly #machine: FakeMachine;
  readonly #volume: VolumeSteps;
  readonly #parameters: Record<string, string>;

  /** Creates the steps. @param parameters of the second volume */
  constructor(machine: FakeMachine, volume: VolumeSteps, parameters: Record<string, string>) {
    this.#machine = machine;
    this.#volume = volume;
    this.#parameters = parameters;
  }

  /** Returns the lifecycle of the volumes and the group snapshot, which is taken while a pod uses the first volume. */
  lifecycle(): Lifecycle {
    const [create, deleteGroup, deleteSecond] = [this.#createSecond(), this.#deleteGroup(), this.#deleteSecond()];
    const { steps, cleanup, state } = this.#volume.lifecycle([create, this.#takeGroup(), deleteGroup]);
    return { steps: [...steps, deleteSecond], cleanup: [create, deleteGroup, ...cleanup, deleteSecond], state };
  }

  #createSecond(): Step {
    return {
      name: "CreateVolume, the second one",
      run: async ({ controller }) => {
        const { volume } = await controller.createVolume({
          name: NAMES.second,
          capacityRange: { requiredBytes: 32n * MiB },
          volumeCapabilities: [blockCapability()],
          parameters: this.#parameters,
        });
        this.#volume.state.acknowledged.volumes.set(volume!.volumeId, volume!.capacityBytes);
      },
    };
  }

  #takeGroup(): Step {
    return {
      name: "CreateVolumeGroupSnapshot",
      run: async ({ group }) => {
        const sourceVolumeIds = [volumeIdOf("one"), volumeIdOf(NAMES.second)];
        const { groupSnapshot } = await group.createVolumeGroupSnapshot({ name: NAMES.group, sourceVolumeIds });
        for (const { snapshotId, sourceVolumeId } of groupSnapshot!.snapshots) {
          const [snapshot, source] = [`denolith.snapshot=${snapshotId}`, `${VOLUME}${sourceVolumeId}`].map((tag) =>
            this.#machine.allLvs().find(({ lv }) => lv.tags.has(tag))!.lv
          );
          assertEquals(describeContent(snapshot!), describeContent(source!), "the snapshot is of the volume");
          this.#volume.state.acknowledged.contents.set(snapshotId, describeContent(snapshot!));
        }
      },
    };
  }

  #deleteGroup(): Step {
    return {
      name: "DeleteVolumeGroupSnapshot",
      run: async ({ group }) => {
        const { contents } = this.#volume.state.acknowledged;
        for (const id of [...contents.keys()]) if (id !== this.#volume.state.volumeId) contents.delete(id);
        await group.deleteVolumeGroupSnapshot({ groupSnapshotId: groupSnapshotIdOf(NAMES.group) });
      },
    };
  }

  #deleteSecond(): Step {
    const volumeId = volumeIdOf(NAMES.second);
    return {
      name: "DeleteVolume, the second one",
      run: ({ controller }) => {
        this.#volume.state.acknowledged.volumes.delete(volumeId);
        return controller.deleteVolume({ volumeId });
      },
    };
  }
}
