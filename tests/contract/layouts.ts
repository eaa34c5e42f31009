/**
 * Contract: volumes of every layout, on groups of several disks. The first group of the host has two disks, the second five, all
 * of them of the same size.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { type Layout, LAYOUT_NAMES, layoutOf, sharedDisks } from "../../lvm/model/layout.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { assertFails, type Bench, blockCapability, contract, type Host, mountCapability } from "./host.ts";
import { copied, filled, isSame, lvOf } from "./copies.ts";
import { subcommand } from "./volumes.ts";

const MiB = 1n << 20n;

/** What is asked for, and what comes of 30 MiB on extents of 4 MiB. */
const LAYOUTS: readonly { parameters: Record<string, string>; layout: Layout; size: bigint; disks: number }[] = [
  {
    parameters: { layout: "striped" },
    layout: { type: "striped", stripes: 2, stripeSize: 65536n },
    size: 32n * MiB,
    disks: 2,
  },
  {
    parameters: { layout: "striped", stripes: "5", stripeSize: "1Mi" },
    layout: { type: "striped", stripes: 5, stripeSize: MiB },
    size: 40n * MiB,
    disks: 5,
  },
  { parameters: { layout: "raid1" }, layout: { type: "raid1", mirrors: 1 }, size: 32n * MiB, disks: 2 },
  { parameters: { layout: "raid1", mirrors: "2" }, layout: { type: "raid1", mirrors: 2 }, size: 32n * MiB, disks: 3 },
  {
    parameters: { layout: "raid10", mirrors: "1" },
    layout: { type: "raid10", stripes: 2, stripeSize: 65536n },
    size: 32n * MiB,
    disks: 4,
  },
  {
    parameters: { layout: "raid5", stripes: "3", stripeSize: "128Ki" },
    layout: { type: "raid5", stripes: 3, stripeSize: 131072n },
    size: 36n * MiB,
    disks: 4,
  },
  {
    parameters: { layout: "raid6" },
    layout: { type: "raid6", stripes: 3, stripeSize: 65536n },
    size: 36n * MiB,
    disks: 5,
  },
];

