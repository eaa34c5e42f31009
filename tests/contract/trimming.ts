/**
 * Contract: disks are told of what filesystems free, as the class wants it.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { Lvm } from "../../lvm/model/client.ts";
import { Trimmer } from "../../lvm/staging/trimmer.ts";
import { FakeClock } from "../fake/clock.ts";
import { assertFails, type Bench, contract, type Host, mountCapability } from "./host.ts";
import { retire } from "./staging.ts";

const MiB = 1n << 20n;
const HOUR_MS = 3_600_000;

/** Registers the tests. */
export function trimmingContract(host: Host): void {
  for (const type of ["ext4", "ext3", "xfs", "btrfs"]) {
    contract(
      host,
      `${type}: mounted with discard, and trimmed while it is staged, as its class wants it`,
      async (bench) => {
        const volumeCapability = mountCapability(type);
        const volumeId = await bench.create({
          volumeCapabilities: [volumeCapability],
          capacityRange: { requiredBytes: 300n * MiB },
          parameters: { discard: "yes", fstrim: "1h" },
        });
        const from = bench.exec.commands.length;
        await bench.stage(volumeId, volumeCapability);
        await bench.publish(volumeId, "pod", { volumeCapability });
        const [mount] = bench.exec.commands.slice(from).filter(({ program }) => program === "mount");
        assertEquals(mount?.args.slice(0, 4), ["-t", type, "-o", "discard"]);

        await using watch = trimming(bench);
        await watch.trims(HOUR_MS, volumeId);
        await retire(bench, volumeId, "pod");
        await watch.trims(HOUR_MS);
      },
    );
  }

  contract(
    host,
    "a volume is not trimmed while it has a copy-on-write snapshot, and is when that is gone",
    async (bench) => {
      const volumeId = await bench.create({ parameters: { fstrim: "1h" } });
      await bench.stage(volumeId);
      const { snapshot } = await bench.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId });
      await using watch = trimming(bench);
      await watch.trims(HOUR_MS);
      await bench.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await bench.settled();
      await watch.trims(0, volumeId);
      await retire(bench, volumeId);
    },
  );

  contract(host, "a volume that is written into its pod is refused, and what to do instead is told", async (bench) => {
    const publish = bench.csi.node.nodePublishVolume({
      volumeId: `csi-${"0".repeat(64)}`,
      targetPath: `${bench.folder}/pod`,
      volumeCapability: mountCapability(),
      volumeContext: { "csi.storage.k8s.io/ephemeral": "true" },
    });
    await assertFails("INVALID_ARGUMENT", publish, "volumeClaimTemplate");
  });
}

/** The driver's trimming, with time that passes when the test says so. */
function trimming(bench: Bench) {
  const [told, clock] = [[] as string[], new FakeClock()];
  const lvm = new Lvm(bench.exec, (groups) => trimmer.see(groups));
  const trimmer = new Trimmer({
    lvm,
    driver: bench.driverName,
    onTrimmed: ({ id }) => told.push(id),
    onTrimFailed: ({ id }, why) => told.push(`${id}: ${why}`),
    onTrimUnsupported: ({ id }) => told.push(id),
    onError: (error) => told.push(String(error)),
    timer: clock,
  });
  return {
    /** Makes sure that these are the volumes that are trimmed while so much time passes, as far as their disks know it. */
    trims: async (ms: number, ...ids: string[]): Promise<void> => {
      await lvm.report();
      await clock.advance(ms);
      await trimmer.settled();
      assertEquals(told.splice(0), ids);
    },
    [Symbol.asyncDispose]: () => trimmer.stop(),
  };
}
