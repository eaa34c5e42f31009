import { assert, assertEquals } from "@std/assert";
import { readObjects } from "../../deploy/objects.ts";
import type { KubeObject } from "../../k8s/api/objects.ts";
import { readRecords, type RecordedCluster } from "./recorded.ts";
import { validator } from "./schemas.ts";

const { objects } = readRecords<{ objects: readonly KubeObject[] }>("objects.json");
const { clusters } = readRecords<{ clusters: readonly RecordedCluster[] }>("clusters.json");
const schemas = new Map(
  readObjects("crds").map(({ spec }) => [spec.names.kind, spec.versions[0].schema.openAPIV3Schema]),
);

Deno.test("the objects of version 0.1.0 are valid by the definitions of this version, which have all their fields", () => {
  assertEquals([...new Set(objects.map(({ kind }) => kind))].sort(), [
    "CSIStorageCapacity",
    "LVMNode",
    "LVMSnapshot",
    "LVMVolume",
    "Lease",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "VolumeSnapshotContent",
  ]);
  const validate = validator(schemas, "refused");
  const all = [...objects, ...clusters.flatMap(({ objects }) => objects)];
  assertEquals(all.flatMap(validate), []);
});

Deno.test("the validation sees an unknown field, a missing field and a wrong value", () => {
  const volume = objects.find(({ kind }) => kind === "LVMVolume") as KubeObject & { spec: Record<string, unknown> };
  const { driverName: _, ...rest } = volume.spec;
  const validate = validator(schemas, "refused");
  for (const spec of [{ ...volume.spec, other: 1 }, rest, { ...volume.spec, size: 1 }]) {
    assert(validate({ ...volume, spec } as KubeObject).length > 0, JSON.stringify(spec));
  }
});
