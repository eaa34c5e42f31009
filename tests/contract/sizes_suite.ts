/**
 * Contract: sizes that are no multiple of what LVM allocates. Every call has the same size of a volume, and an equal request
 * is enough for a copy of it.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { contentSourceOf, createCopy, lvOf, takeSnapshot } from "./copies_suite.ts";
import { removePools } from "./encryption_suite.ts";
import {
  assertFails,
  blockCapability,
  type Capability,
  contractTest,
  type CreateRequest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";

const MiB = 1n << 20n;

/** The kinds of volumes, and the bytes of which the sizes of each are multiples. */
const KINDS: readonly {
  readonly parameters: Record<string, string>;
  readonly step: bigint;
  readonly capability?: Capability;
}[] = [
  { parameters: {}, step: 4n * MiB },
  { parameters: {}, step: 4n * MiB, capability: mountCapability("ext4") },
  { parameters: {}, step: 4n * MiB, capability: mountCapability("xfs") },
  { parameters: { thinProvision: "yes" }, step: 4n * MiB },
  { parameters: { encryption: "luks2" }, step: 4n * MiB },
  { parameters: { layout: "striped", stripes: "3" }, step: 12n * MiB },
  { parameters: { layout: "raid1" }, step: 4n * MiB },
  { parameters: { layout: "raid5", stripes: "3" }, step: 12n * MiB },
  { parameters: { layout: "raid6" }, step: 12n * MiB },
  { parameters: { layout: "raid10", stripes: "2" }, step: 8n * MiB },
];

/** Requested sizes: a byte, and a decimal one. */
const SIZES = [1n, 33_000_000n];

/** Registers the tests. */
export function sizesContract(host: Host): void {
  for (const { parameters, step, capability = blockCapability() } of KINDS) {
    const fsType = capability.accessType?.case === "mount" ? capability.accessType.value.fsType : "block";
    const kind = [fsType, ...Object.values(parameters)].join(" ");
    contractTest(
      host,
      `a volume has one size in every call, and an equal request copies it: ${kind}`,
      async (harness) => {
        for (const requiredBytes of SIZES) {
          const wanted = {
            parameters: { ...parameters, volumeGroup: harness.groups[1] },
            volumeCapabilities: [capability],
          };
          await checkSize(harness, { ...wanted, capacityRange: { requiredBytes } }, { requiredBytes, step });
        }
        await removePools(harness);
      },
    );
  }
}

/** Creates a volume, copies it by equal requests, expands it, and deletes all of them. */
async function checkSize(
  harness: Harness,
  wanted: CreateRequest,
  { requiredBytes, step }: { requiredBytes: bigint; step: bigint },
): Promise<void> {
  const { controller } = harness.csi;
  const sizeOf = async (volumeId: string) => {
    const { entries } = await controller.listVolumes({});
    const listed = entries.find(({ volume }) => volume!.volumeId === volumeId)!.volume!.capacityBytes;
    const { volume } = await controller.controllerGetVolume({ volumeId });
    assertEquals([listed, volume!.capacityBytes], Array(2).fill((await lvOf(harness, volumeId)).size));
    return listed;
  };
  const volumeId = await harness.create(wanted);
  const size = await sizeOf(volumeId);
  assert(size >= requiredBytes && size % step === 0n, `${size} for ${requiredBytes}`);

  const snapshotId = await takeSnapshot(harness, volumeId);
  for (const source of [{ volumeId }, { snapshotId }]) {
    const copy = await createCopy(harness, { ...wanted, capacityRange: { requiredBytes, limitBytes: size } }, source);
    assertEquals(await sizeOf(copy), size);
    await controller.deleteVolume({ volumeId: copy });
    await harness.waitUntilIdle();
    const small = { capacityRange: { limitBytes: size - 1n }, ...contentSourceOf(source) };
    await assertFails("OUT_OF_RANGE", harness.create({ ...wanted, ...small }));
  }
  await controller.deleteSnapshot({ snapshotId });

  const capacityRange = { requiredBytes: size + 1n };
  const { capacityBytes } = await controller.controllerExpandVolume({ volumeId, capacityRange });
  assertEquals([capacityBytes, await sizeOf(volumeId)], [size + step, size + step]);
  await controller.deleteVolume({ volumeId });
  await harness.waitUntilIdle();
}
