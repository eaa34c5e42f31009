/**
 * Contract: the metadata snapshots of thin pools, by which the changed blocks of thin snapshots are read. A pool has one at
 * most, and other programs may reserve it, too.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { RESERVED, tagValue } from "../../lvm/model/tags.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { cleanUp, createBlockVolume, KINDS, listAllocated, listDelta, MiB, takeSnapshot } from "./differences_suite.ts";
import { assertFails, contractTest, type Harness, type Host } from "./helpers/host.ts";

/** Registers the tests. */
export function metadataSnapshotsContract(host: Host): void {
  contractTest(host, "a thin pool's metadata snapshot is released, also one that a crash left", async (harness) => {
    const volume = await createBlockVolume(harness, 16n * MiB, KINDS[1].parameters);
    const [base, target] = [await takeSnapshot(harness, volume), await takeSnapshot(harness, volume)];
    const ids = { baseSnapshotId: base, targetSnapshotId: target };
    const pool = (await harness.lvs()).find(({ thinPool }) => thinPool !== undefined)!;
    /** Leaves what a driver leaves that is killed while it has reserved one. */
    const leave = async () => {
      const tag = `${RESERVED}${harness.driverName}`;
      await harness.runAsAdmin("lvm", "lvchange", "--addtag", tag, `${harness.groups[0]}/${pool.name}`);
      await sendToPool(harness, pool, "reserve_metadata_snap");
    };
    const isLeft = async (driver: Harness) =>
      [await isHeld(driver, pool), (await driver.lvs()).some(({ tags }) => tagValue(tags, RESERVED) !== undefined)]
        .includes(true);
    await listDelta(harness, ids);
    assert(!await isLeft(harness));
    await leave();
    assert(await isLeft(harness));
    await listDelta(harness, ids);
    assert(!await isLeft(harness));
    await leave();
    await using next = await harness.restart();
    await next.waitUntilIdle();
    assert(!await isLeft(next));
    await Promise.all([listDelta(next, ids), listDelta(next, ids), listAllocated(next, { snapshotId: base })]);
    assert(!await isLeft(next));
    await cleanUp(next);
  });

  contractTest(
    host,
    "the metadata snapshot of a pool of the driver is left to another program that has reserved it",
    async (harness) => {
      const volume = await createBlockVolume(harness, 16n * MiB, KINDS[1].parameters);
      const snapshotId = await takeSnapshot(harness, volume);
      const pool = (await harness.lvs()).find(({ thinPool }) => thinPool !== undefined)!;
      await sendToPool(harness, pool, "reserve_metadata_snap");
      await assertFails("FAILED_PRECONDITION", listAllocated(harness, { snapshotId }), "release_metadata_snap");
      await using next = await harness.restart();
      await next.waitUntilIdle();
      assert(await isHeld(next, pool));
      await sendToPool(next, pool, "release_metadata_snap");
      assertEquals((await listAllocated(next, { snapshotId })).blocks, []);
      await cleanUp(next);
    },
  );

  contractTest(
    host,
    "the metadata snapshot of a pool of somebody else is left to whoever has reserved it",
    async (harness) => {
      const pool = `${harness.groups[0]}/theirs`;
      await harness.runAsAdmin(
        "lvm",
        ...["lvcreate", "--yes", "--type", "thin-pool", "--zero", "y", "--name", "theirs", "--size", `${64n * MiB}b`],
        harness.groups[0],
      );
      const volume = await createBlockVolume(harness, 16n * MiB, { thinProvision: "yes", thinPool: "theirs" });
      const snapshotId = await takeSnapshot(harness, volume);
      const lv = (await harness.lvs()).find(({ name }) => name === "theirs")!;
      await sendToPool(harness, lv, "reserve_metadata_snap");
      await assertFails("FAILED_PRECONDITION", listAllocated(harness, { snapshotId }), "release_metadata_snap");
      assert(await isHeld(harness, lv));
      await sendToPool(harness, lv, "release_metadata_snap");
      assertEquals((await listAllocated(harness, { snapshotId })).blocks, []);
      assert(!await isHeld(harness, lv));
      await cleanUp(harness);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", pool);
    },
  );
}

function deviceName({ devicePath }: LogicalVolume): string {
  return devicePath.replace("/dev/mapper/", "");
}

/** Sends a message to a pool, as an administrator or another program does. */
async function sendToPool(harness: Harness, pool: LogicalVolume, message: string): Promise<void> {
  await harness.runAsAdmin("dmsetup", "message", `${deviceName(pool)}-tpool`, "0", message);
}

/** Reports whether a pool has a metadata snapshot. */
async function isHeld(harness: Harness, pool: LogicalVolume): Promise<boolean> {
  const status = await harness.runAsAdmin("dmsetup", "status", "--target", "thin-pool", "--noflush");
  const line = status.split("\n").find((line) => line.startsWith(`${deviceName(pool)}-tpool:`))!;
  return !/ \d+\/\d+ \d+\/\d+ - /.test(line);
}
