/**
 * Contract: volumes made from snapshots and from other volumes.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  assertFails,
  type Bench,
  blockCapability,
  type Capability,
  contract,
  type CreateRequest,
  failureOf,
  type Host,
  mountCapability,
  volumeRequest,
} from "./host.ts";

const MiB = 1n << 20n;

/** Registers the tests. */
export function copiesContract(host: Host): void {
  contract(host, "createVolume() from a snapshot has what the volume had then", async (bench) => {
    const volumeId = await filled(bench);
    const snapshotId = await snapshot(bench, volumeId);
    const cut = (await bench.lvs()).find(({ origin }) => origin !== undefined)!.devicePath;
    const { devicePath, size } = await lvOf(bench, volumeId);
    await bench.admin("blkdiscard", "--zeroout", "--offset", "0", "--length", `${size}`, devicePath);
    const copy = await copied(bench, { volumeCapabilities: [blockCapability()] }, { snapshotId });
    assert(await isSame(bench, (await lvOf(bench, copy)).devicePath, cut));
    assert(!await isSame(bench, (await lvOf(bench, copy)).devicePath, devicePath));
    await end(bench, [copy], [snapshotId], [volumeId]);
  });

  contract(host, "createVolume() from a volume has what that has, and nothing else is left", async (bench) => {
    const volumeId = await filled(bench);
    const copy = await copied(bench, { volumeCapabilities: [blockCapability()] }, { volumeId });
    const [one, other] = await Promise.all([copy, volumeId].map((id) => lvOf(bench, id)));
    assert(await isSame(bench, one!.devicePath, other!.devicePath));
    await bench.settled();
    assertEquals((await bench.lvs()).length, 2);
    await end(bench, [volumeId], [], [copy]);
  });

  for (const [fsType, mib] of [["ext4", 32n], ["ext2", 32n], ["xfs", 320n], ["btrfs", 320n]] as const) {
    contract(host, `a clone of a mounted ${fsType} volume is larger, and is mounted beside it`, async (bench) => {
      const capability = mountCapability(fsType);
      const sizes = { capacityRange: { requiredBytes: mib * MiB }, volumeCapabilities: [capability] };
      const parameters = { volumeGroup: bench.groups[1] };
      const volumeId = await bench.create({ ...sizes, parameters });
      const staged = await stageAt(bench, volumeId, "original", capability);
      await Deno.writeTextFile(`${staged}/file`, "there").catch(() => {}); // nothing is mounted on a fake machine
      const requiredBytes = (mib + 16n) * MiB;
      const request = { ...sizes, parameters, capacityRange: { requiredBytes } };
      let copy = "";
      const commands = await bench.exec.during(async () => copy = await copied(bench, request, { volumeId }));
      const writtenOut = commands.indexOf(`btrfs filesystem sync ${staged}`); // LVM freezes the others
      const cut = commands.findIndex((command) => command.startsWith("lvm lvcreate --yes --snapshot"));
      assert(fsType === "btrfs" ? writtenOut >= 0 && writtenOut < cut : writtenOut === -1, commands.join("\n"));
      const beside = await stageAt(bench, copy, "copy", capability);
      const uuids = (await Promise.all([volumeId, copy].map((id) => content(bench, id)))).map((tag) =>
        tag.split(":")[2]
      );
      assert(uuids.every((uuid) => uuid !== undefined) && uuids[0] !== uuids[1], String(uuids));
      if (await isMounted(bench, beside)) assertEquals(await Deno.readTextFile(`${beside}/file`), "there");
      const { usage } = await bench.csi.node.nodeGetVolumeStats({ volumeId: copy, volumePath: beside });
      assert(usage[0]!.total > (mib - 16n) * MiB * 3n / 4n, `${usage[0]!.total}`);
      for (const [volume, path] of [[volumeId, staged], [copy, beside]] as const) {
        await bench.csi.node.nodeUnstageVolume({ volumeId: volume, stagingTargetPath: path });
      }
      await end(bench, [copy], [], [volumeId]);
    });
  }

  contract(host, "createVolume() is answered alike when it is repeated, and refuses another source", async (bench) => {
    const volumeId = await filled(bench);
    const snapshotId = await snapshot(bench, volumeId);
    const request = { ...volumeRequest(), volumeCapabilities: [blockCapability()] };
    const copy = await copied(bench, request, { snapshotId });
    await bench.csi.controller.deleteSnapshot({ snapshotId });
    const source = { volumeContentSource: { type: { case: "snapshot", value: { snapshotId } } } } as const;
    const { volume } = await bench.csi.controller.createVolume({ ...request, ...source });
    assertEquals(volume?.volumeId, copy);
    assertEquals(volume?.contentSource?.type, { case: "snapshot", value: { ...SNAPSHOT, snapshotId } });
    const other = { volumeContentSource: { type: { case: "volume", value: { volumeId } } } } as const;
    await assertFails("ALREADY_EXISTS", bench.csi.controller.createVolume({ ...request, ...other }), "made from");
    await assertFails("ALREADY_EXISTS", bench.csi.controller.createVolume(request), "made from");
    await end(bench, [volumeId], [], [copy]);
  });

  contract(host, "createVolume() from something refuses what cannot be, and makes nothing", async (bench) => {
    const volumeId = await bench.create({ volumeCapabilities: [mountCapability("ext4")] });
    const snapshotId = await snapshot(bench, volumeId);
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
    for (const [code, request] of refused) await assertFails(code, bench.create(request));
    assertEquals((await bench.lvs()).length, 2);
    await end(bench, [], [snapshotId], [volumeId]);
  });

  contract(
    host,
    "a copy without a size has that of its source; a volume that was never used is copied",
    async (bench) => {
      const volumeId = await bench.create();
      const { name, volumeCapabilities } = volumeRequest();
      const copy = await finished(bench, {
        name,
        volumeCapabilities,
        volumeContentSource: { type: { case: "volume", value: { volumeId } } },
      });
      assertEquals(copy.capacityBytes, 32n * MiB);
      const stagingTargetPath = await bench.stage(copy.volumeId);
      await bench.csi.node.nodeUnstageVolume({ volumeId: copy.volumeId, stagingTargetPath });
      await end(bench, [copy.volumeId], [], [volumeId]);
    },
  );

  contract(host, "a clone for which there is no room says what it takes", async (bench) => {
    const group = (await bench.report()).find(({ name }) => name === bench.groups[0])!;
    const requiredBytes = group.size * 2n / 3n / group.extentSize * group.extentSize;
    const parameters = { volumeGroup: bench.groups[0] };
    const request = { capacityRange: { requiredBytes }, volumeCapabilities: [blockCapability()], parameters };
    const volumeId = await bench.create(request);
    const volumeContentSource = { type: { case: "volume", value: { volumeId } } } as const;
    await assertFails("RESOURCE_EXHAUSTED", bench.create({ ...request, volumeContentSource }), "temporary snapshot");
    assertEquals((await bench.lvs()).length, 1);
    await bench.csi.controller.deleteVolume({ volumeId });
  });
}

