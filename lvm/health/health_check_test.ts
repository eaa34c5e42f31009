import { assertEquals } from "@std/assert";
import { type FakeLv, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { SnapshotFinder } from "../inventory/snapshot_finder.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { Lvm } from "../client/client.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";
import { HealthCheck } from "./health_check.ts";

Deno.test("HealthCheck.volumes() returns the volumes with problems in the order of their ids, without those being filled", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } });
  const names = ["a", "b", "c", "d", "e"];
  const lvs: FakeLv[] = [];
  for (const name of names) {
    await volumes.create(namedRequest(name, 32n << 20n));
    lvs.push(group.lvs.at(-1)!);
  }
  const health = new HealthCheck({ lvm, volumes: finder, snapshots: new SnapshotFinder({ driver: "test" }) });
  assertEquals(await health.volumes(), []);
  group.missingPvs = 1;
  const reported = async () => (await health.volumes()).map(({ id }): string => id);
  assertEquals(await reported(), names.map((name): string => volumeIdOf(name)).sort());
  lvs[2]!.tags.add(`denolith.source=volume:${volumeIdOf("a")}`).add("denolith.copied=4096");
  const others = names.filter((name) => name !== "c");
  assertEquals(await reported(), others.map((name): string => volumeIdOf(name)).sort());
});
