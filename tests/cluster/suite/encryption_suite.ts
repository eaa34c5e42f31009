/**
 * Encrypted volumes, whose passphrases are in Secrets that kubelet reads.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { DriverPods, SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import {
  createEncryptedClass,
  headerBackups,
  interruptChange,
  keysOf,
  lvsOpenedBy,
  newPassphrase,
  setSecret,
  signaturesOf,
} from "./helpers/encryption_helpers.ts";
import * as moves from "./helpers/move_helpers.ts";
import { DRIVER, isRunning, QUICK } from "./helpers/objects.ts";
import { runPlugin } from "./helpers/plugin_command.ts";
import { requestSize, waitForSize } from "./helpers/resizing.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { addReader, addWriter, COPY_NODE, copyDigest, type VolumeMode } from "./helpers/transfer_helpers.ts";

Deno.test("volumes are encrypted by the passphrases of their claims' Secrets, grow under a pod, and are read again", async () => {
  await using ns = await TestNamespace.open("luks");
  const cls = await createEncryptedClass(ns, QUICK);
  const passphrase = newPassphrase();
  for (const name of ["data", "raw"]) await setSecret(ns, name, { passphrase });
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
    const lv = await ns.lvOf(claim);
    assertEquals(await signaturesOf(ns, lv), ["crypto_LUKS"]);
    const found = await ns.runOnNode(`grep -c readable-text ${lv.device} || true`, ns.cluster.node(lv.node));
    assertEquals(found.trim(), "0", claim);
  }
  for (const node of ns.cluster.nodes) {
    assertMatch(await ns.runOnNode("dmsetup ls --target crypt", node), /^(?:No devices found)?\s*$/);
  }

  await setSecret(ns, "data", { passphrase: newPassphrase() });
  await ns.createPod({ name: "stranger", claims: claims.slice(0, 1) });
  await ns.waitForEvent("Pod", "stranger", "FailedMount", /opens none of its key slots/);
  await setSecret(ns, "data", { passphrase });
  await ns.waitForRunning("stranger");
  assertEquals((await ns.exec("stranger", "cat /data/file")).trim(), "readable-text");
  await ns.deleteAndWait("Pod", "stranger");

  const logs = await Promise.all(
    ["controller", "node"].map((role) =>
      ns.kubectl("logs", "-n", SYSTEM_NAMESPACE, "-l", `app.kubernetes.io/component=${role}`, "--tail=-1")
    ),
  );
  const objects = await ns.kubectl("get", "--all-namespaces", "-o", "yaml", `pv,pvc,pods,events,lvmvolumes.${DRIVER}`);
  const onNodes = "lvs -o lv_tags --noheadings; vgs -o vg_tags --noheadings; ps axww";
  const machines = await Promise.all(ns.cluster.nodes.map((node) => ns.runOnNode(onNodes, node)));
  for (const text of [...logs, objects, ...machines]) assert(!text.includes(passphrase));
});

Deno.test("the passphrase of a claim changes under its pod, and an interrupted or a wrong change is reported until it is made", async () => {
  await using ns = await TestNamespace.open("luks-rotate");
  const [old, next] = [newPassphrase(), newPassphrase()];
  await setSecret(ns, "data", { passphrase: old });
  const cls = await createEncryptedClass(ns, { volumeGroup: "data" });
  await ns.createClaim({ name: "data", class: cls, size: "48Mi" });
  await ns.apply(moves.writerOf("data"));
  const { metadata: { uid }, spec: { nodeName } = {} } = await ns.waitForRunning(moves.WRITER);
  const node = ns.cluster.node(nodeName!);
  const volume = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  const lv = await ns.lvOf("data");
  const waitForKeys = (reason: string) =>
    ns.waitFor("LVMVolume", volume, (now) => keysOf(now)?.reason === reason, `has the keys ${reason}`);
  const why = async () => JSON.stringify(await runPlugin(ns, "why", "data"));

  await setSecret(ns, "data", { passphrase: next, previousPassphrase: newPassphrase() });
  await waitForKeys("KeyChangeFailed");
  await ns.waitForEvent("LVMVolume", volume, "KeyChangeFailed", /neither the passphrase nor the previousPassphrase/);
  assertStringIncludes(await why(), "neither the passphrase nor the previousPassphrase");
  assertEquals(await lvsOpenedBy(ns, old, node), [lv.device]);

  await interruptChange(ns, node, { volume, group: lv.group, device: lv.device, old, next });
  await using driver = await DriverPods.open(ns.cluster);
  await setSecret(ns, "data", { passphrase: next });
  await driver.killProcess("node", undefined, [node]);
  await waitForKeys("KeyChangeInterrupted");
  assertStringIncludes(await why(), "a change of its passphrase was interrupted");
  const doctor = JSON.stringify(await runPlugin(ns, "doctor", node.name));
  assertStringIncludes(doctor, "the former one may still open it");

  await setSecret(ns, "data", { passphrase: next, previousPassphrase: old });
  await waitForKeys("KeyChangeComplete");
  await ns.waitForEvent("LVMVolume", volume, "KeyChangeComplete");
  assertEquals([await lvsOpenedBy(ns, old, node), await lvsOpenedBy(ns, next, node)], [[], [lv.device]]);
  assertEquals(await headerBackups(ns, node), []);
  const pod = await ns.waitForRunning(moves.WRITER);
  assertEquals([pod.metadata.uid, pod.status?.containerStatuses?.[0]?.restartCount], [uid, 0], "the pod kept running");
  const written = await moves.writtenLines(ns);
  await moves.assertLog(ns, written);

  await setSecret(ns, "data", { passphrase: next });
  await ns.kubectl("delete", "pod", moves.WRITER);
  await ns.waitFor("Pod", moves.WRITER, (now) => isRunning(now) && now?.metadata.uid !== uid, "runs again");
  await moves.assertLog(ns, written);
  await moves.removeWriter(ns);
});

Deno.test("an encrypted claim in use is moved to the other node and back, and its Secret opens it there", async () => {
  await using ns = await TestNamespace.open("luks-move");
  const passphrase = newPassphrase();
  await setSecret(ns, "data", { passphrase });
  const digest = await moves.addWriter(ns, await createEncryptedClass(ns, { volumeGroup: "data" }));
  for (const flags of [[], ["--offline"]]) {
    console.error(await moves.moveAndCheck(ns, digest, undefined, flags));
    const lv = await ns.lvOf("data");
    assertEquals(await signaturesOf(ns, lv), ["crypto_LUKS"]);
    for (const node of ns.cluster.nodes) {
      assertEquals(await lvsOpenedBy(ns, passphrase, node), node.name === lv.node ? [lv.device] : []);
    }
  }
  await moves.removeWriter(ns);
});

for (
  const [volumeMode, from] of [["Filesystem", "VolumeSnapshot"], [
    "Block",
    "PersistentVolumeClaim",
  ]] as const satisfies [
    VolumeMode,
    string,
  ][]
) {
  Deno.test(`a copy on another node, of a ${from} of an encrypted claim, gets a passphrase of its own: ${volumeMode}`, async () => {
    await using snapshots = await SnapshotTestNamespace.open("luks-copy");
    const { ns } = snapshots;
    const [passphrase, ofCopy] = [newPassphrase(), newPassphrase()];
    await setSecret(ns, "source", { passphrase });
    await setSecret(ns, "copy", { passphrase: ofCopy, previousPassphrase: passphrase });
    await setSecret(ns, "restored", { passphrase });
    const className = await createEncryptedClass(ns, { volumeGroup: "data" });
    const digest = await addWriter(ns, className, volumeMode);
    let name = "source";
    if (from === "VolumeSnapshot") {
      name = "cut";
      await snapshots.createSnapshot(name, { claim: "source", class: await snapshots.createSnapshotClass("now") });
      await snapshots.waitUntilReady(name);
    }
    await addReader(ns, { from: { kind: from, name }, className, volumeMode });
    assertEquals(await copyDigest(ns, volumeMode), digest);
    const copy = await ns.lvOf("copy");
    assertEquals(copy.node, COPY_NODE);
    assertEquals(await signaturesOf(ns, copy), ["crypto_LUKS"]);
    const node = ns.cluster.node(COPY_NODE);
    assertEquals([await lvsOpenedBy(ns, passphrase, node), await lvsOpenedBy(ns, ofCopy, node)], [[], [copy.device]]);
    assertEquals(await headerBackups(ns, node), []);
    if (from !== "VolumeSnapshot") return;
    await ns.createClaim({ name: "restored", class: className, size: "420Mi", from: { kind: from, name } });
    await ns.createPod({ name: "beside", claims: [{ name: "restored", path: "/data" }] });
    await ns.waitForRunning("beside");
    assertEquals(await ns.exec("beside", "sha256sum < /data/file"), digest);
    assertEquals(await signaturesOf(ns, await ns.lvOf("restored")), ["crypto_LUKS"]);
  });
}
