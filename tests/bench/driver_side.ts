import { type SnapshotId, snapshotLvName, type VolumeId, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { blockCapability, mountCapability } from "../contract/helpers/host.ts";
import { LISTED_VOLUMES } from "./result.ts";
import { type CreationOperation, type LifecycleOperation, type Side, type Sides, SIZES_MIB } from "./sides.ts";
import type { MeasuredDriver } from "./measured_driver.ts";

const MIB = 1n << 20n;

/** The name of the measured volume. */
const NAME = "measured";

/** Returns the requests to a driver in the lifecycle of a volume. */
export function driverLifecycle(subject: MeasuredDriver): Sides<LifecycleOperation> {
  const { csi: { controller, node }, root } = subject;
  const volumeId = volumeIdOf(NAME);
  const volumeCapability = mountCapability("ext4");
  const [stagingTargetPath, targetPath] = [`${root}/staged`, `${root}/pod`];
  const use = { volumeId, stagingTargetPath, targetPath, volumeCapability };
  const capacityRange = { requiredBytes: BigInt(SIZES_MIB.grown) * MIB };
  let snapshotId = "";
  const create = () =>
    controller.createVolume({
      name: NAME,
      capacityRange: { requiredBytes: BigInt(SIZES_MIB.volume) * MIB },
      volumeCapabilities: [volumeCapability],
    });
  const snapshot = { name: NAME, sourceVolumeId: volumeId, parameters: { snapSize: `${SIZES_MIB.snapshot}Mi` } };
  return {
    createVolume: { run: create },
    deleteUnusedVolume: { run: () => controller.deleteVolume({ volumeId }) },
    stageFirst: { prepare: create, run: () => node.nodeStageVolume(use) },
    publish: { run: () => node.nodePublishVolume(use) },
    stats: { run: () => node.nodeGetVolumeStats({ volumeId, volumePath: targetPath }) },
    expandVolume: { run: () => controller.controllerExpandVolume({ volumeId, capacityRange }) },
    expandFilesystem: { run: () => node.nodeExpandVolume({ volumeId, volumePath: targetPath, capacityRange }) },
    createSnapshot: {
      run: async () => snapshotId = (await controller.createSnapshot(snapshot)).snapshot!.snapshotId,
    },
    deleteSnapshot: { run: () => controller.deleteSnapshot({ snapshotId }) },
    removeSnapshot: { run: () => subject.waitUntilRemoved(snapshotLvName(snapshotId as SnapshotId)) },
    unpublish: { run: () => node.nodeUnpublishVolume(use) },
    unstage: { run: () => node.nodeUnstageVolume(use) },
    stageAgain: { run: () => node.nodeStageVolume(use) },
    deleteUsedVolume: {
      prepare: () => node.nodeUnstageVolume(use),
      run: () => controller.deleteVolume({ volumeId }),
    },
    removeUsedVolume: { run: () => subject.waitUntilRemoved(volumeLvName(volumeId)) },
  };
}

/**
 * Returns the requests to a driver for volumes with content, or in thin pools. They are block volumes, so that only
 * copying is measured.
 */
export function driverCreation(subject: MeasuredDriver): Sides<CreationOperation> & AsyncDisposable {
  const { controller } = subject.csi;
  const volumeCalls = (name: string, parameters: Record<string, string> = {}, source?: string) => {
    const volumeId = volumeIdOf(name);
    const create = () =>
      controller.createVolume({
        name,
        parameters,
        capacityRange: { requiredBytes: BigInt(SIZES_MIB.volume) * MIB },
        volumeCapabilities: [blockCapability()],
        ...(source !== undefined && {
          volumeContentSource: { type: { case: "volume", value: { volumeId: volumeIdOf(source) } } },
        }),
      });
    const remove = async () => {
      await controller.deleteVolume({ volumeId });
      await subject.waitUntilRemoved(volumeLvName(volumeId));
    };
    return { create, remove };
  };
  const thin = { thinProvision: "yes", thinPoolSize: `${SIZES_MIB.pool}Mi` };
  const [source, clone] = [volumeCalls("source"), volumeCalls("clone", {}, "source")];
  const [thinSource, thinVolume, thinClone] = [
    volumeCalls("s", thin),
    volumeCalls("t", thin),
    volumeCalls("c", thin, "s"),
  ];
  const recreate = (volume: { remove(): Promise<void> }, source?: { create(): Promise<unknown> }) => async () => {
    await volume.remove();
    await source?.create();
  };
  return {
    clone: { prepare: recreate(clone, source), run: clone.create },
    createThin: { prepare: recreate(thinVolume, thinSource), run: thinVolume.create },
    cloneThin: { prepare: recreate(thinClone, thinSource), run: thinClone.create },
    [Symbol.asyncDispose]: async () => {
      for (const each of [clone, source, thinClone, thinVolume, thinSource]) await each.remove();
    },
  };
}

/** Returns the request that makes a driver list many volumes. */
export function driverListing({ csi: { controller } }: MeasuredDriver, volumes: readonly VolumeId[]): Side {
  return {
    run: async () => {
      const { entries } = await controller.listVolumes();
      if (entries.length !== volumes.length) throw new Error(`list ${volumes.length} volumes: ${entries.length} came`);
    },
  };
}

/** Returns the ids of the volumes that are listed. */
export function listedVolumes(): VolumeId[] {
  return Array.from({ length: LISTED_VOLUMES }, (_, number) => volumeIdOf(`listed ${number}`));
}
