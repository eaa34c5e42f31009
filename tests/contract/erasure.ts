/**
 * Contract: what a deleted volume held cannot be read from a new one, and nothing is left of it.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { type Bench, blockCapability, contract, type Host, volumeRequest } from "./host.ts";

const BYTES = 32n << 20n;

/** Registers the tests. */
export function erasureContract(host: Host): void {
  contract(host, "no data of a deleted volume can be read from a new one", async (bench) => {
    const left = await blockVolume(bench, { erase: "none" });
    await fill(bench);
    await bench.csi.controller.deleteVolume({ volumeId: left });
    const dirty = await blockVolume(bench);
    assert(!await isZero(bench), "a volume in the same place shows what was not erased");
    await bench.csi.controller.deleteVolume({ volumeId: dirty });

    const clean = await blockVolume(bench);
    assert(await isZero(bench));
    await fill(bench);
    await bench.csi.controller.deleteVolume({ volumeId: clean });
    const next = await blockVolume(bench);
    assert(await isZero(bench));
    await bench.csi.controller.deleteVolume({ volumeId: next });
  });

  contract(host, "no data of a deleted snapshot can be read from a new volume", async (bench) => {
    const volumeGroup = bench.groups[0];
    const source = await blockVolume(bench);
    await fill(bench);
    const snapshotId = async (name: string) => {
      const { snapshot } = await bench.csi.controller.createSnapshot({ name, sourceVolumeId: source });
      await fill(bench);
      return snapshot!.snapshotId;
    };
    await bench.csi.controller.deleteSnapshot({ snapshotId: await snapshotId("one") });
    await bench.lvs();
    const volumeId = await bench.create({ volumeCapabilities: [blockCapability()], parameters: { volumeGroup } });
    assert(await isZero(bench, volumeId));
    await bench.csi.controller.deleteVolume({ volumeId });
    await bench.csi.controller.deleteSnapshot({ snapshotId: await snapshotId("one") });
    await bench.csi.controller.deleteVolume({ volumeId: source });
    assertEquals(await bench.lvs(), []);
  });

  contract(host, "deleting a volume that was in use marks it in one change; the rest is done behind", async (bench) => {
    const volumeId = await bench.create();
    const stagingTargetPath = await bench.stage(volumeId);
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    const commands = await bench.exec.during(async () => {
      await bench.csi.controller.deleteVolume({ volumeId });
      await bench.settled();
    });
    assertEquals(commands.map((command) => command.split(" ").slice(0, 2).join(" ")), [
      "lvm fullreport",
      "lvm lvchange",
      "lvm fullreport",
      "lsblk --json",
      "blkdiscard --zeroout",
      "lvm vgchange",
      "lvm lvremove",
    ]);
    assertEquals(await left(bench), []);
  });

  contract(host, "a deleted volume's name can be used again at once", async (bench) => {
    const request = { ...volumeRequest(), volumeCapabilities: [blockCapability()] };
    const volumeId = await bench.create(request);
    for (let round = 0; round < 2; round++) {
      await bench.stage(volumeId, blockCapability());
      await bench.csi.controller.deleteVolume({ volumeId });
      assertEquals(await bench.create(request), volumeId);
    }
    await bench.csi.controller.deleteVolume({ volumeId });
    assertEquals(await left(bench), []);
  });

  contract(host, "what was marked and not removed when the driver died is removed by the next one", async (bench) => {
    const volumeId = await blockVolume(bench, { erase: "discard" });
    const { path } = await bench.onlyLv();
    const marked = ["--deltag", `denolith.volume=${volumeId}`, "--addtag", `denolith.deleted=${volumeId}`];
    await bench.admin("lvm", "lvchange", ...marked, path);
    await bench.admin("lvm", "lvchange", "--activate", "n", path);
    await using restarted = await bench.restart();
    assertEquals(await left(restarted), []);
  });

  contract(host, "a snapshot's LV that never became one is not taken for it, and is removed", async (bench) => {
    const sourceVolumeId = await bench.create();
    const group = (await bench.onlyLv()).path.split("/")[0]!;
    const { snapshot } = await bench.csi.controller.createSnapshot({ name: "halved", sourceVolumeId });
    const { snapshotId } = snapshot!;
    const { name } = (await bench.lvs()).find(({ origin }) => origin !== undefined)!;
    await bench.admin("lvm", "lvconvert", "--yes", "--splitsnapshot", `${group}/${name}`);
    assertEquals((await bench.csi.controller.listSnapshots({})).entries, []);
    const again = await bench.csi.controller.createSnapshot({ name: "halved", sourceVolumeId });
    assertEquals([again.snapshot?.snapshotId, again.snapshot?.readyToUse], [snapshotId, true]);
    assertEquals((await bench.lvs()).length, 2);
    await bench.csi.controller.deleteSnapshot({ snapshotId });
    await bench.csi.controller.deleteVolume({ volumeId: sourceVolumeId });
    assertEquals(await left(bench), []);
  });
}

/** A block volume that was handed out once. */
async function blockVolume(bench: Bench, parameters: Record<string, string> = {}): Promise<string> {
  await bench.lvs(); // the volume before is gone, so this one takes its place
  const volumeId = await bench.create({
    capacityRange: { requiredBytes: BYTES },
    volumeCapabilities: [blockCapability()],
    parameters: { volumeGroup: bench.groups[0], ...parameters },
  });
  await bench.stage(volumeId, blockCapability());
  return volumeId;
}

/** Writes over all of the device of the first volume. */
async function fill(bench: Bench): Promise<void> {
  const lv = (await bench.lvs()).find(({ origin, name }) => origin === undefined && name.startsWith("vol-"))!;
  await bench.admin(
    "dd",
    "if=/dev/urandom",
    `of=${lv.devicePath}`,
    "bs=1048576",
    "count=32",
    "oflag=direct",
    "status=none",
  );
}

/** Whether the device of a volume, read from end to end, is all zeros. */
async function isZero(bench: Bench, volumeId?: string): Promise<boolean> {
  const lv = (await bench.lvs()).find(({ tags }) =>
    volumeId === undefined || tags.includes(`denolith.volume=${volumeId}`)
  )!;
  const { code, stderr } = await bench.exec.run({
    program: "cmp",
    args: [`--bytes=${lv.size}`, "/dev/zero", lv.devicePath],
    mutates: false,
  });
  assert(code <= 1, stderr);
  return code === 0;
}

/** The LVs and the tags of groups that are left. */
async function left(bench: Bench): Promise<string[]> {
  return (await bench.report()).flatMap(({ lvs, tags }) => [...lvs.map(({ name }) => name), ...tags]);
}
