/**
 * Contract: volumes made from snapshots and from other volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  assertFails,
  blockCapability,
  type Capability,
  contractTest,
  type CreateRequest,
  failureStatus,
  type Harness,
  type Host,
  mountCapability,
  volumeRequest,
} from "./helpers/host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function copiesContract(host: Host): void {
  contractTest(host, "createVolume() from a snapshot has what the volume had then", async (harness) => {
    const volumeId = await createFilledVolume(harness);
    const snapshotId = await takeSnapshot(harness, volumeId);
    const snapshotDevice = (await harness.lvs()).find(({ origin }) => origin !== undefined)!.devicePath;
    const { devicePath, size } = await lvOf(harness, volumeId);
    await harness.runAsAdmin("blkdiscard", "--zeroout", "--offset", "0", "--length", `${size}`, devicePath);
    const copy = await createCopy(harness, { volumeCapabilities: [blockCapability()] }, { snapshotId });
    assert(await haveSameData(harness, (await lvOf(harness, copy)).devicePath, snapshotDevice));
    assert(!await haveSameData(harness, (await lvOf(harness, copy)).devicePath, devicePath));
    await deleteAll(harness, [copy], [snapshotId], [volumeId]);
  });

  contractTest(host, "createVolume() from a volume has the source's data, and leaves nothing else", async (harness) => {
    const volumeId = await createFilledVolume(harness);
    const copy = await createCopy(harness, { volumeCapabilities: [blockCapability()] }, { volumeId });
    const [one, other] = await Promise.all([copy, volumeId].map((id) => lvOf(harness, id)));
    assert(await haveSameData(harness, one!.devicePath, other!.devicePath));
    await harness.waitUntilIdle();
    assertEquals((await harness.lvs()).length, 2);
    await deleteAll(harness, [volumeId], [], [copy]);
  });

  for (const [fsType, sizeMib] of [["ext4", 32n], ["ext2", 32n], ["xfs", 320n], ["btrfs", 320n]] as const) {
    contractTest(host, `a clone of a mounted ${fsType} volume is larger, and is mounted beside it`, async (harness) => {
      const capability = mountCapability(fsType);
      const sizes = { capacityRange: { requiredBytes: sizeMib * MiB }, volumeCapabilities: [capability] };
      const parameters = { volumeGroup: harness.groups[1] };
      const volumeId = await harness.create({ ...sizes, parameters });
      const stagingPath = await stageAt(harness, volumeId, "original", capability);
      await Deno.writeTextFile(`${stagingPath}/file`, "there").catch(() => {}); // nothing is mounted on a fake machine
      const requiredBytes = (sizeMib + 16n) * MiB;
      const request = { ...sizes, parameters, capacityRange: { requiredBytes } };
      let copy = "";
      const commands = await harness.exec.recordCommands(async () =>
        copy = await createCopy(harness, request, { volumeId })
      );
      const syncIndex = commands.indexOf(`btrfs filesystem sync ${stagingPath}`); // LVM freezes the others
      const snapshotIndex = commands.findIndex((command) => /^lvm lvcreate .*--snapshot/.test(command));
      assert(fsType === "btrfs" ? syncIndex >= 0 && syncIndex < snapshotIndex : syncIndex === -1, commands.join("\n"));
      const copyPath = await stageAt(harness, copy, "copy", capability);
      const uuids = (await Promise.all([volumeId, copy].map((id) => formatStateTag(harness, id)))).map((tag) =>
        tag.split(":")[2]
      );
      assert(uuids.every((uuid) => uuid !== undefined) && uuids[0] !== uuids[1], String(uuids));
      if (await isMounted(harness, copyPath)) assertEquals(await Deno.readTextFile(`${copyPath}/file`), "there");
      const { usage } = await harness.csi.node.nodeGetVolumeStats({ volumeId: copy, volumePath: copyPath });
      assert(usage[0]!.total > (sizeMib - 16n) * MiB * 3n / 4n, `${usage[0]!.total}`);
      for (const [volume, path] of [[volumeId, stagingPath], [copy, copyPath]] as const) {
        await harness.csi.node.nodeUnstageVolume({ volumeId: volume, stagingTargetPath: path });
      }
      await deleteAll(harness, [copy], [], [volumeId]);
    });
  }

  contractTest(
    host,
    "createVolume() returns the same volume when it is repeated, and refuses another source",
    async (harness) => {
      const volumeId = await createFilledVolume(harness);
      const snapshotId = await takeSnapshot(harness, volumeId);
      const request = { ...volumeRequest(), volumeCapabilities: [blockCapability()] };
      const copy = await createCopy(harness, request, { snapshotId });
      await harness.csi.controller.deleteSnapshot({ snapshotId });
      const source = { volumeContentSource: { type: { case: "snapshot", value: { snapshotId } } } } as const;
      const { volume } = await harness.csi.controller.createVolume({ ...request, ...source });
      assertEquals(volume?.volumeId, copy);
      assertEquals(volume?.contentSource?.type, { case: "snapshot", value: { ...SNAPSHOT, snapshotId } });
      const other = { volumeContentSource: { type: { case: "volume", value: { volumeId } } } } as const;
      await assertFails(
        "ALREADY_EXISTS",
        harness.csi.controller.createVolume({ ...request, ...other }),
        "created from",
      );
      await assertFails("ALREADY_EXISTS", harness.csi.controller.createVolume(request), "created from");
      await deleteAll(harness, [volumeId], [], [copy]);
    },
  );

  contractTest(
    host,
    "createVolume() from a source refuses impossible requests, and creates nothing",
    async (harness) => {
      const volumeId = await harness.create({ volumeCapabilities: [mountCapability("ext4")] });
      const snapshotId = await takeSnapshot(harness, volumeId);
      const unknown = "v1-00000000000000000000000000000000";
      const ofSnapshot = { volumeContentSource: { type: { case: "snapshot", value: { snapshotId } } } } as const;
      const ofVolume = { volumeContentSource: { type: { case: "volume", value: { volumeId } } } } as const;
      const refused: [Parameters<typeof assertFails>[0], CreateRequest][] = [
        ["NOT_FOUND", { volumeContentSource: { type: { case: "snapshot", value: { snapshotId: unknown } } } }],
        ["NOT_FOUND", { volumeContentSource: { type: { case: "volume", value: { volumeId: unknown } } } }],
        ["NOT_FOUND", { volumeContentSource: { type: { case: "volume", value: { volumeId: "foreign" } } } }],
        ["INVALID_ARGUMENT", { volumeContentSource: {} }],
        ["OUT_OF_RANGE", { ...ofSnapshot, capacityRange: { requiredBytes: 16n * MiB } }],
        ["OUT_OF_RANGE", { ...ofVolume, capacityRange: { limitBytes: 16n * MiB } }],
        ["INVALID_ARGUMENT", { ...ofSnapshot, volumeCapabilities: [mountCapability("xfs")] }],
        ["INVALID_ARGUMENT", { ...ofVolume, volumeCapabilities: [mountCapability("btrfs")] }],
        ["RESOURCE_EXHAUSTED", { ...ofVolume, capacityRange: { requiredBytes: 1n << 50n } }],
      ];
      for (const [code, request] of refused) await assertFails(code, harness.create(request));
      assertEquals((await harness.lvs()).length, 2);
      await deleteAll(harness, [], [snapshotId], [volumeId]);
    },
  );

  contractTest(
    host,
    "a copy without a size has that of its source; a volume that was never used is copied",
    async (harness) => {
      const volumeId = await harness.create();
      const { name, volumeCapabilities } = volumeRequest();
      const copy = await createWithRetry(harness, {
        name,
        volumeCapabilities,
        volumeContentSource: { type: { case: "volume", value: { volumeId } } },
      });
      assertEquals(copy.capacityBytes, 32n * MiB);
      const stagingTargetPath = await harness.stage(copy.volumeId);
      await harness.csi.node.nodeUnstageVolume({ volumeId: copy.volumeId, stagingTargetPath });
      await deleteAll(harness, [copy.volumeId], [], [volumeId]);
    },
  );

  contractTest(host, "a clone without enough free space fails with the space that it needs", async (harness) => {
    const group = (await harness.report()).find(({ name }) => name === harness.groups[0])!;
    const requiredBytes = group.size * 2n / 3n / group.extentSize * group.extentSize;
    const parameters = { volumeGroup: harness.groups[0] };
    const request = { capacityRange: { requiredBytes }, volumeCapabilities: [blockCapability()], parameters };
    const volumeId = await harness.create(request);
    const volumeContentSource = { type: { case: "volume", value: { volumeId } } } as const;
    await assertFails("RESOURCE_EXHAUSTED", harness.create({ ...request, volumeContentSource }), "temporary snapshot");
    assertEquals((await harness.lvs()).length, 1);
    await harness.csi.controller.deleteVolume({ volumeId });
  });
}

const SNAPSHOT = { $typeName: "csi.v1.VolumeContentSource.SnapshotSource" } as const;

let nextId = 0;

/** The source of a copy. */
export type CopySource = { readonly snapshotId: string } | { readonly volumeId: string };

