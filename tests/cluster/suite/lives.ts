/**
 * The lives of volumes, from the claim to the end, as a user sees them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

/** The smallest volumes of each type of filesystem. */
const SIZES = { ext4: "16Mi", xfs: "300Mi", btrfs: "256Mi" } as const;

/** A megabyte of chance, to be found again. */
const WRITE =
  "dd if=/dev/urandom of=/tmp/chance bs=64k count=16 2>/dev/null && for f in /ext4/f /xfs/f /btrfs/f /raw; do " +
  "dd if=/tmp/chance of=$f bs=64k conv=notrunc 2>/dev/null; done; sync";
const READ = "for f in /ext4/f /xfs/f /btrfs/f /raw; do dd if=$f bs=64k count=16 2>/dev/null | md5sum; done; " +
  "grep -E '^[^ ]+ /(ext4|xfs|btrfs) ' /proc/mounts | cut -d ' ' -f 2,3";

Deno.test("claims of every type wait for their pod, keep what it writes, and leave nothing when they are deleted", async () => {
  await using scene = await Scene.open("types");
  const uses = [];
  for (const [fsType, size] of Object.entries(SIZES)) {
    // Of one, the data is overwritten, as by default.
    const parameters = fsType === "ext4" ? { volumeGroup: "data", fsType } : { ...QUICK, fsType };
    await scene.claim({ name: fsType, class: await scene.storageClass(fsType, { parameters }), size });
    uses.push({ name: fsType, path: `/${fsType}` });
  }
  const raw = await scene.storageClass("raw", { parameters: QUICK });
  await scene.claim({ name: "raw", class: raw, volumeMode: "Block" });
  await scene.event("PersistentVolumeClaim", "ext4", "WaitForFirstConsumer");
  assertEquals(await scene.lvs(), []);
  const claims = [...uses, { name: "raw", devicePath: "/raw" }];

  await scene.pod({ name: "first", claims });
  await scene.running("first");
  await scene.exec("first", WRITE);
  const written = await scene.exec("first", READ);
  assertEquals(written.match(/\/\w+ \w+$/gm)?.sort(), ["/btrfs btrfs", "/ext4 ext4", "/xfs xfs"]);
  assertEquals(new Set(written.match(/^\w{32}/gm)).size, 1, written);
  assertEquals((await scene.lvs()).length, 4);
  await scene.event("PersistentVolumeClaim", "ext4", "ProvisioningSucceeded");
  await scene.delete("Pod", "first");

  await scene.pod({ name: "second", claims });
  await scene.running("second");
  assertEquals(await scene.exec("second", READ), written);
  await scene.delete("Pod", "second");
  await Promise.all(claims.map(({ name }) => scene.delete("PersistentVolumeClaim", name)));
  await scene.settled();
});

Deno.test("Immediate claims are bound without a pod; Retain keeps volumes until somebody says otherwise", async () => {
  await using scene = await Scene.open("retain");
  const wish = { parameters: QUICK, volumeBindingMode: "Immediate", reclaimPolicy: "Retain" } as const;
  const cls = await scene.storageClass("kept", wish);
  for (const name of ["policy", "hand"]) await scene.claim({ name, class: cls });
  const [byPolicy, byHand] = await Promise.all([scene.volumeOf("policy"), scene.volumeOf("hand")]);
  const [{ matchExpressions: [affinity] = [] }] = byPolicy.spec!.nodeAffinity!.required!.nodeSelectorTerms as [
    { matchExpressions?: unknown[] },
  ];
  assertEquals(affinity, { key: "topology.lvm.denolith.dev/node", operator: "In", values: [scene.node.name] });
  for (const name of ["policy", "hand"]) await scene.delete("PersistentVolumeClaim", name);
  for (const { metadata: { name } } of [byPolicy, byHand]) {
    await scene.wait("PersistentVolume", name, (pv) => pv?.status?.phase === "Released", "is released");
  }
  assertEquals((await scene.lvs()).length, 2);

  await scene.patch("PersistentVolume", byPolicy.metadata.name, { spec: { persistentVolumeReclaimPolicy: "Delete" } });
  await scene.gone("PersistentVolume", byPolicy.metadata.name);
  await scene.gone("LVMVolume", byPolicy.spec!.csi!.volumeHandle);

  const id = byHand.spec!.csi!.volumeHandle;
  await scene.delete("PersistentVolume", byHand.metadata.name);
  assertEquals((await scene.lvs()).map(({ volume }) => volume), [id]);
  await scene.remove("LVMVolume", id);
  const kept = await scene.wait("LVMVolume", id, (now) => now?.status?.error !== undefined, "says why it stays");
  assert(kept.status!.error!.message.includes(`annotation ${REMOVE_ANNOTATION}=true`), kept.status!.error!.message);
  assertEquals((await scene.lvs()).length, 1);
  await scene.patch("LVMVolume", id, { metadata: { annotations: { [REMOVE_ANNOTATION]: "true" } } });
  await scene.settled();
});
