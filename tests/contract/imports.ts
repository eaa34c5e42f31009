/**
 * Contract: LVs of others are taken over with what is on them, used as any volume, and given back.
 *
 * @module
 */

import { assertEquals, assertRejects } from "@std/assert";
import { Lvm } from "../../lvm/client/client.ts";
import { StorageError } from "../../lvm/error.ts";
import { readSignatures } from "../../lvm/host/device.ts";
import { volumeIdOf, volumeLvName } from "../../lvm/ids.ts";
import { VolumeFinder } from "../../lvm/inventory/volume_finder.ts";
import { LINEAR } from "../../lvm/model/layout.ts";
import { exactMatcher } from "../../lvm/model/groups.ts";
import { type FilesystemType, mkfsCommand } from "../../lvm/spec/filesystem.ts";
import { type ForeignLv, ImportedVolumes } from "../../lvm/volumes/imported_volumes.ts";
import type { VolumeRequest } from "../../lvm/inventory/volume.ts";
import { contractTest, type Harness, type Host, mountCapability } from "./host.ts";

/** The name of the LV, as OpenEBS writes it. */
const NAME = "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88";
const ID = volumeIdOf(NAME);
const UUID = "0b5b4a1e-0000-4000-8000-000000000001";
const BYTES = 320n << 20n; // xfs and btrfs need as much

/** Makes an LV with a filesystem, as somebody else does. */
async function addForeign(harness: Harness, type: FilesystemType) {
  const [groupName] = harness.groups;
  await harness.runAsAdmin(
    "lvm",
    ...["lvcreate", "--yes", "--wipesignatures", "y", "--name", NAME, "--size", `${BYTES}b`, groupName],
  );
  const group = (await harness.report()).find(({ name }) => name === groupName)!;
  const { devicePath } = group.lvs.find(({ name }) => name === NAME)!;
  const { program, args } = mkfsCommand(type, devicePath, UUID, []);
  await harness.runAsAdmin(program, ...args);
  const finder = new VolumeFinder({ driver: harness.driverName });
  const imported = new ImportedVolumes({ lvm: new Lvm(harness.exec), finder, onChange: () => {} });
  const from: ForeignLv = { groupUuid: group.uuid, name: NAME };
  const request: VolumeRequest = {
    ...{ id: ID, range: { required: BYTES }, groups: exactMatcher(groupName), preference: "leastFree" },
    ...{ format: { state: "unformatted", type }, mkfsOptions: [], shared: true, erase: "none", layout: LINEAR },
  };
  return { groupName, devicePath, imported, from, request };
}

/** Registers the tests. */
export function importsContract(host: Host): void {
  for (const type of ["ext4", "xfs", "btrfs"] as const) {
    contractTest(
      host,
      `an LV of somebody else with ${type} is taken over, used, given back, and deleted`,
      async (harness, machine) => {
        const { groupName, devicePath, imported, from, request } = await addForeign(harness, type);
        const theirs = `${harness.folder}/theirs`;
        await Deno.mkdir(theirs);
        await harness.runAsAdmin("mount", "-t", type, devicePath, theirs);
        const inUse = await assertRejects(() => imported.take(request, from), StorageError, `its mount ${theirs}`);
        assertEquals([inUse.kind, await imported.isStillMounted(ID)], ["InUse", true]);
        await harness.runAsAdmin("umount", theirs);
        assertEquals(await imported.isStillMounted(ID), false);
        {
          using _open = await machine.openDevice(devicePath);
          await assertRejects(() => imported.take(request, from), StorageError, "a program that has");
        }
        await imported.take(request, from);
        const [ours] = await harness.lvs();
        assertEquals(ours!.name, volumeLvName(ID));

        const volumeCapability = mountCapability(type);
        const stagingTargetPath = await harness.stage(ID, volumeCapability);
        await assertRejects(() => imported.giveBack(ID, from), StorageError, "its mount ");
        await harness.csi.node.nodeUnstageVolume({ volumeId: ID, stagingTargetPath });
        await imported.giveBack(ID, from);
        const [again] = await harness.lvs();
        assertEquals([again!.name, again!.uuid, [...again!.tags]], [NAME, ours!.uuid, []]);
        assertEquals((await harness.report()).flatMap(({ tags }) => tags), []);
        const signatures = await readSignatures(harness.exec, devicePath);
        assertEquals([...new Set(signatures.map((found) => `${found.type} ${found.uuid}`))], [`${type} ${UUID}`]);
        await harness.runAsAdmin("mount", "-t", type, devicePath, theirs);
        await harness.runAsAdmin("umount", theirs);

        await imported.take(request, from);
        await harness.csi.controller.deleteVolume({ volumeId: ID });
        assertEquals(await harness.lvs(), [], `nothing is left in ${groupName}`);
      },
    );
  }
}
