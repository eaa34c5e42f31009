import { assertEquals } from "@std/assert";
import { otherFinalizers, persistentVolumeFor, VOLUME_FINALIZER } from "./persistent_volume.ts";

Deno.test("persistentVolumeFor() names the labels of the nodes in the order of their keys, so that it is always the same", () => {
  const inputs = {
    claim: { metadata: { name: "data", namespace: "default", uid: "u" }, spec: {} },
    storageClass: { metadata: { name: "now" }, provisioner: "lvm.denolith.dev" },
    classParameters: { secrets: {} },
    request: { name: "pvc-u", requiredBytes: 1n << 30n, capabilities: [] },
  };
  const affinityOf = (topology: readonly Record<string, string>[]) =>
    persistentVolumeFor("lvm.denolith.dev", inputs as never, {
      ...{ volumeId: "v", capacityBytes: 0n, volumeContext: {} },
      topology,
    }).spec!.nodeAffinity;
  const term = (...pairs: [string, string][]) => ({
    matchExpressions: pairs.map(([key, value]) => ({ key, operator: "In", values: [value] })),
  });
  const expected = {
    required: { nodeSelectorTerms: [term(["node", "a"], ["rack", "r"], ["zone", "z"]), term(["node", "b"])] },
  };
  assertEquals(affinityOf([{ zone: "z", node: "a", rack: "r" }, { node: "b" }]), expected);
  assertEquals(affinityOf([]), undefined);
});

Deno.test("otherFinalizers() returns the finalizers of others", () => {
  assertEquals(otherFinalizers({ metadata: { name: "v", finalizers: ["a/b", VOLUME_FINALIZER, "c"] } }), ["a/b", "c"]);
  assertEquals(otherFinalizers({ metadata: { name: "v" } }), []);
});
