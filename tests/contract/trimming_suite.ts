/**
 * Contract: the space that filesystems free is discarded on the disks, as the storage class requests.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { Lvm } from "../../lvm/client/client.ts";
import { Trimmer } from "../../lvm/staging/trimmer.ts";
import { FakeClock } from "../fake/clock.ts";
import { assertFails, contractTest, type Harness, type Host, mountCapability } from "./helpers/host.ts";
import { tearDown } from "./staging_suite.ts";

const MiB = 1n << 20n;
const HOUR_MS = 3_600_000;

/** Registers the tests. */
export function trimmingContract(host: Host): void {
  for (const type of ["ext4", "ext3", "xfs", "btrfs"]) {
    contractTest(
      host,
      `${type}: mounted with discard, and trimmed while it is staged, as its class wants it`,
      async (harness) => {
        const volumeCapability = mountCapability(type);
        const volumeId = await harness.create({
          volumeCapabilities: [volumeCapability],
          capacityRange: { requiredBytes: 300n * MiB },
          parameters: { discard: "yes", fstrim: "1h" },
        });
        const from = harness.exec.commands.length;
        await harness.stage(volumeId, volumeCapability);
        await harness.publish(volumeId, "pod", { volumeCapability });
        const [mount] = harness.exec.commands.slice(from).filter(({ program }) => program === "mount");
        assertEquals(mount?.args.slice(0, 4), ["-t", type, "-o", "discard"]);

        await using trimming = startTrimmer(harness);
        await trimming.expectTrims(HOUR_MS, volumeId);
        await tearDown(harness, volumeId, "pod");
        await trimming.expectTrims(HOUR_MS);
      },
    );
  }

  contractTest(
    host,
    "a volume is not trimmed while it has a copy-on-write snapshot, and is when that is gone",
    async (harness) => {
      const volumeId = await harness.create({ parameters: { fstrim: "1h" } });
      await harness.stage(volumeId);
      const { snapshot } = await harness.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId });
      await using trimming = startTrimmer(harness);
      await trimming.expectTrims(HOUR_MS);
      await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await harness.waitUntilIdle();
      await trimming.expectTrims(0, volumeId);
      await tearDown(harness, volumeId);
    },
  );

  contractTest(
    host,
    "a volume that is written into its pod is refused, with a remedy",
    async (harness) => {
      const publish = harness.csi.node.nodePublishVolume({
        volumeId: `csi-${"0".repeat(64)}`,
        targetPath: `${harness.folder}/pod`,
        volumeCapability: mountCapability(),
        volumeContext: { "csi.storage.k8s.io/ephemeral": "true" },
      });
      await assertFails("INVALID_ARGUMENT", publish, "volumeClaimTemplate");
    },
  );
}

/** Starts the driver's trimmer with a clock that the test moves. */
function startTrimmer(harness: Harness) {
  const [events, clock] = [[] as string[], new FakeClock()];
  const lvm = new Lvm(harness.exec, (groups) => trimmer.observe(groups));
  const trimmer = new Trimmer({
    lvm,
    driver: harness.driverName,
    onTrimmed: ({ id }) => events.push(id),
    onTrimFailed: ({ id }, why) => events.push(`${id}: ${why}`),
    onTrimUnsupported: ({ id }) => events.push(id),
    onError: (error) => events.push(String(error)),
    clock,
  });
  return {
    /** Makes sure that these are the volumes that are trimmed while so much time passes, as far as their disks know it. */
    expectTrims: async (ms: number, ...ids: string[]): Promise<void> => {
      await lvm.report();
      await clock.advance(ms);
      await trimmer.idle();
      assertEquals(events.splice(0), ids);
    },
    [Symbol.asyncDispose]: () => trimmer.stop(),
  };
}
