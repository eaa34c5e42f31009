/**
 * What deploy/examples says, tried.
 *
 * @module
 */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { volumeIdOf } from "../../../lvm/ids.ts";
import { example, EXAMPLES } from "./example_files.ts";
import { limitScene } from "./limit_scene.ts";
import { ownGroup, removePool } from "./own_group.ts";
import { Scene } from "./scene.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

Deno.test("the examples of pods, block devices and replicas run as they are", async () => {
  await using scene = await Scene.open("examples");
  const files = [
    "pod/claim.yaml",
    "pod/pod.yaml",
    "block/claim.yaml",
    "block/pod.yaml",
    "statefulset/statefulset.yaml",
  ];
  for (const file of files) await scene.apply(await example(file));
  await Promise.all(["writer", "block-user", "store-0"].map((pod) => scene.running(pod)));
  // Replicas are begun one after the other.
  for (const pod of ["store-1", "store-2"]) await scene.running(pod);
  await scene.exec("writer", "until [ -s /data/dates ]; do sleep .2; done");
  await scene.exec("block-user", "blockdev --getsize64 /dev/data");
  assertEquals((await scene.lvs()).length, 5);
});

Deno.test("the example of limits: the pod is held to the class of its claim, and to another one while it runs", async () => {
  await using scene = await Scene.open("examples-limits");
  const { change, limited } = limitScene(scene);
  for (const file of ["limits/classes.yaml", "limits/claim.yaml", "limits/pod.yaml"]) {
    await scene.apply(await example(file));
  }
  await scene.running("limited-writer");
  await limited("limited-data", /readIops 500, writeBps 2Mi$/);
  await change("limited-data", "denolith-gold");
  await limited("limited-data", /readIops max, writeBps 4Mi$/);
});

Deno.test("the example of a thin volume: its pool is made, and its snapshot gets ready", async () => {
  await using snapshots = await SnapshotScene.open("examples-thin");
  const { scene } = snapshots;
  await using group = await ownGroup(scene, 200);
  for (const file of ["thin/classes.yaml", "thin/claim.yaml", "thin/pod.yaml", "thin/snapshot.yaml"]) {
    const text = (await example(file)).replace("volumeGroup: data", `volumeGroup: ${group.name}`);
    await scene.apply(text.replace("storage: 1Gi", "storage: 16Mi"));
  }
  await scene.running("thin-writer");
  await snapshots.ready("thin-data-1");
  assertEquals((await scene.lvOf("thin-data")).size, 16 << 20);
  await scene.delete("Pod", "thin-writer");
  await scene.delete("PersistentVolumeClaim", "thin-data");
  await scene.delete("VolumeSnapshot", "thin-data-1");
  await scene.settled();
  await removePool(scene, group.name);
});

/** The example of an existing volume for another LV: its own id and names, and the policy. */
async function existing(scene: Scene, name: string, policy: string): Promise<string> {
  const texts = [await example("existing-volume/volume.yaml"), await example("existing-volume/claim.yaml")];
  return texts.join("---\n").replaceAll(volumeIdOf("archive-2019"), volumeIdOf(`${name}-2019`))
    .replaceAll("namespace: default", `namespace: ${scene.namespace}`).replaceAll("archive", name)
    .replaceAll("node-1", scene.node.name).replaceAll("10Gi", "16Mi").replace("Policy: Retain", `Policy: ${policy}`);
}

/** The commands of the example's README for that LV, as they are there. */
async function tagging(name: string): Promise<string> {
  const readme = await Deno.readTextFile(new URL("existing-volume/README.md", EXAMPLES));
  const commands = /```sh\n(name=[^]*?)```/.exec(readme)?.[1];
  if (commands === undefined) throw new Error("read the example of an existing volume: it has no commands");
  return commands.replaceAll("archive", name);
}

Deno.test("a logical volume that was there before is given to a pod, and is kept or deleted by its policy", async () => {
  await using scene = await Scene.open("given");
  const [kept, lost] = [`${scene.namespace}-kept`, `${scene.namespace}-lost`];
  for (const [name, policy] of [[kept, "Retain"], [lost, "Delete"]] as const) {
    const device = `/dev/data/${name}`;
    await scene.onNode(`lvcreate -qq -y -L 16M -n ${name} data && mke2fs -q -t ext4 ${device}
      mount ${device} /mnt && echo ${name} > /mnt/old; umount /mnt`);
    await scene.onNode(await tagging(name));
    await scene.apply(await existing(scene, name, policy));
  }
  await scene.pod({ name: "reader", claims: [{ name: kept, path: "/kept" }, { name: lost, path: "/lost" }] });
  await scene.running("reader");
  assertEquals(await scene.exec("reader", "cat /kept/old /lost/old && echo new > /kept/new"), `${kept}\n${lost}\n`);
  await scene.delete("Pod", "reader");
  for (const claim of [kept, lost]) await scene.delete("PersistentVolumeClaim", claim);
  await scene.gone("PersistentVolume", lost);
  await scene.gone("LVMVolume", volumeIdOf(`${lost}-2019`));
  await scene.wait("PersistentVolume", kept, (pv) => pv?.status?.phase === "Released", "is released");
  assertEquals((await scene.lvs()).map(({ name }) => name), [kept]);

  // It is taken back as the README says.
  await scene.delete("PersistentVolume", kept);
  const id = volumeIdOf(`${kept}-2019`);
  await scene.onNode(`lvchange -qq data/${kept} --deltag denolith=lvm.denolith.dev --deltag denolith.volume=${id}`);
  await scene.delete("LVMVolume", id);
  await scene.settled();
  const content =
    `lvchange -ay data/${kept} && mount -o ro /dev/data/${kept} /mnt && cat /mnt/old /mnt/new; umount /mnt`;
  assertStringIncludes(await scene.onNode(content), `${kept}\nnew\n`);
  await scene.onNode(`lvremove -qq -f data/${kept}`);
});
