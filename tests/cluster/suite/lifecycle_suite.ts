/**
 * The lifecycle of volumes, from the claim to the deletion, as a user sees it.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";

/** The smallest volumes of each type of filesystem. */
const SIZES = { ext4: "16Mi", xfs: "300Mi", btrfs: "256Mi" } as const;

/** A megabyte of chance, to be found again. */
const WRITE_COMMAND =
  "dd if=/dev/urandom of=/tmp/chance bs=64k count=16 2>/dev/null && for f in /ext4/f /xfs/f /btrfs/f /raw; do " +
  "dd if=/tmp/chance of=$f bs=64k conv=notrunc 2>/dev/null; done; sync";
const READ_COMMAND = "for f in /ext4/f /xfs/f /btrfs/f /raw; do dd if=$f bs=64k count=16 2>/dev/null | md5sum; done; " +
  "grep -E '^[^ ]+ /(ext4|xfs|btrfs) ' /proc/mounts | cut -d ' ' -f 2,3";

Deno.test("claims of every type wait for their pod, keep its data, and leave nothing when they are deleted", async () => {
  await using ns = await TestNamespace.open("types");
  const uses = [];
  for (const [fsType, size] of Object.entries(SIZES)) {
    // Of one, the data is overwritten, as by default.
    const parameters = fsType === "ext4" ? { volumeGroup: "data", fsType } : { ...QUICK, fsType };
    await ns.createClaim({ name: fsType, class: await ns.createStorageClass(fsType, { parameters }), size });
    uses.push({ name: fsType, path: `/${fsType}` });
  }
  const raw = await ns.createStorageClass("raw", { parameters: QUICK });
  await ns.createClaim({ name: "raw", class: raw, volumeMode: "Block" });
  await ns.waitForEvent("PersistentVolumeClaim", "ext4", "WaitForFirstConsumer");
  assertEquals(await ns.lvs(), []);
  const claims = [...uses, { name: "raw", devicePath: "/raw" }];

  await ns.createPod({ name: "first", claims });
  await ns.waitForRunning("first");
  await ns.exec("first", WRITE_COMMAND);
  const written = await ns.exec("first", READ_COMMAND);
  assertEquals(written.match(/\/\w+ \w+$/gm)?.sort(), ["/btrfs btrfs", "/ext4 ext4", "/xfs xfs"]);
  assertEquals(new Set(written.match(/^\w{32}/gm)).size, 1, written);
  assertEquals((await ns.lvs()).length, 4);
  await ns.waitForEvent("PersistentVolumeClaim", "ext4", "ProvisioningSucceeded");
  await ns.deleteAndWait("Pod", "first");

  await ns.createPod({ name: "second", claims });
  await ns.waitForRunning("second");
  assertEquals(await ns.exec("second", READ_COMMAND), written);
  await ns.deleteAndWait("Pod", "second");
  await Promise.all(claims.map(({ name }) => ns.deleteAndWait("PersistentVolumeClaim", name)));
  await ns.waitForCleanup();
});

Deno.test("Immediate claims are bound without a pod; Retain keeps volumes until somebody says otherwise", async () => {
  await using ns = await TestNamespace.open("retain");
  const classSpec = { parameters: QUICK, volumeBindingMode: "Immediate", reclaimPolicy: "Retain" } as const;
  const cls = await ns.createStorageClass("kept", classSpec);
  for (const name of ["policy", "hand"]) await ns.createClaim({ name, class: cls });
  const [byPolicy, byHand] = await Promise.all([ns.volumeOf("policy"), ns.volumeOf("hand")]);
  const [{ matchExpressions: [affinity] = [] }] = byPolicy.spec!.nodeAffinity!.required!.nodeSelectorTerms as [
    { matchExpressions?: unknown[] },
  ];
  assertEquals(affinity, { key: "topology.lvm.denolith.dev/node", operator: "In", values: [ns.node.name] });
  for (const name of ["policy", "hand"]) await ns.deleteAndWait("PersistentVolumeClaim", name);
  for (const { metadata: { name } } of [byPolicy, byHand]) {
    await ns.waitFor("PersistentVolume", name, (pv) => pv?.status?.phase === "Released", "is released");
  }
  assertEquals((await ns.lvs()).length, 2);

  await ns.patch("PersistentVolume", byPolicy.metadata.name, { spec: { persistentVolumeReclaimPolicy: "Delete" } });
  await ns.waitForDeletion("PersistentVolume", byPolicy.metadata.name);
  await ns.waitForDeletion("LVMVolume", byPolicy.spec!.csi!.volumeHandle);

  const id = byHand.spec!.csi!.volumeHandle;
  await ns.deleteAndWait("PersistentVolume", byHand.metadata.name);
  assertEquals((await ns.lvs()).map(({ volume }) => volume), [id]);
  await ns.requestDeletion("LVMVolume", id);
  const kept = await ns.waitFor("LVMVolume", id, (now) => now?.status?.error !== undefined, "says why it stays");
  assert(kept.status!.error!.message.includes(`annotation ${REMOVE_ANNOTATION}=true`), kept.status!.error!.message);
  assertEquals((await ns.lvs()).length, 1);
  await ns.patch("LVMVolume", id, { metadata: { annotations: { [REMOVE_ANNOTATION]: "true" } } });
  await ns.waitForCleanup();
});
