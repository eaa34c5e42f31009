import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { DEFAULT_POOL_SIZE } from "../pools/pool.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { createThinClone } from "./thin_volumes.ts";
import { Volumes } from "./volumes.ts";

Deno.test("createThinClone() makes no clone of a volume that was deleted since the report", async () => {
  for (const isRemoved of [false, true]) {
    const machine = new FakeMachine();
    const group = machine.addGroup("data", 1n << 30n);
    const lvm = new Lvm(machine);
    const reservation = new PoolReservation(lvm);
    const finder = new VolumeFinder({ driver: "test" });
    const volumes = new Volumes({ lvm, finder, reservation, reaper: { wake: () => {} } });
    const thin = { poolSize: DEFAULT_POOL_SIZE };
    const options = { format: { state: "raw" }, thin } as const;
    await volumes.create(namedRequest("one", 32n << 20n, options));
    const groups = await lvm.report();
    const source = finder.require(groups, volumeIdOf("one"));
    await volumes.delete(source.id);
    if (isRemoved) group.lvs = group.lvs.filter(({ uuid }) => uuid !== source.lv.uuid);
    const request = { ...namedRequest("clone", 32n << 20n, options), thin, size: 32n << 20n };
    const clone = () => createThinClone({ lvm, driver: "test", reservation }, groups, source, request);
    assertEquals((await assertRejects(clone, StorageError, "was deleted meanwhile")).kind, "Busy");
    assertEquals(group.lvs.length, isRemoved ? 1 : 2);
  }
});
