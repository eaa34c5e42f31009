/**
 * Contract: what makes the driver careful before it formats a device keeps no pod from a filesystem that it has formatted.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { createCopy } from "./copies_suite.ts";
import { FOREIGN_SIGNATURES } from "../fake/machine/foreign_signatures.ts";
import { assertFails, contractTest, type Harness, type Host, mountCapability, totalBytes } from "./helpers/host.ts";
import { tearDown } from "./staging_suite.ts";

const MiB = 1n << 20n;

/** One that is at the end of a device, where a new filesystem has nothing. */
const SIGNATURE = FOREIGN_SIGNATURES.find(({ type }) => type === "lsi_mega_raid_member")!;

/** Registers the tests. */
export function cautionContract(host: Host): void {
  for (const type of ["ext4", "xfs", "btrfs"]) {
    const capability = mountCapability(type);
    const volumeCapabilities = [capability];
    const capacityRange = { requiredBytes: 300n * MiB };

    contractTest(
      host,
      `${type}: a further signature keeps a volume from being formatted, and not from being mounted and cloned`,
      async (harness) => {
        const request = { volumeCapabilities, capacityRange, parameters: { volumeGroup: harness.groups[1] } };
        const unformatted = await harness.create(request);
        await writeSignature(harness);
        const commands = await harness.exec.recordCommands(() =>
          assertFails("FAILED_PRECONDITION", harness.stage(unformatted, capability), SIGNATURE.type)
        );
        assertEquals(commands.filter((command) => /^mk|^wipefs --all/.test(command)), []);
        await harness.csi.controller.deleteVolume({ volumeId: unformatted });

        const formatted = await harness.create(request);
        await harness.stage(formatted, capability);
        await unstage(harness, formatted);
        await writeSignature(harness);
        await harness.stage(formatted, capability);
        await unstage(harness, formatted);
        const clone = await createCopy(harness, request, { volumeId: formatted });
        await harness.stage(clone, capability);
        await tearDown(harness, clone);
        await harness.csi.controller.deleteVolume({ volumeId: formatted });
      },
    );
  }

  contractTest(
    host,
    "a filesystem that cannot be resized while it is mounted is mounted with the size that it has",
    async (harness) => {
      const volumeId = await harness.create({ parameters: { mkfsOptions: "-O sparse_super2" } });
      const volumePath = await harness.stage(volumeId);
      const before = await totalBytes(harness, volumeId, volumePath);
      const capacityRange = { requiredBytes: 64n * MiB };
      await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange });
      const expand = harness.csi.node.nodeExpandVolume({ volumeId, volumePath, capacityRange });
      await assertFails("FAILED_PRECONDITION", expand, "resize2fs");
      await harness.stage(volumeId);
      await unstage(harness, volumeId);
      await harness.stage(volumeId);
      assertEquals(await totalBytes(harness, volumeId, volumePath), before);
      await tearDown(harness, volumeId);
    },
  );

  contractTest(
    host,
    "a filesystem that another mount namespace still has is mounted again",
    async (harness, machine) => {
      const volumeId = await harness.create();
      await harness.stage(volumeId);
      {
        await using _copy = await machine.copyMountNamespace();
        await unstage(harness, volumeId);
        const commands = await harness.exec.recordCommands(() => harness.stage(volumeId));
        assert(commands.some((command) => command.startsWith("e2fsck")), commands.join("\n"));
      }
      await unstage(harness, volumeId);
      await harness.stage(volumeId);
      await tearDown(harness, volumeId);
    },
  );
}

/** Writes the signature to the only LV, as a program does that knows nothing of the driver. */
async function writeSignature(harness: Harness): Promise<void> {
  const { devicePath, size } = await harness.singleLv();
  const file = `${harness.folder}/signature`;
  await Deno.writeFile(file, SIGNATURE.bytes);
  const seek = Number(size) + SIGNATURE.offset;
  await harness.runAsAdmin(
    "dd",
    `if=${file}`,
    `of=${devicePath}`,
    "bs=1",
    `seek=${seek}`,
    `count=${SIGNATURE.bytes.length}`,
    "conv=notrunc",
    "status=none",
  );
  await Deno.remove(file);
}

async function unstage(harness: Harness, volumeId: string): Promise<void> {
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
}
