/**
 * Contract: volumes of every layout, on groups of several disks. The first group of the host has two disks, the second five, all
 * of them of the same size.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { type Layout, layoutOf, pvsWithSeveralImages } from "../../lvm/model/layout.ts";
import { redundancyOf } from "../../lvm/model/redundancy.ts";
import { type CachedLayoutName, isCachedLayoutName, LAYOUT_NAMES } from "../../lvm/settings/layouts.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";
import { createCopy, createFilledVolume, haveSameData, lvOf } from "./copies_suite.ts";
import { importedLayoutsContract } from "./imports_suite.ts";
import { sizesContract } from "./sizes_suite.ts";
import { subcommand } from "./volumes_suite.ts";

const MiB = 1n << 20n;

/** The requested layouts, and what LVM makes of 30 MiB on extents of 4 MiB. */
const LAYOUT_CASES: readonly {
  readonly parameters: Record<string, string>;
  readonly layout: Layout;
  readonly size: bigint;
  readonly pvCount: number;
}[] = [
  {
    parameters: { layout: "striped" },
    layout: { type: "striped", stripes: 2, stripeSize: 65536n },
    size: 32n * MiB,
    pvCount: 2,
  },
  {
    parameters: { layout: "striped", stripes: "5", stripeSize: "1Mi" },
    layout: { type: "striped", stripes: 5, stripeSize: MiB },
    size: 40n * MiB,
    pvCount: 5,
  },
  { parameters: { layout: "raid1" }, layout: { type: "raid1", mirrors: 1 }, size: 32n * MiB, pvCount: 2 },
  {
    parameters: { layout: "raid1", raidIntegrity: "yes" },
    layout: { type: "raid1", mirrors: 1, integrity: true },
    size: 32n * MiB,
    pvCount: 2,
  },
  {
    parameters: { layout: "raid5", stripes: "2", raidIntegrity: "yes" },
    layout: { type: "raid5", stripes: 2, stripeSize: 65536n, integrity: true },
    size: 32n * MiB,
    pvCount: 3,
  },
  { parameters: { layout: "raid1", mirrors: "2" }, layout: { type: "raid1", mirrors: 2 }, size: 32n * MiB, pvCount: 3 },
  {
    parameters: { layout: "raid10", mirrors: "1" },
    layout: { type: "raid10", stripes: 2, stripeSize: 65536n },
    size: 32n * MiB,
    pvCount: 4,
  },
  {
    parameters: { layout: "raid5", stripes: "3", stripeSize: "128Ki" },
    layout: { type: "raid5", stripes: 3, stripeSize: 131072n },
    size: 36n * MiB,
    pvCount: 4,
  },
  {
    parameters: { layout: "raid6" },
    layout: { type: "raid6", stripes: 3, stripeSize: 65536n },
    size: 36n * MiB,
    pvCount: 5,
  },
];

/** The values of lv_layout by the type of the layout: LVM reports the algorithm of parity, too (lvmraid(7)). */
const REPORTED_LAYOUTS: Readonly<Record<Exclude<Layout["type"], "linear" | CachedLayoutName>, readonly string[]>> = {
  striped: ["striped"],
  raid1: ["raid", "raid1"],
  raid10: ["raid", "raid10"],
  raid5: ["raid", "raid5", "raid5_ls"],
  raid6: ["raid", "raid6", "raid6_zr"],
};

