/**
 * Contract: the changed blocks between snapshots, as backups read them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { BlockMetadata } from "../../csi/proto/csi_pb.ts";
import { readBytes } from "../../lvm/host/device_bytes.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { lvOf } from "./copies_suite.ts";
import { assertFails, blockCapability, contractTest, type Harness, type Host } from "./helpers/host.ts";

const KiB = 1024;
/** A mebibyte in bytes. */
export const MiB = 1n << 20n;

/** What can be a volume here, with the size of the blocks that are listed. */
export const KINDS = [
  { kind: "thick", parameters: {}, blockBytes: 4 * KiB },
  { kind: "thin", parameters: { thinProvision: "yes", thinPoolSize: "128Mi" }, blockBytes: 64 * KiB },
] as const;

/** A part of a volume, in KiB. */
type Range = readonly [offset: number, length: number];

/** Registers the tests. */
export function differencesContract(host: Host): void {
  for (const { kind, parameters, blockBytes } of KINDS) {
    const create = (harness: Harness, size = 16n * MiB) => createBlockVolume(harness, size, parameters);

    contractTest(
      host,
      `${kind}: the changed blocks are those that were written between the snapshots`,
      async (harness) => {
        const volume = await create(harness);
        await writeAt(harness, volume, [[0, 8192]]);
        const base = await takeSnapshot(harness, volume);
        await writeAt(harness, volume, [[4, 4], [128, 12], [1000, 300], [8192, 64], [16_380, 4]]);
        const target = await takeSnapshot(harness, volume);
        await writeAt(harness, volume, [[4, 4], [1100, 8], [3000, 64], [9000, 4], [16_380, 4]]);
        const { blocks, capacity } = await listDelta(harness, { baseSnapshotId: base, targetSnapshotId: target });
        assertEquals(capacity, 16n * MiB);
        const [before, after] = [await contentOf(harness, base), await contentOf(harness, target)];
        assertEquals(blocksOf(blocks, blockBytes), differingBlocks(before, after, blockBytes));
        const restored = before.slice();
        let read = 0;
        for (const { byteOffset, sizeBytes } of blocks) {
          const [from, to] = [Number(byteOffset), Number(byteOffset + sizeBytes)];
          restored.set(after.subarray(from, to), from);
          read += to - from;
        }
        assertEquals(differingBlocks(restored, after, 512), []);
        assertEquals(read, differingBlocks(before, after, blockBytes).length * blockBytes);
        await cleanUp(harness);
      },
    );

    contractTest(host, `${kind}: a list is continued from any place, in responses of any length`, async (harness) => {
      const volume = await create(harness);
      const base = await takeSnapshot(harness, volume);
      await writeAt(harness, volume, Array.from({ length: 10 }, (_, index) => [index * 1024 + 64, 64] as const));
      const target = await takeSnapshot(harness, volume);
      const ids = { baseSnapshotId: base, targetSnapshotId: target };
      const all = await listDelta(harness, ids);
      assertEquals(all.blocks.length, 10);
      for (const maxResults of [1, 3, 10, 1_000_000]) {
        const some = await listDelta(harness, { ...ids, maxResults });
        assertEquals([some.blocks, Math.max(...some.lengths)], [all.blocks, Math.min(maxResults, 10)]);
      }
      for (const [index, { byteOffset, sizeBytes }] of all.blocks.entries()) {
        const rest = await listDelta(harness, { ...ids, startingOffset: byteOffset + sizeBytes });
        assertEquals(rest.blocks, all.blocks.slice(index + 1));
      }
      const { byteOffset, sizeBytes } = all.blocks[4]!;
      const within = await listDelta(harness, { ...ids, startingOffset: byteOffset + sizeBytes - 1n });
      assert(within.blocks[0]!.byteOffset + within.blocks[0]!.sizeBytes > byteOffset + sizeBytes - 1n);
      const continued = new Set(blocksOf(within.blocks, blockBytes));
      for (const block of blocksOf(all.blocks.slice(5), blockBytes)) assert(continued.has(block));
      assertEquals((await listDelta(harness, { ...ids, startingOffset: 16n * MiB })).blocks, []);
      await assertFails("OUT_OF_RANGE", listDelta(harness, { ...ids, startingOffset: 16n * MiB + 1n }));
      await cleanUp(harness);
    });

    contractTest(host, `${kind}: what a snapshot has is listed`, async (harness) => {
      const volume = await create(harness);
      await writeAt(harness, volume, [[128, 64], [4096, 128]]);
      const snapshotId = await takeSnapshot(harness, volume);
      await writeAt(harness, volume, [[256, 64]]);
      const { blocks, capacity } = await listAllocated(harness, { snapshotId });
      assertEquals(capacity, 16n * MiB);
      const ranges = blocks.map(({ byteOffset, sizeBytes }) => [Number(byteOffset) / KiB, Number(sizeBytes) / KiB]);
      const isAll = kind === "thick";
      assertEquals(ranges.map(String), isAll ? ["0,16384"] : ranges.map(String));
      const content = await contentOf(harness, snapshotId);
      const listed = new Set(blocksOf(blocks, blockBytes));
      for (const block of differingBlocks(new Uint8Array(content.length), content, blockBytes)) {
        assert(listed.has(block));
      }
      if (!isAll) assert(listed.size < 20, `${listed.size} blocks`);
      await assertFails("OUT_OF_RANGE", listAllocated(harness, { snapshotId, startingOffset: 16n * MiB + 1n }));
      assertEquals((await listAllocated(harness, { snapshotId, secrets: { token: "not needed" } })).blocks, blocks);
      await cleanUp(harness);
    });

    contractTest(host, `${kind}: snapshots that cannot be compared are refused`, async (harness) => {
      const [volume, other] = [await create(harness), await create(harness)];
      const [first, ofOther] = [await takeSnapshot(harness, volume), await takeSnapshot(harness, other)];
      await nextSecond();
      const second = await takeSnapshot(harness, volume);
      const delta = (baseSnapshotId: string, targetSnapshotId: string, rest = {}) =>
        listDelta(harness, { baseSnapshotId, targetSnapshotId, ...rest });
      await assertFails("INVALID_ARGUMENT", delta(first, ofOther), "of volumes");
      await assertFails("INVALID_ARGUMENT", delta(second, first), "created after");
      await assertFails("INVALID_ARGUMENT", delta(first, first), "one snapshot");
      await assertFails("INVALID_ARGUMENT", delta("", first), "base_snapshot_id");
      await assertFails("INVALID_ARGUMENT", delta(first, ""), "target_snapshot_id");
      await assertFails("INVALID_ARGUMENT", listAllocated(harness, {}), "snapshot_id");
      await assertFails("INVALID_ARGUMENT", delta(first, second, { startingOffset: -1n }), "starting_offset");
      await assertFails("INVALID_ARGUMENT", delta(first, second, { maxResults: -1 }), "max_results");
      await assertFails("NOT_FOUND", delta("snap-1", first));
      assertEquals((await delta(first, second)).blocks, []);
      await harness.csi.controller.deleteSnapshot({ snapshotId: first });
      await assertFails("NOT_FOUND", delta(first, second));
      await cleanUp(harness);
    });

    contractTest(
      host,
      `${kind}: snapshots that are inactive, as after a restart of the machine, are compared`,
      async (harness) => {
        const volume = await create(harness);
        const base = await takeSnapshot(harness, volume);
        await writeAt(harness, volume, [[128, 64]]);
        const target = await takeSnapshot(harness, volume);
        await harness.csi.node.nodeUnstageVolume({ volumeId: volume, stagingTargetPath: `${harness.folder}/staging` });
        for (const { name, origin, thinPool } of poolsLast(await harness.lvs())) {
          if (kind === "thick" && origin !== undefined) continue; // it goes with its volume
          const options = thinPool === undefined ? [] : ["--config", "activation/monitoring=0"];
          await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", ...options, `${harness.groups[0]}/${name}`);
        }
        const { blocks } = await listDelta(harness, { baseSnapshotId: base, targetSnapshotId: target });
        assertEquals(blocks.map(({ byteOffset, sizeBytes }) => [byteOffset, sizeBytes]), [[128n * 1024n, 64n * 1024n]]);
        await cleanUp(harness);
      },
    );
  }

  contractTest(
    host,
    "thin: blocks that were discarded between the snapshots are listed as changed",
    async (harness) => {
      const volume = await createBlockVolume(harness, 16n * MiB, KINDS[1].parameters);
      await writeAt(harness, volume, [[0, 1024]]);
      const base = await takeSnapshot(harness, volume);
      const { devicePath } = await lvOf(harness, volume);
      const range = ["--offset", `${128 * KiB}`, "--length", `${256 * KiB}`];
      await harness.runAsAdmin("blkdiscard", ...range, devicePath);
      const target = await takeSnapshot(harness, volume);
      const { blocks } = await listDelta(harness, { baseSnapshotId: base, targetSnapshotId: target });
      assertEquals(blocksOf(blocks, 64 * KiB), [128, 192, 256, 320].map((offset) => offset * KiB));
      const listed = blocksOf((await listAllocated(harness, { snapshotId: target })).blocks, 64 * KiB);
      assertEquals(listed, [0, 64, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960].map((offset) => offset * KiB));
      await cleanUp(harness);
    },
  );

  contractTest(
    host,
    "a thick snapshot that overflowed cannot be a base, and the answer says what to do",
    async (harness) => {
      const volume = await createBlockVolume(harness, 16n * MiB, {});
      const base = await takeSnapshot(harness, volume, { snapSize: "4Mi" });
      const target = await takeSnapshot(harness, volume, { snapSize: "100%" });
      await writeAt(harness, volume, [[0, 16_384]]);
      await assertFails(
        "FAILED_PRECONDITION",
        listDelta(harness, { baseSnapshotId: base, targetSnapshotId: target }),
        "full backup",
      );
      await assertFails("FAILED_PRECONDITION", listAllocated(harness, { snapshotId: base }), "overflowed");
      await cleanUp(harness);
    },
  );
}

