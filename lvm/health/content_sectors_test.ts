import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { passphraseHarness } from "../../tests/fake/machine/passphrase_harness.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { mappingPath } from "../encryption/mapping.ts";
import { Lvm } from "../client/client.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import type { VolumeRequest } from "../inventory/volume.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";
import { contentSectors } from "./sectors.ts";

/** Creates a volume, and what reads its sectors. */
async function setUp(format: VolumeRequest["format"] = { state: "raw" }) {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const finder = new VolumeFinder({ driver: "test" });
  const { id } = namedRequest("one", 32n << 20n);
  const volumes = new Volumes({ lvm, finder, reservation: new PoolReservation(lvm), reaper: { wake: () => {} } });
  await volumes.create({ ...namedRequest("one", 32n << 20n), format });
  const { lv } = machine.allLvs()[0]!;
  const seen = { reads: 0, errors: [] as unknown[] };
  const commands: string[] = [];
  machine.fault = ({ program }) => void commands.push(program);
  const sectors = contentSectors(machine, {
    onRead: () => void seen.reads++,
    onError: (error) => void seen.errors.push(error),
  });
  /** Returns what is known by a new report, and then after what is read because of it. */
  const read = async () => {
    const [before, after] = [sectors.of(finder.require(await lvm.report(), id)), sectors.idle()];
    await after;
    return [before, sectors.of(finder.require(await lvm.report(), id))];
  };
  return { machine, lv, sectors, read, seen, commands, id };
}

Deno.test("contentSectors() reads the sectors of a block volume once, when it is in use", async () => {
  const { machine, lv, read, seen, commands, sectors, id } = await setUp();
  machine.groups[0]!.sectorBytes = 4_096;
  assertEquals(await read(), [undefined, undefined]);
  assertEquals(commands.includes("lsblk"), false);
  machine.openLvs.push(lv);
  assertEquals(await read(), [undefined, 4_096n]);
  machine.openLvs.splice(0);
  assertEquals(await read(), [4_096n, 4_096n]);
  assertEquals([seen.reads, commands.filter((each) => each === "lsblk").length], [1, 1]);
  sectors.forget(id);
  assertEquals(await read(), [undefined, undefined]);
});

Deno.test("contentSectors() reads the sectors from a filesystem, and nothing of one that is not complete", async () => {
  for (const [state, bytes] of [["formatted", 1_024n], ["formatting", undefined]] as const) {
    const { machine, lv, read } = await setUp({ state: "unformatted", type: "ext4" });
    lv.tags = new Set([...lv.tags].filter((tag) => !tag.startsWith("denolith.fs=")));
    lv.tags.add(`denolith.fs=${state}:ext4:11111111-2222-3333-4444-555555555555`);
    Object.assign(lv.content, { signatures: [{ type: "ext4", uuid: "u" }], blockBytes: 1_024n });
    machine.openLvs.push(lv);
    assertEquals(await read(), [undefined, bytes]);
  }
});

Deno.test("contentSectors() tells why it cannot read, and reads again when the volume is used again", async () => {
  const { machine, lv, read, seen } = await setUp();
  machine.openLvs.push(lv);
  machine.fault = ({ program }) => program === "lsblk" ? failure(32, "lsblk: not a block device") : undefined;
  assertEquals(await read(), [undefined, undefined]);
  machine.fault = undefined;
  assertEquals([await read(), seen.errors.length, seen.reads], [[undefined, undefined], 1, 0]);
  machine.openLvs.splice(0);
  assertEquals(await read(), [undefined, undefined]);
  machine.openLvs.push(lv);
  assertEquals([await read(), seen.errors.length, seen.reads], [[undefined, 512n], 1, 1]);
});

Deno.test("contentSectors() reads of another LV of the volume, not of a suspended one, and nothing after its end", async () => {
  const { machine, lv, read, sectors, seen } = await setUp();
  machine.openLvs.push(lv);
  assertEquals(await read(), [undefined, 512n]);
  Object.assign(lv, { uuid: "another", suspended: true });
  machine.groups[0]!.sectorBytes = 4_096;
  assertEquals(await read(), [undefined, undefined]);
  lv.suspended = false;
  assertEquals(await read(), [undefined, 4_096n]);
  lv.uuid = "a third";
  await sectors.stop();
  assertEquals([await read(), seen.reads, seen.errors], [[undefined, undefined], 2, []]);
});

Deno.test("contentSectors() reads of an encrypted volume what its mapping has", async () => {
  const s = await passphraseHarness("OLD");
  await s.stage("OLD");
  const paths: string[] = [];
  s.machine.fault = ({ program, args }) => void (program === "lsblk" && paths.push(args.at(-1)!));
  const sectors = contentSectors(s.machine, { onRead: () => {}, onError: () => {} });
  sectors.of(await s.find());
  await sectors.idle();
  const volume = await s.find();
  assertEquals([sectors.of(volume), paths], [512n, [mappingPath(volume.id)]]);
});
