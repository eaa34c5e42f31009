/**
 * Contract: LVs of others are imported with what is on them, used as any volume, and returned.
 *
 * @module
 */

import { assert, assertEquals, assertRejects } from "@std/assert";
import { Lvm } from "../../lvm/client/client.ts";
import { StorageError } from "../../base/error.ts";
import { readSignatures } from "../../lvm/host/device.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import { VolumeFinder } from "../../lvm/inventory/volume_finder.ts";
import { type Layout, layoutOf, LINEAR } from "../../lvm/model/layout.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { exactMatcher } from "../../lvm/model/groups.ts";
import { type FilesystemType, mkfsCommand } from "../../lvm/settings/filesystem.ts";
import { type ForeignLv, ImportedVolumes } from "../../lvm/volumes/imported_volumes.ts";
import type { VolumeRequest } from "../../lvm/inventory/volume.ts";
import { createCopy, stageAt } from "./copies_suite.ts";
import { createBlockVolume, isZeroed } from "./erasure_suite.ts";
import { blockCapability, contractTest, type Harness, type Host, mountCapability } from "./helpers/host.ts";

/** The name of the LV, as OpenEBS writes it. */
const NAME = "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88";
const ID = volumeIdOf(NAME);
const UUID = "0b5b4a1e-0000-4000-8000-000000000001";
const BYTES = 320n << 20n; // xfs and btrfs need as much

/** How somebody else makes an LV. */
interface ForeignOptions {
  /** Its size in bytes. */
  readonly bytes?: bigint;
  /** How it is erased, once it is a volume. */
  readonly erase?: VolumeRequest["erase"];
  /** The thin pool that it is in, which is made, too. */
  readonly pool?: string;
  /** Whether that pool zeroes new blocks; "y" by default. */
  readonly zero?: "y" | "n";
  /** Arguments of lvcreate for its layout; then it is in the second group. */
  readonly layout?: readonly string[];
}

/** Makes an LV with a filesystem, or full of data, as somebody else does. */
async function addForeign(
  harness: Harness,
  type: FilesystemType | "raw" | "unknown",
  { bytes = BYTES, erase = "none", pool, zero = "y", layout }: ForeignOptions = {},
) {
  const groupName = harness.groups[layout === undefined ? 0 : 1];
  const lvcreate = ["lvcreate", "--yes", "--name"];
  if (pool !== undefined) {
    await harness.runAsAdmin(
      "lvm",
      ...lvcreate,
      pool,
      "--type",
      "thin-pool",
      "--zero",
      zero,
      "--size",
      `${2n * bytes}b`,
      groupName,
    );
  }
  const size = pool === undefined
    ? ["--size", `${bytes}b`]
    : ["--type", "thin", "--virtualsize", `${bytes}b`, "--thinpool", pool];
  await harness.runAsAdmin("lvm", ...lvcreate, NAME, "--wipesignatures", "y", ...size, ...(layout ?? []), groupName);
  const group = (await harness.report()).find(({ name }) => name === groupName)!;
  const { devicePath } = group.lvs.find(({ name }) => name === NAME)!;
  if (type === "raw" || type === "unknown") {
    const count = `count=${bytes >> 20n}`;
    await harness.runAsAdmin(
      "dd",
      "if=/dev/urandom",
      `of=${devicePath}`,
      "bs=1048576",
      count,
      "oflag=direct",
      "status=none",
    );
  } else {
    const { program, args } = mkfsCommand(type, devicePath, UUID, []);
    await harness.runAsAdmin(program, ...args);
  }
  const finder = new VolumeFinder({ driver: harness.driverName });
  const imported = new ImportedVolumes({ lvm: new Lvm(harness.exec), finder, onChange: () => {} });
  const from: ForeignLv = { groupUuid: group.uuid, name: NAME };
  const request: VolumeRequest = {
    ...{ id: ID, range: { required: bytes }, groups: exactMatcher(groupName), preference: "leastFree" },
    ...{
      format: type === "raw" ? { state: "raw" } : { state: "unformatted", type: type === "unknown" ? "ext4" : type },
    },
    ...{ mkfsOptions: [], shared: true },
    ...{ erase, layout: LINEAR, ...(pool !== undefined && { thin: { pool, poolSize: { bytes } } }) },
  };
  return { groupName, devicePath, imported, from, request };
}

