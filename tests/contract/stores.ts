/**
 * Contract: stores of copy-on-write snapshots are grown before they overflow.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { contract, type Host } from "./host.ts";
import { snapshotted } from "./snapshots.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function storesContract(host: Host): void {
  contract(
    host,
    "a store that fills is grown before it overflows, and one that overflowed only deletes",
    async (bench) => {
      const { volumeId, snapshotId } = await snapshotted(bench);
      const { devicePath } = (await bench.lvs()).find(({ origin }) => origin === undefined)!;
      const write = async (mib: number, at: number) =>
        await bench.admin(
          "dd",
          "if=/dev/urandom",
          `of=${devicePath}`,
          "bs=1M",
          `count=${mib}`,
          `seek=${at}`,
          "oflag=direct",
          "status=none",
        );
      const store = async () => {
        await bench.csi.controller.getSnapshot({ snapshotId }); // whoever asks has a report read
        return (await bench.lvs()).find(({ origin }) => origin !== undefined)!;
      };
      await write(6, 0);
      const grown = await store();
      assertEquals([grown.size, grown.invalidSnapshot], [12n * MiB, false]);
      await write(4, 6);
      assertEquals((await store()).size, 16n * MiB);
      await write(20, 10);
      const { snapshot } = await bench.csi.controller.getSnapshot({ snapshotId });
      assertEquals(snapshot?.readyToUse, false);
      assertEquals((await store()).size, 16n * MiB, "what is lost is not grown");
      await bench.csi.controller.deleteSnapshot({ snapshotId });
      await bench.csi.controller.deleteVolume({ volumeId });
      assertEquals(await bench.lvs(), []);
    },
  );
}
