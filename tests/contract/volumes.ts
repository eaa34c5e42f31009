/**
 * Contract: volumes are made once, found, grown and deleted.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { assertFails, blockCapability, contract, type Host, mountCapability, volumeRequest } from "./host.ts";

const MiB = 1n << 20n;
const UNKNOWN = "v1-00000000000000000000000000000000";

/** Registers the tests. */
export function volumesContract(host: Host): void {
  contract(
    host,
    "createVolume() makes one LV with the size in whole extents, and deleteVolume() removes it",
    async (bench) => {
      const { volume } = await bench.csi.controller.createVolume({
        ...volumeRequest(),
        capacityRange: { requiredBytes: 30n * MiB },
      });
      const lv = await bench.onlyLv();
      assertEquals([volume?.capacityBytes, lv.size], [32n * MiB, 32n * MiB]);
      assertEquals(volume?.accessibleTopology[0]?.segments, { "topology.lvm.denolith.dev/node": "node-1" });
      await bench.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
      assertEquals(await bench.lvs(), []);
      await bench.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
    },
  );

  contract(host, "createVolume() and deleteVolume() take one report and one change", async (bench) => {
    let volumeId = "";
    const create = await bench.exec.during(async () => volumeId = await bench.create());
    assertEquals(create.map(subcommand), ["lvm fullreport", "lvm lvcreate"]);
    const remove = await bench.exec.during(() => bench.csi.controller.deleteVolume({ volumeId }));
    assertEquals(remove.map(subcommand), ["lvm fullreport", "lvm lvremove"]);
  });

  contract(host, "createVolume() answers the existing volume when the request is compatible", async (bench) => {
    const request = volumeRequest();
    const first = await bench.create(request);
    assertEquals(await bench.create(request), first);
    assertEquals(
      await bench.create({ ...request, capacityRange: { requiredBytes: 20n * MiB, limitBytes: 40n * MiB } }),
      first,
    );
    await bench.onlyLv();
    await bench.csi.controller.deleteVolume({ volumeId: first });
  });

  contract(host, "createVolume() refuses a name whose volume does not satisfy the request", async (bench) => {
    const request = volumeRequest();
    const volumeId = await bench.create({ ...request, parameters: { volumeGroup: bench.groups[0] } });
    const others = [
      { capacityRange: { requiredBytes: 64n * MiB } },
      { capacityRange: { requiredBytes: 4n * MiB, limitBytes: 8n * MiB } },
      { volumeCapabilities: [blockCapability()] },
      { volumeCapabilities: [mountCapability("ext3")] },
      { parameters: { volumeGroup: bench.groups[1] } },
    ];
    for (const other of others) {
      await assertFails("ALREADY_EXISTS", bench.csi.controller.createVolume({ ...request, ...other }), "exists");
    }
    await bench.onlyLv();
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(
    host,
    "createVolume() takes the group with the least free space that fits, or the one with the most",
    async (bench) => {
      const [small, large] = bench.groups;
      const groupOf = async (parameters: Record<string, string>) => {
        const volumeId = await bench.create({ parameters });
        const group = (await bench.onlyLv()).path.split("/")[0];
        await bench.csi.controller.deleteVolume({ volumeId });
        return group;
      };
      assertEquals(await groupOf({}), small);
      assertEquals(await groupOf({ volumeGroupPreference: "mostFree" }), large);
      assertEquals(await groupOf({ volumeGroup: large }), large);
      assertEquals(await groupOf({ volumeGroupPattern: large.slice(0, -1) + "." }), large);
      assertEquals(await groupOf({ VGPattern: large.slice(1), Storage: "lvm" }), large);
    },
  );

  contract(
    host,
    "createVolume() answers RESOURCE_EXHAUSTED when no group fits, and says what there is",
    async (bench) => {
      const request = volumeRequest();
      const [small] = bench.groups;
      await assertFails(
        "RESOURCE_EXHAUSTED",
        bench.create({ ...request, capacityRange: { requiredBytes: 1n << 45n } }),
        small,
      );
      await assertFails(
        "RESOURCE_EXHAUSTED",
        bench.create({ ...request, parameters: { volumeGroup: "nowhere" } }),
        "nowhere",
      );
      const elsewhere = { requisite: [{ segments: { "topology.lvm.denolith.dev/node": "node-2" } }] };
      await assertFails(
        "RESOURCE_EXHAUSTED",
        bench.create({ ...request, accessibilityRequirements: elsewhere }),
        "node-2",
      );
      assertEquals(await bench.lvs(), []);
    },
  );

  contract(host, "createVolume() gives a filesystem the room that its mkfs needs", async (bench) => {
    for (const [type, bytes] of [["xfs", 300n * MiB], ["btrfs", 256n * MiB], ["ext4", 8n * MiB]] as const) {
      const request = { ...volumeRequest(), volumeCapabilities: [mountCapability(type)] };
      const { volume } = await bench.csi.controller.createVolume({ ...request, capacityRange: { requiredBytes: 1n } });
      assertEquals(volume?.capacityBytes, bytes);
      await bench.csi.controller.deleteVolume({ volumeId: volume!.volumeId });
    }
    const tight = { requiredBytes: MiB, limitBytes: 100n * MiB };
    await assertFails(
      "OUT_OF_RANGE",
      bench.create({ volumeCapabilities: [mountCapability("xfs")], capacityRange: tight }),
    );
  });

  contract(
    host,
    "createVolume() tells OUT_OF_RANGE when whole extents do not fit between the limits",
    async (bench) => {
      const between = { requiredBytes: 33n * MiB, limitBytes: 34n * MiB };
      await assertFails("OUT_OF_RANGE", bench.create({ capacityRange: between }), "extents");
      assertEquals(await bench.lvs(), []);
    },
  );

  contract(host, "deleteVolume() leaves a volume that is in use as it is", async (bench) => {
    const volumeId = await bench.create();
    const stagingTargetPath = await bench.stage(volumeId);
    await assertFails("FAILED_PRECONDITION", bench.csi.controller.deleteVolume({ volumeId }), "in use");
    await bench.onlyLv();
    await bench.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    await bench.csi.controller.deleteVolume({ volumeId });

    const block = await bench.create({ volumeCapabilities: [blockCapability()] });
    await bench.stage(block, blockCapability());
    const targetPath = await bench.publish(block, "device", { volumeCapability: blockCapability() });
    await assertFails("FAILED_PRECONDITION", bench.csi.controller.deleteVolume({ volumeId: block }), "in use");
    await bench.csi.node.nodeUnpublishVolume({ volumeId: block, targetPath });
    await bench.csi.controller.deleteVolume({ volumeId: block });
    assertEquals(await bench.lvs(), []);
  });

  contract(host, "controllerExpandVolume() grows to whole extents, and never shrinks", async (bench) => {
    const volumeId = await bench.create();
    const expand = (requiredBytes: bigint, limitBytes = 0n) =>
      bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes, limitBytes } });
    const grown = await expand(50n * MiB);
    assertEquals([grown.capacityBytes, grown.nodeExpansionRequired], [52n * MiB, true]);
    assertEquals((await expand(40n * MiB)).capacityBytes, 52n * MiB);
    assertEquals((await bench.onlyLv()).size, 52n * MiB);
    await assertFails("OUT_OF_RANGE", expand(1n << 45n), "free");
    await assertFails("OUT_OF_RANGE", expand(40n * MiB, 44n * MiB), "limit");
    await assertFails("INVALID_ARGUMENT", bench.csi.controller.controllerExpandVolume({ volumeId }), "capacity_range");
    const missing = { volumeId: UNKNOWN, capacityRange: { requiredBytes: 1n } };
    await assertFails("NOT_FOUND", bench.csi.controller.controllerExpandVolume(missing));
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "controllerExpandVolume() takes one report and one change", async (bench) => {
    const volumeId = await bench.create();
    const capacityRange = { requiredBytes: 64n * MiB };
    const commands = await bench.exec.during(() =>
      bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange })
    );
    assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvextend"]);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "listVolumes() pages through all volumes, also while they come and go", async (bench) => {
    const ids: string[] = [];
    for (let count = 0; count < 3; count++) ids.push(await bench.create());
    ids.sort();
    const list = async (maxEntries: number, startingToken = "") => {
      const { entries, nextToken } = await bench.csi.controller.listVolumes({ maxEntries, startingToken });
      return { ids: entries.map(({ volume }) => volume?.volumeId), nextToken };
    };
    assertEquals(await list(0), { ids, nextToken: "" });
    const first = await list(2);
    assertEquals(first.ids, ids.slice(0, 2));
    await bench.csi.controller.deleteVolume({ volumeId: ids[1]! });
    assertEquals(await list(2, first.nextToken), { ids: ids.slice(2), nextToken: "" });
    await assertFails("ABORTED", bench.csi.controller.listVolumes({ startingToken: "not a token" }));
    await assertFails("INVALID_ARGUMENT", bench.csi.controller.listVolumes({ maxEntries: -1 }));
    for (const volumeId of ids) await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "controllerGetVolume() and validateVolumeCapabilities() tell what the volume is", async (bench) => {
    const volumeId = await bench.create();
    const { volume } = await bench.csi.controller.controllerGetVolume({ volumeId });
    assertEquals([volume?.volumeId, volume?.capacityBytes], [volumeId, 32n * MiB]);
    await assertFails("NOT_FOUND", bench.csi.controller.controllerGetVolume({ volumeId: UNKNOWN }));
    const validate = (...volumeCapabilities: ReturnType<typeof mountCapability>[]) =>
      bench.csi.controller.validateVolumeCapabilities({ volumeId, volumeCapabilities });
    assert((await validate(mountCapability("ext4"))).confirmed !== undefined);
    const refused = await validate(blockCapability());
    assertEquals([refused.confirmed, refused.message], [undefined, "the volume is for a filesystem"]);
    assertEquals((await validate(mountCapability("", [], 5))).confirmed, undefined);
    assertEquals((await validate(mountCapability("xfs"))).message, "the volume is for ext4");
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "getCapacity() tells the free space and the largest volume, by group and by node", async (bench) => {
    const capacity = (parameters: Record<string, string>, node = "node-1") =>
      bench.csi.controller.getCapacity({
        parameters,
        accessibleTopology: { segments: { "topology.lvm.denolith.dev/node": node } },
      });
    const report = await bench.report();
    const [small, large] = bench.groups.map((name) => report.find((group) => group.name === name)?.free);
    const all = await capacity({});
    assertEquals([all.availableCapacity, all.maximumVolumeSize], [small! + large!, large!]);
    assertEquals((await capacity({ volumeGroup: bench.groups[0] })).availableCapacity, small!);
    assertEquals((await capacity({}, "node-2")).availableCapacity, 0n);
    await assertFails("INVALID_ARGUMENT", capacity({ volumegruop: "x" }), "volumeGroup");
  });
}

/** The program and its subcommand. */
export function subcommand(command: string): string {
  return command.split(" ").slice(0, 2).join(" ");
}
