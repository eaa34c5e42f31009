import { assertEquals } from "@std/assert";
import { claimUidOf, classNameOf, dataSourceOf, shouldProvision, volumeNameOf, waitsForConsumer } from "./claim.ts";
import type { PersistentVolumeClaim } from "../api/objects.ts";

type Spec = NonNullable<PersistentVolumeClaim["spec"]>;

function claim(annotations: Record<string, string>, spec: Spec = {}, rest = {}): PersistentVolumeClaim {
  return { metadata: { name: "data", namespace: "default", uid: "1", annotations, ...rest }, spec };
}

Deno.test("shouldProvision() reads the provisioner's annotation, and prefers its newer name to the beta one", () => {
  const [now, beta] = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
  const cases: [PersistentVolumeClaim, boolean][] = [
    [claim({ [now]: "d" }), true],
    [claim({ [beta]: "d" }), true],
    [claim({ [now]: "other", [beta]: "d" }), false],
    [claim({}), false],
    [claim({ [now]: "d" }, { volumeName: "v" }), false],
    [claim({ [now]: "d" }, {}, { deletionTimestamp: "2026-01-01T00:00:00Z" }), false],
  ];
  for (const [given, wants] of cases) assertEquals(shouldProvision(given, "d"), wants, JSON.stringify(given));
});

Deno.test("classNameOf() reads the annotation before the field", () => {
  assertEquals(classNameOf(claim({}, { storageClassName: "fast" })), "fast");
  const annotations = { "volume.beta.kubernetes.io/storage-class": "old" };
  assertEquals(classNameOf(claim(annotations, { storageClassName: "fast" })), "old");
  assertEquals(classNameOf(claim({})), "");
});

Deno.test("waitsForConsumer() returns true until the scheduler chose a node", () => {
  const later = { metadata: { name: "c" }, provisioner: "d", volumeBindingMode: "WaitForFirstConsumer" };
  assertEquals(waitsForConsumer(claim({}), later), true);
  assertEquals(waitsForConsumer(claim({ "volume.kubernetes.io/selected-node": "" }), later), true);
  assertEquals(waitsForConsumer(claim({ "volume.kubernetes.io/selected-node": "a" }), later), false);
  assertEquals(waitsForConsumer(claim({}), { ...later, volumeBindingMode: "Immediate" }), false);
});

Deno.test("claimUidOf() parses the names that volumeNameOf() returns, and no others", () => {
  const uid = crypto.randomUUID();
  assertEquals(claimUidOf(volumeNameOf(uid)), uid);
  for (const name of ["pvc-", "pvc-1", `my-pvc-${uid}`, `pvc-${uid}-2`, uid]) assertEquals(claimUidOf(name), undefined);
});

Deno.test("dataSourceOf() distinguishes content sources of the driver from those of others", () => {
  const kindOf = (spec: Spec) => dataSourceOf(claim({}, spec)).kind;
  assertEquals(kindOf({}), "nothing");
  const snapshot = { apiGroup: "snapshot.storage.k8s.io", kind: "VolumeSnapshot", name: "s" };
  assertEquals(kindOf({ dataSource: snapshot, dataSourceRef: snapshot }), "snapshot");
  assertEquals(kindOf({ dataSourceRef: { kind: "PersistentVolumeClaim", name: "c" } }), "claim");
  assertEquals(
    kindOf({ dataSourceRef: { apiGroup: "other.example", kind: "VolumeSnapshot", name: "s" } }),
    "populator",
  );
  const source = (namespace: string) =>
    dataSourceOf(claim({}, { dataSourceRef: { kind: "PersistentVolumeClaim", name: "c", namespace } }));
  assertEquals(source("team"), { kind: "claim", name: "c", namespace: "team" });
  assertEquals(source(""), { kind: "claim", name: "c", namespace: undefined }); // its own
});
