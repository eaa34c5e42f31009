/**
 * Limits of IO: they bite, and they change while a pod runs.
 *
 * Rates are far below what the emulated disk does, and are measured over seconds.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { ioLimitHelpers, NEEDS_ATTRIBUTES_CLASSES } from "./helpers/io_limit_helpers.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";

const MiB = 2 ** 20;

/** Writes to a file past the page cache; 256 KiB at a time. */
const writeCommand = (path: string, mib: number) =>
  `dd if=/dev/zero of=${path} bs=256k count=${mib * 4} oflag=direct conv=notrunc`;

/** Reads the same, in blocks of some KiB. */
const readCommand = (path: string, kib: number, count: number) =>
  `dd if=${path} of=/dev/null bs=${kib}k count=${count} iflag=direct`;

Deno.test("limits of a class bite in the pod: bytes written and reads a second", async () => {
  await using ns = await TestNamespace.open("slow");
  const { waitForLimits, assertRate } = ioLimitHelpers(ns);
  const parameters = { ...QUICK, writeBps: "2Mi", readIops: "50" };
  await ns.createClaim({ name: "data", class: await ns.createStorageClass("slow", { parameters }), size: "64Mi" });
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await waitForLimits("data", /readIops 50, writeBps 2Mi$/);
  await assertRate("user", writeCommand("/data/file", 16), { amount: 16 * MiB, rate: 2 * MiB });
  await assertRate("user", readCommand("/data/file", 4, 400), { amount: 400, rate: 50 });
  const id = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
  await ns.waitForEvent("LVMVolume", id, "IOLimitsApplied");

  // who has no limits is not slowed down beside it
  await ns.createClaim({
    name: "free",
    class: await ns.createStorageClass("free", { parameters: QUICK }),
    size: "64Mi",
  });
  await ns.createPod({ name: "other", claims: [{ name: "free", path: "/data" }] });
  await ns.waitForRunning("other");
  const took = await ioLimitHelpers(ns).measureSeconds("other", writeCommand("/data/file", 16));
  assert(took < 4, `16 MiB without a limit took ${took} s: the disk is too slow for this test`);
});

Deno.test(
  "a VolumeAttributesClass changes while the pod runs, for a filesystem and a block volume",
  NEEDS_ATTRIBUTES_CLASSES,
  async () => {
    await using ns = await TestNamespace.open("attributes");
    const { createAttributesClass, changeAttributesClass, waitForLimits, assertRate, measureSeconds } = ioLimitHelpers(
      ns,
    );
    const silver = await createAttributesClass("silver", { writeBps: "2Mi" });
    const gold = await createAttributesClass("gold", { writeBps: "4Mi" });
    const free = await createAttributesClass("free", { writeBps: "max" });
    const cls = await ns.createStorageClass("plain", { parameters: QUICK });
    await ns.createClaim({ name: "data", class: cls, size: "64Mi", attributes: silver });
    await ns.createClaim({ name: "raw", class: cls, size: "64Mi", volumeMode: "Block", attributes: silver });
    const claims = [{ name: "data", path: "/data" }, { name: "raw", devicePath: "/raw" }];
    await ns.createPod({ name: "user", claims });
    await ns.waitForRunning("user");
    for (const [claim, path] of [["data", "/data/file"], ["raw", "/raw"]] as const) {
      const { status } = await ns.waitForBound(claim);
      assertEquals(status?.currentVolumeAttributesClassName, silver);
      await waitForLimits(claim, /writeBps 2Mi$/);
      await assertRate("user", writeCommand(path, 12), { amount: 12 * MiB, rate: 2 * MiB });
      await changeAttributesClass(claim, gold);
      await waitForLimits(claim, /writeBps 4Mi$/);
      await assertRate("user", writeCommand(path, 24), { amount: 24 * MiB, rate: 4 * MiB });
      await ns.waitForEvent("PersistentVolumeClaim", claim, "VolumeModifySuccessful");
      await changeAttributesClass(claim, free);
      await waitForLimits(claim, /writeBps max$/);
      const took = await measureSeconds("user", writeCommand(path, 12));
      assert(took < 3, `12 MiB without a limit took ${took} s`);
    }
  },
);

Deno.test(
  "a class that is wrong is Infeasible, and another one mends it; one that is not there yet is waited for",
  NEEDS_ATTRIBUTES_CLASSES,
  async () => {
    await using ns = await TestNamespace.open("wrong");
    const { createAttributesClass, changeAttributesClass } = ioLimitHelpers(ns);
    const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
    await ns.createClaim({ name: "data", class: cls });
    await ns.waitForBound("data");
    const wrong = await createAttributesClass("wrong", { readIops: "100", writeIops: "0" });
    await ns.patch("PersistentVolumeClaim", "data", { spec: { volumeAttributesClassName: wrong } });
    const hasModifyStatus = (status: string) => (claim?: { status?: { modifyVolumeStatus?: { status?: string } } }) =>
      claim?.status?.modifyVolumeStatus?.status === status;
    await ns.waitFor("PersistentVolumeClaim", "data", hasModifyStatus("Infeasible"), "is infeasible");
    await ns.waitForEvent("PersistentVolumeClaim", "data", "VolumeModifyFailed", /writeIops/);
    const id = (await ns.volumeOf("data")).spec!.csi!.volumeHandle;
    const volume = await ns.waitFor("LVMVolume", id, (one) => one !== undefined, "is there");
    assertEquals(volume.spec.ioLimits, undefined, "all or nothing");

    const later = `${ns.namespace}-later`;
    await ns.patch("PersistentVolumeClaim", "data", { spec: { volumeAttributesClassName: later } });
    await ns.waitFor("PersistentVolumeClaim", "data", hasModifyStatus("Pending"), "waits for the class");
    await createAttributesClass("later", { readIops: "100" });
    await changeAttributesClass("data", later);
    await ns.waitFor("LVMVolume", id, (one) => one?.spec.ioLimits?.["readIops"] === "100", "is limited");
  },
);
