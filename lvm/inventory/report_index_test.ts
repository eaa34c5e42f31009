import { assert, assertEquals } from "@std/assert";
import { FakeMachine, newUuid } from "../../tests/fake/machine/machine.ts";
import { blankContent } from "../../tests/fake/machine/device_content.ts";
import { snapshotIdOf, snapshotLvName, volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { Lvm } from "../client/client.ts";
import type { VolumeGroup } from "../model/report.ts";
import { snapshotTags, usedTag, volumeTags } from "../model/tags.ts";
import { SnapshotFinder } from "./snapshot_finder.ts";
import { takeInventory } from "./inventory.ts";
import { VolumeFinder } from "./volume_finder.ts";

const DRIVER = "d";

/** Returns a report of a group with as many used volumes, each with a snapshot, that counts how often tags are read. */
async function createReport(count: number): Promise<{ groups: VolumeGroup[]; tagReads: () => number }> {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 50n);
  const common = { size: 32n << 20n, active: true, suspended: false, permission: "rw", setReadOnly: false } as const;
  for (let number = 0; number < count; number++) {
    const [id, snapshot, uuid] = [volumeIdOf(`${number}`), snapshotIdOf(`${number}`), newUuid()];
    const lv = { ...common, minor: number, createdAt: 1, cowPercent: 0, invalid: false, zeroedTo: 0n };
    const tags = volumeTags(DRIVER, { id, format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "zero" });
    const ofSnapshot = snapshotTags(DRIVER, { id: snapshot, source: id, erase: "zero" });
    const name = volumeLvName(id);
    const origin = { name, size: lv.size };
    group.lvs.push(
      { ...lv, name, uuid, tags: new Set(tags), content: blankContent() },
      {
        ...lv,
        name: snapshotLvName(snapshot),
        uuid: newUuid(),
        tags: new Set(ofSnapshot),
        content: blankContent(),
        origin,
      },
    );
    group.tags.add(usedTag(DRIVER, id, uuid));
  }
  let reads = 0;
  const groups = (await new Lvm(machine).report()).map((each) => ({
    ...each,
    lvs: each.lvs.map(({ tags, ...lv }) =>
      Object.defineProperty({ ...lv, tags }, "tags", { get: () => (reads++, tags) })
    ),
  }));
  return { groups, tagReads: () => reads };
}

Deno.test("the tags of an LV are read a few times, however many volumes and snapshots are listed", async () => {
  const count = 50;
  const { groups, tagReads } = await createReport(count);
  const volumes = new VolumeFinder({ driver: DRIVER });
  const snapshots = new SnapshotFinder({ driver: DRIVER });
  const lists = {
    volumes: () => volumes.list(groups),
    snapshots: () => snapshots.list(groups),
    inventory: () => takeInventory(groups, { volumes, snapshots }).volumes,
    states: () =>
      groups[0]!.lvs.slice(0, count).map((_, number) =>
        snapshots.stateOf(groups, { id: snapshotIdOf(`${number}`), source: volumeIdOf(`${number}`) })
      ),
  };
  for (const [name, list] of Object.entries(lists)) {
    const before = tagReads();
    assertEquals([name, list().length], [name, count]);
    const perLv = (tagReads() - before) / (2 * count);
    assert(perLv < 20, `${name} reads the tags of each LV ${perLv} times`);
  }
});
