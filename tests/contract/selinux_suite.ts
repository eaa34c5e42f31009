/**
 * Contract: volumes with SELinux contexts, as kubelet requests them where the CSIDriver says `seLinuxMount`.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, contractTest, type Harness, type Host, mountCapability } from "./helpers/host.ts";
import { mountsOf, tearDown } from "./staging_suite.ts";

/** The contexts of two pods. The policy of a real host must know their type. */
const [ONE, TWO] = [
  "system_u:object_r:container_file_t:s0:c1,c3",
  "system_u:object_r:container_file_t:s0:c2,c4",
] as const;

const MIB = 1n << 20n;

function withContext(context: string, type = "") {
  return mountCapability(type, [`context="${context}"`]);
}

async function contextsOf(harness: Harness): Promise<(string | undefined)[]> {
  return (await mountsOf(harness)).map(({ seLinuxContext }) => seLinuxContext);
}

/** Registers the tests for a host on which mount(8) sees that SELinux is enabled. */
export function seLinuxContract(host: Host): void {
  for (const type of ["ext4", "xfs", "btrfs"]) {
    contractTest(
      host,
      `a volume with ${type} has the SELinux context that is requested, one at a time`,
      async (harness) => {
        const capacityRange = { requiredBytes: 300n * MIB };
        const [one, two] = [withContext(ONE, type), withContext(TWO, type)];
        const volumeId = await harness.create({ capacityRange, volumeCapabilities: [mountCapability(type)] });
        const stagingTargetPath = await harness.stage(volumeId, one);
        await harness.publish(volumeId, "pod", { volumeCapability: one });
        await harness.stage(volumeId, one);
        await harness.publish(volumeId, "pod", { volumeCapability: one });
        assertEquals(await contextsOf(harness), [ONE, ONE]);

        await assertFails("ALREADY_EXISTS", harness.stage(volumeId, two), `with the context ${ONE}`);
        await assertFails("ALREADY_EXISTS", harness.stage(volumeId, mountCapability(type)), "with no SELinux context");
        assertEquals(await contextsOf(harness), [ONE, ONE]);

        await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: `${harness.folder}/pod` });
        await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
        await harness.stage(volumeId, two);
        assertEquals(await contextsOf(harness), [TWO]);
        await tearDown(harness, volumeId);
      },
    );
  }

  contractTest(host, "a volume that is staged without an SELinux context gets none", async (harness) => {
    const volumeId = await harness.create();
    await harness.stage(volumeId);
    await assertFails("ALREADY_EXISTS", harness.stage(volumeId, withContext(ONE)), "with no SELinux context");
    assertEquals(await contextsOf(harness), [undefined]);
    await tearDown(harness, volumeId);
  });

  contractTest(host, "a volume has one SELinux context, and a snapshot of it can have another", async (harness) => {
    const capacityRange = { requiredBytes: 300n * MIB };
    const volumeCapabilities = [mountCapability("xfs")];
    const sourceVolumeId = await harness.create({ capacityRange, volumeCapabilities });
    const both = mountCapability("xfs", [`context="${ONE}"`, `context="${TWO}"`]);
    await assertFails("INVALID_ARGUMENT", harness.stage(sourceVolumeId, both), "a mount has one");
    await harness.stage(sourceVolumeId, withContext(ONE, "xfs"));
    const { snapshot } = await harness.csi.controller.createSnapshot({ name: "cut", sourceVolumeId });
    const { snapshotId } = snapshot!;
    const volumeId = await harness.create({
      ...{ name: "restored", capacityRange, volumeCapabilities },
      volumeContentSource: { type: { case: "snapshot", value: { snapshotId } } },
    });
    await tearDown(harness, sourceVolumeId).catch(() => {}); // a snapshot may keep its volume
    await harness.csi.controller.deleteSnapshot({ snapshotId });
    await harness.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    await harness.stage(volumeId, withContext(TWO, "xfs"));
    assertEquals(await contextsOf(harness), [TWO]);
    await tearDown(harness, volumeId);
  });
}

/** Registers the tests for a host on which mount(8) leaves contexts out, because it does not see SELinux. */
export function hiddenSeLinuxContract(host: Host): void {
  contractTest(
    host,
    "an SELinux context that mount(8) leaves out is an error, and nothing stays mounted",
    async (harness) => {
      const volumeId = await harness.create();
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId, withContext(ONE)), "mount(8) left it out");
      assertEquals(await mountsOf(harness), []);
      await harness.stage(volumeId);
      await tearDown(harness, volumeId);
    },
  );
}
