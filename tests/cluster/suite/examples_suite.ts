/**
 * The instructions of deploy/examples, carried out.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { volumeIdOf } from "../../../base/ids.ts";
import { example, EXAMPLES } from "./helpers/example_files.ts";
import { ioLimitHelpers, NEEDS_ATTRIBUTES_CLASSES } from "./helpers/io_limit_helpers.ts";
import { createTestGroup, removePool } from "./helpers/test_group.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

Deno.test("the examples of pods, block devices and replicas run as they are", async () => {
  await using ns = await TestNamespace.open("examples");
  const files = [
    "pod/claim.yaml",
    "pod/pod.yaml",
    "block/claim.yaml",
    "block/pod.yaml",
    "statefulset/statefulset.yaml",
  ];
  for (const file of files) await ns.apply(await example(file));
  await Promise.all(["writer", "block-user", "store-0"].map((pod) => ns.waitForRunning(pod)));
  // Replicas are started one after the other.
  for (const pod of ["store-1", "store-2"]) await ns.waitForRunning(pod);
  await ns.exec("writer", "until [ -s /data/dates ]; do sleep .2; done");
  await ns.exec("block-user", "blockdev --getsize64 /dev/data");
  assertEquals((await ns.lvs()).length, 5);
});

Deno.test(
  "the example of limits: the limits of the claim's class apply to the pod, and those of another class while it runs",
  NEEDS_ATTRIBUTES_CLASSES,
  async () => {
    await using ns = await TestNamespace.open("examples-limits");
    const { changeAttributesClass, waitForLimits } = ioLimitHelpers(ns);
    for (const file of ["limits/classes.yaml", "limits/claim.yaml", "limits/pod.yaml"]) {
      await ns.apply(await example(file));
    }
    await ns.waitForRunning("limited-writer");
    await waitForLimits("limited-data", /readIops 500, writeBps 2Mi$/);
    await changeAttributesClass("limited-data", "denolith-gold");
    await waitForLimits("limited-data", /readIops max, writeBps 4Mi$/);
  },
);

Deno.test("the example of a thin volume: its pool is created, and its snapshot becomes ready", async () => {
  await using snapshots = await SnapshotTestNamespace.open("examples-thin");
  const { ns } = snapshots;
  await using group = await createTestGroup(ns, 200);
  for (const file of ["thin/classes.yaml", "thin/claim.yaml", "thin/pod.yaml", "thin/snapshot.yaml"]) {
    const text = (await example(file)).replace("volumeGroup: data", `volumeGroup: ${group.name}`);
    await ns.apply(text.replace("storage: 1Gi", "storage: 16Mi"));
  }
  await ns.waitForRunning("thin-writer");
  await snapshots.waitUntilReady("thin-data-1");
  assertEquals((await ns.lvOf("thin-data")).size, 16 << 20);
  await ns.deleteAndWait("Pod", "thin-writer");
  await ns.deleteAndWait("PersistentVolumeClaim", "thin-data");
  await ns.deleteAndWait("VolumeSnapshot", "thin-data-1");
  await ns.waitForCleanup();
  await removePool(ns, group.name);
});

/** Returns the example of an existing volume for another LV: with its id and names, and the policy. */
async function existingVolumeManifest(ns: TestNamespace, name: string, policy: string): Promise<string> {
  const texts = [await example("existing-volume/volume.yaml"), await example("existing-volume/claim.yaml")];
  return texts.join("---\n").replaceAll(volumeIdOf("archive-2019"), volumeIdOf(`${name}-2019`))
    .replaceAll("namespace: default", `namespace: ${ns.namespace}`).replaceAll("archive", name)
    .replaceAll("node-1", ns.node.name).replaceAll("10Gi", "16Mi").replace("Policy: Retain", `Policy: ${policy}`);
}

/** Returns the commands of the example's README for that LV. */
async function taggingCommands(name: string): Promise<string> {
  const readme = await Deno.readTextFile(new URL("existing-volume/README.md", EXAMPLES));
  const commands = /```sh\n(name=[^]*?)```/.exec(readme)?.[1];
  if (commands === undefined) throw new Error("read the example of an existing volume: it has no commands");
  return commands.replaceAll("archive", name);
}

Deno.test("a logical volume that was there before is given to a pod, and is kept or deleted by its policy", async () => {
  await using ns = await TestNamespace.open("given");
  const [kept, lost] = [`${ns.namespace}-kept`, `${ns.namespace}-lost`];
  for (const [name, policy] of [[kept, "Retain"], [lost, "Delete"]] as const) {
    const device = `/dev/data/${name}`;
    await ns.runOnNode(`lvcreate -qq -y -L 16M -n ${name} data && mke2fs -q -t ext4 ${device}
      mount ${device} /mnt && echo ${name} > /mnt/old; umount /mnt`);
    await ns.runOnNode(await taggingCommands(name));
    await ns.apply(await existingVolumeManifest(ns, name, policy));
  }
  await ns.createPod({ name: "reader", claims: [{ name: kept, path: "/kept" }, { name: lost, path: "/lost" }] });
  await ns.waitForRunning("reader");
  assertEquals(await ns.exec("reader", "cat /kept/old /lost/old && echo new > /kept/new"), `${kept}\n${lost}\n`);
  await ns.deleteAndWait("Pod", "reader");
  for (const claim of [kept, lost]) await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.waitForDeletion("PersistentVolume", lost);
  await ns.waitForDeletion("LVMVolume", volumeIdOf(`${lost}-2019`));
  await ns.waitFor("PersistentVolume", kept, (pv) => pv?.status?.phase === "Released", "is released");
  assertEquals((await ns.lvs()).map(({ name }) => name), [kept]);

  // It is taken back as the README says.
  await ns.deleteAndWait("PersistentVolume", kept);
  const id = volumeIdOf(`${kept}-2019`);
  await ns.runOnNode(`lvchange -qq data/${kept} --deltag denolith=lvm.denolith.dev --deltag denolith.volume=${id}`);
  await ns.deleteAndWait("LVMVolume", id);
  await ns.waitForCleanup();
  const content =
    `lvchange -ay data/${kept} && mount -o ro /dev/data/${kept} /mnt && cat /mnt/old /mnt/new; umount /mnt`;
  assertStringIncludes(await ns.runOnNode(content), `${kept}\nnew\n`);
  await ns.runOnNode(`lvremove -qq -f data/${kept}`);
});
