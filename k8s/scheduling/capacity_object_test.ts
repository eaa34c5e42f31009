import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import {
  capacityName,
  csiStorageCapacityFor,
  isManaged,
  maximumVolumeSizeOf,
  nextCapacityStep,
} from "./capacity_object.ts";
import type { Capacity } from "../sidecars/csi_client.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import type { CsiStorageCapacity } from "../api/objects.ts";

const GiB = 1n << 30n;
const DRIVER = "lvm.denolith.dev";
const KEY = "topology.lvm.denolith.dev/node";

function object(capacity: Partial<Capacity> = {}, uid = "u-1"): CsiStorageCapacity {
  const node: LvmNode = { metadata: { name: "n1", uid }, spec: { driverName: DRIVER } };
  const all = { available: 9n * GiB, largest: 5n * GiB, smallest: 4n << 20n, ...capacity };
  const target = { driverName: DRIVER, topologyKey: KEY, namespace: "system", node, className: "fast" };
  return csiStorageCapacityFor({ ...target, capacity: all });
}

/** Returns the object after a change by somebody else. */
function changed(change: (object: CsiStorageCapacity) => void): CsiStorageCapacity {
  const other = structuredClone(object());
  change(other);
  return other;
}

Deno.test("csiStorageCapacityFor() returns the capacity of a class on a node, with the node's LVMNode as its owner", () => {
  assertEquals(object(), {
    metadata: {
      name: capacityName(DRIVER, { nodeName: "n1", className: "fast" }),
      namespace: "system",
      labels: { "csi.storage.k8s.io/drivername": DRIVER, "csi.storage.k8s.io/managed-by": "denolith" },
      ownerReferences: [{ apiVersion: "lvm.denolith.dev/v1alpha1", kind: "LVMNode", name: "n1", uid: "u-1" }],
    },
    storageClassName: "fast",
    nodeTopology: { matchLabels: { [KEY]: "n1" } },
    capacity: "9Gi",
    maximumVolumeSize: "5Gi",
  });
});

Deno.test("csiStorageCapacityFor() returns a maximum size of 0 where the smallest volume of the class does not fit", () => {
  const { capacity, maximumVolumeSize } = object({ available: GiB, largest: GiB, smallest: 2n * GiB });
  assertEquals([capacity, maximumVolumeSize], ["1Gi", "0"]);
  assertEquals(object({ largest: GiB, smallest: GiB }).maximumVolumeSize, "1Gi");
  assertEquals(object({ available: 0n, largest: 0n, smallest: 0n }).maximumVolumeSize, "0");
});

Deno.test("capacityName() returns a valid name, which is the same for a node and class, and differs for others", () => {
  const name = (nodeName: string, className: string, driver = DRIVER) => capacityName(driver, { nodeName, className });
  assertMatch(name("n1", "fast"), /^n1\.fast\.[0-9a-f]{10}$/);
  assertEquals(name("n1", "fast"), name("n1", "fast"));
  assertNotEquals(name("a.b", "c"), name("a", "b.c"));
  assertNotEquals(name("n1", "fast"), name("n1", "fast", "other.driver"));
  const long = "c".repeat(170) + "-" + "d".repeat(82);
  assertNotEquals(name("n".repeat(63), long), name("n".repeat(63), long.slice(0, -1) + "e"));
  for (const className of ["x", long, "c".repeat(175) + "." + "d".repeat(77), "c".repeat(176) + "-" + "d".repeat(76)]) {
    const objectName = name("n".repeat(63), className);
    assert(objectName.length <= 253, `${objectName.length} characters`);
    assertMatch(objectName, /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/);
  }
});

Deno.test("isManaged() distinguishes our objects from those of the official provisioner and of other drivers", () => {
  assert(isManaged(object(), DRIVER));
  assert(!isManaged(object(), "other.driver"));
  assert(
    !isManaged(changed((it) => it.metadata.labels!["csi.storage.k8s.io/managed-by"] = "external-provisioner"), DRIVER),
  );
  assert(!isManaged(changed((it) => delete it.metadata.labels), DRIVER));
});

Deno.test("maximumVolumeSizeOf() returns the size that the scheduler compares with a claim", () => {
  assertEquals(maximumVolumeSizeOf(object()), 5n * GiB);
  assertEquals(maximumVolumeSizeOf(changed((it) => delete it.maximumVolumeSize)), 9n * GiB);
  assertEquals(maximumVolumeSizeOf(changed((it) => (delete it.maximumVolumeSize, delete it.capacity))), 0n);
});

Deno.test("nextCapacityStep() creates a missing object, deletes our obsolete ones, and keeps those of others", () => {
  assertEquals(nextCapacityStep(object(), undefined, DRIVER), "create");
  assertEquals(nextCapacityStep(undefined, undefined, DRIVER), "nothing");
  assertEquals(nextCapacityStep(undefined, object(), DRIVER), "delete");
  assertEquals(nextCapacityStep(undefined, changed((it) => it.metadata.labels = {}), DRIVER), "nothing");
});

const CHANGES: [string, (object: CsiStorageCapacity) => void, ReturnType<typeof nextCapacityStep>][] = [
  ["nothing", () => {}, "nothing"],
  ["its revision", (it) => it.metadata.resourceVersion = "7", "nothing"],
  ["the same size otherwise written", (it) => it.capacity = "9216Mi", "nothing"],
  ["a label of somebody's", (it) => it.metadata.labels!["a"] = "b", "nothing"],
  ["the capacity", (it) => it.capacity = "10Gi", "patch"],
  ["no capacity", (it) => delete it.capacity, "patch"],
  ["the largest size", (it) => it.maximumVolumeSize = "6Gi", "patch"],
  ["no largest size", (it) => delete it.maximumVolumeSize, "patch"],
  ["no labels", (it) => delete it.metadata.labels, "patch"],
  ["no owner", (it) => delete it.metadata.ownerReferences, "patch"],
  ["an owner of before", (it) => it.metadata.ownerReferences![0]!.uid = "u-0", "patch"],
  [
    "a second owner",
    (it) => it.metadata.ownerReferences!.push({ ...it.metadata.ownerReferences![0]!, uid: "x" }),
    "patch",
  ],
  ["another class", (it) => it.storageClassName = "slow", "delete"],
  ["another node", (it) => it.nodeTopology = { matchLabels: { [KEY]: "n2" } }, "delete"],
  ["no node", (it) => delete it.nodeTopology, "delete"],
  ["more nodes", (it) => it.nodeTopology!.matchExpressions = [{ key: "a", operator: "Exists" }], "delete"],
];

Deno.test.each(CHANGES)("nextStep() of an object with %s", (_, change, step) => {
  assertEquals(nextCapacityStep(object(), changed(change), DRIVER), step);
});
