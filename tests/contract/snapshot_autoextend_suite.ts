/**
 * Contract: the COW space of snapshots is extended before it overflows.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { contractTest, type Host } from "./helpers/host.ts";
import { createVolumeWithSnapshot } from "./snapshots_suite.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function snapshotAutoextendContract(host: Host): void {
  contractTest(
    host,
    "COW space that fills is extended before it overflows, and a snapshot that overflowed can only be deleted",
    async (harness) => {
      const { volumeId, snapshotId } = await createVolumeWithSnapshot(harness);
      const { devicePath } = (await harness.lvs()).find(({ origin }) => origin === undefined)!;
      const write = async (mib: number, offsetMib: number) =>
        await harness.runAsAdmin(
          "dd",
          "if=/dev/urandom",
          `of=${devicePath}`,
          "bs=1M",
          `count=${mib}`,
          `seek=${offsetMib}`,
          "oflag=direct",
          "status=none",
        );
      const snapshotLv = async () => {
        await harness.csi.controller.getSnapshot({ snapshotId }); // each call reads a report
        return (await harness.lvs()).find(({ origin }) => origin !== undefined)!;
      };
      await write(6, 0);
      const extended = await snapshotLv();
      assertEquals([extended.size, extended.invalidSnapshot], [12n * MiB, false]);
      await write(4, 6);
      assertEquals((await snapshotLv()).size, 16n * MiB);
      await write(20, 10);
      const { snapshot } = await harness.csi.controller.getSnapshot({ snapshotId });
      assertEquals(snapshot?.readyToUse, false);
      assertEquals((await snapshotLv()).size, 16n * MiB, "an overflowed snapshot is not extended");
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      await harness.csi.controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    },
  );
}
