/**
 * Contract: volumes with a cache on a physical volume for caches, on the second group of the host, which has five disks.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { layoutOf } from "../../lvm/model/layout.ts";
import type { LogicalVolume, PhysicalVolume } from "../../lvm/model/report.ts";
import { volumeIdOf, volumeLvName } from "../../base/ids.ts";
import {
  assertFails,
  blockCapability,
  contractTest,
  type Harness,
  type Host,
  mountCapability,
} from "./helpers/host.ts";
import { createVolume } from "./layouts_suite.ts";
import { isZeroed, writeRandom } from "./erasure_suite.ts";
import { subcommand } from "./volumes_suite.ts";

const MiB = 1n << 20n;
const CACHE_SIZE = "32Mi";

/** The layouts, each with what a request for it names. */
const TYPES = ["cache", "writecache"] as const;

/** Registers the tests. */
export function cachesContract(host: Host): void {
  contractTest(host, "createVolume() gives a volume a cache on a physical volume for caches", async (harness) => {
    await using pv = await cachePv(harness);
    for (const layout of TYPES) {
      const request = { name: layout, parameters: { layout, cacheSize: "33Mi", volumeGroup: pv.group } };
      let volumeId = "";
      const commands = await harness.exec.recordCommands(async () => volumeId = await harness.create(request));
      const created = ["lvm fullreport", "lvm lvcreate", "sync", "lvm lvcreate", "sync", "lvm lvchange", "sync"];
      assertEquals(commands.map(subcommand), created);
      const lv = await harness.singleLv();
      assertEquals(layoutOf(lv), { type: layout, cacheSize: 36n * MiB });
      assertEquals([lv.layout, lv.tags.filter((tag) => tag.startsWith("denolith.cache"))], [[layout], []]);
      assertEquals(pvsOf(lv).includes(pv.uuid), false, "the volume itself is on the other physical volumes");
      assertEquals((await pv.read()).cacheFree, pv.cacheFree - 36n * MiB);
      assertEquals(await harness.create(request), volumeId);
      const { cacheSize: _, ...plain } = request.parameters;
      await assertFails("ALREADY_EXISTS", harness.create({ ...request, parameters: plain }), "requested:");
      await assertFails(
        "ALREADY_EXISTS",
        harness.create({ ...request, parameters: { volumeGroup: pv.group } }),
        `it is ${layout} of 36Mi (requested: linear)`,
      );
      await harness.csi.controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
      assertEquals((await pv.read()).cacheFree, pv.cacheFree);
    }
  });

  contractTest(
    host,
    "a physical volume for caches takes nothing else, and its space counts for nothing else",
    async (harness) => {
      const largestOf = async (parameters: Record<string, string>) =>
        (await harness.csi.controller.getCapacity({ parameters })).maximumVolumeSize ?? 0n;
      const [, volumeGroup] = harness.groups;
      const all = await largestOf({ volumeGroup });
      assertEquals(await largestOf({ volumeGroup, layout: "cache", cacheSize: CACHE_SIZE }), 0n);
      const none = createVolume(harness, { volumeGroup, layout: "cache", cacheSize: CACHE_SIZE });
      await assertFails("RESOURCE_EXHAUSTED", none, "no physical volume has the tag denolith.cache");
      await using pv = await cachePv(harness);
      const largest = await largestOf({ volumeGroup });
      assertEquals(largest, all - pv.cacheFree);
      assertEquals(await largestOf({ volumeGroup, layout: "writecache", cacheSize: CACHE_SIZE }), largest);
      assertEquals(await largestOf({ volumeGroup, layout: "writecache", cacheSize: "8Gi" }), 0n);
      const tooLarge = createVolume(harness, { volumeGroup, layout: "cache", cacheSize: "8Gi" });
      await assertFails("RESOURCE_EXHAUSTED", tooLarge, "its cache takes 8 GiB, but no physical volume with the tag");
      const striped = createVolume(harness, { volumeGroup, layout: "striped", stripes: "5" });
      await assertFails("RESOURCE_EXHAUSTED", striped, "only 4 of 5 have that free");

      const volumeId = await createVolume(harness, { volumeGroup }, largest - 40n * MiB);
      const { snapshot } = await harness.csi.controller.createSnapshot({
        ...{ name: "one", sourceVolumeId: volumeId, parameters: { snapSize: "20Mi" } },
      });
      assertEquals((await pv.read()).cacheFree, pv.cacheFree);
      await harness.csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      await harness.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: largest } });
      assertEquals((await pv.read()).cacheFree, pv.cacheFree);
      const cached = createVolume(harness, { volumeGroup, layout: "cache", cacheSize: CACHE_SIZE });
      await assertFails("RESOURCE_EXHAUSTED", cached, "0 B free");
      await harness.csi.controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(host, "no data of a deleted volume is left on a physical volume for caches", async (harness) => {
    await using pv = await cachePv(harness);
    const { path } = await pv.read();
    const size = 128n * MiB;
    /** Creates an LV where caches begin, which shows what is there. */
    const createProbe = async () => {
      await harness.runAsAdmin(
        "lvm",
        ...["lvcreate", "--yes", "--zero", "n", "--wipesignatures", "n", "--name", "probe", "--size"],
        ...[`${size}b`, pv.group, path],
      );
      return {
        devicePath: (await harness.singleLv()).devicePath,
        [Symbol.asyncDispose]: async () => {
          await harness.runAsAdmin("lvm", "lvremove", "--yes", `${pv.group}/probe`);
        },
      };
    };
    {
      // LVs that were not of the driver may have left data
      await using probe = await createProbe();
      await harness.runAsAdmin("blkdiscard", "--zeroout", "--offset", "0", "--length", `${size}`, probe.devicePath);
    }
    for (const layout of TYPES) {
      const parameters = { layout, cacheSize: CACHE_SIZE, volumeGroup: pv.group };
      const capacityRange = { requiredBytes: 32n * MiB };
      const volumeId = await harness.create({ parameters, capacityRange, volumeCapabilities: [blockCapability()] });
      await writeRandom(harness);
      await harness.csi.controller.deleteVolume({ volumeId });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
      await using _probe = await createProbe();
      assert(await isZeroed(harness), `${layout}: an LV in the place of the cache shows what was in it`);
    }
  });

  contractTest(
    host,
    "a volume with a cache is staged, grown in use, and has no snapshots or clones",
    async (harness) => {
      await using pv = await cachePv(harness);
      const { controller, node } = harness.csi;
      for (const layout of TYPES) {
        const parameters = { layout, cacheSize: CACHE_SIZE, volumeGroup: pv.group };
        const volumeId = await harness.create({ parameters, volumeCapabilities: [mountCapability("ext4")] });
        const stagingTargetPath = await harness.stage(volumeId);
        const words = `is ${layout} of 32Mi, and the driver takes no snapshots of such a volume`;
        await assertFails(
          "FAILED_PRECONDITION",
          controller.createSnapshot({ name: "one", sourceVolumeId: volumeId }),
          words,
        );
        const clone = { volumeContentSource: { type: { case: "volume", value: { volumeId } } } } as const;
        await assertFails("FAILED_PRECONDITION", harness.create({ ...clone, capacityRange: undefined }), words);
        await controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n * MiB } });
        await node.nodeExpandVolume({ volumeId, volumePath: stagingTargetPath, stagingTargetPath });
        await node.nodeUnstageVolume({ volumeId, stagingTargetPath });
        const lv = await harness.singleLv();
        assertEquals([lv.size, layoutOf(lv)], [64n * MiB, { type: layout, cacheSize: 32n * MiB }]);
        assertEquals(pvsOf(lv).includes(pv.uuid), false);
        await controller.deleteVolume({ volumeId });
        await harness.waitUntilIdle();
        assertEquals(await harness.lvs(), []);
      }
    },
  );

  contractTest(
    host,
    "a volume whose cache has no space any more when it is made is refused as one for which there is none, and leaves nothing",
    async (harness) => {
      await using pv = await cachePv(harness);
      const { path } = await pv.read();
      const run = harness.exec.run.bind(harness.exec);
      let isTaken = false;
      harness.exec.run = async (command) => {
        if (!isTaken && command.args[0] === "lvcreate") {
          isTaken = true;
          const size = [`${pv.cacheFree - 16n * MiB}b`, "--name", "thief", pv.group, path];
          await harness.runAsAdmin("lvm", ...[
            "lvcreate",
            "--yes",
            "--zero",
            "n",
            "--wipesignatures",
            "n",
            "--size",
            ...size,
          ]);
        }
        return await run(command);
      };
      const parameters = { layout: "cache", cacheSize: CACHE_SIZE, volumeGroup: pv.group };
      await assertFails("RESOURCE_EXHAUSTED", harness.create({ name: "one", parameters }));
      harness.exec.run = run;
      assertEquals([isTaken, (await harness.singleLv()).name], [true, "thief"]);
      await harness.runAsAdmin("lvm", "lvremove", "--yes", `${pv.group}/thief`);
      await harness.create({ name: "one", parameters });
      await harness.csi.controller.deleteVolume({ volumeId: volumeIdOf("one") });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
    },
  );

  contractTest(
    host,
    "a volume is filled from a snapshot below a cache, and not below a writecache",
    async (harness) => {
      await using pv = await cachePv(harness);
      const { controller } = harness.csi;
      const source = await createVolume(harness, { volumeGroup: pv.group });
      await writeRandom(harness);
      const { snapshot } = await controller.createSnapshot({ name: "first", sourceVolumeId: source });
      const volumeContentSource = { type: { case: "snapshot", value: { snapshotId: snapshot!.snapshotId } } } as const;
      const restore = (layout: string) =>
        harness.create({
          ...{
            volumeContentSource,
            volumeCapabilities: [blockCapability()],
            capacityRange: { requiredBytes: 32n * MiB },
          },
          parameters: { layout, cacheSize: CACHE_SIZE, volumeGroup: pv.group },
        });
      await assertFails("INVALID_ARGUMENT", restore("writecache"), "parameter layout writecache: ");
      const volumeId = await restore("cache");
      const names = [source, volumeId].map((id) => volumeLvName(id as ReturnType<typeof volumeIdOf>));
      const lvs = await harness.lvs();
      assertEquals(names.map((name) => lvs.find((lv) => lv.name === name)?.segment.type), ["linear", "cache"]);
      await controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });
      for (const id of [source, volumeId]) await controller.deleteVolume({ volumeId: id });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
    },
  );

  for (const layout of TYPES) {
    contractTest(
      host,
      `a volume whose ${layout} is on a missing disk is not used, and is erased when the disk is back`,
      async (harness, machine) => {
        await using pv = await cachePv(harness, 0);
        const parameters = { layout, cacheSize: CACHE_SIZE, volumeGroup: pv.group };
        const volumeId = await harness.create({ parameters, volumeCapabilities: [blockCapability()] });
        await writeRandom(harness);
        await harness.runAsAdmin("lvm", "lvchange", "--activate", "n", (await harness.singleLv()).path);
        const isErasure = (command: string) => command.startsWith("blkdiscard");
        {
          await using _missing = await machine.detachPv!(pv.group);
          const stage = harness.stage(volumeId, blockCapability());
          await assertFails("FAILED_PRECONDITION", stage, "partial LV");
          const commands = await harness.exec.recordCommands(async () => {
            await harness.csi.controller.deleteVolume({ volumeId });
            await harness.waitUntilIdle();
          });
          assertEquals(commands.filter(isErasure), []);
          assert((await harness.singleLv()).tags.includes(`denolith.deleted=${volumeId}`));
        }
        const commands = await harness.exec.recordCommands(async () => {
          await using restarted = await harness.restart();
          assertEquals(await restarted.lvs(), []);
        });
        assertEquals(commands.filter(isErasure).length, 2, "the volume, and its cache");
      },
    );
  }

  contractTest(
    host,
    "what an interrupted creation left of a volume and its cache is removed, and both are made again",
    async (harness) => {
      await using pv = await cachePv(harness);
      const id = volumeIdOf("one");
      const tags = (...more: string[]) =>
        [`denolith=${harness.driverName}`, ...more].flatMap((tag) => ["--addtag", tag]);
      const { path } = await pv.read();
      const cacheName = `cache-${volumeLvName(id).slice("vol-".length)}`;
      const create = (name: string, more: string[], disks: string[]) =>
        harness.runAsAdmin(
          "lvm",
          ...["lvcreate", "--yes", "--name", name, "--size", `${32n * MiB}b`, ...more, pv.group, ...disks],
        );
      await create(cacheName, tags(`denolith.cache=${id}`), [path]);
      await create(
        volumeLvName(id),
        tags(`denolith.volume=${id}`, "denolith.fs=unformatted:ext4", "denolith.cached"),
        [],
      );
      const request = { name: "one", parameters: { layout: "cache", cacheSize: CACHE_SIZE, volumeGroup: pv.group } };
      assertEquals(await harness.create(request), id);
      await harness.waitUntilIdle();
      const lv = await harness.singleLv();
      assertEquals([lv.name, layoutOf(lv)], [volumeLvName(id), { type: "cache", cacheSize: 32n * MiB }]);
      assertEquals((await pv.read()).cacheFree, pv.cacheFree - 32n * MiB);
      await harness.csi.controller.deleteVolume({ volumeId: id });
      await harness.waitUntilIdle();
      assertEquals(await harness.lvs(), []);
    },
  );
}