/** Registers the tests. */
export function layoutsContract(host: Host): void {
  contract(
    host,
    "createVolume() lays a volume out as asked, on disks of its own, with one report and one change",
    async (bench) => {
      assertEquals(new Set(LAYOUTS.map(({ layout }) => layout.type)).size, LAYOUT_NAMES.length - 1);
      for (const { parameters, layout, size, disks } of LAYOUTS) {
        let volumeId = "";
        const commands = await bench.exec.during(async () => volumeId = await create(bench, parameters));
        assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvcreate"]);
        const lv = await bench.onlyLv();
        assertEquals([layoutOf(lv), lv.size], [layout, size]);
        assertEquals([disksOf(lv).size, sharedDisks(lv)], [disks, []]);
        assertEquals((await bench.csi.controller.listVolumes({})).entries.length, 1);
        await bench.csi.controller.deleteVolume({ volumeId });
        assertEquals(await bench.lvs(), []);
      }
    },
  );

  contract(
    host,
    "createVolume() tells RESOURCE_EXHAUSTED, and how many disks it takes and there are",
    async (bench) => {
      const [narrow, wide] = bench.groups;
      const few = (parameters: Record<string, string>, words: string) =>
        assertFails("RESOURCE_EXHAUSTED", create(bench, parameters), words);
      await few({ layout: "raid5", volumeGroup: narrow }, "of each of 3 disks, and 2 of its 2 have that free");
      await few({ layout: "raid10", stripes: "3" }, "of each of 6 disks, and 5 of its 5 have that free");
      await few({ layout: "striped", stripes: "6", volumeGroup: wide }, "of each of 6 disks");
      const large = create(bench, { layout: "raid1", volumeGroup: narrow }, await diskSize(bench, narrow));
      await assertFails("RESOURCE_EXHAUSTED", large, "of each of 2 disks, and 0 of its 2 have that free");
      assertEquals(await bench.lvs(), []);
    },
  );

  contract(host, "createVolume() refuses a name whose volume has another layout", async (bench) => {
    const request = { name: "one", capacityRange: { requiredBytes: 32n * MiB, limitBytes: 64n * MiB } };
    const make = (parameters: Record<string, string>) => bench.create({ ...request, parameters });
    const volumeId = await make({ layout: "raid1" });
    assertEquals(await make({ layout: "raid1", mirrors: "1" }), volumeId);
    const others = [{}, { layout: "raid1", mirrors: "2" }, { layout: "striped" }, { layout: "raid5" }];
    for (const other of others) {
      await assertFails(
        "ALREADY_EXISTS",
        make(other as Record<string, string>),
        "it is raid1 with 1 mirror, asked for",
      );
    }
    await bench.csi.controller.deleteVolume({ volumeId });
    const striped = await make({ layout: "striped" });
    await assertFails("ALREADY_EXISTS", make({ layout: "striped", stripeSize: "128Ki" }), "2 stripes of 64Ki");
    await assertFails("ALREADY_EXISTS", make({}), "it is striped");
    await bench.csi.controller.deleteVolume({ volumeId: striped });
  });

  contract(
    host,
    "getCapacity() tells the largest volume of a layout: it can be made, and none larger",
    async (bench) => {
      for (const { parameters } of [...LAYOUTS, { parameters: {} as Record<string, string> }]) {
        const tell = () => bench.csi.controller.getCapacity({ parameters });
        const { maximumVolumeSize: largest = 0n, minimumVolumeSize: step = 0n, availableCapacity } = await tell();
        assert(
          largest > 0n && largest <= availableCapacity,
          `${parameters.layout}: ${largest} of ${availableCapacity}`,
        );
        await assertFails("RESOURCE_EXHAUSTED", create(bench, parameters, largest + 1n));
        const volumeId = await create(bench, parameters, largest);
        assertEquals((await bench.onlyLv()).size, largest);
        await bench.csi.controller.deleteVolume({ volumeId });
        assert(step > 0n && largest % step === 0n, `${parameters.layout}: steps of ${step}`);
      }
    },
  );

  contract(host, "getCapacity() counts what a layout costs, disk by disk, and what is taken", async (bench) => {
    const [narrow] = bench.groups;
    const disk = await diskSize(bench, narrow);
    const largest = async (parameters: Record<string, string>) =>
      (await bench.csi.controller.getCapacity({ parameters: { volumeGroup: narrow, ...parameters } }))
        .maximumVolumeSize;
    assertEquals(await largest({ layout: "striped" }), 2n * disk);
    assertEquals(await largest({ layout: "raid1" }), disk - 4n * MiB); // an extent for metadata
    assertEquals(await largest({ layout: "raid5" }), undefined);
    const volumeId = await create(bench, { volumeGroup: narrow }, 40n * MiB);
    assertEquals(await largest({ layout: "raid1" }), disk - 44n * MiB); // on one of them
    assertEquals(await largest({ layout: "striped" }), 2n * (disk - 40n * MiB));
    assertEquals(await largest({}), 2n * disk - 40n * MiB);
    await bench.csi.controller.deleteVolume({ volumeId });
  });

  contract(host, "controllerExpandVolume() keeps the layout, and each image on its disk", async (bench) => {
    for (const { parameters, layout } of LAYOUTS) {
      const volumeId = await create(bench, parameters);
      const before = await bench.onlyLv();
      const capacityRange = { requiredBytes: 61n * MiB };
      const commands = await bench.exec.during(() =>
        bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange })
      );
      assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvextend"]);
      const after = await bench.onlyLv();
      const row = parameters.layout === "raid1" ? 4n : BigInt("stripes" in layout ? layout.stripes : 1) * 4n;
      assertEquals([layoutOf(after), after.size], [layout, (61n + row - 1n) / row * row * MiB]);
      assertEquals(sharedDisks(after), []);
      if (layout.type !== "striped") assertEquals(disksOf(after), disksOf(before));
      await bench.csi.controller.deleteVolume({ volumeId });
    }
  });

  contract(
    host,
    "controllerExpandVolume() goes to other disks with all images, or tells OUT_OF_RANGE",
    async (bench) => {
      const [narrow, wide] = bench.groups;
      const disk = await diskSize(bench, wide);
      const expand = (volumeId: string, requiredBytes: bigint) =>
        bench.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes } });
      const moving = await create(bench, { layout: "raid1", volumeGroup: wide });
      await expand(moving, disk - 4n * MiB); // its disks are full
      await expand(moving, disk + 28n * MiB);
      const lv = await bench.onlyLv();
      assertEquals([lv.size, disksOf(lv).size, sharedDisks(lv)], [disk + 28n * MiB, 4, []]);
      await expand(moving, disk + 60n * MiB);
      const grown = await bench.onlyLv();
      assertEquals([disksOf(grown), sharedDisks(grown)], [disksOf(lv), []]);
      await assertFails("OUT_OF_RANGE", expand(moving, 3n * disk), "more on each of its 2 disks");
      await bench.csi.controller.deleteVolume({ volumeId: moving });

      const full = await create(bench, { layout: "raid1", volumeGroup: narrow });
      const other = await create(bench, { volumeGroup: narrow, layout: "striped" }, 2n * disk - 80n * MiB);
      const error = "4 MiB of"; // what is free
      await assertFails("OUT_OF_RANGE", expand(full, 64n * MiB), error);
      assertEquals((await bench.lvs()).find(({ segment }) => segment.type === "raid1")?.size, 32n * MiB);
      for (const volumeId of [full, other]) await bench.csi.controller.deleteVolume({ volumeId });
    },
  );

  contract(host, "a volume of any layout is staged, snapshot, grown offline and deleted", async (bench) => {
    for (const parameters of [{ layout: "raid1" }, { layout: "raid5" }, { layout: "striped" }]) {
      const { controller, node } = bench.csi;
      const volumeId = await create(bench, parameters);
      const stagingTargetPath = await bench.stage(volumeId);
      const targetPath = await bench.publish(volumeId);
      const { snapshot } = await controller.createSnapshot({
        name: `of ${parameters.layout}`,
        sourceVolumeId: volumeId,
      });
      const lvs = await bench.lvs();
      assertEquals(lvs.find(({ origin }) => origin !== undefined)?.segment.type, "linear");
      const capacityRange = { requiredBytes: 64n * MiB };
      await assertFails(
        "FAILED_PRECONDITION",
        controller.controllerExpandVolume({ volumeId, capacityRange }),
        "snapshots",
      );
      await node.nodeUnpublishVolume({ volumeId, targetPath });
      await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      const commands = await bench.exec.during(() => controller.controllerExpandVolume({ volumeId, capacityRange }));
      assertEquals(commands.map(subcommand), [
        "lvm fullreport",
        ...["lvm lvchange", "lvm lvextend", "lvm lvchange"], // for LVM grows an origin only while it is inactive
      ]);
      assert(parameters.layout === "striped" || commands[3]!.includes("--activationmode degraded"), commands[3]);
      const grown = await lvOf(bench, volumeId);
      assertEquals([grown.size, grown.active, sharedDisks(grown)], [64n * MiB, true, []]);
      await bench.stage(volumeId);
      await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await bench.settled();
      await controller.deleteVolume({ volumeId });
      assertEquals(await bench.lvs(), []);
    }
  });

  copiesOfLayouts(host);
}

