/**
 * Helpers for the suites of copies: a claim in use that is copied.
 *
 * @module
 */

import type { TestNamespace } from "./test_namespace.ts";
import { QUICK, SLEEP } from "./objects.ts";

/** Makes a claim `data`, and a pod `writer` that has it and has written to it; answers the class. */
export async function addWriter(ns: TestNamespace, { size = "16Mi", fsType = "ext4" } = {}): Promise<string> {
  const parameters = { ...QUICK, "csi.storage.k8s.io/fstype": fsType };
  const className = await ns.createStorageClass("plain", { parameters });
  await ns.createClaim({ name: "data", class: className, size });
  await ns.createPod({ name: "writer", claims: [{ name: "data", path: "/data" }], command: SLEEP });
  await ns.waitForRunning("writer");
  await ns.exec("writer", "echo before > /data/file && sync");
  return className;
}