/** Registers the tests. */
export function importsContract(host: Host): void {
  for (const type of ["ext4", "xfs", "btrfs"] as const) {
    contractTest(
      host,
      `an LV of somebody else with ${type} is imported, used, returned, and deleted`,
      async (harness, machine) => {
        const { groupName, devicePath, imported, from, request } = await addForeign(harness, type);
        const theirs = `${harness.folder}/theirs`;
        await Deno.mkdir(theirs);
        await harness.runAsAdmin("mount", "-t", type, devicePath, theirs);
        const inUse = await assertRejects(() => imported.import(request, from), StorageError, `its mount ${theirs}`);
        assertEquals([inUse.kind, await imported.isStillMounted(ID)], ["InUse", true]);
        await harness.runAsAdmin("umount", theirs);
        assertEquals(await imported.isStillMounted(ID), false);
        {
          using _open = await machine.openDevice(devicePath);
          await assertRejects(() => imported.import(request, from), StorageError, "a program that has");
        }
        await imported.import(request, from);
        const [ours] = await harness.lvs();
        assertEquals(ours!.name, volumeLvName(ID));

        const volumeCapability = mountCapability(type);
        const stagingTargetPath = await harness.stage(ID, volumeCapability);
        await assertRejects(() => imported.return(ID, from), StorageError, "its mount ");
        await harness.csi.node.nodeUnstageVolume({ volumeId: ID, stagingTargetPath });
        await imported.return(ID, from);
        const [again] = await harness.lvs();
        assertEquals([again!.name, again!.uuid, [...again!.tags]], [NAME, ours!.uuid, []]);
        assertEquals((await harness.report()).flatMap(({ tags }) => tags), []);
        const signatures = await readSignatures(harness.exec, devicePath);
        assertEquals([...new Set(signatures.map((found) => `${found.type} ${found.uuid}`))], [`${type} ${UUID}`]);
        await harness.runAsAdmin("mount", "-t", type, devicePath, theirs);
        await harness.runAsAdmin("umount", theirs);

        await imported.import(request, from);
        await harness.csi.controller.deleteVolume({ volumeId: ID });
        assertEquals(await harness.lvs(), [], `nothing is left in ${groupName}`);
      },
    );
  }

  const small = 32n << 20n;
  for (const type of ["ext4", "raw", "unknown"] as const) {
    contractTest(
      host,
      `an LV of somebody else (${type}) that was imported and never used is erased when it is deleted`,
      async (harness) => {
        const { imported, from, request } = await addForeign(harness, type, { bytes: small, erase: "zero" });
        await imported.import(request, from);
        const [{ uuid }] = await harness.lvs() as [LogicalVolume];
        const tags = (await harness.report()).flatMap((group) => group.tags);
        assertEquals(tags, [`denolith.used=${harness.driverName}:${ID}:${uuid}`]);
        await harness.csi.controller.deleteVolume({ volumeId: ID });
        await assertErased(harness);
      },
    );
  }

  for (const type of ["ext4", "raw"] as const) {
    contractTest(
      host,
      `an LV of somebody else (${type}) that was imported is expanded, snapshotted, cloned and erased as any volume`,
      async (harness) => {
        const { imported, from, request } = await addForeign(harness, type, { bytes: small, erase: "zero" });
        await imported.import(request, from);
        const capability = type === "raw" ? blockCapability() : mountCapability(type);
        const volumeCapabilities = [capability];
        const stagingTargetPath = await harness.stage(ID, capability);
        const capacityRange = { requiredBytes: 2n * small };
        const expanded = await harness.csi.controller.controllerExpandVolume({
          ...{ volumeId: ID, capacityRange, volumeCapability: capability },
        });
        assertEquals([expanded.capacityBytes, expanded.nodeExpansionRequired], [2n * small, type !== "raw"]);
        if (expanded.nodeExpansionRequired) {
          await harness.csi.node.nodeExpandVolume({ volumeId: ID, volumePath: stagingTargetPath, capacityRange });
        }
        const name = "snapshot";
        const { snapshot } = await harness.csi.controller.createSnapshot({ name, sourceVolumeId: ID });
        const { snapshotId } = snapshot!;
        const copies: string[] = [];
        for (const source of [{ snapshotId }, { volumeId: ID }]) {
          const copy = await createCopy(
            harness,
            { name: Object.keys(source)[0]!, capacityRange, volumeCapabilities },
            source,
          );
          const path = await stageAt(harness, copy, "copy", capability); // beside its source
          await harness.csi.node.nodeUnstageVolume({ volumeId: copy, stagingTargetPath: path });
          copies.push(copy);
        }
        await harness.csi.controller.deleteSnapshot({ snapshotId });
        await harness.csi.node.nodeUnstageVolume({ volumeId: ID, stagingTargetPath });
        for (const volumeId of [...copies, ID]) await harness.csi.controller.deleteVolume({ volumeId });
        await assertErased(harness);
      },
    );
  }

  contractTest(
    host,
    "a thin LV of somebody else is imported and deleted, and its pool stays as it is",
    async (harness) => {
      const options = { bytes: small, erase: "zero", pool: "theirs" } as const;
      const { groupName, imported, from, request } = await addForeign(harness, "ext4", options);
      const poolOf = async () => {
        const { name, uuid, size, tags } = (await harness.report()).flatMap(({ lvs }) => lvs).find((lv) =>
          lv.name === "theirs"
        )!;
        return { name, uuid, size, tags };
      };
      const pool = await poolOf();
      const other = await assertRejects(
        () => imported.import({ ...request, thin: { pool: "other", poolSize: { bytes: small } } }, from),
        StorageError,
        "theirs",
      );
      assertEquals(other.kind, "FailedPrecondition");
      await imported.import(request, from);
      // as a clone of an administrator after a restart: LVM skips it when it activates a group
      const path = `${groupName}/${volumeLvName(ID)}`;
      for (const option of [["--setactivationskip", "y"], ["--activate", "n"]]) {
        await harness.runAsAdmin("lvm", "lvchange", ...option, path);
      }
      const stagingTargetPath = await harness.stage(ID, mountCapability("ext4"));
      await harness.csi.node.nodeUnstageVolume({ volumeId: ID, stagingTargetPath });
      await imported.return(ID, from);
      await imported.import(request, from);
      await harness.csi.controller.deleteVolume({ volumeId: ID });
      await harness.waitUntilIdle();
      assertEquals([await poolOf(), (await harness.report()).flatMap(({ tags }) => tags)], [pool, []]);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", `${groupName}/theirs`);
    },
  );

  contractTest(
    host,
    "a thin LV that is to be erased is neither imported nor removed while its pool does not zero new blocks",
    async (harness) => {
      const options = { bytes: small, erase: "zero", pool: "theirs", zero: "n" } as const;
      const { groupName, imported, from, request } = await addForeign(harness, "ext4", options);
      const zero = (value: string) => harness.runAsAdmin("lvm", "lvchange", "--zero", value, `${groupName}/theirs`);
      const names = async () => (await harness.lvs()).map(({ name }) => name).sort();
      const refused = await assertRejects(
        () => imported.import(request, from),
        StorageError,
        "does not zero new blocks",
      );
      assertEquals([refused.kind, await names()], ["FailedPrecondition", [NAME, "theirs"]]);
      await zero("y");
      await imported.import(request, from);
      await zero("n");
      const remove = async () => {
        await harness.csi.controller.deleteVolume({ volumeId: ID });
        await harness.waitUntilIdle();
      };
      await remove();
      assertEquals(await names(), ["theirs", volumeLvName(ID)]);
      await zero("y");
      await remove();
      assertEquals(await names(), ["theirs"]);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", `${groupName}/theirs`);
    },
  );
}