/** Registers the tests. */
export function layoutsContract(host: Host): void {
  importedLayoutsContract(host);
  sizesContract(host);
  contractTest(
    host,
    "createVolume() lays a volume out as asked, on disks of its own, with one report and one change",
    async (harness) => {
      const plainNames = LAYOUT_NAMES.filter((name) => name !== "linear" && !isCachedLayoutName(name));
      assertEquals(new Set<string>(LAYOUT_CASES.map(({ layout }) => layout.type)), new Set(plainNames)); // caches.ts has the others
      for (const { parameters, layout, size, pvCount } of LAYOUT_CASES) {
        let volumeId = "";
        const commands = await harness.exec.recordCommands(async () =>
          volumeId = await createVolume(harness, parameters)
        );
        const confirmation = parameters.raidIntegrity === undefined ? [] : ["lvm lvchange", "sync"];
        assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvcreate", "sync", ...confirmation]);
        const lv = await harness.singleLv();
        assertEquals([layoutOf(lv), lv.size], [layout, size]);
        assertEquals(lv.tags.includes("denolith.integrity"), false);
        assertEquals(lv.layout.toSorted(), REPORTED_LAYOUTS[layout.type as keyof typeof REPORTED_LAYOUTS]);
        assertEquals([pvsOf(lv).size, pvsWithSeveralImages(lv)], [pvCount, []]);
        assertEquals((await harness.csi.controller.listVolumes({})).entries.length, 1);
        await harness.csi.controller.deleteVolume({ volumeId });
        assertEquals(await harness.lvs(), []);
      }
    },
  );

  contractTest(
    host,
    "createVolume() answers RESOURCE_EXHAUSTED, with how many disks are needed and available",
    async (harness) => {
      const [narrow, wide] = harness.groups;
      const assertTooFewPvs = (parameters: Record<string, string>, words: string) =>
        assertFails("RESOURCE_EXHAUSTED", createVolume(harness, parameters), words);
      await assertTooFewPvs(
        { layout: "raid5", volumeGroup: narrow },
        "on each of 3 physical volumes, but only 2 of 2 have that free",
      );
      await assertTooFewPvs(
        { layout: "raid10", stripes: "3" },
        "on each of 6 physical volumes, but only 5 of 5 have that free",
      );
      await assertTooFewPvs({ layout: "striped", stripes: "6", volumeGroup: wide }, "on each of 6 physical volumes");
      const large = createVolume(harness, { layout: "raid1", volumeGroup: narrow }, await pvFreeBytes(harness, narrow));
      await assertFails("RESOURCE_EXHAUSTED", large, "on each of 2 physical volumes, but only 0 of 2 have that free");
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "createVolume() refuses a name whose volume has another layout", async (harness) => {
    const request = { name: "one", capacityRange: { requiredBytes: 32n * MiB, limitBytes: 64n * MiB } };
    const createNamed = (parameters: Record<string, string>) => harness.create({ ...request, parameters });
    const volumeId = await createNamed({ layout: "raid1" });
    assertEquals(await createNamed({ layout: "raid1", mirrors: "1" }), volumeId);
    const others = [{}, { layout: "raid1", mirrors: "2" }, { layout: "striped" }, { layout: "raid5" }];
    for (const other of others) {
      await assertFails(
        "ALREADY_EXISTS",
        createNamed(other as Record<string, string>),
        "it is raid1 with 1 mirror (requested",
      );
    }
    await harness.csi.controller.deleteVolume({ volumeId });
    const striped = await createNamed({ layout: "striped" });
    await assertFails("ALREADY_EXISTS", createNamed({ layout: "striped", stripeSize: "128Ki" }), "2 stripes of 64Ki");
    await assertFails("ALREADY_EXISTS", createNamed({}), "it is striped");
    await harness.csi.controller.deleteVolume({ volumeId: striped });
  });

  contractTest(
    host,
    "getCapacity() returns the largest volume of a layout: it can be created, and none larger",
    async (harness) => {
      for (const { parameters } of [...LAYOUT_CASES, { parameters: {} as Record<string, string> }]) {
        const getCapacity = () => harness.csi.controller.getCapacity({ parameters });
        const { maximumVolumeSize: largest = 0n, minimumVolumeSize: granularity = 0n, availableCapacity } =
          await getCapacity();
        assert(
          largest > 0n && largest <= availableCapacity,
          `${parameters.layout}: ${largest} of ${availableCapacity}`,
        );
        await assertFails("RESOURCE_EXHAUSTED", createVolume(harness, parameters, largest + 1n));
        const volumeId = await createVolume(harness, parameters, largest);
        assertEquals((await harness.singleLv()).size, largest);
        await harness.csi.controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle(); // a block volume may have data, so the driver removes it in the background
        assert(granularity > 0n && largest % granularity === 0n, `${parameters.layout}: steps of ${granularity}`);
      }
    },
  );

  contractTest(
    host,
    "getCapacity() counts the space that a layout needs on each disk, and the space in use",
    async (harness) => {
      const [narrow] = harness.groups;
      const pvBytes = await pvFreeBytes(harness, narrow);
      const largest = async (parameters: Record<string, string>) =>
        (await harness.csi.controller.getCapacity({ parameters: { volumeGroup: narrow, ...parameters } }))
          .maximumVolumeSize;
      assertEquals(await largest({ layout: "striped" }), 2n * pvBytes);
      assertEquals(await largest({ layout: "raid1" }), pvBytes - 4n * MiB); // an extent for metadata
      assertEquals(await largest({ layout: "raid5" }), undefined);
      const volumeId = await createVolume(harness, { volumeGroup: narrow }, 40n * MiB);
      assertEquals(await largest({ layout: "raid1" }), pvBytes - 44n * MiB); // on one of them
      assertEquals(await largest({ layout: "striped" }), 2n * (pvBytes - 40n * MiB));
      assertEquals(await largest({}), 2n * pvBytes - 40n * MiB);
      await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "controllerExpandVolume() keeps the layout, and each image on its disk", async (harness) => {
    for (const { parameters, layout } of LAYOUT_CASES) {
      const volumeId = await createVolume(harness, parameters);
      const before = await harness.singleLv();
      const capacityRange = { requiredBytes: 61n * MiB };
      const commands = await harness.exec.recordCommands(() =>
        harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange })
      );
      assertEquals(commands.map(subcommand), ["lvm fullreport", "lvm lvextend", "sync"]);
      const after = await harness.singleLv();
      const rowMib = parameters.layout === "raid1" ? 4n : BigInt("stripes" in layout ? layout.stripes : 1) * 4n;
      assertEquals([layoutOf(after), after.size], [layout, (61n + rowMib - 1n) / rowMib * rowMib * MiB]);
      assertEquals(pvsWithSeveralImages(after), []);
      if (layout.type !== "striped") assertEquals(pvsOf(after), pvsOf(before));
      await harness.csi.controller.deleteVolume({ volumeId });
    }
  });

  contractTest(
    host,
    "controllerExpandVolume() extends onto other disks with all images, or answers OUT_OF_RANGE",
    async (harness) => {
      const [narrow, wide] = harness.groups;
      const pvBytes = await pvFreeBytes(harness, wide);
      const expand = (volumeId: string, requiredBytes: bigint) =>
        harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes } });
      const movingVolume = await createVolume(harness, { layout: "raid1", volumeGroup: wide });
      await expand(movingVolume, pvBytes - 4n * MiB); // its disks are full
      await expand(movingVolume, pvBytes + 28n * MiB);
      const lv = await harness.singleLv();
      assertEquals([lv.size, pvsOf(lv).size, pvsWithSeveralImages(lv)], [pvBytes + 28n * MiB, 4, []]);
      await expand(movingVolume, pvBytes + 60n * MiB);
      const grown = await harness.singleLv();
      assertEquals([pvsOf(grown), pvsWithSeveralImages(grown)], [pvsOf(lv), []]);
      await assertFails("OUT_OF_RANGE", expand(movingVolume, 3n * pvBytes), "more on each of its 2 physical volumes");
      await harness.csi.controller.deleteVolume({ volumeId: movingVolume });

      const fullVolume = await createVolume(harness, { layout: "raid1", volumeGroup: narrow });
      const other = await createVolume(harness, { volumeGroup: narrow, layout: "striped" }, 2n * pvBytes - 80n * MiB);
      const error = "4 MiB of"; // what is free
      await assertFails("OUT_OF_RANGE", expand(fullVolume, 64n * MiB), error);
      assertEquals((await harness.lvs()).find(({ segment }) => segment.type === "raid1")?.size, 32n * MiB);
      for (const volumeId of [fullVolume, other]) await harness.csi.controller.deleteVolume({ volumeId });
    },
  );

  contractTest(host, "a volume of any layout is staged, snapshotted, expanded offline and deleted", async (harness) => {
    for (const parameters of [{ layout: "raid1" }, { layout: "raid5" }, { layout: "striped" }]) {
      const { controller, node } = harness.csi;
      const volumeId = await createVolume(harness, parameters);
      const stagingTargetPath = await harness.stage(volumeId);
      const targetPath = await harness.publish(volumeId);
      const { snapshot } = await controller.createSnapshot({
        name: `of ${parameters.layout}`,
        sourceVolumeId: volumeId,
      });
      const lvs = await harness.lvs();
      assertEquals(lvs.find(({ origin }) => origin !== undefined)?.segment.type, "linear");
      const capacityRange = { requiredBytes: 64n * MiB };
      await assertFails(
        "FAILED_PRECONDITION",
        controller.controllerExpandVolume({ volumeId, capacityRange }),
        "snapshots",
      );
      await node.nodeUnpublishVolume({ volumeId, targetPath });
      await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      const commands = await harness.exec.recordCommands(() =>
        controller.controllerExpandVolume({ volumeId, capacityRange })
      );
      assertEquals(commands.map(subcommand), [
        "lvm fullreport",
        // LVM extends an origin only while it is inactive
        ...["lvm lvchange", "sync", "lvm lvextend", "sync", "lvm lvchange", "sync"],
      ]);
      assert(parameters.layout === "striped" || commands[5]!.includes("--activationmode degraded"), commands[5]);
      const grown = await lvOf(harness, volumeId);
      assertEquals([grown.size, grown.active, pvsWithSeveralImages(grown)], [64n * MiB, true, []]);
      await harness.stage(volumeId);
      await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await harness.waitUntilIdle();
      await controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    }
  });

  contractTest(
    host,
    "a deleted RAID volume stays while one of its disks is missing, and is then erased on all of them",
    async (harness, machine) => {
      const parameters = { layout: "raid1", volumeGroup: harness.groups[0] };
      const volumeId = await harness.create({ parameters, volumeCapabilities: [blockCapability()] });
      await harness.stage(volumeId, blockCapability());
      const { path, devicePath } = await harness.singleLv();
      const write = ["if=/dev/urandom", `of=${devicePath}`, "bs=1048576", "count=32", "oflag=direct", "status=none"];
      await harness.runAsAdmin("dd", ...write);
      await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", path);
      const isErasure = (command: string) => command.startsWith("blkdiscard");
      {
        await using _missing = await machine.detachPv!(harness.groups[0]);
        const commands = await harness.exec.recordCommands(async () => {
          await harness.csi.controller.deleteVolume({ volumeId });
          await harness.waitUntilIdle();
        });
        assertEquals(commands.filter(isErasure), []);
        assert((await harness.singleLv()).tags.includes(`denolith.deleted=${volumeId}`));
        assertEquals((await harness.csi.controller.listVolumes({})).entries, []);
      }
      const commands = await harness.exec.recordCommands(async () => {
        await using restarted = await harness.restart();
        assertEquals(await restarted.lvs(), []);
      });
      assertEquals(commands.filter(isErasure).length, 1);
    },
  );

  contractTest(host, "the images of a new RAID LV are not in sync at first, and then are", async (harness) => {
    const [group] = harness.groups;
    const options = ["--yes", "--type", "raid1", "--mirrors", "1", "--name", "new", "--size", `${64n * MiB}b`];
    await harness.runAsAdmin("lvm", "lvcreate", ...options, "--maxrecoveryrate", "128", group);
    const state = async () => {
      const { lvs: [lv], ...found } = (await harness.report()).find(({ name }) => name === group)!;
      return { raid: lv!.raid!, health: lv!.health, state: redundancyOf(lv!, { ...found, name: group })!.state };
    };
    const before = await state();
    assert(before.raid.syncPercent < 100, `${before.raid.syncPercent} %`);
    assertEquals([before.raid.action, before.health, before.state], ["resync", "", "Rebuilding"]);
    await harness.runAsAdmin("lvm", "lvchange", "--maxrecoveryrate", "0", `${group}/new`);
    let after = await state();
    for (const start = Date.now(); after.raid.action !== "idle" && Date.now() - start < 120_000;) {
      await new Promise((resolve) => setTimeout(resolve, host.name === "lvm" ? 500 : 0));
      after = await state();
    }
    assertEquals(after, {
      raid: { action: "idle", syncPercent: 100, mismatches: 0 },
      health: "",
      state: "InSync",
    });
    await harness.runAsAdmin("lvm", "lvremove", "--yes", `${group}/new`);
  });

  layoutCopiesContract(host);
}