/** Registers the tests about copies. */
function copiesOfLayouts(host: Host): void {
  contract(host, "what is made from a volume or a snapshot may be laid out otherwise", async (bench) => {
    const cases = [
      [{}, { layout: "raid1" }],
      [{ layout: "raid1" }, { layout: "striped" }],
      [{ layout: "raid5" }, {}],
    ] as [Record<string, string>, Record<string, string>][];
    for (const [parameters, other] of cases) {
      const { controller } = bench.csi;
      const volumeId = await filled(bench, { parameters });
      const request = { volumeCapabilities: [blockCapability()], parameters: other };
      const clone = await copied(bench, request, { volumeId });
      const { snapshot } = await controller.createSnapshot({ name: `of ${volumeId}`, sourceVolumeId: volumeId });
      const { snapshotId } = snapshot!;
      const restored = await copied(bench, request, { snapshotId });
      const source = await lvOf(bench, volumeId);
      for (const id of [clone, restored]) {
        const lv = await lvOf(bench, id);
        assertEquals([lv.segment.type, sharedDisks(lv)], [other.layout ?? "linear", []]);
        assert(await isSame(bench, lv.devicePath, source.devicePath));
        await controller.deleteVolume({ volumeId: id });
      }
      await controller.deleteSnapshot({ snapshotId });
      await bench.settled();
      await controller.deleteVolume({ volumeId });
      assertEquals(await bench.lvs(), []);
    }
  });

  contract(
    host,
    "a clone leaves room for what keeps its source as it is meanwhile, on whichever disk",
    async (bench) => {
      const [volumeGroup] = bench.groups;
      const disk = await diskSize(bench, volumeGroup);
      const volumeId = await create(bench, { volumeGroup }, 100n * MiB);
      const request = { volumeCapabilities: [blockCapability()], parameters: { volumeGroup, layout: "raid1" } };
      // on each disk there is room for its image, but then nowhere for the rest
      const requiredBytes = disk - 100n * MiB - 4n * MiB;
      const volumeContentSource = { type: { case: "volume", value: { volumeId } } } as const;
      const clone = bench.create({ ...request, capacityRange: { requiredBytes }, volumeContentSource });
      await assertFails("RESOURCE_EXHAUSTED", clone, "more for volumes that are being made");
      assertEquals((await bench.lvs()).length, 1);
      await bench.csi.controller.deleteVolume({ volumeId });
    },
  );
}

function create(bench: Bench, parameters: Record<string, string>, requiredBytes = 30n * MiB): Promise<string> {
  const block = requiredBytes !== 30n * MiB;
  return bench.create({
    parameters: { erase: "none", ...parameters },
    capacityRange: { requiredBytes },
    volumeCapabilities: [block ? blockCapability() : mountCapability()],
  });
}

/** What an empty disk of the group has room for. */
async function diskSize(bench: Bench, group: string): Promise<bigint> {
  const { pvs } = (await bench.report()).find(({ name }) => name === group)!;
  return pvs[0]!.free;
}

function disksOf({ pieces }: LogicalVolume): Set<string> {
  return new Set(pieces.map(({ disk }) => disk));
}