/** A physical volume for caches, until it is disposed of. */
interface CachePv extends AsyncDisposable {
  readonly group: string;
  readonly uuid: string;
  /** The space for caches, in bytes. */
  readonly cacheFree: bigint;
  /** Returns what LVM reports now. */
  readonly read: () => Promise<PhysicalVolume>;
}

/** Makes a disk of the second group one for caches. */
async function cachePv(harness: Harness, index = 1): Promise<CachePv> {
  const [, group] = harness.groups;
  const pvs = async () => (await harness.report()).find(({ name }) => name === group)!.pvs;
  const { path, uuid } = (await pvs())[index]!;
  const read = async () => (await pvs()).find((pv) => pv.uuid === uuid)!;
  await harness.runAsAdmin("lvm", "pvchange", "--addtag", "denolith.cache", path);
  const { cacheFree, free } = await read();
  assertEquals(free, 0n);
  return {
    ...{ group, uuid, read, cacheFree: cacheFree! },
    [Symbol.asyncDispose]: async () => {
      await harness.runAsAdmin("lvm", "pvchange", "--deltag", "denolith.cache", path);
    },
  };
}

function pvsOf({ pvSegments }: LogicalVolume): string[] {
  return pvSegments.map(({ pvUuid }) => pvUuid);
}
