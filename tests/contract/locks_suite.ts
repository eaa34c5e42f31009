/**
 * Contract: LVM's own locks, which other programs hold as well.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { Lvm } from "../../lvm/client/client.ts";
import { contractTest, type Host } from "./helpers/host.ts";

/** Registers the tests. */
export function locksContract(host: Host): void {
  /** Reports whether a promise is pending after a time in which a command begins to wait for a lock. */
  async function isPending(promise: Promise<unknown>): Promise<boolean> {
    const waitMs = host.name === "lvm" ? 5_000 : 200; // on an emulated machine, commands take long to start
    const waited = new Promise<boolean>((resolve) => setTimeout(() => resolve(true), waitMs));
    return await Promise.race([promise.then(() => false), waited]);
  }

  contractTest(
    host,
    "createVolume() waits while another program holds LVM's lock of a volume group, and creates one LV",
    async (harness, machine) => {
      let creation: Promise<string>;
      {
        using _lock = await machine.lockGroup(harness.groups[0], "exclusive");
        creation = harness.create();
        assertEquals(await isPending(creation), true);
      }
      const volumeId = await creation;
      await harness.singleLv();
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(
    host,
    "a change that waits for LVM's lock goes before a report that starts later",
    async (harness, machine) => {
      const [group] = harness.groups;
      await harness.report(); // the driver does nothing more in the background
      let change: Promise<unknown>;
      let report: ReturnType<Lvm["report"]>;
      {
        using _lock = await machine.lockGroup(group, "shared");
        const before = await new Lvm(harness.exec).report();
        assert(before.some(({ name }) => name === group), "readers share the lock");
        change = harness.runAsAdmin("lvm", "vgchange", "--addtag", "waited", group);
        assertEquals(await isPending(change), true);
        report = new Lvm(harness.exec).report();
        assertEquals(await isPending(report), true);
      }
      const after = (await report).find(({ name }) => name === group);
      assertEquals(after?.tags, ["waited"]);
      await change;
      await harness.runAsAdmin("lvm", "vgchange", "--deltag", "waited", group);
    },
  );
}
