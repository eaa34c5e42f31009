/**
 * Limits of IO: they bite, and they change while a pod runs.
 *
 * Rates are far below what the emulated disk does, and are measured over seconds.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { limitScene } from "./limit_scene.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

const MiB = 2 ** 20;

/** Writes to a file past the page cache; 256 KiB at a time. */
const write = (path: string, mib: number) =>
  `dd if=/dev/zero of=${path} bs=256k count=${mib * 4} oflag=direct conv=notrunc`;

/** Reads likewise, in pieces of some KiB. */
const read = (path: string, kib: number, count: number) =>
  `dd if=${path} of=/dev/null bs=${kib}k count=${count} iflag=direct`;

Deno.test("limits of a class bite in the pod: bytes written and reads a second", async () => {
  await using scene = await Scene.open("slow");
  const { limited, paced } = limitScene(scene);
  const parameters = { ...QUICK, writeBps: "2Mi", readIops: "50" };
  await scene.claim({ name: "data", class: await scene.storageClass("slow", { parameters }), size: "64Mi" });
  await scene.pod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await scene.running("user");
  await limited("data", /readIops 50, writeBps 2Mi$/);
  await paced("user", write("/data/file", 16), { amount: 16 * MiB, rate: 2 * MiB });
  await paced("user", read("/data/file", 4, 400), { amount: 400, rate: 50 });
  const id = (await scene.volumeOf("data")).spec!.csi!.volumeHandle;
  await scene.event("LVMVolume", id, "LimitsApplied");

  // who has no limits is not slowed down beside it
  await scene.claim({ name: "free", class: await scene.storageClass("free", { parameters: QUICK }), size: "64Mi" });
  await scene.pod({ name: "other", claims: [{ name: "free", path: "/data" }] });
  await scene.running("other");
  const took = await limitScene(scene).seconds("other", write("/data/file", 16));
  assert(took < 4, `16 MiB without a limit took ${took} s: the disk is too slow for this test`);
});

Deno.test("a VolumeAttributesClass changes while the pod runs, for a filesystem and a block volume", async () => {
  await using scene = await Scene.open("attributes");
  const { attributesClass, change, limited, paced, seconds } = limitScene(scene);
  const silver = await attributesClass("silver", { writeBps: "2Mi" });
  const gold = await attributesClass("gold", { writeBps: "4Mi" });
  const free = await attributesClass("free", { writeBps: "max" });
  const cls = await scene.storageClass("plain", { parameters: QUICK });
  await scene.claim({ name: "data", class: cls, size: "64Mi", attributes: silver });
  await scene.claim({ name: "raw", class: cls, size: "64Mi", volumeMode: "Block", attributes: silver });
  const claims = [{ name: "data", path: "/data" }, { name: "raw", devicePath: "/raw" }];
  await scene.pod({ name: "user", claims });
  await scene.running("user");
  for (const [claim, path] of [["data", "/data/file"], ["raw", "/raw"]] as const) {
    const { status } = await scene.bound(claim);
    assertEquals(status?.currentVolumeAttributesClassName, silver);
    await limited(claim, /writeBps 2Mi$/);
    await paced("user", write(path, 12), { amount: 12 * MiB, rate: 2 * MiB });
    await change(claim, gold);
    await limited(claim, /writeBps 4Mi$/);
    await paced("user", write(path, 24), { amount: 24 * MiB, rate: 4 * MiB });
    await scene.event("PersistentVolumeClaim", claim, "VolumeModifySuccessful");
    await change(claim, free);
    await limited(claim, /writeBps max$/);
    const took = await seconds("user", write(path, 12));
    assert(took < 3, `12 MiB without a limit took ${took} s`);
  }
});

Deno.test("a class that is wrong is Infeasible, and another one mends it; one that is not there yet is waited for", async () => {
  await using scene = await Scene.open("wrong");
  const { attributesClass, change } = limitScene(scene);
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls });
  await scene.bound("data");
  const wrong = await attributesClass("wrong", { readIops: "100", writeIops: "0" });
  await scene.patch("PersistentVolumeClaim", "data", { spec: { volumeAttributesClassName: wrong } });
  const isAt = (status: string) => (claim?: { status?: { modifyVolumeStatus?: { status?: string } } }) =>
    claim?.status?.modifyVolumeStatus?.status === status;
  await scene.wait("PersistentVolumeClaim", "data", isAt("Infeasible"), "is infeasible");
  await scene.event("PersistentVolumeClaim", "data", "VolumeModifyFailed", /writeIops/);
  const id = (await scene.volumeOf("data")).spec!.csi!.volumeHandle;
  const volume = await scene.wait("LVMVolume", id, (one) => one !== undefined, "is there");
  assertEquals(volume.spec.ioLimits, undefined, "all or nothing");

  const later = `${scene.namespace}-later`;
  await scene.patch("PersistentVolumeClaim", "data", { spec: { volumeAttributesClassName: later } });
  await scene.wait("PersistentVolumeClaim", "data", isAt("Pending"), "waits for the class");
  await attributesClass("later", { readIops: "100" });
  await change("data", later);
  await scene.wait("LVMVolume", id, (one) => one?.spec.ioLimits?.["readIops"] === "100", "is limited");
});