/** Creates a block volume, and stages it. */
export async function createBlockVolume(
  harness: Harness,
  requiredBytes: bigint,
  parameters: Readonly<Record<string, string>>,
): Promise<string> {
  const volumeId = await harness.create({
    capacityRange: { requiredBytes },
    parameters: { volumeGroup: harness.groups[0], ...parameters },
    volumeCapabilities: [blockCapability()],
  });
  await harness.stage(volumeId, blockCapability());
  return volumeId;
}

let nextSnapshot = 0;

/** Takes a snapshot of a volume. @returns its id */
export async function takeSnapshot(
  harness: Harness,
  sourceVolumeId: string,
  parameters: Record<string, string> = { snapSize: "100%" },
): Promise<string> {
  const name = `compared ${++nextSnapshot}`;
  const { snapshot } = await harness.csi.controller.createSnapshot({ name, sourceVolumeId, parameters });
  return snapshot!.snapshotId;
}

/** Waits for another second: LVM knows the time of a creation in seconds. */
async function nextSecond(): Promise<void> {
  const second = Math.floor(Date.now() / 1000);
  while (Math.floor(Date.now() / 1000) === second) await new Promise((resolve) => setTimeout(resolve, 50));
}

/** Writes something new to parts of a volume. */
async function writeAt(harness: Harness, volumeId: string, ranges: readonly Range[]): Promise<void> {
  const { devicePath } = await lvOf(harness, volumeId);
  for (const [offset, length] of ranges) {
    const place = [`bs=${4 * KiB}`, `seek=${offset / 4}`, `count=${length / 4}`];
    const options = ["oflag=direct", "conv=notrunc", "status=none"];
    await harness.runAsAdmin("dd", "if=/dev/urandom", `of=${devicePath}`, ...place, ...options);
  }
}

