import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { StorageError } from "../../base/error.ts";
import { Lvm } from "../client/client.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { HeldVolumes } from "./held_volumes.ts";
import { Volumes } from "./volumes.ts";

const [ONE, OTHER] = [volumeIdOf("one"), volumeIdOf("other")];

/** Creates a machine with a volume. */
async function setUp() {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } });
  await volumes.create(namedRequest("one", 32n << 20n, { format: { state: "raw" } }));
  const changed: string[] = [];
  const held = new HeldVolumes({ lvm, finder, onChange: (id) => changed.push(id) });
  return { machine, lvm, finder, held, changed, lv: machine.allLvs()[0]!.lv };
}

Deno.test("set() adds and removes the tag, as often as it is called", async () => {
  const { held, lv, lvm, finder, changed } = await setUp();
  for (const each of [true, true]) await held.set(ONE, each);
  assertEquals([lv.tags.has("denolith.held"), finder.require(await lvm.report(), ONE).tags.held], [true, true]);
  for (const each of [false, false]) await held.set(ONE, each);
  assertEquals([lv.tags.has("denolith.held"), finder.require(await lvm.report(), ONE).tags.held], [false, undefined]);
  assertEquals(changed, [ONE, ONE, ONE, ONE]); // staging forgets what it knows of it
  const error = await assertRejects(() => held.set(OTHER, true), StorageError);
  assertEquals(error.kind, "NotFound");
});

Deno.test("adopt() makes the LV that of the other volume, without a source", async () => {
  const { held, lv, lvm, finder, changed } = await setUp();
  lv.tags.add(`denolith.source=volume:${OTHER}`);
  await held.adopt(ONE, OTHER);
  assertEquals([...lv.tags].filter((tag) => /volume|source/.test(tag)), [`denolith.volume=${OTHER}`]);
  const groups = await lvm.report();
  assertEquals([finder.locate(groups, ONE).state, finder.locate(groups, OTHER).state], ["absent", "present"]);
  assertEquals(changed, [ONE, OTHER]);
  const error = await assertRejects(() => held.adopt(ONE, OTHER), StorageError, "that does not exist");
  assertEquals(error.kind, "Unavailable");
});

Deno.test("adopt() leaves a copy that is not complete, and an LV that a program has open", async () => {
  const { held, lv, machine } = await setUp();
  lv.tags.add("denolith.copied=0").add(`denolith.source=volume:${OTHER}`);
  await assertRejects(() => held.adopt(ONE, OTHER), StorageError, "is not complete");
  lv.tags.delete("denolith.copied=0");
  using _open = machine.openDevice(`/dev/mapper/data-${lv.name.replaceAll("-", "--")}`);
  await assertRejects(() => held.adopt(ONE, OTHER), StorageError, "a program that has /dev/mapper/data-vol");
  assert(lv.tags.has(`denolith.volume=${ONE}`));
});
