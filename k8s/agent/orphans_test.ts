import { assert, assertEquals } from "@std/assert";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { OrphanLv } from "../../lvm/inventory/inventory.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import {
  knownObjects,
  NONE_KNOWN,
  orphanFoundMessage,
  orphansCondition,
  removalRequestOf,
  REMOVE_ORPHANS_ANNOTATION,
} from "./orphans.ts";
import { lvmSnapshotFor } from "../api/snapshot_mapping.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";

const NODE_DRIVER = { driver: "lvm.denolith.dev", nodeName: "n1" };

function object(name: string, { driver, nodeName } = NODE_DRIVER): LvmVolume {
  return lvmVolumeFor(namedRequest(name, 1n << 30n), { driver, nodeName }) as LvmVolume;
}

function snapshot(name: string, { driver, nodeName } = NODE_DRIVER): LvmSnapshot {
  const request = { id: snapshotIdOf(name), name, source: volumeIdOf("made"), cowSize: FULL_COW };
  return lvmSnapshotFor(request, { driver, nodeName });
}

function orphan(number: number): OrphanLv {
  const id = volumeIdOf(`pvc-${number}`);
  const at = { lvFullName: `data/vol-${number}`, group: "data", uuid: `uuid-${number}`, size: 64n << 20n };
  return { ...at, taggedAs: { kind: "volume", id, removeCommand: `give up uuid-${number}` } };
}

Deno.test("knownObjects() returns the volumes and snapshots of its driver and node, with the records of created volumes", () => {
  const made = { ...object("made"), status: { lvUUID: "uuid", volumeGroup: "data" } };
  const others = [
    object("other", { ...NODE_DRIVER, nodeName: "n2" }),
    object("foreign", { ...NODE_DRIVER, driver: "x" }),
  ];
  const snapshotObjects = [
    snapshot("cut"),
    snapshot("far", { ...NODE_DRIVER, nodeName: "n2" }),
    snapshot("odd", { ...NODE_DRIVER, driver: "x" }),
  ];
  const objects = { volumes: [object("wanted"), made, ...others], snapshots: snapshotObjects };
  const { volumes, snapshots, removeCommand } = knownObjects(objects, NODE_DRIVER);
  assertEquals([...volumes], [
    [volumeIdOf("wanted"), undefined],
    [volumeIdOf("made"), { lvUuid: "uuid", groupName: "data" }],
  ]);
  assertEquals([...snapshots], [snapshotIdOf("cut")]);
  assertEquals(
    removeCommand("a-b"),
    "kubectl annotate lvmnodes.lvm.denolith.dev n1 --overwrite lvm.denolith.dev/remove-orphans=a-b",
  );
});

Deno.test("removalRequestOf() reads UUIDs, and the confirmation that the cluster has no objects", () => {
  const requestOf = (value: string) => {
    const { lvUuids, noneKnown } = removalRequestOf({ [REMOVE_ORPHANS_ANNOTATION]: value });
    return [[...lvUuids].filter((one) => one !== NONE_KNOWN), noneKnown];
  };
  assertEquals(requestOf("a-b"), [["a-b"], false]);
  assertEquals(requestOf(" a-b, c-d,,"), [["a-b", "c-d"], false]);
  assertEquals(requestOf(`${NONE_KNOWN},a-b`), [["a-b"], true]);
  assertEquals(requestOf(""), [[], false]);
  assertEquals([...removalRequestOf().lvUuids, ...removalRequestOf({ "other/annotation": "a-b" }).lvUuids], []);
});

Deno.test("orphansCondition() names orphans with their sizes, and not more than can be read", () => {
  const { status, reason } = orphansCondition([]);
  assertEquals([status, reason], ["False", "NoOrphans"]);
  const few = orphansCondition([orphan(1), orphan(2)]);
  assertEquals([few.type, few.status, few.reason], ["Orphans", "True", "OrphansFound"]);
  assert(few.message.includes("data/vol-1 (64 MiB), UUID uuid-1; data/vol-2 (64 MiB), UUID uuid-2."), few.message);
  const many = orphansCondition(Array.from({ length: 1000 }, (_, number) => orphan(number)));
  assert(many.message.startsWith("1000 of the driver's") && many.message.includes(" and 968 more."), many.message);
  assert(many.message.length < 32_768, "the API takes no longer one");
});

Deno.test("orphanFoundMessage() names the command that removes the orphan, or where to read more", () => {
  assert(orphanFoundMessage(orphan(1)).includes(`no LVMVolume ${volumeIdOf("pvc-1")} on this node`));
  assert(orphanFoundMessage(orphan(1)).endsWith(": give up uuid-1"));
  const { taggedAs: _, ...unreadable } = orphan(1);
  assert(orphanFoundMessage(unreadable).includes("denolith doctor"));
  const long = { ...orphan(1), lvFullName: `${"g".repeat(127)}/${"l".repeat(127)}` };
  assert(orphanFoundMessage(long).length < 1024, "an event takes no longer message");
});