async function snapshotLv(harness: Harness, snapshotId: string): Promise<LogicalVolume> {
  return (await harness.lvs()).find(({ tags }) => tags.includes(`denolith.snapshot=${snapshotId}`))!;
}

async function contentOf(harness: Harness, snapshotId: string): Promise<Uint8Array> {
  const { devicePath, originSize, size } = await snapshotLv(harness, snapshotId);
  return await readBytes(harness.exec, devicePath, { offset: 0, length: Number(originSize ?? size) });
}

function poolsLast(lvs: readonly LogicalVolume[]): LogicalVolume[] {
  return [
    ...lvs.filter(({ thinPool }) => thinPool === undefined),
    ...lvs.filter(({ thinPool }) => thinPool !== undefined),
  ];
}

/** Returns the offsets of the blocks in which two devices differ. */
function differingBlocks(one: Uint8Array, other: Uint8Array, blockBytes: number): number[] {
  const offsets: number[] = [];
  for (let at = 0; at < one.length; at += blockBytes) {
    for (let byte = at; byte < at + blockBytes; byte++) {
      if (one[byte] === other[byte]) continue;
      offsets.push(at);
      break;
    }
  }
  return offsets;
}

/** Returns the offsets of listed blocks. */
function blocksOf(ranges: readonly BlockMetadata[], blockBytes: number): number[] {
  return ranges.flatMap(({ byteOffset, sizeBytes }) =>
    Array.from({ length: Number(sizeBytes) / blockBytes }, (_, index) => Number(byteOffset) + index * blockBytes)
  );
}

