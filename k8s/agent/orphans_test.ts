import { assert, assertEquals } from "@std/assert";
import { snapshotIdOf, volumeIdOf } from "../../lvm/ids.ts";
import type { Stray } from "../../lvm/inventory/inventory.ts";
import { FULL_STORE } from "../../lvm/spec/cow_size.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { LvmSnapshot, LvmVolume } from "../api/lvm_objects.ts";
import {
  knownBy,
  NONE_KNOWN,
  orphanFound,
  orphansCondition,
  removalWish,
  REMOVE_ORPHANS_ANNOTATION,
} from "./orphans.ts";
import { lvmSnapshotFor } from "../api/snapshot_mapping.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";

const WHOSE = { driver: "lvm.denolith.dev", nodeName: "n1" };

function object(name: string, { driver, nodeName } = WHOSE): LvmVolume {
  return lvmVolumeFor(namedRequest(name, 1n << 30n), { driver, nodeName }) as LvmVolume;
}

function snapshot(name: string, { driver, nodeName } = WHOSE): LvmSnapshot {
  const request = { id: snapshotIdOf(name), name, source: volumeIdOf("made"), store: FULL_STORE };
  return lvmSnapshotFor(request, { driver, nodeName });
}

function stray(number: number): Stray {
  const id = volumeIdOf(`pvc-${number}`);
  const at = { on: `data/vol-${number}`, group: "data", uuid: `uuid-${number}`, size: 64n << 20n };
  return { ...at, claim: { of: "volume", id, removal: `give up uuid-${number}` } };
}

Deno.test("knownBy() knows the volumes and snapshots of its driver and node, and what is recorded of volumes that were made", () => {
  const made = { ...object("made"), status: { lvUUID: "uuid", volumeGroup: "data" } };
  const others = [object("other", { ...WHOSE, nodeName: "n2" }), object("foreign", { ...WHOSE, driver: "x" })];
  const cuts = [
    snapshot("cut"),
    snapshot("far", { ...WHOSE, nodeName: "n2" }),
    snapshot("odd", { ...WHOSE, driver: "x" }),
  ];
  const objects = { volumes: [object("wanted"), made, ...others], snapshots: cuts };
  const { volumes, snapshots, removal } = knownBy(objects, WHOSE);
  assertEquals([...volumes], [
    [volumeIdOf("wanted"), undefined],
    [volumeIdOf("made"), { lvUuid: "uuid", groupName: "data" }],
  ]);
  assertEquals([...snapshots], [snapshotIdOf("cut")]);
  assertEquals(removal("a-b"), "kubectl annotate lvmnode n1 --overwrite lvm.denolith.dev/remove-orphans=a-b");
});

Deno.test("removalWish() reads UUIDs, and whether it is right that nothing is known", () => {
  const wish = (value: string) => {
    const { lvUuids, noneKnown } = removalWish({ [REMOVE_ORPHANS_ANNOTATION]: value });
    return [[...lvUuids].filter((one) => one !== NONE_KNOWN), noneKnown];
  };
  assertEquals(wish("a-b"), [["a-b"], false]);
  assertEquals(wish(" a-b, c-d,,"), [["a-b", "c-d"], false]);
  assertEquals(wish(`${NONE_KNOWN},a-b`), [["a-b"], true]);
  assertEquals(wish(""), [[], false]);
  assertEquals([...removalWish().lvUuids, ...removalWish({ "other/annotation": "a-b" }).lvUuids], []);
});

Deno.test("orphansCondition() names orphans with their sizes, and not more than can be read", () => {
  const { status, reason } = orphansCondition([]);
  assertEquals([status, reason], ["False", "None"]);
  const few = orphansCondition([stray(1), stray(2)]);
  assertEquals([few.type, few.status, few.reason], ["Orphans", "True", "Found"]);
  assert(few.message.includes("data/vol-1 (64 MiB), UUID uuid-1; data/vol-2 (64 MiB), UUID uuid-2."), few.message);
  const many = orphansCondition(Array.from({ length: 1000 }, (_, number) => stray(number)));
  assert(many.message.startsWith("1000 of the driver's") && many.message.includes(" and 968 more."), many.message);
  assert(many.message.length < 32_768, "the API takes no longer one");
});

Deno.test("orphanFound() names the command to give it up, or who can tell more", () => {
  assert(orphanFound(stray(1)).includes(`no LVMVolume ${volumeIdOf("pvc-1")} of this node`));
  assert(orphanFound(stray(1)).endsWith(": give up uuid-1"));
  const { claim: _, ...unreadable } = stray(1);
  assert(orphanFound(unreadable).includes("denolith doctor"));
  const long = { ...stray(1), on: `${"g".repeat(127)}/${"l".repeat(127)}` };
  assert(orphanFound(long).length < 1024, "an event takes no longer message");
});
