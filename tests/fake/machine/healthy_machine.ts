/**
 * A fake machine without problems, with a volume and a snapshot of the driver.
 *
 * @module
 */

import { snapshotIdOf, snapshotLvName, volumeIdOf, volumeLvName } from "../../../base/ids.ts";
import { snapshotTags, usedTag, volumeTags } from "../../../lvm/model/tags.ts";
import { devicePath, FakeMachine, newUuid } from "./machine.ts";
import { blankContent } from "./device_content.ts";

const DRIVER = "lvm.denolith.dev";

/**
 * Creates a machine whose group `data` has a volume that is staged at `/staging`, and a snapshot of it with a small COW
 * space.
 */
export function healthyMachine() {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n);
  const id = volumeIdOf("one");
  const snapshotId = snapshotIdOf("cut");
  const uuid = "11111111-2222-3333-4444-555555555555";
  const size = 64n << 20n;
  const format = { state: "formatted", type: "ext4", uuid } as const;
  const lv = {
    name: volumeLvName(id),
    uuid: newUuid(),
    size,
    tags: new Set(volumeTags(DRIVER, { id, format, mkfsOptions: [], shared: true, erase: "zero" })),
    active: true,
    permission: "rw" as const,
    setReadOnly: false,
    minor: machine.nextMinor(),
    createdAt: 1,
    content: { ...blankContent(), signatures: [{ type: "ext4", uuid }], filesystemBytes: size },
    cowPercent: 0,
    invalid: false,
    suspended: false,
    zeroedTo: 0n,
  };
  const snapshot = {
    ...lv,
    name: snapshotLvName(snapshotId),
    uuid: newUuid(),
    size: 16n << 20n,
    tags: new Set(snapshotTags(DRIVER, { id: snapshotId, source: id, erase: "zero" })),
    minor: lv.minor + 1,
    origin: { name: lv.name, size },
  };
  group.lvs.push(lv, snapshot);
  group.tags.add(usedTag(DRIVER, id, lv.uuid));
  const source = devicePath(group, lv);
  const deviceNumber = `253:${lv.minor}`;
  machine.mounts.push({ target: "/staging", source, fsType: "ext4", root: "/", readOnly: false, deviceNumber, lv });
  return { machine, group, id, snapshotId, lv, snapshot, uuid, device: source.replace("/dev/mapper/", "") };
}
