/**
 * Encrypted volumes, whose passphrases are in Secrets that kubelet reads.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { SYSTEM_NAMESPACE } from "./driver_pods.ts";
import { DRIVER, QUICK } from "./objects.ts";
import { requestSize, waitForSize } from "./resizing.ts";
import { TestNamespace } from "./test_namespace.ts";

const KEYS = "csi.storage.k8s.io/node-stage-secret";

/** Returns a passphrase that nothing else contains. */
function newPassphrase(): string {
  return `denolith-test-${crypto.randomUUID()}`;
}

Deno.test("volumes are encrypted by the passphrases of their claims' Secrets, grow under a pod, and are read again", async () => {
  await using ns = await TestNamespace.open("luks");
  const names = { [`${KEYS}-name`]: "${pvc.name}-luks", [`${KEYS}-namespace`]: "${pvc.namespace}" };
  const parameters = { ...QUICK, encryption: "luks2", ...names };
  const cls = await ns.createStorageClass("encrypted", { parameters });
  const passphrase = newPassphrase();
  const secret = (name: string, data: object) => ({ apiVersion: "v1", kind: "Secret", metadata: { name }, ...data });
  for (const name of ["data", "raw"]) await ns.apply(secret(`${name}-luks`, { stringData: { passphrase } }));
  await ns.createClaim({ name: "data", class: cls, size: "48Mi" });
  await ns.createClaim({ name: "raw", class: cls, size: "32Mi", volumeMode: "Block" });
  const claims = [{ name: "data", path: "/data" }, { name: "raw", devicePath: "/raw" }];
  await ns.createPod({ name: "writer", claims });
  await ns.waitForRunning("writer");
  await ns.exec("writer", "echo readable-text > /data/file; echo readable-text | dd of=/raw conv=fsync; sync");
  const { spec } = await ns.volumeOf("data");
  assertEquals(spec!.csi!.nodeStageSecretRef, { name: "data-luks", namespace: ns.namespace });
  assertEquals(spec!.csi!.volumeAttributes, { encryption: "luks2" });

  const sizes = "df -kP /data | tail -1 | awk '{ print $2 }'; blockdev --getsize64 /raw";
  const [before, rawBefore] = (await ns.exec("writer", sizes)).split("\n");
  assertEquals(rawBefore, String(16 << 20));
  await Promise.all([requestSize(ns, "data", "80Mi"), requestSize(ns, "raw", "64Mi")]);
  await Promise.all([waitForSize(ns, "data", "80Mi"), waitForSize(ns, "raw", "64Mi")]);
  const [after, raw] = (await ns.exec("writer", sizes)).split("\n");
  assert(Number(after) > Number(before) * 1.5, `${before} KiB became ${after} KiB`);
  assertEquals(raw, String(48 << 20));
  await ns.deleteAndWait("Pod", "writer");

  for (const claim of ["data", "raw"]) {
    const { name, group } = await ns.lvOf(claim);
    const path = `/dev/mapper/${group}-${name.replaceAll("-", "--")}`;
    assertMatch(await ns.runOnNode(`wipefs --no-act --noheadings --output TYPE ${path}`), /crypto_LUKS/);
    assertEquals((await ns.runOnNode(`grep -c readable-text ${path} || true`)).trim(), "0", claim);
  }
  assertMatch(await ns.runOnNode("dmsetup ls --target crypt"), /^(?:No devices found)?\s*$/);

  await ns.apply(secret("data-luks", { stringData: { passphrase: newPassphrase() } }));
  await ns.createPod({ name: "stranger", claims: claims.slice(0, 1) });
  await ns.waitForEvent("Pod", "stranger", "FailedMount", /opens none of its key slots/);
  await ns.apply(secret("data-luks", { stringData: { passphrase } }));
  await ns.waitForRunning("stranger");
  assertEquals((await ns.exec("stranger", "cat /data/file")).trim(), "readable-text");
  await ns.deleteAndWait("Pod", "stranger");

  const logs = await Promise.all(
    ["controller", "node"].map((role) =>
      ns.kubectl("logs", "-n", SYSTEM_NAMESPACE, "-l", `app.kubernetes.io/component=${role}`, "--tail=-1")
    ),
  );
  const objects = await ns.kubectl("get", "--all-namespaces", "-o", "yaml", `pv,pvc,pods,events,lvmvolumes.${DRIVER}`);
  const machine = await ns.runOnNode("lvs -o lv_tags --noheadings; vgs -o vg_tags --noheadings; ps axww");
  for (const text of [...logs, objects, machine]) assert(!text.includes(passphrase));
});
