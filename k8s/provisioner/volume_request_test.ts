import { assertEquals, assertThrows } from "@std/assert";
import { ClaimError } from "../sidecars/class_parameters.ts";
import type { PersistentVolumeClaim, StorageClass } from "../api/objects.ts";
import { createVolumeRequestFor, requireProvisionable } from "./volume_request.ts";

const storageClass: StorageClass = { metadata: { name: "fast" }, provisioner: "d", mountOptions: ["noatime"] };
const options = {
  classParameters: { fsType: "", secrets: {}, parameters: {} },
  topology: { requisite: [], preferred: [] },
  mutableParameters: {},
  secrets: {},
};

function claim(spec: NonNullable<PersistentVolumeClaim["spec"]>): PersistentVolumeClaim {
  return {
    metadata: { name: "data", namespace: "team", uid: "1" },
    spec: { storageClassName: "fast", accessModes: ["ReadWriteOnce"], ...spec },
  };
}

Deno.test("createVolumeRequestFor() has a capability for each access mode", () => {
  const given = claim({ accessModes: ["ReadWriteOnce", "ReadOnlyMany"], resources: { requests: { storage: "1e9" } } });
  const { name, claim: of, requiredBytes, capabilities } = createVolumeRequestFor(given, storageClass, options);
  assertEquals([name, of, requiredBytes], ["pvc-1", { namespace: "team", name: "data", uid: "1" }, 10n ** 9n]);
  const access = { kind: "mount", fsType: "", flags: ["noatime"] } as const;
  assertEquals(capabilities, [
    { mode: "SINGLE_NODE_MULTI_WRITER", access },
    { mode: "MULTI_NODE_READER_ONLY", access },
  ]);
});

Deno.test("a claim that cannot be satisfied is refused before the driver is called", () => {
  const resources = { requests: { storage: "1Gi" } };
  const request = (given: PersistentVolumeClaim) => () =>
    createVolumeRequestFor(given, requireProvisionable(given, storageClass), options);
  assertThrows(request(claim({})), ClaimError, "resources.requests.storage");
  assertThrows(request(claim({ resources: { requests: { storage: "much" } } })), ClaimError, "no quantity");
  assertThrows(request(claim({ resources, accessModes: [] })), ClaimError, "accessModes");
  assertThrows(request(claim({ resources, selector: {} })), ClaimError, "selector");
  assertThrows(
    () => requireProvisionable(claim({ resources }), undefined),
    ClaimError,
    'storageClassName "fast": there is no such',
  );
});
