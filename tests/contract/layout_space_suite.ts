/**
 * Contract: RAID volumes whose images have checksums, and what else takes space of their physical volumes.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { layoutOf } from "../../lvm/model/layout.ts";
import { assertFails, blockCapability, contractTest, type Host } from "./helpers/host.ts";
import { createVolume, pvFreeBytes } from "./layouts_suite.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function layoutSpaceContract(host: Host): void {
  contractTest(
    host,
    "a volume with integrity is staged, filled from a snapshot, expanded in use and erased, and has no snapshots or clones",
    async (harness) => {
      const { controller, node } = harness.csi;
      const source = await createVolume(harness, { layout: "raid1" });
      const { snapshot } = await controller.createSnapshot({ name: "first", sourceVolumeId: source });
      const volumeContentSource = { type: { case: "snapshot", value: { snapshotId: snapshot!.snapshotId } } } as const;
      const parameters = { layout: "raid1", raidIntegrity: "yes" };
      const volumeId = await harness.create({
        ...{ parameters, volumeContentSource, capacityRange: { requiredBytes: 32n * MiB } },
      });
      await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await controller.deleteVolume({ volumeId: source });
      const stagingTargetPath = await harness.stage(volumeId);
      const words = "is raid1 with 1 mirror and integrity, and LVM takes no snapshots of such a volume";
      await assertFails(
        "FAILED_PRECONDITION",
        controller.createSnapshot({ name: "one", sourceVolumeId: volumeId }),
        words,
      );
      const clone = { volumeContentSource: { type: { case: "volume", value: { volumeId } } } } as const;
      await assertFails("FAILED_PRECONDITION", harness.create({ ...clone, capacityRange: undefined }), words);
      await controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n * MiB } });
      await node.nodeExpandVolume({ volumeId, volumePath: stagingTargetPath, stagingTargetPath });
      await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      assertEquals((await harness.singleLv()).size, 64n * MiB);
      await controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(
    host,
    "createVolume() removes a volume whose images did not get their checksums, and creates it again",
    async (harness) => {
      const request = { name: "one", parameters: { layout: "raid1", raidIntegrity: "yes" } };
      const volumeId = await harness.create(request);
      const { path, uuid } = await harness.singleLv();
      await harness.runAsAdmin("lvm", "lvconvert", "--yes", "--raidintegrity", "n", path);
      await assertFails("ALREADY_EXISTS", harness.create(request), "it is raid1 with 1 mirror (requested");
      await harness.runAsAdmin("lvm", "lvchange", "--addtag", "denolith.integrity", path);
      assertEquals(await harness.create(request), volumeId);
      const lv = await harness.singleLv();
      assertEquals([lv.uuid === uuid, layoutOf(lv)], [false, { type: "raid1", mirrors: 1, integrity: true }]);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "spare space is kept whichever physical volumes a layout takes",
    async (harness) => {
      const [, volumeGroup] = harness.groups;
      const pvBytes = await pvFreeBytes(harness, volumeGroup);
      const spare = 5n * pvBytes - 80n * MiB;
      await harness.runAsAdmin("lvm", "vgchange", "--addtag", `denolith.spare=${spare}`, volumeGroup);
      const parameters = { layout: "raid1", volumeGroup };
      const { maximumVolumeSize } = await harness.csi.controller.getCapacity({ parameters });
      assertEquals(maximumVolumeSize, 36n * MiB);
      await assertFails("RESOURCE_EXHAUSTED", createVolume(harness, parameters, 40n * MiB), "of spare space together");
      const volumeId = await createVolume(harness, parameters, 32n * MiB);
      const expand = (mib: bigint) =>
        harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: mib * MiB } });
      await assertFails("OUT_OF_RANGE", expand(40n), "of spare space");
      await expand(36n);
      await harness.csi.controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
      await harness.runAsAdmin("lvm", "vgchange", "--deltag", `denolith.spare=${spare}`, volumeGroup);
    },
  );

  contractTest(
    host,
    "a clone leaves space for the temporary snapshot of its source, on whichever disk",
    async (harness) => {
      const [volumeGroup] = harness.groups;
      const pvBytes = await pvFreeBytes(harness, volumeGroup);
      const volumeId = await createVolume(harness, { volumeGroup }, 100n * MiB);
      const request = { volumeCapabilities: [blockCapability()], parameters: { volumeGroup, layout: "raid1" } };
      // Each disk has space for its image, but then none has space for the copy snapshot.
      const requiredBytes = pvBytes - 100n * MiB - 4n * MiB;
      const volumeContentSource = { type: { case: "volume", value: { volumeId } } } as const;
      const clone = harness.create({ ...request, capacityRange: { requiredBytes }, volumeContentSource });
      await assertFails("RESOURCE_EXHAUSTED", clone, "more for pending volumes");
      assertEquals((await harness.lvs()).length, 1);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );
}