/** Reports whether a filesystem is mounted at a path; on a fake machine, never. */
export async function isMounted(harness: Harness, path: string): Promise<boolean> {
  return (await Deno.stat(path)).dev !== (await Deno.stat(harness.folder)).dev;
}

/** Makes a volume from something, however long it takes, and answers its id. */
export async function createCopy(harness: Harness, request: CreateRequest, source: CopySource): Promise<string> {
  return (await createWithRetry(harness, { ...volumeRequest(), ...request, ...contentSourceOf(source) })).volumeId;
}

/** Returns the part of a request with the source of the volume. */
export function contentSourceOf(source: CopySource): Pick<CreateRequest, "volumeContentSource"> {
  const type = "snapshotId" in source
    ? { case: "snapshot", value: { snapshotId: source.snapshotId } } as const
    : { case: "volume", value: { volumeId: source.volumeId } } as const;
  return { volumeContentSource: { type } };
}

/** Repeats the call, as an orchestrator does, until the volume is there. */
export async function createWithRetry(harness: Harness, request: CreateRequest) {
  for (;;) {
    const call = harness.csi.controller.createVolume(request);
    const { code } = await failureStatus(call);
    if (code === "OK") return (await call).volume!;
    if (code !== "ABORTED") await call;
  }
}

/** Creates a block volume that is full of data. */
export async function createFilledVolume(harness: Harness, request: CreateRequest = {}): Promise<string> {
  const volumeId = await harness.create({ ...request, volumeCapabilities: [blockCapability()] });
  await stageAt(harness, volumeId, "block", blockCapability());
  await writeRandom(harness, volumeId);
  return volumeId;
}