/** Registers the tests of LVs with layouts. The second group of the host has five disks. */
export function importedLayoutsContract(host: Host): void {
  const layouts: readonly (readonly [Layout, ...args: string[]])[] = [
    [
      { type: "striped", stripes: 3, stripeSize: 131_072n },
      "--type",
      "striped",
      "--stripes",
      "3",
      "--stripesize",
      "131072b",
    ],
    [{ type: "raid1", mirrors: 1 }, "--type", "raid1", "--mirrors", "1"],
    [{ type: "raid5", stripes: 2, stripeSize: 65_536n }, "--type", "raid5", "--stripes", "2", "--stripesize", "65536b"],
  ];
  for (const [layout, ...args] of layouts) {
    contractTest(
      host,
      `an LV of somebody else with the layout ${layout.type} is imported with it, and returned`,
      async (harness) => {
        const { imported, from, request } = await addForeign(harness, "ext4", { bytes: 32n << 20n, layout: args });
        assertEquals((await imported.inspect(request, from)).layout, layout);
        await assertRejects(() => imported.import(request, from), StorageError, `it is ${layout.type}`);
        await imported.import({ ...request, layout }, from);
        const stagingTargetPath = await harness.stage(ID, mountCapability("ext4"));
        const capacityRange = { requiredBytes: 96n << 20n };
        await harness.csi.controller.controllerExpandVolume({ volumeId: ID, capacityRange });
        await harness.csi.node.nodeExpandVolume({ volumeId: ID, volumePath: stagingTargetPath, capacityRange });
        await harness.csi.node.nodeUnstageVolume({ volumeId: ID, stagingTargetPath });
        const [expanded] = await harness.lvs();
        assertEquals(layoutOf(expanded!), layout);
        await imported.return(ID, from);
        await imported.import({ ...request, layout }, from);
        await harness.csi.controller.deleteVolume({ volumeId: ID });
        assertEquals([await harness.lvs(), (await harness.report()).flatMap(({ tags }) => tags)], [[], []]);
      },
    );
  }
}

/** Asserts that nothing is left, and that the next volume in the same place shows no data. */
async function assertErased(harness: Harness): Promise<void> {
  const volumeId = await createBlockVolume(harness);
  assert(await isZeroed(harness, volumeId), "a volume in the same place shows what was not erased");
  await harness.csi.controller.deleteVolume({ volumeId });
  assertEquals(await harness.lvs(), []);
  assertEquals((await harness.report()).flatMap(({ tags }) => tags), []);
}