/** Registers the tests about copies. */
function layoutCopiesContract(host: Host): void {
  contractTest(host, "a copy of a volume or a snapshot may have another layout", async (harness) => {
    const cases = [
      [{}, { layout: "raid1" }],
      [{ layout: "raid1" }, { layout: "striped" }],
      [{ layout: "raid5" }, {}],
    ] as [Record<string, string>, Record<string, string>][];
    for (const [parameters, other] of cases) {
      const { controller } = harness.csi;
      const volumeId = await createFilledVolume(harness, { parameters });
      const request = { volumeCapabilities: [blockCapability()], parameters: other };
      const clone = await createCopy(harness, request, { volumeId });
      const { snapshot } = await controller.createSnapshot({ name: `of ${volumeId}`, sourceVolumeId: volumeId });
      const { snapshotId } = snapshot!;
      const restored = await createCopy(harness, request, { snapshotId });
      const source = await lvOf(harness, volumeId);
      for (const id of [clone, restored]) {
        const lv = await lvOf(harness, id);
        assertEquals([lv.segment.type, pvsWithSeveralImages(lv)], [other.layout ?? "linear", []]);
        assert(await haveSameData(harness, lv.devicePath, source.devicePath));
        await controller.deleteVolume({ volumeId: id });
      }
      await controller.deleteSnapshot({ snapshotId });
      await harness.waitUntilIdle();
      await controller.deleteVolume({ volumeId });
      assertEquals(await harness.lvs(), []);
    }
  });
}

/** Creates a volume: of 30 MiB with a filesystem, or a block volume of another size. */
export function createVolume(
  harness: Harness,
  parameters: Record<string, string>,
  requiredBytes = 30n * MiB,
): Promise<string> {
  const block = requiredBytes !== 30n * MiB;
  return harness.create({
    parameters: { erase: "none", ...parameters },
    capacityRange: { requiredBytes },
    volumeCapabilities: [block ? blockCapability() : mountCapability()],
  });
}

/** Returns the free bytes of an empty PV of the group. */
export async function pvFreeBytes(harness: Harness, group: string): Promise<bigint> {
  const { pvs } = (await harness.report()).find(({ name }) => name === group)!;
  return pvs[0]!.free;
}

function pvsOf({ pvSegments }: LogicalVolume): Set<string> {
  return new Set(pvSegments.map(({ pvUuid }) => pvUuid));
}