const SNAPSHOT = { $typeName: "csi.v1.VolumeContentSource.SnapshotSource" } as const;

let names = 0;

/** What a volume is made from. */
export type Source = { readonly snapshotId: string } | { readonly volumeId: string };

/** Whether a filesystem is mounted at a path: on a fake machine, it is not. */
export async function isMounted(bench: Bench, path: string): Promise<boolean> {
  return (await Deno.stat(path)).dev !== (await Deno.stat(bench.folder)).dev;
}

/** Makes a volume from something, however long it takes, and answers its id. */
export async function copied(bench: Bench, request: CreateRequest, source: Source): Promise<string> {
  return (await finished(bench, { ...volumeRequest(), ...request, ...from(source) })).volumeId;
}

/** The part of a request which says what the volume is made from. */
export function from(source: Source): Pick<CreateRequest, "volumeContentSource"> {
  const type = "snapshotId" in source
    ? { case: "snapshot", value: { snapshotId: source.snapshotId } } as const
    : { case: "volume", value: { volumeId: source.volumeId } } as const;
  return { volumeContentSource: { type } };
}

/** Repeats the call, as an orchestrator does, until the volume is there. */
export async function finished(bench: Bench, request: CreateRequest) {
  for (;;) {
    const call = bench.csi.controller.createVolume(request);
    const { code } = await failureOf(call);
    if (code === "OK") return (await call).volume!;
    if (code !== "ABORTED") await call;
  }
}

/** A block volume that was handed out, with something on all of it. */
export async function filled(bench: Bench, request: CreateRequest = {}): Promise<string> {
  const volumeId = await bench.create({ ...request, volumeCapabilities: [blockCapability()] });
  await stageAt(bench, volumeId, "block", blockCapability());
  await fill(bench, volumeId);
  return volumeId;
}

async function fill(bench: Bench, volumeId: string): Promise<void> {
  const { devicePath } = await lvOf(bench, volumeId);
  await bench.admin(
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
export async function snapshot(bench: Bench, sourceVolumeId: string): Promise<string> {
  const { snapshot } = await bench.csi.controller.createSnapshot({ name: `copied ${++names}`, sourceVolumeId });
  return snapshot!.snapshotId;
}

/** Stages a volume in a directory of that name, and answers the path. */
export async function stageAt(
  bench: Bench,
  volumeId: string,
  name: string,
  volumeCapability: Capability,
): Promise<string> {
  const stagingTargetPath = `${bench.folder}/${name}`;
  await Deno.mkdir(stagingTargetPath, { recursive: true });
  await bench.csi.node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability });
  return stagingTargetPath;
}

/** The LV of a volume. */
export async function lvOf(bench: Bench, volumeId: string) {
  return (await bench.lvs()).find(({ tags }) => tags.includes(`denolith.volume=${volumeId}`))!;
}

/** The tag that says what is on a volume. */
export async function content(bench: Bench, volumeId: string): Promise<string> {
  return (await lvOf(bench, volumeId)).tags.find((tag) => tag.startsWith("denolith.fs="))!;
}

/** Whether the same can be read from two devices. */
export async function isSame(bench: Bench, one: string, other: string): Promise<boolean> {
  const args = [`--bytes=${32n * MiB}`, one, other];
  const { code, stderr } = await bench.exec.run({ program: "cmp", args, mutates: false });
  assert(code <= 1, stderr);
  return code === 0;
}

/** Deletes volumes, snapshots and the last volumes, in this order, and makes sure that nothing is left. */
async function end(bench: Bench, first: string[], snapshots: string[], last: string[]): Promise<void> {
  for (const volumeId of first) await bench.csi.controller.deleteVolume({ volumeId });
  for (const snapshotId of snapshots) await bench.csi.controller.deleteSnapshot({ snapshotId });
  for (const volumeId of last) await bench.csi.controller.deleteVolume({ volumeId });
  assertEquals(await bench.lvs(), []);
}
