import { assertEquals } from "@std/assert";
import type { PersistentVolume } from "../api/objects.ts";
import { deletionSecretOf, expandSecretOf, modifySecretOf, secretAnnotations } from "./volume_secrets.ts";

const at = (name: string) => ({ name, namespace: "keys" });

Deno.test("secretAnnotations() writes what the official sidecars read, and the functions beside it read it back", () => {
  const annotations = secretAnnotations({
    secrets: { provisioner: at("deletion"), "controller-modify": at("modify") },
  } as never);
  assertEquals(annotations, {
    "volume.kubernetes.io/provisioner-deletion-secret-name": "deletion",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "keys",
    "volume.kubernetes.io/controller-modify-secret-name": "modify",
    "volume.kubernetes.io/controller-modify-secret-namespace": "keys",
  });
  const volume: PersistentVolume = { metadata: { name: "v", annotations } };
  assertEquals([deletionSecretOf(volume), modifySecretOf(volume)], [at("deletion"), at("modify")]);
  const none: PersistentVolume = { metadata: { name: "v", annotations: secretAnnotations({ secrets: {} } as never) } };
  assertEquals(none.metadata.annotations, {
    "volume.kubernetes.io/provisioner-deletion-secret-name": "",
    "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
  });
  assertEquals([deletionSecretOf(none), modifySecretOf(none), expandSecretOf(none)], [undefined, undefined, undefined]);
});

Deno.test("modifySecretOf() returns the secret for expansion when a PersistentVolume names no other", () => {
  const csi = { driver: "d", volumeHandle: "h", controllerExpandSecretRef: at("expand") };
  assertEquals(modifySecretOf({ metadata: { name: "v" }, spec: { csi } }), at("expand"));
});
