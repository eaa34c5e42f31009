import { assertEquals, assertThrows } from "@std/assert";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import { newUuid } from "../../tests/fake/machine/machine.ts";
import { DRIVER } from "../../tests/fake/machine/status_machine.ts";
import { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import { SnapshotFinder } from "./snapshot_finder.ts";
import { VolumeFinder } from "./volume_finder.ts";

Deno.test("of a volume and its clone in an imported group, the recorded group decides; without a record both are named", async () => {
  const { machine, group, id, snapshotId, lv, snapshot } = healthyMachine();
  const clone = machine.addGroup("restored", group.size);
  clone.tags = new Set(group.tags);
  clone.lvs = group.lvs.map((each) => ({ ...each, tags: new Set(each.tags), active: false }));
  for (const recorded of [group, clone]) {
    const recordedLv = ({ uuid }: { uuid: string }) => ({
      lvUuid: uuid,
      groupName: recorded.name,
      groupUuid: recorded.uuid,
    });
    const report = await new Lvm(machine).report();
    const volumes = new VolumeFinder({ driver: DRIVER, recordedLv: () => recordedLv(lv) });
    assertEquals(volumes.require(report, id).group.name, recorded.name);
    const snapshots = new SnapshotFinder({ driver: DRIVER, recordedLv: () => recordedLv(snapshot) });
    const found = snapshots.stateOf(report, { id: snapshotId, source: id });
    assertEquals(found.state === "present" && found.found.group.name, recorded.name);
  }
  const report = await new Lvm(machine).report();
  const others = [undefined, { lvUuid: lv.uuid, groupName: "data", groupUuid: newUuid() }];
  for (const record of others) {
    const finder = new VolumeFinder({ driver: DRIVER, recordedLv: () => record });
    assertThrows(() => finder.require(report, id), StorageError, "both claim to be it");
  }
});

Deno.test("a lost volume or snapshot whose whole group is not there says so, and not that it is to be restored", async () => {
  const { machine, id, snapshotId } = healthyMachine();
  machine.groups.splice(0);
  machine.addGroup("other", 1n << 30n);
  const recordedLv = () => ({ lvUuid: newUuid(), groupName: "data", groupUuid: newUuid() });
  const report = await new Lvm(machine).report();
  const text =
    /^Lost: \w+ v1-\w+ was .* in volume group data, and this node has no volume group of that name\. .* may hide them/;
  const volume = new VolumeFinder({ driver: DRIVER, recordedLv }).locate(report, id);
  assertEquals(volume.state === "lost" && text.test(volume.error.message), true);
  const finder = new SnapshotFinder({ driver: DRIVER, recordedLv });
  const snapshot = finder.stateOf(report, { id: snapshotId, source: id });
  assertEquals(snapshot.state === "lost" && text.test(snapshot.error.message), true);
  assertThrows(
    () => new VolumeFinder({ driver: DRIVER }).require(report, id),
    StorageError,
    "only on the node where it is",
  );
});