/** A list, as the responses have it. */
export interface List {
  readonly capacity: bigint;
  readonly blocks: BlockMetadata[];
  /** The number of ranges in each response. */
  readonly lengths: number[];
}

interface Response {
  readonly volumeCapacityBytes: bigint;
  readonly blockMetadata: BlockMetadata[];
}

/** The calls of the service. */
export type Metadata = Harness["csi"]["snapshotMetadata"];

/** Lists what changed between two snapshots. */
export function listDelta(harness: Harness, request: Parameters<Metadata["getMetadataDelta"]>[0]): Promise<List> {
  return readList(harness.csi.snapshotMetadata.getMetadataDelta(request));
}

/** Lists what a snapshot has. */
export function listAllocated(
  harness: Harness,
  request: Parameters<Metadata["getMetadataAllocated"]>[0],
): Promise<List> {
  return readList(harness.csi.snapshotMetadata.getMetadataAllocated(request));
}

async function readList(responses: AsyncIterable<Response>): Promise<List> {
  const capacities = new Set<bigint>();
  const blocks: BlockMetadata[] = [];
  const lengths: number[] = [];
  for await (const { volumeCapacityBytes, blockMetadata } of responses) {
    capacities.add(volumeCapacityBytes);
    blocks.push(...blockMetadata);
    lengths.push(blockMetadata.length);
  }
  assertEquals(capacities.size, 1);
  let end = 0n;
  for (const { byteOffset, sizeBytes } of blocks) {
    assert(byteOffset >= end && sizeBytes > 0n, "ranges are in order and do not overlap");
    end = byteOffset + sizeBytes;
  }
  return { capacity: [...capacities][0]!, blocks, lengths };
}

/** Deletes what there is, and the pools of the driver, as an administrator does. */
export async function cleanUp(harness: Harness): Promise<void> {
  const { controller, node } = harness.csi;
  for (const { snapshot } of (await controller.listSnapshots({})).entries) {
    await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
  }
  for (const { volume } of (await controller.listVolumes({})).entries) {
    const { volumeId } = volume!;
    await node.nodeUnstageVolume({ volumeId, stagingTargetPath: `${harness.folder}/staging` });
    await controller.deleteVolume({ volumeId });
  }
  for (const { name, tags } of await harness.lvs()) {
    if (!tags.includes("denolith.pool=made")) continue;
    await harness.runAsAdmin("lvm", "lvremove", "--yes", `${harness.groups[0]}/${name}`);
  }
}