async function writeRandom(harness: Harness, volumeId: string): Promise<void> {
  const { devicePath } = await lvOf(harness, volumeId);
  await harness.runAsAdmin(
    "dd",
    "if=/dev/urandom",
    `of=${devicePath}`,
    "bs=1048576",
    "count=32",
    "oflag=direct",
    "status=none",
  );
}

/** Takes a snapshot, and answers its id. */
export async function takeSnapshot(harness: Harness, sourceVolumeId: string): Promise<string> {
  const { snapshot } = await harness.csi.controller.createSnapshot({ name: `copied ${++nextId}`, sourceVolumeId });
  return snapshot!.snapshotId;
}

/** Stages a volume in a directory of that name, and answers the path. */
export async function stageAt(
  harness: Harness,
  volumeId: string,
  name: string,
  volumeCapability: Capability,
): Promise<string> {
  const stagingTargetPath = `${harness.folder}/${name}`;
  await Deno.mkdir(stagingTargetPath, { recursive: true });
  await harness.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability });
  return stagingTargetPath;
}

/** Returns the LV of a volume. */
export async function lvOf(harness: Harness, volumeId: string) {
  return (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
}

/** Returns the tag that records the format of a volume. */
export async function formatStateTag(harness: Harness, volumeId: string): Promise<string> {
  return (await lvOf(harness, volumeId)).tags.find((tag) => tag.startsWith("denolith.fs="))!;
}

/** Reports whether two devices have the same data. */
export async function haveSameData(harness: Harness, one: string, other: string): Promise<boolean> {
  const args = [`--bytes=${32n * MiB}`, one, other];
  const { code, stderr } = await harness.exec.run({ program: "cmp", args, mutates: false });
  assert(code <= 1, stderr);
  return code === 0;
}

/** Deletes volumes, snapshots and the last volumes, in this order, and makes sure that nothing is left. */
async function deleteAll(
  harness: Harness,
  volumeIds: string[],
  snapshots: string[],
  sourceVolumeIds: string[],
): Promise<void> {
  for (const volumeId of volumeIds) await harness.csi.controller.deleteVolume({ volumeId });
  for (const snapshotId of snapshots) await harness.csi.controller.deleteSnapshot({ snapshotId });
  for (const volumeId of sourceVolumeIds) await harness.csi.controller.deleteVolume({ volumeId });
  assertEquals(await harness.lvs(), []);
}
