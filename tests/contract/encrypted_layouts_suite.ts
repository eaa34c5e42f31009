/**
 * Contract: encrypted volumes of RAID layouts, on groups of several disks.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { assertFails, contractTest, type Host, mountCapability } from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function encryptedLayoutsContract(host: Host): void {
  for (
    const more of [{ layout: "raid1" }, { layout: "raid1", raidIntegrity: "yes" }, { layout: "raid5", stripes: "2" }]
  ) {
    contractTest(
      host,
      `an encrypted volume of ${Object.values(more).join(" ")} is used, gets other keys, grows, and is deleted`,
      async (harness) => {
        const secrets = { passphrase: "the first one" };
        const next = { passphrase: "the second one", previousPassphrase: secrets.passphrase, volumeKey: "next" };
        const parameters = { ...more, encryption: "luks2" };
        const capacityRange = { requiredBytes: 48n * MiB };
        const volumeId = await harness.create({ parameters, capacityRange });
        const unstage = () =>
          harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
        const stagingPath = await harness.stage(volumeId, mountCapability(), { secrets });
        const isReal = !host.name.startsWith("fake");
        if (isReal) await Deno.writeTextFile(`${stagingPath}/file`, "data");
        await unstage();
        await assertFails(
          "UNAUTHENTICATED",
          harness.stage(volumeId, mountCapability(), { secrets: { passphrase: "x" } }),
        );
        await harness.stage(volumeId, mountCapability(), { secrets: next });
        const expanded = { requiredBytes: 64n * MiB };
        await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: expanded });
        const volumePath = await harness.publish(volumeId, "pod");
        await harness.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange: expanded });
        if (isReal) assertEquals(await Deno.readTextFile(`${volumePath}/file`), "data");
        await harness.csi.node.nodeUnpublishVolume({ volumeId, targetPath: volumePath });
        await unstage();
        await assertFails("UNAUTHENTICATED", harness.stage(volumeId, mountCapability(), { secrets }));
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
        assertEquals(await harness.lvs(), []);
      },
    );
  }
}
